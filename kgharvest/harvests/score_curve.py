"""The picture of how scores fall with rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 600, 160


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
