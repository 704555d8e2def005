"""Profiles of annotators (speed, labels, runs of labels, gold accuracy, agreement) and signs of inattention. Pure.

Each sign of inattention is a test of people who do their best. Over all annotators of a round, the chance that a rule
flags an honest one is at most FALSE_ALARMS: each annotator is tested at FALSE_ALARMS over their number (Bonferroni).
Two rules are not tests: a reading speed above FASTEST_READING, and a long text identical to that of another annotator.
A flag changes nothing; researchers decide what follows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import erfc, exp, prod, sqrt
from statistics import median
from typing import NamedTuple, Protocol

LABELS = ("true", "false", "unjudgeable")
TOO_FAST_S = 1.0  # nobody reads a statement in less
MIN_JUDGMENTS = 20  # before a median of seconds or a run means anything
UNLIKELY = 0.001  # a run that chance gives to one annotator in a thousand
FLAGGED_GOLD_ACCURACY, FLAGGED_N_GOLD = 0.7, 10  # of somebody worth a look where a round sets no limit
FALSE_ALARMS = 0.05  # of each rule: over all looks at the gold of one annotator, or over all annotators of a round


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


# Signs of inattention


# Adults read 175 to 300 words of six characters a minute silently (Brysbaert 2019); this is twice the fastest.
FASTEST_READING = 60.0  # characters a second
SHORTEST_PASTED = 30  # letters and digits; shorter texts are the same by chance


class JudgmentSigns(NamedTuple):
    """One current judgment, as the rules look at it.

    n_characters: of its statement. seconds: None where nobody measured. others: how many of the other counted judgments
    of its task have each label; empty for gold, which is compared with nobody.
    """

    label: str
    seconds: float | None
    n_characters: int
    others: Mapping[str, int]


def attention_flags(
    judgments: Sequence[JudgmentSigns], n_annotators: int, *, is_order_random: bool = True
) -> list[str]:
    """Return why somebody should look at an annotator, each a phrase. judgments: in the order they were given.

    n_annotators: how many are tested, those with MIN_JUDGMENTS or more; with fewer nothing is said. is_order_random:
    whether statements came in a random order, without which runs tell nothing.
    """
    if len(judgments) < MIN_JUDGMENTS:
        return []
    level = FALSE_ALARMS / max(1, n_annotators)
    flags = []
    speed = reading_speed(judgments)
    if speed is not None and speed > FASTEST_READING:
        flags.append(
            f"half of the statements judged faster than {FASTEST_READING:.0f} characters a second, than anybody reads"
        )
    labels = [judgment.label for judgment in judgments]
    if is_order_random and chance_of_longest_run(labels) < level:
        flags.append(
            f"{longest_run(labels)} equal labels in a row, which their own labels in another order would hardly give"
        )
    if below_chance := _below_chance(judgments, level):
        flags.append(below_chance)
    return flags


def reading_speed(judgments: Iterable[JudgmentSigns]) -> float | None:
    """Return the median of characters a second, None where fewer than MIN_JUDGMENTS were timed.

    The median, as single times are wrong: a click too much, an answer that waited in the browser.
    """
    timed = [judgment for judgment in judgments if judgment.seconds is not None]
    if len(timed) < MIN_JUDGMENTS:
        return None
    return median(judgment.n_characters / max(judgment.seconds or 0.0, 0.001) for judgment in timed)


def chance_of_longest_run(labels: Sequence[str]) -> float:
    """Return at most how likely the same labels in a random order have a run as long as their longest, or longer.

    Statements come in a random order, so that every order of honest labels is as likely. A run of one of m equal labels
    among n begins at the first place or after another label: at n - m + 1 places, each with the chance
    m / n * (m - 1) / (n - 1) * ... of `length` factors. Their sum, over all labels, bounds the chance (Bonferroni).
    """
    length, n = longest_run(labels), len(labels)
    counts = [m for m in Counter(labels).values() if m >= length]
    return min(1.0, sum((n - m + 1) * prod((m - i) / (n - i) for i in range(length)) for m in counts))


class Agreement(NamedTuple):
    """observed: sum over tasks of the share of the others with one's label. expected: of the same labels given to the
    same tasks in a random order. chance: of being as low as that, or lower; None where labels or tasks are all alike.
    """

    observed: float
    expected: float
    chance: float | None


def agreement_against_chance(judgments: Iterable[JudgmentSigns]) -> Agreement:
    """Compare somebody's labels with those of others by permuting them over the tasks they judged.

    The sum over tasks of c[task][label], the share of the others with that label, has under all permutations the mean
    and the variance of Hoeffding (1951), A combinatorial central limit theorem, theorem 2; its law is about normal.
    """
    compared = [(judgment.label, judgment.others) for judgment in judgments if sum(judgment.others.values())]
    n = len(compared)
    counts = Counter(label for label, _ in compared)
    shares = [{label: others.get(label, 0) / sum(others.values()) for label in LABELS} for _, others in compared]
    observed = sum(share[label] for share, (label, _) in zip(shares, compared, strict=True))
    if n < 2:
        return Agreement(observed, observed, None)
    of_label = {label: sum(share[label] for share in shares) / n for label in LABELS}
    of_task = [sum(counts[label] * share[label] for label in LABELS) / n for share in shares]
    mean = sum(of_task) / n
    squares = sum(
        counts[label] * (share[label] - of_label[label] - row + mean) ** 2
        for share, row in zip(shares, of_task, strict=True)
        for label in counts
    )
    variance = squares / (n - 1)
    chance = None if variance < 1e-12 else erfc((mean * n - observed) / sqrt(2 * variance)) / 2
    return Agreement(observed, mean * n, chance)


def _below_chance(judgments: Sequence[JudgmentSigns], level: float) -> str:
    compared = [judgment for judgment in judgments if judgment.others]
    if len(compared) < MIN_JUDGMENTS:
        return ""
    agreement = agreement_against_chance(compared)
    if agreement.chance is None or agreement.chance >= level:
        return ""
    n = len(compared)
    shares = f"{agreement.observed / n:.0%} of others agree with them, where chance gives {agreement.expected / n:.0%}"
    return f"far below chance: {shares.replace('%', ' %')}"


def pasted_texts(texts: Iterable[tuple[int, str]]) -> dict[int, int]:
    """Return how many texts each annotator has word for word as somebody else. texts: (annotator, text)s.

    Spaces, punctuation and capitals do not count; shorter ones than SHORTEST_PASTED are left out, as is what only one
    annotator writes again and again.
    """
    writers: dict[str, set[int]] = defaultdict(set)
    normalized = [(annotator, "".join(filter(str.isalnum, text.casefold()))) for annotator, text in texts]
    for annotator, letters in normalized:
        writers[letters].add(annotator)
    shared = Counter(
        annotator for annotator, letters in normalized if len(letters) >= SHORTEST_PASTED and len(writers[letters]) > 1
    )
    return dict(shared)


def pasted_flag(n_pasted: int) -> list[str]:
    if not n_pasted:
        return []
    return [f"{n_pasted} text{'s' if n_pasted > 1 else ''} word for word as somebody else's"]
