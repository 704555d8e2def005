"""The tuples of one harvest by rank: their scores and pages, read piece by piece, and the curve of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from kgharvest.models import HarvestJob

BLOCK = 500  # scores read at once; a cut of a million tuples reads a dozen blocks
CURVE_POINTS = 60
WIDTH, HEIGHT = 600, 160  # of the curve's picture


class StoredScores(Sequence[float]):
    """The scores of a job's tuples, best first, read from the database where they are looked at."""

    def __init__(self, job: HarvestJob):
        self.job = job
        self._blocks: dict[int, list[float]] = {}

    def __len__(self) -> int:
        return self.job.n_tuples

    def __getitem__(self, index: int) -> float:
        number, offset = divmod(index, BLOCK)
        if number not in self._blocks:
            start = number * BLOCK
            block = self.job.tuples.filter(rank__gt=start, rank__lte=start + BLOCK).order_by("rank")
            self._blocks[number] = list(block.values_list("score", flat=True))
        return self._blocks[number][offset]


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


@dataclass(frozen=True)
class CurvePicture:
    """points: of an SVG polyline in WIDTH x HEIGHT. kept_to: x where the cut ends, None without a cut."""

    points: str
    kept_to: float | None
    rows: list[tuple[int, float]]
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def first(self) -> tuple[int, float]:
        return self.rows[0]

    @property
    def last(self) -> tuple[int, float]:
        return self.rows[-1]

    @property
    def table(self) -> list[tuple[int, float]]:
        """About a dozen of the points, the last one among them."""
        step = max(1, len(self.rows) // 12)
        return [*self.rows[:-1:step], self.last]


def draw_curve(rows: Sequence[tuple[int, float]], kept: int | None = None) -> CurvePicture | None:
    """Return the picture of (rank, score) from the best to the worst; None for fewer than two."""
    if len(rows) < 2:
        return None
    (first, highest), (last, lowest) = rows[0], rows[-1]
    spread = (highest - lowest) or 1

    def x(rank: int) -> float:
        return round(WIDTH * (rank - first) / (last - first), 1)

    points = " ".join(f"{x(rank)},{round(HEIGHT * (highest - score) / spread, 1)}" for rank, score in rows)
    return CurvePicture(points, x(kept) if kept else None, list(rows))
