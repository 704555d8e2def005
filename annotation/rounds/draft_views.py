"""Researchers' pages on which rounds are made: form, plan, draft, preview."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from annotation.gold.services import confirmed_counts
from annotation.judging.assigned_tasks import PAGES, most_for, statement_of
from annotation.judging.forms import ReportForm
from annotation.models import LONGEST_COMMENT, Annotator, JudgmentTask, Label, Layout, Limits, Round, StudyMember
from annotation.quality.limits import limits_sentence
from annotation.rounds.builder import find_relation, freeze
from annotation.rounds.forms import DescriptionForm, RelationInstructionsForm, RoundForm, form_values, job_choices
from annotation.rounds.instructions import instructions_html, markdown_html
from annotation.rounds.plan import plan_of, plan_round
from annotation.rounds.services import (
    clone_round,
    create_draft,
    delete_draft,
    edit_draft,
    lock_draft,
    open_draft,
    open_round,
)
from annotation.rounds.spec import RoundSpec, parse_round_spec
from kgharvest.access import researcher_required
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, Relation

FILTERS = ("find", "set", "lm", "setting")


# -- the form ----------------------------------------------------------------------------------------------------------


@researcher_required
def round_new(request: HttpRequest) -> HttpResponse:
    initial = {"jobs": request.GET.getlist("job")}
    return fill_in(request, round_form(request, request.POST or None, initial), None)


@researcher_required
def round_edit(request: HttpRequest, name: str) -> HttpResponse:
    """Change a draft: in the form if that can show all of it, else as JSON."""
    draft = get_draft(request, name)
    spec = parse_round_spec(draft.spec)
    initial = form_values(spec)
    if initial is None or "json" in request.GET:
        return describe(request, draft, spec)
    return fill_in(request, round_form(request, request.POST or None, initial), draft)


def round_form(request: HttpRequest, sent: Any, initial: dict[str, Any]) -> RoundForm:
    return RoundForm(sent, initial=initial, study=usual_study(request.user))


def fill_in(request: HttpRequest, form: RoundForm, draft: Round | None) -> HttpResponse:
    """Show the form, or do what its button says: filter the harvests, plan, keep a draft or open the round."""
    action = request.POST.get("action", "draft")
    if request.method == "POST" and action in ("draft", "open") and form.is_valid():
        try:
            guides = draft.spec.get("relation_instructions", {}) if draft else {}
            document = form.document() | {"relation_instructions": guides}
            return redirect(keep(request, document, draft, is_opened=action == "open"))
        except DomainError as refusal:
            form.add_error(None, str(refusal))
    context = choice_context(request, form) | {"form": form, "draft": draft}
    if action == "plan":
        context |= plan_context(form)
    if action in ("filter", "plan"):
        # Shown as it stands and without complaints: one may look before everything is filled in.
        context["form"] = round_form(request, None, {name: form[name].data for name in form.fields})
    return render(request, "annotation/rounds/round_form.html", context)


def keep(request: HttpRequest, document: Any, draft: Round | None, is_opened: bool) -> Round:
    if is_opened and draft is None:
        round = open_round(document, request.user)
    else:
        round = edit_draft(draft, document, request.user) if draft else create_draft(document, request.user)
        round = open_draft(round, request.user) if is_opened else round
    if is_opened:
        messages.success(request, f"The round {round.name} is open with {round.n_tasks} statements.")
    return round


def choice_context(request: HttpRequest, form: RoundForm) -> dict[str, Any]:
    # PostgreSQL fails when asked for a NUL.
    asked = {name: request.POST.get(name, "").replace("\x00", "").strip() for name in FILTERS}
    chosen = {str(pk) for pk in form["jobs"].value() or () if str(pk).isdecimal()}
    jobs, n_jobs = job_choices(asked, chosen)
    everything = HarvestJob.objects.succeeded().filter(n_tuples__gt=0).order_by()
    return {
        "asked": asked,
        "jobs": [(job, str(job.pk) in chosen) for job in jobs],
        "n_jobs": n_jobs,
        "n_chosen": len(chosen),
        "is_filtered": any(asked.values()),
        "sets": everything.values_list("relation__relation_set__name", flat=True).distinct(),
        "lms": everything.values_list("language_model__name", flat=True).distinct(),
        "settings": everything.values_list("setting", flat=True).distinct(),
    }


def plan_context(form: RoundForm) -> dict[str, Any]:
    """Return the plan of what the form says, or why there is none."""
    if not form.is_valid():
        missing = ", ".join(form.fields[name].label or name for name in form.errors if name in form.fields)
        return {"no_plan": f"The plan waits for: {missing}."}
    try:
        return {"plan": plan_round(parse_round_spec(form.document()), form.accuracy())}
    except DomainError as refusal:
        return {"no_plan": str(refusal)}


@researcher_required
@require_POST
def round_plan(request: HttpRequest) -> HttpResponse:
    """Return the plan alone, for the script of the form. A name is not needed yet."""
    asked = request.POST.copy()
    asked["name"] = "plan-1"
    return render(request, "annotation/rounds/_plan.html", plan_context(RoundForm(asked)))


def describe(request: HttpRequest, draft: Round, spec: RoundSpec) -> HttpResponse:
    form = DescriptionForm(request.POST or None, initial={"description": described(spec)})
    if form.is_valid():
        try:
            return redirect(edit_draft(draft, form.document(), request.user))
        except DomainError as refusal:
            form.add_error(None, str(refusal))
    return render(request, "annotation/rounds/round_describe.html", {"form": form, "draft": draft})


def described(spec: RoundSpec) -> str:
    return json.dumps(spec.document(), ensure_ascii=False, indent=2)


def usual_study(user) -> str:
    """Return the name of the study that the user last joined as one who opens rounds, else of one of their own."""
    managed = StudyMember.objects.filter(user=user, role__in=StudyMember.MANAGING).order_by("pk").last()
    return managed.study.name if managed else user.get_username()


# -- a draft -----------------------------------------------------------------------------------------------------------


def get_draft(request: HttpRequest, name: str) -> Round:
    return get_object_or_404(Round.objects.managed_by(request.user).filter(status=Round.Status.DRAFT), name=name)


def draft_page(request: HttpRequest, draft: Round) -> HttpResponse:
    """Show what opening the draft would do; the round's own page until it is opened."""
    spec = parse_round_spec(draft.spec)
    context: dict[str, Any] = {
        "round": draft,
        "spec": spec,
        "can_manage": Round.objects.managed_by(request.user).filter(pk=draft.pk).exists(),
        "description": described(spec),
        "gold_percent": round(100 * spec.gold_share),
        "limits": limits_sentence(Limits(**spec.limits)),
        "dominance_percent": spec.dominance_cap and round(100 * spec.dominance_cap),
    }
    try:
        frozen = freeze(draft, spec)
    except DomainError as refusal:
        context |= {"no_plan": str(refusal), "relations": relations_with_gold(cells_relations(spec), draft)}
    else:
        draft.relation_instructions = frozen.guides
        relations = {sample.stratum.relation_id: sample.stratum.relation for sample in frozen.samples}
        context |= {"plan": plan_of(spec, frozen), "relations": relations_with_gold(relations.values(), draft)}
    return render(request, "annotation/rounds/round_draft.html", context)


def cells_relations(spec: RoundSpec) -> QuerySet:
    """Return the relations of the cells that name a job: those of a draft that cannot be drawn yet."""
    jobs = [cell.job for cell in spec.cells if cell.job]
    return Relation.objects.filter(jobs__in=jobs).select_related("relation_set").distinct()


def relations_with_gold(relations: Iterable[Relation], draft: Round) -> list[dict[str, Any]]:
    relations = sorted(relations, key=lambda relation: relation.path)
    n_confirmed = confirmed_counts(relations)
    return [
        {
            "relation": relation,
            "instructions": instructions_html(draft, relation),
            "n_true": len(relation.seed_tuples),
            "n_false": n_confirmed.get(relation.pk, 0),
        }
        for relation in relations
    ]


@researcher_required
@require_POST
def round_open(request: HttpRequest, name: str) -> HttpResponse:
    draft = get_draft(request, name)
    try:
        round = open_draft(draft, request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"The round {round.name} is open with {round.n_tasks} statements.")
    return redirect(draft)


@researcher_required
def round_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Ask first."""
    draft = get_draft(request, name)
    if request.method == "POST":
        delete_draft(draft)
        messages.success(request, f"The draft {name} is deleted.")
        return redirect("annotation:round_list")
    return render(request, "annotation/rounds/round_delete.html", {"round": draft})


@researcher_required
@require_POST
def round_clone(request: HttpRequest, name: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    try:
        clone = clone_round(round, request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(round)
    messages.success(
        request, f"This is a draft with the description of {round.name}, a name of its own and seed {clone.seed}."
    )
    return redirect(clone)


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


@researcher_required
def relation_instructions(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    """Show and change what annotators read about a relation. An empty text brings the usual one back."""
    draft = get_draft(request, name)
    try:
        relation, usual = usual_words(draft, pk)
        written = words_by_relation(draft)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(draft)
    form = RelationInstructionsForm(request.POST or None, initial={"instructions": written.get(pk, usual)})
    if form.is_valid():
        text = form.cleaned_data["instructions"]
        try:
            save_instructions(draft, relation, "" if text == usual else text, request.user)
        except DomainError as refusal:
            messages.error(request, str(refusal))
            return redirect(draft)
        messages.success(request, f"Annotators will read this about {relation.name}.")
        return redirect("annotation:relation_instructions", name, pk)
    draft.relation_instructions = {str(pk): written.get(pk, usual)}
    context = {
        "round": draft,
        "relation": relation,
        "form": form,
        "is_usual": pk not in written,
        "instructions": instructions_html(draft, relation),
    }
    return render(request, "annotation/rounds/relation_instructions.html", context)


def usual_words(draft: Round, pk: int) -> tuple[Relation, str]:
    """Return a relation of the draft, and what the round says about it if nobody writes anything else."""
    frozen = freeze(draft, replace(parse_round_spec(draft.spec), relation_instructions={}))
    relations = {sample.stratum.relation_id: sample.stratum.relation for sample in frozen.samples}
    if pk not in relations:
        raise Http404("The draft samples no such relation.")
    return relations[pk], frozen.guides[str(pk)]


def words_by_relation(draft: Round) -> dict[int, str]:
    """Return what is written, by the id of a relation. Raises NotFound if one is gone."""
    written = draft.spec.get("relation_instructions", {})
    return {find_relation(name, "relation_instructions").pk: text for name, text in written.items() if text}


def save_instructions(draft: Round, relation: Relation, text: str, by) -> None:
    """Store words about a relation beside those about others, which somebody may be writing now; "" is the usual ones.

    Raises WrongStatus for a round that is open by now, NotFound if a relation is gone.
    """
    with transaction.atomic():
        draft = lock_draft(draft)
        words = words_by_relation(draft) | {relation.pk: text}
        relations = Relation.objects.select_related("relation_set").in_bulk(words)
        named = {relations[pk].path: text for pk, text in words.items() if text}
        edit_draft(draft, draft.spec | {"relation_instructions": named}, by)
