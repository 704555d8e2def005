"""Statements from which a number of a report was computed.

Draws are selected by cell, verdict, rank, and score, and listed with their judgments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2s
from math import floor
from typing import Any

from django.db.models import Case, Count, F, IntegerField, Prefetch, Q, QuerySet, Value, When

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Judgment, JudgmentTask, Round, Stratum
from annotation.monitoring.progress import CachedCount, cached_count
from evaluation.evidence.evidence import BASES, sampled_harvests
from evaluation.evidence.rows import IS_SCORED, cells_with_strata, harvest_rows
from evaluation.reports.sections.rates import sizes_of_cuts
from kgharvest.bulk.pagination import sorted_by
from kgharvest.models import LanguageModel, Relation

INCOMPLETE = "incomplete"
SORTED_BY = {"statement": "task__statement", "verdict": "task__verdict", "rank": "harvested_tuple__rank"}
SORTED_UP_TO = 30_000
FURTHER = 4  # the rank bound is multiplied by this factor until it selects enough draws
OUTCOMES = (*(verdict.value for verdict in Verdict), INCOMPLETE)
CELL = ("relation", "model", "setting")
CUTS = (*(f"base:{base}" for base in BASES), "share:0.5")  # cuts of the paper's Table 2, marked on curves


def in_part(round: Round, part: Mapping[str, Any]) -> Q:
    """Return the condition that selects the draws of a part of the round. Absent or empty keys do not filter.

    part: `relation`, `model`, and `setting`; `best`, the top share of each cell's ranks, as in curves of accuracy by
    size; `cut`, one of CUTS; `score_from` and `score_to`, both inclusive.
    """
    strata = strata_of(round, *(part.get(name) or "" for name in CELL))
    condition = Q(stratum__in=strata.values("pk"))
    if (best := part.get("best")) is not None:
        condition &= _up_to_rank(strata, best)
    if cut := part.get("cut"):
        condition &= _up_to(
            "stratum__job", sizes_of_cuts(sampled_harvests(harvest_rows(cells_with_strata(round))))[cut]
        )
    for end, lookup in (("score_from", "gte"), ("score_to", "lte")):
        if (score := part.get(end)) is not None:
            condition &= Q((f"harvested_tuple__score__{lookup}", score)) & IS_SCORED
    return condition


def strata_of(round: Round, relation: str, model: str, setting: str) -> QuerySet[Stratum]:
    """Return the strata of the cells with these names. Empty names do not filter."""
    strata = round.strata.order_by()
    if setting:
        strata = strata.filter(setting=setting)
    if model:
        names = LanguageModel.objects.filter(strata__round=round).distinct()
        strata = strata.filter(language_model__in=[lm.pk for lm in names if str(lm) == model])
    if relation:
        relations = Relation.objects.filter(strata__round=round).distinct()
        named = relations.select_related("relation_set").only("name", "relation_set__name")
        strata = strata.filter(relation__in=[row.pk for row in named if relation in (row.name, row.path)])
    return strata


def _up_to_rank(strata: QuerySet[Stratum], best: float) -> Q:
    """Return the condition that selects draws within the top share `best` of the ranks of their cell."""
    cells: dict[tuple, list[tuple[int, int]]] = {}
    columns = ("relation", "language_model", "setting", "pk", "rank_to")
    for *cell, pk, rank_to in strata.filter(rank_to__gt=0).values_list(*columns):
        cells.setdefault(tuple(cell), []).append((pk, rank_to))
    last_ranks = {}
    for cell_strata in cells.values():
        depth = floor(best * max(rank_to for _, rank_to in cell_strata) + 1e-9)
        last_ranks |= {pk: depth for pk, _ in cell_strata}
    return _up_to("stratum", last_ranks)


def _up_to(lookup: str, last_ranks: Mapping[int, int]) -> Q:
    """Return the condition that selects draws up to the last rank of their stratum or job.

    lookup: field of a draw that refers to this stratum or job. last_ranks: last rank by stratum or job id.
    """
    by_rank: dict[int, list[int]] = {}
    for pk, last in last_ranks.items():
        by_rank.setdefault(last, []).append(pk)
    # Use one CASE instead of one OR term per last rank, because SQLite allows only 1,000 terms.
    ends = (When(**{f"{lookup}__in": pks}, then=Value(last)) for last, pks in by_rank.items())
    return Q(harvested_tuple__rank__lte=Case(*ends, default=Value(0), output_field=IntegerField()))


def with_verdict(draws: QuerySet[Draw], verdict: str) -> QuerySet[Draw]:
    """Return the draws with this verdict, one of OUTCOMES. If `verdict` is empty, return all draws."""
    return draws.filter(task__verdict="" if verdict == INCOMPLETE else verdict) if verdict else draws


def count_outcomes(draws: QuerySet[Draw]) -> dict[str, int]:
    """Return the number of draws by outcome."""
    counts = dict(draws.order_by().values_list("task__verdict").annotate(n=Count("pk")))
    return {outcome: counts.get("" if outcome == INCOMPLETE else outcome, 0) for outcome in OUTCOMES}


def outcomes_of_part(round: Round, part: Mapping[str, Any], draws: QuerySet[Draw], now: datetime) -> CachedCount:
    """Return `count_outcomes` of a part's draws. Counts of whole cells in large rounds can be cached."""
    cell = [part.get(name) or "" for name in CELL]
    if any(value not in (None, "") for name, value in part.items() if name not in (*CELL, "verdict")):
        return CachedCount(count_outcomes(draws), None)
    subject = f"draws {blake2s(json.dumps(cell).encode(), digest_size=8).hexdigest()}"
    return cached_count(round, subject, lambda _: count_outcomes(draws), now)


def sorted_draws(
    round: Round, part: Mapping[str, Any], draws: QuerySet[Draw], n: int, sort: str
) -> QuerySet[Draw] | BestDraws:
    """Return the `n` draws of a part for a paginator. sort: a key of SORTED_BY, optionally with a leading minus.

    More than SORTED_UP_TO draws are always sorted by rank, because other orders require reading all of them.
    """
    if n <= SORTED_UP_TO:
        return sorted_by(draws, sort, SORTED_BY)
    strata = strata_of(round, *(part.get(name) or "" for name in CELL))
    return BestDraws(draws, n, list(strata.exclude(job=None).values_list("job", flat=True).distinct()))


class BestDraws(Sequence[Draw]):
    """Many draws for a paginator, sorted by rank, with unranked draws last.

    A bound on the rank allows the database to use the index on the ranks of harvests.
    """

    ordered = True

    def __init__(self, draws: QuerySet[Draw], n: int, jobs: Sequence[int]):
        self._draws, self._n, self._jobs = draws, n, jobs

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: slice) -> QuerySet[Draw]:  # type: ignore[override]
        bound = max(rows.stop // max(1, len(self._jobs)), 1)
        while bound < self._n:
            best = self._draws.filter(harvested_tuple__job__in=self._jobs, harvested_tuple__rank__lte=bound)
            if len(best.order_by().values_list("pk")[: rows.stop]) == rows.stop:
                return best.order_by("harvested_tuple__rank", "-pk")[rows]
            bound *= FURTHER
        return self._draws.order_by(F("harvested_tuple__rank").asc(nulls_last=True), "-pk")[rows]


def with_evidence(draws: QuerySet[Draw]) -> QuerySet[Draw]:
    judgments = Judgment.objects.counted().select_related("annotator").order_by("annotator__code")
    tasks = JudgmentTask.objects.prefetch_related(Prefetch("judgments", judgments, to_attr="evidence"))
    joined = ("harvested_tuple", "stratum__relation", "stratum__language_model", "stratum__job")
    return draws.select_related(*joined).prefetch_related(Prefetch("task", tasks))
