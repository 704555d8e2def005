"""The tuples behind a number of a report: draws of its cells by verdict, rank and score, and who said what."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import Any

from django.db.models import Count, Prefetch, Q, QuerySet

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Judgment, JudgmentTask, Round, Stratum
from kgharvest.models import LanguageModel, Relation

INCOMPLETE = "incomplete"
OUTCOMES = (*(verdict.value for verdict in Verdict), INCOMPLETE)
CELL = ("relation", "model", "setting")


def in_part(round: Round, part: Mapping[str, Any]) -> Q:
    """Return the condition that draws are of a part of the round; what it does not name, or leaves empty, is any.

    part: `relation`, `model`, `setting`; `best`, the share of each cell's ranks from the first one on, as curves of
    accuracy against size have it; `score_from` and `score_to`, inclusive.
    """
    strata = strata_of(round, *(part.get(name) or "" for name in CELL))
    condition = Q(stratum__in=strata.values("pk"))
    if (best := part.get("best")) is not None:
        condition &= _up_to_rank(strata, best)
    for end, lookup in (("score_from", "gte"), ("score_to", "lte")):
        if (score := part.get(end)) is not None:
            condition &= Q((f"harvested_tuple__score__{lookup}", score))
    return condition


def strata_of(round: Round, relation: str, model: str, setting: str) -> QuerySet[Stratum]:
    """Return the strata of the cells with these names; an empty name is any."""
    strata = round.strata.order_by()
    if setting:
        strata = strata.filter(setting=setting)
    if model:
        names = LanguageModel.objects.filter(strata__round=round).distinct()
        strata = strata.filter(language_model__in=[lm.pk for lm in names if str(lm) == model])
    if relation:
        relations = Relation.objects.filter(strata__round=round).distinct()
        known = relations.select_related("relation_set").only("name", "relation_set__name")
        strata = strata.filter(relation__in=[own.pk for own in known if relation in (own.name, own.path)])
    return strata


def _up_to_rank(strata: QuerySet[Stratum], best: float) -> Q:
    """Return the condition that draws are of the best share of their cell."""
    cells: dict[tuple, list[tuple[int, int]]] = {}
    columns = ("relation", "language_model", "setting", "pk", "rank_to")
    for *cell, pk, rank_to in strata.filter(rank_to__gt=0).values_list(*columns):
        cells.setdefault(tuple(cell), []).append((pk, rank_to))
    strata_by_rank: dict[int, list[int]] = {}
    for own in cells.values():
        last = floor(best * max(rank_to for _, rank_to in own) + 1e-9)
        strata_by_rank.setdefault(last, []).extend(pk for pk, _ in own)
    condition = Q(pk__in=[])
    for last, own_ids in strata_by_rank.items():
        condition |= Q(stratum__in=own_ids, harvested_tuple__rank__lte=last)
    return condition


def with_verdict(draws: QuerySet[Draw], verdict: str) -> QuerySet[Draw]:
    """verdict: one of OUTCOMES; empty for any."""
    return draws.filter(task__verdict="" if verdict == INCOMPLETE else verdict) if verdict else draws


def count_outcomes(draws: QuerySet[Draw]) -> dict[str, int]:
    """Return how many draws there are of each outcome."""
    counts = dict(draws.order_by().values_list("task__verdict").annotate(n=Count("pk")))
    return {outcome: counts.get("" if outcome == INCOMPLETE else outcome, 0) for outcome in OUTCOMES}


def with_evidence(draws: QuerySet[Draw]) -> QuerySet[Draw]:
    judgments = Judgment.objects.counted().select_related("annotator").order_by("annotator__code")
    tasks = JudgmentTask.objects.prefetch_related(Prefetch("judgments", judgments, to_attr="evidence"))
    return draws.select_related("harvested_tuple", "stratum__relation", "stratum__language_model").prefetch_related(
        Prefetch("task", tasks)
    )
