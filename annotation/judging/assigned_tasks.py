"""What an annotator's page shows: the next statements in either layout, the last answers, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.judging.forms import ReportForm
from annotation.judging.judgments import n_skipped, recent_judgments
from annotation.models import LONGEST_COMMENT, Annotator, Judgment, JudgmentTask, Label, Layout, Round
from annotation.rounds.instructions import instructions_html

N_RECENT = 5
PAGES = {Layout.ONE: "annotation/judging/judge.html", Layout.PAGE: "annotation/judging/judge_page.html"}

Drafts = Mapping[str, Mapping[str, str]]  # what was sent of a statement and refused, by the task's id


def show_statements(
    request: HttpRequest,
    annotator: Annotator,
    given: Judgment | None = None,
    drafts: Drafts | None = None,
    status: int = 200,
) -> HttpResponse:
    """Show the statements in hand; one that was judged before, `given`, comes alone or first."""
    tasks = next_batch(annotator, timezone.now())
    annotator.refresh_from_db(fields=["n_judged"])
    layout = Layout.ONE if given else annotator.layout or annotator.round.layout
    statements = [answered_statement(given)] if given else []
    statements += [statement_of(task) for task in tasks]
    recent = [judgment for judgment in recent_judgments(annotator, N_RECENT) if judgment != given]
    context = {
        "round": annotator.round,
        "annotator": annotator,
        "instructions": instructions_html(annotator.round),
        "labels": Label,
        "report_form": ReportForm(prefix="report"),
        "longest_comment": LONGEST_COMMENT,
        "statements": statements,
        "rows": [_row(statement, drafts or {}) for statement in statements],
        "given": given,
        "recent": recent,
        "earlier": [answered_statement(judgment) for judgment in reversed(recent)],
        "n_left": max(most_for(annotator.round) - annotator.n_judged, len(tasks)),
        "n_skipped": 0 if tasks else n_skipped(annotator),
    }
    name = PAGES[layout] if statements else "annotation/judging/judge_done.html"
    return render(request, name, context, status=status)


def most_for(round: Round) -> int:
    """Return how many statements one annotator may judge at most."""
    return round.n_tasks if round.quota is None else min(round.n_tasks, round.quota)


def statement_of(task: JudgmentTask) -> dict[str, Any]:
    """Return all that an annotator's browser learns about a task."""
    return {"task": task.pk, "parts": task.parts}


def answered_statement(judgment: Judgment) -> dict[str, Any]:
    return statement_of(judgment.task) | {"label": judgment.label, "comment": judgment.comment}


def _row(statement: dict[str, Any], drafts: Drafts) -> dict[str, Any]:
    """Return a statement as a form shows it, with a UUID for the answer."""
    return {"client_uuid": uuid4(), **statement, **drafts.get(str(statement["task"]), {})}
