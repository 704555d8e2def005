"""Comparisons as matrices, where they are too many to read one after another: row minus column."""

from __future__ import annotations

from typing import NamedTuple

from evaluation.rendering.documents import Document, short_model
from evaluation.reports.sections.comparisons import common_of
from kgharvest.pages.number_format import points, points_interval
from kgharvest.statistics.rates import SIGNIFICANCE

MOST_SENTENCES = 10  # more of them are folded, below their matrices


class Difference(NamedTuple):
    """number: of the comparison in its report. interval: in words, empty where there is none."""

    number: int
    text: str
    interval: str
    is_significant: bool
    sentence: str


class Matrix(NamedTuple):
    """The settings of an LM, or the LMs in a setting, against each other. rows: a difference per name, or None."""

    common: str
    names: list[str]
    rows: list[tuple[str, list[Difference | None]]]


def matrices_of(document: Document) -> list[Matrix]:
    """Return a matrix for each LM and setting that sides are compared in; none where sentences are few enough."""
    if len(document["comparisons"]) <= MOST_SENTENCES:
        return []
    groups: dict[tuple[str, str], dict[tuple[str, str], Difference]] = {}
    for number, comparison in enumerate(document["comparisons"], start=1):
        group = groups.setdefault((comparison["kind"], common_of(comparison)), {})
        for sign, pair in ((1, ("a", "b")), (-1, ("b", "a"))):
            first, second = (comparison[side] for side in pair)
            group[first, second] = _difference(number, comparison, sign)
    return [_matrix(common, differences) for (_, common), differences in groups.items()]


def _difference(number: int, comparison: Document, sign: int) -> Difference:
    ends = (comparison["low"], comparison["high"])
    low, high = sorted(sign * end for end in ends) if None not in ends else (None, None)
    return Difference(
        number,
        points(sign * comparison["difference"]),
        "" if low is None or high is None else points_interval(low, high),
        comparison["p_holm"] is not None and comparison["p_holm"] < SIGNIFICANCE,
        comparison["sentence"],
    )


def _matrix(common: str, differences: dict[tuple[str, str], Difference]) -> Matrix:
    sides = list(dict.fromkeys(side for pair in differences for side in pair))
    rows = [(short_model(side), [differences.get((side, other)) for other in sides]) for side in sides]
    return Matrix(short_model(common), [short_model(side) for side in sides], rows)
