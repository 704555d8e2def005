"""The tuples behind a number of a report: draws of its cells by verdict, rank and score, and who said what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor
from typing import Any

from django.db.models import Count, Prefetch, Q, QuerySet

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Judgment, JudgmentTask, Round, Stratum

INCOMPLETE = "incomplete"
OUTCOMES = (*(verdict.value for verdict in Verdict), INCOMPLETE)
CELL = ("relation", "model", "setting")


def in_part(round: Round, part: Mapping[str, Any]) -> Q:
    """Return the condition that draws are of a part of the round; what it does not name, or leaves empty, is any.

    part: `relation`, `model`, `setting`; `best`, the share of each cell's ranks from the first one on, as curves of
    accuracy against size have it; `score_from` and `score_to`, inclusive.
    """
    strata = strata_of(round, *(part.get(name) or "" for name in CELL))
    condition = Q(stratum__in=[stratum.pk for stratum in strata])
    if (best := part.get("best")) is not None:
        condition &= _up_to_rank(strata, best)
    for end, lookup in (("score_from", "gte"), ("score_to", "lte")):
        if (score := part.get(end)) is not None:
            condition &= Q((f"harvested_tuple__score__{lookup}", score))
    return condition


def strata_of(round: Round, relation: str, model: str, setting: str) -> list[Stratum]:
    """Return the strata of the cells with these names; an empty name is any."""
    strata = round.strata.select_related("relation__relation_set", "language_model").defer("ranks")
    return [
        stratum
        for stratum in strata
        if relation in ("", stratum.relation.name, stratum.relation.path)
        and model in ("", str(stratum.language_model))
        and setting in ("", stratum.setting)
    ]


def _up_to_rank(strata: Iterable[Stratum], best: float) -> Q:
    """Return the condition that draws are of the best share of their cell."""
    cells: dict[tuple, list[Stratum]] = {}
    for stratum in strata:
        if stratum.rank_to:
            cells.setdefault((stratum.relation_id, stratum.language_model_id, stratum.setting), []).append(stratum)
    strata_by_rank: dict[int, list[int]] = {}
    for own in cells.values():
        last = floor(best * max(stratum.rank_to or 0 for stratum in own) + 1e-9)
        strata_by_rank.setdefault(last, []).extend(stratum.pk for stratum in own)
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
