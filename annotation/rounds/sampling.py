"""Stratified random samples of harvests. Generators come in, nothing is global."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from annotation.models import Round, Stratum
from annotation.rounds.serializers import Cell
from kgharvest.errors import DomainError
from kgharvest.harvests.cuts import kept_size, parse_cut
from kgharvest.models import HarvestedTuple, HarvestJob

ROWS_AT_ONCE = 500  # parameters of one query


class NothingToSample(DomainError):
    """A cell without finished harvest or without enough tuples."""


class Sample(NamedTuple):
    """What was drawn from one stratum, best first; nothing of it is stored yet."""

    stratum: Stratum
    tuples: list[HarvestedTuple]


def draw_cell(round: Round, cell: Cell, job: HarvestJob, path: str, rng: np.random.Generator) -> list[Sample]:
    """Return a sample of each stratum of a cell, simple and without replacement within the stratum.

    The population is what the cell's cut keeps, less what is hidden or, unless the round includes it, sensitive.
    """
    kept = job.tuples.presentable(include_sensitive=round.include_sensitive)
    if cell.cut:
        kept = kept.filter(rank__lte=kept_size(job, parse_cut(cell.cut)))
    ranks = list(kept.order_by("rank").values_list("rank", flat=True))
    strata = rank_strata(ranks, cell.strata)
    n = len(ranks) if cell.n is None else cell.n
    if not ranks:
        left = f"after the cut {cell.cut}" if cell.cut else "in its harvest"
        raise NothingToSample(f"There is no tuple {left} for {path} ({job}, job {job.pk}); choose another cut or job.")
    if n > len(ranks):
        raise NothingToSample(
            f"{path} ({job}, job {job.pk}) has {len(ranks)} tuples to draw from but n is {n}; use a smaller n, or null "
            "for all."
        )
    if n < len(strata):
        raise NothingToSample(
            f"{path} ({job}, job {job.pk}) has {len(strata)} strata but n is {n}; draw at least one tuple from each."
        )
    sizes = allocate(n, [len(stratum) for stratum in strata], cell.allocation)
    return [
        Sample(
            Stratum(
                round=round,
                relation=job.relation,
                language_model=job.language_model,
                setting=job.setting,
                job=job,
                cut=cell.cut,
                rank_from=stratum[0],
                rank_to=stratum[-1],
                population=len(stratum),
                sample_size=size,
            ),
            _tuples_of(job, draw_ranks(stratum, size, rng)),
        )
        for stratum, size in zip(strata, sizes, strict=True)
    ]


def _tuples_of(job: HarvestJob, ranks: Sequence[int]) -> list[HarvestedTuple]:
    tuples = job.tuples.select_related("knowledge_tuple__relation").order_by("rank")
    parts = (ranks[start : start + ROWS_AT_ONCE] for start in range(0, len(ranks), ROWS_AT_ONCE))
    return [harvested for part in parts for harvested in tuples.filter(rank__in=part)]


def draw_ranks(ranks: Sequence[int], sample_size: int, rng: np.random.Generator) -> list[int]:
    """Return a simple random sample of `ranks` without replacement, best first."""
    return sorted(rng.choice(ranks, size=sample_size, replace=False).tolist())


def rank_strata(ranks: Sequence[int], strata: int | Sequence[int] | None) -> list[Sequence[int]]:
    """Return `ranks`, which ascend, split into strata that are not empty.

    strata: None for one stratum, a number of strata whose sizes differ by at most one, or the ranks at which they
    begin.
    """
    if strata is None:
        return [ranks] if ranks else []
    if isinstance(strata, int):
        ends = [len(ranks) * part // strata for part in range(strata + 1)]
    else:
        ends = [*(bisect_left(ranks, begin) for begin in strata), len(ranks)]
    return [ranks[begin:end] for begin, end in pairwise(ends) if begin < end]


def allocate(n: int, sizes: Sequence[int], allocation: str) -> list[int]:
    """Return how many of `n` each stratum of the given size gets: at least one, at most all that it has.

    allocation: "equal" or "proportional" to the sizes; what a small stratum cannot take goes to the others in the same
    manner. The sum is n, which must lie between the number of strata and the sum of sizes.
    """
    weights = [1 if allocation == "equal" else size for size in sizes]
    shares = [1] * len(sizes)
    owed = [(-weight / 3, stratum) for stratum, weight in enumerate(weights) if sizes[stratum] > 1]
    heapify(owed)
    for _ in range(n - len(sizes)):  # one by one to whom most is owed: Webster's method, within the bounds
        _, stratum = heappop(owed)
        shares[stratum] += 1
        if shares[stratum] < sizes[stratum]:
            heappush(owed, (-weights[stratum] / (2 * shares[stratum] + 1), stratum))
    return shares
