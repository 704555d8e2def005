"""Pages of drafts: the form with the plan, the draft, the preview, and the instructions of a relation."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.http import require_POST

from annotation.gold.candidates import confirmed_counts
from annotation.judges.runs import AnswersWouldBeLost, usage_of
from annotation.judging.views import PAGES, report_fields
from annotation.models import LONGEST_COMMENT, Annotator, Label, Layout, Limits, Round
from annotation.questionnaire.questions import check_questions, who_questions
from annotation.rounds.builder import freeze_round, instructions_by_relation
from annotation.rounds.forms import DescriptionForm, RelationInstructionsForm, RoundForm, form_values, job_choices
from annotation.rounds.instructions import instructions_html, markdown_html
from annotation.rounds.plan import plan_round
from annotation.rounds.serializers import round_from_spec
from annotation.rounds.services import (
    clone_round,
    create_draft,
    default_instructions,
    delete_draft,
    edit_draft,
    free_name,
    open_draft,
    open_round,
    save_instructions,
)
from kgharvest.access import Action, allowed_actions, researcher_required, visible_or_404, worker_required
from kgharvest.accounts.forms import chosen_project, offer_projects
from kgharvest.bulk.pagination import number_in
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, Relation
from kgharvest.pages.refusals import page_text, refusal_as_message, refusal_in_form

FILTERS = ("find", "set", "lm", "setting")


@worker_required
def round_new(request: HttpRequest) -> HttpResponse:
    """Show the form for a new round, prefilled with the harvests in the query parameter `job` or `launch`."""
    jobs = HarvestJob.objects.visible_to(request.user).with_cell().succeeded().filter(n_tuples__gt=0)
    if launch := number_in(request.GET.get("launch")):
        jobs = jobs.filter(launch=launch)
    else:
        jobs = jobs.filter(pk__in=[pk for text in request.GET.getlist("job") if (pk := number_in(text))])
    return show_round_form(request, None, first_values(list(jobs.select_related("project"))))


def first_values(jobs: Sequence[HarvestJob]) -> dict[str, Any]:
    """Return the initial values of the form.

    Annotators see the name, so the name does not reveal the LM or the setting.
    """
    if not jobs or jobs[0].project is None:
        return {"jobs": [str(job.pk) for job in jobs]}
    n = min(RoundForm.base_fields["n"].initial, *(job.n_tuples for job in jobs))
    relations, sets = {job.relation.name for job in jobs}, {job.relation.relation_set.name for job in jobs}
    [stem] = relations if len(relations) == 1 else sets if len(sets) == 1 else ["round"]
    project = jobs[0].project
    name = free_name(project, slugify(stem) or "round")
    return {"jobs": [str(job.pk) for job in jobs], "name": name, "project": project.slug, "n": n}


@researcher_required
def round_edit(request: HttpRequest, path: str) -> HttpResponse:
    """Edit a draft in the form, or as JSON if the form cannot represent it."""
    draft = get_draft(request, path)
    initial = form_values(draft)
    if initial is not None and "json" not in request.GET:
        return show_round_form(request, draft, initial)
    form = DescriptionForm(request.POST or None, initial={"description": as_json(draft.spec)})
    if form.is_valid():
        with refusal_in_form(form):
            return redirect(edit_draft(draft, form.cleaned_data["description"], request.user))
    return render(request, "annotation/rounds/drafts/round_edit_json.html", {"form": form, "draft": draft})


def show_round_form(request: HttpRequest, draft: Round | None, initial: dict[str, Any]) -> HttpResponse:
    """Show the form, or perform the submitted action: filter harvests, plan, save a draft, or open the round."""
    form = round_form(request, request.POST or None, initial)
    action = request.POST.get("action", "draft")
    if request.method == "POST" and action in ("draft", "open") and form.is_valid():
        with refusal_in_form(form):
            chosen_project(form, request)
            return redirect(save_round(request, form.document(draft and draft.spec), draft, action == "open"))
    context = choice_context(request, form) | {"draft": draft}
    if action == "plan":
        context |= plan_context(form, request.user, draft)
    if action in ("filter", "plan"):
        # Use an unbound form: an incomplete form must not show errors yet.
        form = round_form(request, None, {name: form[name].data for name in form.fields})
    groups = list(form.groups())
    context |= {"form": form, "groups": groups, "is_advanced": any(is_open for *_, is_open in groups)}
    return render(request, "annotation/rounds/drafts/round_form.html", context)


def round_form(request: HttpRequest, sent: QueryDict | None, initial: dict[str, Any] | None = None) -> RoundForm:
    form = RoundForm(sent, initial=initial)
    form.fields["jobs"].queryset = form.fields["jobs"].queryset.visible_to(request.user)
    offer_projects(form, request)
    return form


def save_round(request: HttpRequest, document: dict[str, Any], draft: Round | None, is_opened: bool) -> Round:
    if draft is None and is_opened:
        round = open_round(document, request.user)
    else:
        round = create_draft(document, request.user) if draft is None else edit_draft(draft, document, request.user)
        if is_opened:
            round = open_draft(round, request.user, document.get("confirm_noise", False))
    if is_opened:
        messages.success(request, f"Round {round.name} opened with {round.n_tasks} statements.")
    return round


def choice_context(request: HttpRequest, form: RoundForm) -> dict[str, Any]:
    # PostgreSQL rejects NUL characters.
    filters = {name: request.POST.get(name, "").replace("\x00", "").strip() for name in FILTERS}
    chosen = {str(pk) for pk in form["jobs"].value() or () if number_in(str(pk))}
    jobs, n_jobs = job_choices(filters, chosen, request.user)
    all_jobs = HarvestJob.objects.visible_to(request.user).succeeded().filter(n_tuples__gt=0).order_by()
    return {
        "filters": filters,
        "jobs": [(job, str(job.pk) in chosen) for job in jobs],
        "needs_confirmation": any(job.noise_warning for job in jobs if str(job.pk) in chosen),
        "n_jobs": n_jobs,
        "n_chosen": len(chosen),
        "is_filtered": any(filters.values()),
        "sets": all_jobs.values_list("relation__relation_set__name", flat=True).distinct(),
        "lms": all_jobs.values_list("language_model__name", flat=True).distinct(),
        "settings": all_jobs.values_list("setting", flat=True).distinct(),
    }


def plan_context(form: RoundForm, user, draft: Round | None) -> dict[str, Any]:
    """Return the plan of the submitted form, or the reason why there is none. draft: the edited draft, if any."""
    if not form.is_valid():
        missing = ", ".join(form.fields[name].label or name for name in form.errors if name in form.fields)
        return {"no_plan": f"Complete these fields to see the plan: {missing}."}
    try:
        planned = round_from_spec(form.document(draft and draft.spec))
        planned.pk = draft and draft.pk  # to find its judge runs
        return {"plan": plan_round(planned, form.accuracy(), by=user, wish=form.wish())}
    except DomainError as refusal:
        return {"no_plan": page_text(refusal)}


@worker_required
@require_POST
def round_plan(request: HttpRequest) -> HttpResponse:
    """Return only the plan, for the script of the form. The form may lack a name."""
    posted = request.POST.copy()
    posted["name"] = "plan-1"
    path = request.GET.get("draft", "").replace("\x00", "")
    draft = get_draft(request, path) if path else None
    context = plan_context(round_form(request, posted), request.user, draft)
    return render(request, "annotation/rounds/drafts/_plan.html", context)


def as_json(spec: dict[str, Any]) -> str:
    return json.dumps(spec, ensure_ascii=False, indent=2)


def get_draft(request: HttpRequest, path: str) -> Round:
    drafts = Round.objects.filter(status=Round.Status.DRAFT).select_related("project").at(path)
    return visible_or_404(request.user, drafts, Action.WORK)


def draft_page(request: HttpRequest, draft: Round) -> HttpResponse:
    """Show the page of a draft with its plan."""
    context: dict[str, Any] = {
        "round": draft,
        "may": allowed_actions(request.user, draft.project),
        "description": as_json(draft.spec),
        "limits": Limits(**draft.spec.get("limits", {})).sentence,
        "n_asked": len(who_questions(draft)),
        "n_checked": len(check_questions(draft)),
    }
    try:
        frozen = freeze_round(draft, request.user)
    except DomainError as refusal:
        # The relations of cells that specify a job are known even if the plan fails.
        jobs = [cell["job"] for cell in draft.spec["cells"] if "job" in cell]
        relations = Relation.objects.filter(jobs__in=jobs).select_related("relation_set").distinct()
        context |= {"no_plan": page_text(refusal), "relations": relations_with_gold(relations, draft)}
    else:
        draft.relation_instructions = frozen.relation_instructions
        context |= {
            "plan": plan_round(draft, frozen=frozen),
            "relations": relations_with_gold(frozen.relations, draft),
        }
    return render(request, "annotation/rounds/drafts/round_draft.html", context)


def relations_with_gold(relations: Iterable[Relation], draft: Round) -> list[dict[str, Any]]:
    relations = sorted(relations, key=lambda relation: relation.path)
    n_confirmed = confirmed_counts(relations, draft.project)
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
def round_open(request: HttpRequest, path: str) -> HttpResponse:
    draft = get_draft(request, path)
    with refusal_as_message(request):
        round = open_draft(draft, request.user, "confirm_noise" in request.POST)
        messages.success(request, f"Round {round.name} opened with {round.n_tasks} statements.")
    return redirect(draft)


@researcher_required
def round_delete(request: HttpRequest, path: str) -> HttpResponse:
    """Show the confirmation page with the judge answers that would be deleted, or delete the draft."""
    draft = get_draft(request, path)
    if request.method == "POST":
        try:
            delete_draft(draft, request.user, number_in(request.POST.get("judge_answers", "")) or 0)
        except AnswersWouldBeLost as refusal:
            messages.error(request, str(refusal))
            return redirect(request.path)
        messages.success(request, f"Draft {draft.name} deleted.")
        return redirect("annotation:round_list")
    runs = [(run, usage_of(run)) for run in draft.judge_runs.order_by("pk")]
    context = {
        "round": draft,
        "runs": runs,
        "n_answers": sum(used.n_answers for _, used in runs),
        "cost": sum(used.cost for _, used in runs),
        "unfinished": next((run for run, _ in runs if run.is_unfinished), None),
    }
    return render(request, "annotation/rounds/drafts/round_delete.html", context)


@researcher_required
@require_POST
def round_clone(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_or_404(request.user, Round.objects.select_related("project").at(path), Action.WORK)
    with refusal_as_message(request):
        clone = clone_round(round, request.user)
        messages.success(request, f"Draft {clone.name} created from {round.name} with seed {clone.seed}.")
        return redirect(clone)
    return redirect(round)


@researcher_required
def round_preview(request: HttpRequest, path: str) -> HttpResponse:
    """Show the judging page of a new annotator without storing anything. `n`: page number in the first batch."""
    draft = get_draft(request, path)
    try:
        frozen = freeze_round(draft, request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(draft)
    draft.relation_instructions, draft.n_tasks = frozen.relation_instructions, len(frozen.tasks)
    # Follow the layout of the draft: one statement per page, or the entire first batch on one page.
    batch = frozen.tasks[: draft.batch_size]
    page = Paginator(batch, len(batch) if draft.layout == Layout.PAGE else 1).get_page(request.GET.get("n"))
    relations = sorted({task.relation for task in page}, key=lambda relation: relation.name)
    context = {
        "layout_template": PAGES[draft.layout],
        "page_obj": page,
        "relation_instructions": [(relation.name, instructions_html(draft, relation)) for relation in relations],
        "consent": markdown_html(draft.consent),
        "training": frozen.training,
        # Context of the judging page. Positions replace tokens, because the statements are not stored.
        "round": draft,
        "annotator": Annotator(round=draft, user=None if draft.takes_guests else request.user),
        "labels": Label,
        "report_fields": report_fields(),
        "longest_comment": LONGEST_COMMENT,
        "rows": [
            {"task": position, "parts": task.parts, **(task.additions or {})} for position, task in enumerate(page)
        ],
        "n_left": draft.most_by_one,
        "is_preview": True,
    }
    return render(request, "annotation/rounds/drafts/round_preview.html", context)


@researcher_required
def relation_instructions(request: HttpRequest, path: str, pk: int) -> HttpResponse:
    """Show and edit the instructions of a relation. An empty text restores the default."""
    draft = get_draft(request, path)
    try:
        relation, default = default_instructions(draft, pk, request.user)
        edited = instructions_by_relation(draft)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(draft)
    form = RelationInstructionsForm(request.POST or None, initial={"instructions": edited.get(pk, default)})
    if form.is_valid():
        text = form.cleaned_data["instructions"]
        with refusal_as_message(request):
            save_instructions(draft, relation, "" if text == default else text, request.user)
            messages.success(request, f"Instructions for {relation.name} saved.")
            return redirect("annotation:relation_instructions", path, pk)
        return redirect(draft)
    draft.relation_instructions = {str(pk): edited.get(pk, default)}
    context = {
        "round": draft,
        "relation": relation,
        "form": form,
        "is_default": pk not in edited,
        "instructions": instructions_html(draft, relation),
    }
    return render(request, "annotation/rounds/drafts/relation_instructions.html", context)
