"""A draft as its annotators will see it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from annotation.judging.assigned_tasks import PAGES, most_for, statement_of
from annotation.judging.forms import ReportForm
from annotation.models import LONGEST_COMMENT, Annotator, JudgmentTask, Label, Layout, Round
from annotation.rounds.draft_views import get_draft
from annotation.rounds.freezing import freeze
from annotation.rounds.instructions import instructions_html, markdown_html
from annotation.rounds.spec import parse_round_spec
from kgharvest.access import researcher_required
from kgharvest.errors import DomainError


@researcher_required
def round_preview(request: HttpRequest, name: str) -> HttpResponse:
    """Show the page of somebody new. Nothing is stored: `?n=` steps through the first statements."""
    draft = get_draft(request, name)
    try:
        frozen = freeze(draft, parse_round_spec(draft.spec))
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(draft)
    draft.relation_instructions, draft.n_tasks = frozen.guides, len(frozen.statements)
    page = in_hand(draft, frozen.statements[: draft.batch_size]).get_page(request.GET.get("n"))
    context = {
        "layout_template": PAGES[draft.layout],
        "page_obj": page,
        "guides": guides(draft, page),
        "consent": markdown_html(draft.consent),
        "training": frozen.training,
    }
    return render(request, "annotation/rounds/round_preview.html", context | judging_context(request, draft, page))


def in_hand(draft: Round, first: list[JudgmentTask]) -> Paginator:
    """Return the first statements as they come into sight: in the layout of the draft one by one, or all."""
    return Paginator(first, len(first) if draft.layout == Layout.PAGE else 1)


def guides(draft: Round, page: Page) -> list[tuple[str, Any]]:
    """Return what is told about each relation of the statements in sight."""
    relations = {task.knowledge_tuple.relation for task in page}
    in_order = sorted(relations, key=lambda relation: relation.name)
    return [(relation.name, instructions_html(draft, relation)) for relation in in_order]


def judging_context(request: HttpRequest, draft: Round, page: Page) -> dict[str, Any]:
    """Return what the judging page of somebody new shows, but for addresses of statements that are not stored."""
    return {
        "round": draft,
        "annotator": Annotator(round=draft, user=None if draft.takes_guests else request.user),
        "labels": Label,
        "report_form": ReportForm(prefix="report"),
        "longest_comment": LONGEST_COMMENT,
        "rows": [statement_of(task) | {"task": place} for place, task in enumerate(page)],
        "n_left": most_for(draft),
        "is_preview": True,
    }
