"""Cuts: how much of a ranked list to keep. A cut keeps the first tuples of a list, so it is a number of tuples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite, log
from typing import NamedTuple

from django.core.validators import slug_re

from kgharvest.errors import DomainError
from kgharvest.harvests.ranked_tuples import StoredScores
from kgharvest.models import HarvestJob
from kgharvest.registries import hook

SHAPES = (
    "top:N, share:S with 0 < S <= 1, base:K, score:X, precision:P or precision-low:P, perhaps with @ and a judge run"
)
USUAL_CUTS = ("top:10", "top:100", "top:1000", "share:0.1", "share:0.5", "base:10", "base:100")
FROM_JUDGMENTS = ("precision", "precision-low")
NEED_SCORES = ("base", "score", *FROM_JUDGMENTS)


class BadCut(DomainError):
    """A cut that cannot be read, or that the list is too short for."""


@dataclass(frozen=True)
class Cut:
    """The best `top` N, the better `share`, those a tenth as probable as the `base` K-th or more, or `score` >= X.

    `precision` P is the largest part of which a share of P is true, `precision-low` the largest of which this is sure:
    `by_score` makes a cut by score of them. judge: name of a judge run that these two are found with; else empty.
    """

    kind: str
    value: float
    judge: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.value:g}" + (f"@{self.judge}" if self.judge else "")

    def size(self, scores: Sequence[float]) -> int:
        """Return how many tuples of a list to keep; `scores` descending, natural logarithms.

        base:K compares on the probability scale: score >= score of the K-th + ln 0.1. Raises BadCut if there is none.
        """
        match self.kind:
            case "top":
                return min(int(self.value), len(scores))
            case "share":
                return ceil(round(self.value * len(scores), 9))  # 0.55 of 100 is 55
            case "base":
                if len(scores) < self.value:
                    raise BadCut(
                        f"The cut {self} needs {self.value:g} tuples but there are {len(scores)}; use a smaller base."
                    )
                return _at_least(scores, scores[int(self.value) - 1] + log(0.1))
            case "score":
                return _at_least(scores, self.value)
            case _:
                raise BadCut(f"The cut {self} rests on judgments of one harvest, not on scores alone.")


def _at_least(scores: Sequence[float], threshold: float) -> int:
    return bisect_right(scores, -threshold, key=lambda score: -score)


def parse_cut(text: str) -> Cut:
    """Return the cut written as "top:100", "share:0.5", "base:10", "score:-12.5" or "precision:0.8@llama-1".

    Raises BadCut.
    """
    kind, _, rest = text.partition(":")
    number, at, judge = rest.partition("@")
    try:
        value = float(number)
    except ValueError:
        raise BadCut(f"{text!r} is no cut; write {SHAPES}.") from None
    is_count = value >= 1 and value == int(value) if isfinite(value) else False
    is_share = 0 < value <= 1
    allowed = {"top": is_count, "base": is_count, "share": is_share, "score": isfinite(value)}
    allowed |= dict.fromkeys(FROM_JUDGMENTS, is_share)
    if not allowed.get(kind, False) or (at and (kind not in FROM_JUDGMENTS or not slug_re.match(judge))):
        raise BadCut(f"{text!r} is no cut; write {SHAPES}.")
    return Cut(kind, value, judge)


class ScoreCut(NamedTuple):
    """A cut that scores alone decide. sentence: what it was made of, empty for a cut that was one already."""

    cut: Cut
    sentence: str


def by_score(job: HarvestJob, cut: Cut) -> ScoreCut:
    """Return the cut as one that scores decide.

    Raises BadCut where judgments are wanted and do not give one, and where the harvest has no scores that it needs.
    """
    if cut.kind in NEED_SCORES and not job.is_scored:
        raise BadCut(f"The cut {cut} needs scores, which {job} came without; use top:N or share:S.")
    if cut.kind == "base" and job.score_scale == job.ScoreScale.OWN:
        raise BadCut(f"The cut {cut} compares logarithms of probabilities, which the scores of {job} may not be.")
    if cut.kind not in FROM_JUDGMENTS:
        return ScoreCut(cut, "")
    return hook("cut_from_judgments")(job, cut)


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


def kept_size(job: HarvestJob, cut: Cut | None) -> int:
    """Return how many of the job's tuples `cut` keeps; None keeps all. Raises BadCut."""
    return job.n_tuples if cut is None else by_score(job, cut).cut.size(StoredScores(job))


def sizes_of(cuts: Sequence[Cut], scores: StoredScores) -> list[CutSize]:
    """Return what each of the cuts keeps that the list is long enough for."""
    sizes = []
    for cut in cuts:
        try:
            sizes.append(size_of(cut, scores))
        except BadCut:
            continue
    return sizes
