"""Profiles of annotators: speed, labels, runs of equal labels, gold accuracy and agreement. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import exp
from statistics import median
from typing import NamedTuple, Protocol

LABELS = ("true", "false", "unjudgeable")
TOO_FAST_S = 1.0  # nobody reads a statement in less
MIN_JUDGMENTS = 20  # before a median of seconds or a run means anything
UNLIKELY = 0.001  # a run that chance gives to one annotator in a thousand
FLAGGED_GOLD_ACCURACY, FLAGGED_N_GOLD = 0.7, 10  # of somebody worth a look where a round sets no limit
FALSE_ALARMS = 0.05  # at most, of people exactly as accurate on gold as the limit, over however many looks


class JudgmentRow(NamedTuple):
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


def profile_of(judgments: Sequence[JudgmentRow]) -> Profile:
    """Return the profile of one annotator's judgments, which come in the order they were given."""
    gold = [judgment for judgment in judgments if judgment.gold_label]
    others = [judgment for judgment in judgments if not judgment.gold_label]
    seconds = [judgment.seconds for judgment in judgments if judgment.seconds is not None]
    counts = Counter(judgment.label for judgment in judgments)
    return Profile(
        n=len(judgments),
        n_gold=len(gold),
        n_gold_right=sum(judgment.label == judgment.gold_label for judgment in gold),
        n_agreeing=sum(judgment.n_same for judgment in others),
        n_pairs=sum(judgment.n_others for judgment in others),
        median_seconds=median(seconds) if seconds else None,
        too_fast=sum(time < TOO_FAST_S for time in seconds) / len(seconds) if seconds else None,
        shares={label: counts[label] / len(judgments) if judgments else 0.0 for label in LABELS},
        longest_run=longest_run(judgment.label for judgment in judgments),
    )


class LimitValues(Protocol):
    """What annotation.models.Limits says of a round; None: no such limit. n_gold: judgments before accuracy counts."""

    gold_accuracy: float | None
    n_gold: int
    median_seconds: float | None
    longest_run: int | None


def exceeded_limits(profile: Profile, limits: LimitValues) -> list[str]:
    phrases = _low_gold_accuracy(profile, limits.gold_accuracy, limits.n_gold)
    phrases += _low_median_seconds(profile, limits.median_seconds)
    if limits.longest_run and profile.longest_run > limits.longest_run:
        phrases.append(f"{profile.longest_run} equal labels in a row")
    return phrases


def flags_of(profile: Profile, limits: LimitValues, label_shares: Mapping[str, float]) -> list[str]:
    """Return why somebody should look at an annotator: limits exceeded, or usual ones where the round sets none.

    Instead of a limit on runs: one that chance would hardly give. label_shares: of the labels in the whole round.
    """
    phrases = exceeded_limits(profile, limits)
    if limits.gold_accuracy is None:
        phrases += _low_gold_accuracy(profile, FLAGGED_GOLD_ACCURACY, FLAGGED_N_GOLD)
    if limits.median_seconds is None:
        phrases += _low_median_seconds(profile, TOO_FAST_S)
    is_enough = profile.n >= MIN_JUDGMENTS and not limits.longest_run
    if is_enough and chance_of_run(profile.longest_run, profile.n, label_shares) < UNLIKELY:
        phrases.append(f"{profile.longest_run} equal labels in a row")
    return phrases


def _low_gold_accuracy(profile: Profile, least: float | None, n_gold: int) -> list[str]:
    accuracy = profile.gold_accuracy
    if least is None or accuracy is None or profile.n_gold < n_gold:
        return []
    if not is_below(least, profile.n_gold_right, profile.n_gold):
        return []
    return [f"{profile.n_gold_right} of {profile.n_gold} gold statements right"]


def _low_median_seconds(profile: Profile, least: float | None) -> list[str]:
    seconds = profile.median_seconds
    if least is None or seconds is None or profile.n < MIN_JUDGMENTS or seconds >= least:
        return []
    return [f"median of {seconds:.1f} seconds"]


def is_below(limit: float, n_right: int, n: int) -> bool:
    """Return whether `n_right` of `n` answers show an accuracy below `limit`, at the nth look as at the first.

    Who is at least as accurate as the limit is ever found below it with a chance of at most FALSE_ALARMS: the evidence
    is the mean likelihood ratio of all accuracies below the limit, each alike, against the limit, a supermartingale
    that reaches 1 / FALSE_ALARMS so seldom (Ville 1939; Robbins 1970). Integrated, it is the sum over j > n_right of
    C(n + 1, j) / C(n, n_right) / (n + 1) times the limit's odds to the power j - n_right - 1.
    """
    if limit in (0, 1):
        return n_right < n * limit
    odds = limit / (1 - limit)
    term = evidence = 1 / (n_right + 1)
    for j in range(n_right + 1, n + 1):
        term *= odds * (n + 1 - j) / (j + 1)
        evidence += term
    return evidence >= 1 / FALSE_ALARMS


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
