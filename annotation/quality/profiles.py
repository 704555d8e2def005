"""What one annotator's judgments look like together: speed, labels, runs, gold, agreement. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import exp
from statistics import median
from typing import NamedTuple

LABELS = ("true", "false", "unjudgeable")
TOO_FAST_S = 1.0  # nobody reads a statement in less


class Said(NamedTuple):
    """One current judgment. gold_label: empty unless the task is gold. n_same, n_others: of the other counted judgments
    of its task, how many have its label, and how many there are."""

    label: str
    seconds: float | None
    gold_label: str
    n_same: int
    n_others: int


class Profile(NamedTuple):
    """median_seconds, too_fast (a share): None where nobody measured. shares: of each label, gold included.

    n_agreeing of n_pairs: pairs of a judgment of theirs with another one of the same task, gold left out.
    """

    n: int
    n_gold: int
    n_gold_right: int
    n_agreeing: int
    n_pairs: int
    median_seconds: float | None
    too_fast: float | None
    shares: dict[str, float]
    longest_run: int

    @property
    def gold_accuracy(self) -> float | None:
        return self.n_gold_right / self.n_gold if self.n_gold else None

    @property
    def agreement(self) -> float | None:
        return self.n_agreeing / self.n_pairs if self.n_pairs else None


def profile(judgments: Sequence[Said]) -> Profile:
    """Return the profile of one annotator's judgments, which come in the order they were given."""
    gold = [said for said in judgments if said.gold_label]
    others = [said for said in judgments if not said.gold_label]
    seconds = [said.seconds for said in judgments if said.seconds is not None]
    counts = Counter(said.label for said in judgments)
    return Profile(
        n=len(judgments),
        n_gold=len(gold),
        n_gold_right=sum(said.label == said.gold_label for said in gold),
        n_agreeing=sum(said.n_same for said in others),
        n_pairs=sum(said.n_others for said in others),
        median_seconds=median(seconds) if seconds else None,
        too_fast=sum(each < TOO_FAST_S for each in seconds) / len(seconds) if seconds else None,
        shares={label: counts[label] / len(judgments) if judgments else 0.0 for label in LABELS},
        longest_run=longest_run(said.label for said in judgments),
    )


def longest_run(labels: Iterable[str]) -> int:
    """Return the length of the longest stretch of one label; 0 of nothing."""
    return max((sum(1 for _ in run) for _, run in groupby(labels)), default=0)


def chance_of_run(length: int, n: int, shares: Mapping[str, float]) -> float:
    """Return about how likely `n` independent labels with these shares have a run of at least `length` >= 1.

    By Poisson's law for the number of places where such a run begins, of any label (Arratia, Goldstein and Gordon 1990,
    example 3): a run begins at the first place, or after another label. Some percent too low below a hundred labels.
    """
    if length > n:
        return 0.0
    if max(shares.values()) == 1:
        return 1.0
    begins = sum(share**length * (1 + (n - length) * (1 - share)) for share in shares.values())
    return 1 - exp(-begins)


def expected_longest_run(n: int, shares: Mapping[str, float]) -> float:
    """Return the mean length of the longest run of `n` independent labels: the sum of the chances of each length."""
    if not n or not any(shares.values()):
        return 0.0
    total = 1.0  # there is always a run of one
    for length in range(2, n + 1):
        chance = chance_of_run(length, n, shares)
        if chance < 1e-9:
            break
        total += chance
    return total
