"""Quality pages of a round for researchers: annotators, limits, exclusions, statements, and adjudication."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from annotation.judging.reservations import release_reservation, reserve_statements
from annotation.models import Annotator, Exclusion, Judgment, JudgmentTask, Label, Limits, Round, Withdrawal
from annotation.monitoring.progress import OUTCOMES
from annotation.quality import statement_list as statement_lists
from annotation.quality.adjudication import LONGEST_REMARK, QUEUES, adjudicate, adjudication_queue
from annotation.quality.annotator_statistics import annotator_statistics, statistics_of
from annotation.quality.exclusion import exclude_annotator, exclusion_effect
from annotation.quality.limits import set_limits
from annotation.quality.statement_list import StatementFilters, with_evidence
from annotation.rounds.views import visible_round
from kgharvest.access import Action, allowed_actions, researcher_required
from kgharvest.bulk.pagination import number_in, page_of, sort_key
from kgharvest.models import Relation
from kgharvest.pages.number_format import counted
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form

AnnotatorRow = dict[str, Any]  # a row of annotator_statistics

ANNOTATOR_COLUMNS: dict[str, Callable[[AnnotatorRow], Any]] = {
    "code": lambda row: row["code"],
    "judged": lambda row: row["n"],
    "gold": lambda row: row["gold"]["value"],
    "agreement": lambda row: row["agreement"],
    "seconds": lambda row: row["median_seconds"],
    "fast": lambda row: row["too_fast"],
    "true": lambda row: row["shares"]["true"],
    "run": lambda row: row["longest_run"],
    "comments": lambda row: row["n_comments"],
    "flags": lambda row: len(row["flags"]),
}
N_COMMENTS = 20


@researcher_required
def annotator_list(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path)
    statistics = annotator_statistics(round, timezone.now())
    filters = {"q": request.GET.get("q", "").strip(), "flagged": request.GET.get("flagged", "")}
    sort = sort_key(request, ANNOTATOR_COLUMNS, "-judged")
    rows = [
        row
        for row in statistics.content
        if filters["q"].casefold() in f"{row['code']} {row['who']}".casefold()
        and (row["flags"] or not filters["flagged"])
    ]
    context = {
        "round": round,
        "page_obj": page_of(request, sorted_annotators(rows, sort)),
        "n_all": len(statistics.content),
        "is_being_counted": not statistics.content and round.annotators.exists(),
        "counted_at": statistics.counted_at,
        "filters": filters,
        "sort": sort,
        "limits": (Limits.objects.filter(round=round).first() or Limits()).sentence,
        "may": allowed_actions(request.user, round.project),
    }
    return render(request, "annotation/quality/annotator_list.html", context)


def sorted_annotators(rows: Sequence[AnnotatorRow], sort: str) -> list[AnnotatorRow]:
    """Sort rows by a column. Rows without a value come last in both directions."""
    value = ANNOTATOR_COLUMNS[sort.removeprefix("-")]
    rows_with_value = [row for row in rows if value(row) is not None]
    rows_without = [row for row in rows if value(row) is None]
    return sorted(rows_with_value, key=value, reverse=sort.startswith("-")) + rows_without


@researcher_required
def annotator_detail(request: HttpRequest, path: str, code: str) -> HttpResponse:
    round = visible_round(request, path)
    annotator = get_object_or_404(round.annotators.select_related("user", "invite"), code=code)
    judgments = Judgment.objects.current().filter(annotator=annotator)
    context = {
        "round": round,
        "annotator": annotator,
        "statistics": statistics_of(annotator, timezone.now()),
        "comments": judgments.exclude(comment="").select_related("task").order_by("-judged_at")[:N_COMMENTS],
        "reports": annotator.reports.select_related("task")[:N_COMMENTS],
        "withdrawal": Withdrawal.objects.filter(annotator=annotator).first(),
        "exclusions": annotator.exclusions.select_related("excluded_by", "reinstated_by"),
        "events": round.events.filter(annotator=annotator.code)[:N_COMMENTS],
        "may": allowed_actions(request.user, round.project),
    }
    return render(request, "annotation/quality/annotator_detail.html", context)


@researcher_required
@require_POST
def annotator_change(
    request: HttpRequest, path: str, code: str, change: Callable[..., Any], action: Action
) -> HttpResponse:
    """Apply the service function `change`, such as pause_annotator, to an annotator. action: required permission."""
    annotator = managed_annotator(request, path, code, action)
    with refusal_as_message(request):
        outcome = change(annotator, by=request.user)
        for reason in outcome if isinstance(outcome, list) else ():  # reasons why data is retained
            messages.warning(request, reason)
        if isinstance(outcome, Exclusion):
            outcome.refresh_from_db()
            n = outcome.n_left_out
            uncounted = f" {n} are not counted, because other annotators have judged these statements." if n else ""
            text = f"Annotator {outcome.annotator} reinstated. {outcome.n_counted_again} judgments count again."
            messages.success(request, text + uncounted)
    return redirect("annotation:annotator", path, code)


class ExclusionForm(forms.Form):
    reason = forms.CharField(
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Stored with the decision and shown in reports. The annotator does not see it.",
    )


@researcher_required
def annotator_exclude(request: HttpRequest, path: str, code: str) -> HttpResponse:
    annotator = managed_annotator(request, path, code)
    form = ExclusionForm(request.POST or None)
    effect = exclusion_effect(annotator)
    if form.is_valid():
        with refusal_as_message(request):
            exclusion = exclude_annotator(annotator, form.cleaned_data["reason"], by=request.user, effect=effect)
            text = f"Annotator {annotator} excluded: {exclusion.n_judgments} judgments no longer count."
            messages.success(request, text)
        return redirect("annotation:annotator", path, code)
    context = {"round": annotator.round, "annotator": annotator, "effect": effect, "form": form}
    return render(request, "annotation/quality/annotator_exclude.html", context)


class LimitsForm(forms.ModelForm):
    class Meta:
        model = Limits
        fields = Limits.OPTIONS


@researcher_required
def round_limits(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path, Action.WORK)
    form = LimitsForm(request.POST or None, instance=Limits.objects.filter(round=round).first() or Limits(round=round))
    if form.is_valid():
        limits = set_limits(round, by=request.user, **form.cleaned_data)
        messages.success(request, f"Limits of {round.name} saved: {limits.sentence}.")
        return redirect("annotation:annotator_list", path)
    return render(request, "annotation/quality/round_limits.html", {"round": round, "form": form})


def managed_annotator(request: HttpRequest, path: str, code: str, action: Action = Action.WORK) -> Annotator:
    round = visible_round(request, path, action)
    return get_object_or_404(round.annotators.select_related("round__project", "user"), code=code)


class AdjudicationForm(forms.Form):
    """Adjudication form. client_uuid: generated with the page, so that a double click is stored once."""

    task = forms.IntegerField(min_value=1, max_value=2**63 - 1)
    client_uuid = forms.UUIDField()
    label = forms.ChoiceField(choices=Label.choices)
    comment = forms.CharField(max_length=LONGEST_REMARK, required=False)


@never_cache
@researcher_required
def adjudication(request: HttpRequest, path: str) -> HttpResponse:
    """Page with one statement: `?task=` selects it, `?after=` continues after a position, `?votes=1` shows labels."""
    round = visible_round(request, path, Action.ADJUDICATE)
    queue = request.GET.get("queue", "")
    queue = "disagreements" if queue == "contested" else queue  # old URLs
    queue = queue if queue in QUEUES else "undecided"
    shows_votes = bool(request.GET.get("votes"))
    if request.method == "POST":
        return _store_adjudication(request, round, queue, shows_votes)
    tasks = adjudication_queue(round, queue)
    if pk := number_in(request.GET.get("task")):
        task = get_object_or_404(with_evidence(round.tasks.without_gold()), pk=pk)
    else:
        after = number_in(request.GET.get("after"))
        next_task = with_evidence(tasks).filter(position__gt=after).first() if after is not None else None
        task = next_task or with_evidence(tasks).first()
    context = {
        "round": round,
        "task": task,
        "n_left": tasks.count(),
        "queue": queue,
        "queues": QUEUES,
        "queue_label": QUEUES[queue],
        "shows_votes": shows_votes,
        "labels": Label,
        "client_uuid": uuid4(),
    }
    return render(request, "annotation/quality/adjudication.html", context)


def _store_adjudication(request: HttpRequest, round: Round, queue: str, shows_votes: bool) -> HttpResponse:
    form = AdjudicationForm(request.POST)
    if not form.is_valid():
        raise BadRequest("Invalid adjudication. Reload the page and submit it again.")
    answer = form.cleaned_data
    task = get_object_or_404(round.tasks.without_gold(), pk=answer.pop("task"))
    stored = adjudicate(task, by=request.user, is_blind=not shows_votes, **answer)
    messages.success(request, f"Adjudicated as {stored.get_label_display()}: {task.statement}")
    query = urlencode({"queue": queue, "votes": "1" if shows_votes else "", "after": task.position})
    return redirect(f"{reverse('annotation:adjudication', args=[round.path])}?{query}")


STATEMENT_LISTS = {
    "disagreements": "disagreements",
    "all": "all",
    "reported": "reported",
    "commented": "with comments",
    "adjudicated": "adjudicated",
    "gold": "gold",
}


@researcher_required
def statement_list(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path)
    filters = {key: request.GET.get(key, "") for key in ("show", "relation", "pattern", "verdict", "side")}
    filters["show"] = filters["show"] if filters["show"] in STATEMENT_LISTS else "disagreements"
    sides = statement_lists.round_sides(round)
    if filters["side"] not in dict(sides):  # arbitrary parameters must not create cached counts
        filters["side"] = ""
    statement_filters = StatementFilters.from_address(filters)
    groups, counted_at = statement_lists.statement_groups(round, statement_filters.side)
    context = {
        "round": round,
        "filters": filters,
        "is_filtered": filters != dict.fromkeys(filters, "") | {"show": "disagreements"},
        "lists": STATEMENT_LISTS,
        "relations": Relation.objects.filter(strata__round=round).distinct().order_by("name"),
        "patterns": statement_lists.disagreement_patterns(groups),
        "sides": sides,
        "counted_at": counted_at,
        "outcomes": OUTCOMES,
        "may": allowed_actions(request.user, round.project),
    }
    if filters["show"] == "disagreements":
        page = statement_lists.disagreement_page(round, statement_filters, groups, request.GET.get("page"))
        context |= {"tasks": list(page), "n": page.paginator.count, "page_obj": page}
    else:
        page, n = statement_lists.statement_page(round, statement_filters, filters["show"], groups, request.GET)
        context |= {"tasks": page.rows, "n": n, "page": page}
    return render(request, "annotation/quality/statement_list.html", context)


@researcher_required
def statement_detail(request: HttpRequest, path: str, pk: int) -> HttpResponse:
    round = visible_round(request, path)
    task: JudgmentTask = get_object_or_404(with_evidence(round.tasks), pk=pk)
    draws = task.draws.select_related("stratum__language_model", "stratum__relation", "harvested_tuple__job")
    context = {
        "round": round,
        "task": task,
        "draws": draws.order_by("stratum"),
        "superseded_judgments": task.judgments.exclude(superseded_by=None).select_related("annotator"),
        "adjudications": task.adjudications.select_related("by"),
        "may": allowed_actions(request.user, round.project),
    }
    return render(request, "annotation/quality/statement_detail.html", context)


# Reservations


class ReservationForm(forms.Form):
    relation = forms.ModelChoiceField(None, help_text="Its incomplete statements are reserved.")
    annotators = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple)

    def __init__(self, round: Round, *args):
        super().__init__(*args)
        self.fields["relation"].queryset = Relation.objects.filter(strata__round=round).distinct().order_by("name")
        able = round.annotators.able().select_related("user", "invite")
        self.fields["annotators"].choices = [(it.code, f"{it.code} {it.who}".strip()) for it in able]


@researcher_required
def round_reservations(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path, Action.WORK)
    form = ReservationForm(round, request.POST or None)
    if form.is_valid():
        with refusal_in_form(form):
            relation, codes = form.cleaned_data["relation"], form.cleaned_data["annotators"]
            new = reserve_statements(round, codes, request.user, knowledge_tuple__relation=relation)
            messages.success(request, f"{counted(new.n_reserved, 'statement')} reserved.")
            return redirect("annotation:round_reservations", round.path)
    reservations = round.reservations.filter(released_at=None).select_related("round").prefetch_related("annotators")
    context = {"round": round, "form": form, "reservations": reservations}
    return render(request, "annotation/quality/round_reservations.html", context)


@researcher_required
@require_POST
def reservation_release(request: HttpRequest, path: str, pk: int) -> HttpResponse:
    round = visible_round(request, path, Action.WORK)
    with refusal_as_message(request):
        n = release_reservation(get_object_or_404(round.reservations, pk=pk), request.user)
        messages.success(request, f"{counted(n, 'statement')} released to all annotators.")
    return redirect("annotation:round_reservations", round.path)
