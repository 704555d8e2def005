"""What is behind a number: the tuples of a cell with their judgments."""

from __future__ import annotations

from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Judgment, JudgmentTask, Round
from evaluation.reports.views import find_report
from kgharvest.access import researcher_required
from kgharvest.bulk.lists import page_of, sort_key, sorted_by

INCOMPLETE = "incomplete"
TUPLE_COLUMNS = {"statement": "task__statement", "verdict": "task__verdict", "rank": "harvested_tuple__rank"}


@researcher_required
def tuples(request: HttpRequest, pk: int) -> HttpResponse:
    """The draws of a cell, of a side, or of the whole round, as the query names them."""
    report = find_report(request, pk)
    asked = {name: request.GET.get(name, "") for name in ("relation", "model", "setting", "verdict")}
    of_cell = draws_of(report.round, asked["relation"], asked["model"], asked["setting"])
    sort = sort_key(request, TUPLE_COLUMNS, "rank")
    draws = sorted_by(with_verdict(of_cell, asked["verdict"]), sort, TUPLE_COLUMNS)
    context = {
        "report": report,
        "round": report.round,
        "asked": asked,
        "verdicts": [*(verdict.value for verdict in Verdict), INCOMPLETE],
        "sort": sort,
        "page_obj": page_of(request, with_evidence(draws)),
    }
    return render(request, "evaluation/reports/tuples.html", context)


def draws_of(round: Round, relation: str, model: str, setting: str) -> QuerySet[Draw]:
    """Return the draws of the cells with these names; an empty name is any."""
    strata = round.strata.select_related("relation__relation_set", "language_model")
    wanted = [
        stratum.pk
        for stratum in strata
        if relation in ("", stratum.relation.name, stratum.relation.path)
        and model in ("", str(stratum.language_model))
        and setting in ("", stratum.setting)
    ]
    return Draw.objects.filter(stratum__in=wanted)


def with_verdict(draws: QuerySet[Draw], verdict: str) -> QuerySet[Draw]:
    if not verdict:
        return draws
    return draws.filter(task__verdict="" if verdict == INCOMPLETE else verdict)


def with_evidence(draws: QuerySet[Draw]) -> QuerySet[Draw]:
    judgments = Judgment.objects.counted().select_related("annotator").order_by("annotator__code")
    tasks = JudgmentTask.objects.prefetch_related(Prefetch("judgments", judgments, to_attr="evidence"))
    return draws.select_related("harvested_tuple", "stratum__relation", "stratum__language_model").prefetch_related(
        Prefetch("task", tasks)
    )
