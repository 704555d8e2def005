"""The scores of a finished job, of which no page loads more than it shows: cuts, the score curve, pages by rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import QuerySet

from kgharvest.harvests.cuts import BadCut, Cut, by_score
from kgharvest.models import HarvestJob

BLOCK = 500  # scores read at once; a cut of a million tuples reads a dozen blocks
CURVE_POINTS = 60
USUAL_CUTS = ("top:10", "top:100", "top:1000", "share:0.1", "share:0.5", "base:10", "base:100")


class StoredScores(Sequence[float]):
    """The scores of a job's tuples, best first, read from the database where they are looked at."""

    def __init__(self, job: HarvestJob):
        self.job = job
        self._blocks: dict[int, list[float]] = {}

    def __len__(self) -> int:
        return self.job.n_tuples

    def __getitem__(self, index: int) -> float:
        number, place = divmod(index, BLOCK)
        if number not in self._blocks:
            self._blocks[number] = self._read(number * BLOCK)
        return self._blocks[number][place]

    def _read(self, start: int) -> list[float]:
        block = self.job.tuples.filter(rank__gt=start, rank__lte=start + BLOCK).order_by("rank")
        return list(block.values_list("score", flat=True))


class CutSize(NamedTuple):
    """What a cut keeps. lowest: the score of the last tuple kept, None if none is. sentence: as in ScoreCut."""

    cut: Cut
    size: int
    lowest: float | None
    sentence: str


def size_of(cut: Cut, scores: StoredScores) -> CutSize:
    """Raises BadCut if the list is too short for the cut."""
    by_scores = by_score(scores.job, cut)
    size = by_scores.cut.size(scores)
    return CutSize(cut, size, scores[size - 1] if size else None, by_scores.sentence)


def sizes_of(cuts: Sequence[Cut], scores: StoredScores) -> list[CutSize]:
    """Return what each of the cuts keeps that the list is long enough for."""
    sizes = []
    for cut in cuts:
        try:
            sizes.append(size_of(cut, scores))
        except BadCut:
            continue
    return sizes


class RankedTuples:
    """The best `size` tuples of a job, for a paginator: cut out by rank, which costs the same on every page."""

    ordered = True

    def __init__(self, job: HarvestJob, size: int):
        self._tuples = job.tuples.select_related("knowledge_tuple").order_by("rank")
        self._size = size

    def count(self) -> int:
        return self._size

    def __getitem__(self, ranks: slice) -> QuerySet:
        return self._tuples.filter(rank__gt=ranks.start, rank__lte=min(ranks.stop, self._size))


def score_curve(job: HarvestJob, n_points: int = CURVE_POINTS) -> list[tuple[int, float]]:
    """Return (rank, score) of evenly spread tuples from the first to the last."""
    last = job.n_tuples
    n_points = min(n_points, last)
    ranks = {1 + round(step * (last - 1) / max(1, n_points - 1)) for step in range(n_points)}
    return list(job.tuples.filter(rank__in=ranks).order_by("rank").values_list("rank", "score"))
