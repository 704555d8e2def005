"""Ranked tuples of a harvest: stored scores, cuts to the best tuples, pages, and score curve."""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, isfinite, log
from typing import NamedTuple

from django.core.validators import slug_re
from django.db.models import QuerySet

from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob
from kgharvest.registries import hook

CUT_SYNTAX = "top:N, share:S with 0 < S <= 1, base:K, score:X, precision:P[@JUDGE_RUN], or precision-low:P[@JUDGE_RUN]"
PREDEFINED_CUTS = ("top:10", "top:100", "top:1000", "share:0.1", "share:0.5", "base:10", "base:100")
FROM_JUDGMENTS = ("precision", "precision-low")
SCORES_PER_QUERY = 500  # block size, with which a cut of a million tuples needs about a dozen queries
WIDTH, HEIGHT = 600, 160  # size of the score curve in SVG units


class StoredScores(Sequence[float]):
    """Scores of a job's tuples, best first, loaded from the database on access."""

    def __init__(self, job: HarvestJob):
        self.job = job
        self._blocks: dict[int, list[float]] = {}

    def __len__(self) -> int:
        return self.job.n_tuples

    def __getitem__(self, index: int) -> float:
        number, offset = divmod(index, SCORES_PER_QUERY)
        if number not in self._blocks:
            start = number * SCORES_PER_QUERY
            block = self.job.tuples.filter(rank__gt=start, rank__lte=start + SCORES_PER_QUERY).order_by("rank")
            self._blocks[number] = list(block.values_list("score", flat=True))
        return self._blocks[number][offset]


class BadCut(DomainError):
    """Raised if a cut is malformed or does not apply to the harvest."""


@dataclass(frozen=True)
class Cut:
    """Cut to the first tuples of a ranked list.

    top N: the best N tuples. share S: the best tuples, up to the share S of the list. base K: tuples at least a tenth
    as probable as the K-th tuple. score X: tuples with a score >= X. precision P: the longest list whose estimated
    share of true tuples is at least P. precision-low P: the longest list whose lower confidence bound of this share is
    at least P. `by_score` converts the two precision cuts to a cut by score. judge: name of the judge run used for the
    estimate, or "".
    """

    kind: str
    value: float
    judge: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.value:g}" + (f"@{self.judge}" if self.judge else "")

    def size(self, scores: Sequence[float]) -> int:
        """Return the number of tuples up to the cut. scores: natural logarithms of probabilities, descending.

        base:K compares probabilities: the score must be at least the score of the K-th tuple + ln 0.1. Raises BadCut if
        the list is too short or if the cut needs judgments.
        """
        match self.kind:
            case "top":
                return min(int(self.value), len(scores))
            case "share":
                return ceil(round(self.value * len(scores), 9))  # the rounding makes 0.55 of 100 exactly 55
            case "base":
                if len(scores) < self.value:
                    raise BadCut(
                        f"The cut {self} needs {self.value:g} tuples, but the list has {len(scores)}. Reduce the base."
                    )
                threshold = scores[int(self.value) - 1] + log(0.1)
            case "score":
                threshold = self.value
            case _:
                raise BadCut(f"The cut {self} needs judgments, not only scores, of a single harvest.")
        return bisect_right(scores, -threshold, key=lambda score: -score)


def parse_cut(text: str) -> Cut:
    """Parse a cut such as "top:100", "share:0.5", "base:10", "score:-12.5", or "precision:0.8@run". Raises BadCut."""
    kind, _, rest = text.partition(":")
    number, at, judge = rest.partition("@")
    try:
        value = float(number)
    except ValueError:
        raise BadCut(f"Invalid cut {text!r}. Use {CUT_SYNTAX}.") from None
    is_count = isfinite(value) and value >= 1 and value == int(value)
    is_share = 0 < value <= 1
    allowed = {"top": is_count, "base": is_count, "share": is_share, "score": isfinite(value)}
    allowed |= dict.fromkeys(FROM_JUDGMENTS, is_share)
    if not allowed.get(kind, False) or (at and (kind not in FROM_JUDGMENTS or not slug_re.match(judge))):
        raise BadCut(f"Invalid cut {text!r}. Use {CUT_SYNTAX}.")
    return Cut(kind, value, judge)


class ScoreCut(NamedTuple):
    """Cut that depends only on scores. sentence: explains the origin of a converted cut; "" for other cuts."""

    cut: Cut
    sentence: str


def by_score(job: HarvestJob, cut: Cut) -> ScoreCut:
    """Convert the cut to a cut that depends only on scores.

    Raises BadCut if the harvest lacks suitable scores or its judgments do not determine the cut.
    """
    if cut.kind in ("base", "score", *FROM_JUDGMENTS) and not job.is_scored:
        raise BadCut(f"The cut {cut} needs scores, but {job} is unscored. Use top:N or share:S.")
    if cut.kind == "base" and job.score_scale == job.ScoreScale.OWN:
        raise BadCut(
            f"The cut {cut} needs log-probabilities, but the scores of {job} are imported. Use top:N or share:S."
        )
    if cut.kind not in FROM_JUDGMENTS:
        return ScoreCut(cut, "")
    return hook("cut_from_judgments")(job, cut)


class CutSize(NamedTuple):
    """Number of tuples up to a cut. lowest: score of the last of these tuples, or None. sentence: as in ScoreCut."""

    cut: Cut
    size: int
    lowest: float | None
    sentence: str


def size_of(cut: Cut, scores: StoredScores) -> CutSize:
    """Return the size of `cut`. Raises BadCut if the list is too short for the cut."""
    by_scores = by_score(scores.job, cut)
    size = by_scores.cut.size(scores)
    return CutSize(cut, size, scores[size - 1] if size else None, by_scores.sentence)


def kept_size(job: HarvestJob, cut: Cut | None) -> int:
    """Return the number of the job's tuples up to `cut`. If `cut` is None, return the number of all tuples.

    Raises BadCut.
    """
    return job.n_tuples if cut is None else by_score(job, cut).cut.size(StoredScores(job))


def sizes_of(cuts: Sequence[Cut], scores: StoredScores) -> list[CutSize]:
    """Return the sizes of those cuts that apply to the list."""
    sizes = []
    for cut in cuts:
        with suppress(BadCut):
            sizes.append(size_of(cut, scores))
    return sizes


class RankedTuples:
    """The best `size` tuples of a job, for a paginator. Slices use the rank, so every page takes the same time."""

    ordered = True

    def __init__(self, job: HarvestJob, size: int):
        self._tuples = job.tuples.select_related("knowledge_tuple").order_by("rank")
        self._size = size

    def count(self) -> int:
        return self._size

    def __getitem__(self, ranks: slice) -> QuerySet:
        return self._tuples.filter(rank__gt=ranks.start, rank__lte=min(ranks.stop, self._size))


def score_curve(job: HarvestJob, n_points: int = 60) -> list[tuple[int, float]]:
    """Return (rank, score) of evenly spaced tuples, including the first and the last."""
    last = job.n_tuples
    n_points = min(n_points, last)
    ranks = {1 + round(step * (last - 1) / max(1, n_points - 1)) for step in range(n_points)}
    return list(job.tuples.filter(rank__in=ranks).order_by("rank").values_list("rank", "score"))


class CurvePicture(NamedTuple):
    """Picture of a score curve. points: SVG polyline within WIDTH x HEIGHT.

    kept_to: x coordinate of the cut, None without a cut.

    first, last: (rank, score) of the first and the last tuple. table: about a dozen points, including the last point.
    """

    points: str
    kept_to: float | None
    first: tuple[int, float]
    last: tuple[int, float]
    table: list[tuple[int, float]]
    width: int = WIDTH


def draw_curve(rows: Sequence[tuple[int, float]], cut_size: int | None = None) -> CurvePicture | None:
    """Return the curve of (rank, score) pairs, best first, or None if there are fewer than two."""
    if len(rows) < 2:
        return None
    (first, highest), (last, lowest) = rows[0], rows[-1]
    spread = (highest - lowest) or 1

    def x(rank: int) -> float:
        return round(WIDTH * (rank - first) / (last - first), 1)

    points = " ".join(f"{x(rank)},{round(HEIGHT * (highest - score) / spread, 1)}" for rank, score in rows)
    table = [*rows[: -1 : max(1, len(rows) // 12)], rows[-1]]
    return CurvePicture(points, x(cut_size) if cut_size else None, rows[0], rows[-1], table)
