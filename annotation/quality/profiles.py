"""Annotator profiles (speed, labels, runs, gold accuracy, agreement) and signs of inattention. No database access.

Most signs are statistical tests. For each test, the probability of flagging at least one honest annotator in a round is
at most FALSE_ALARMS (Bonferroni). Two rules are not tests: a reading speed above FASTEST_READING, and a long text
identical to another annotator's. A flag changes nothing; researchers decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import erfc, exp, prod, sqrt
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from annotation.models import Limits

LABELS = ("true", "false", "unjudgeable")
TOO_FAST_S = 1.0  # too short to read any statement
MIN_JUDGMENTS = 20  # required before the median time and runs are evaluated
UNLIKELY = 0.001  # significance level for runs, per annotator
FLAGGED_GOLD_ACCURACY, FLAGGED_N_GOLD = 0.7, 10  # defaults for flags if a round sets no limit
# Maximum probability of a false alarm. For gold accuracy, it covers all checks of one annotator. For the other tests,
# it covers all annotators of a round.
FALSE_ALARMS = 0.05


class JudgmentRow(NamedTuple):
    """One current judgment. gold_label: empty unless the task is gold.

    n_others: number of other counted judgments of the task. n_same: number of these judgments with the same label.
    """

    label: str
    seconds: float | None
    gold_label: str
    n_same: int
    n_others: int


class Profile(NamedTuple):
    """Summary of one annotator's judgments.

    median_seconds, too_fast (a share): None if no times were recorded. shares: share of each label, including gold.
    n_pairs: number of pairs with other annotators' judgments of the same task, without gold. n_agreeing: number of
    these pairs with equal labels.
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
    """Return the profile of one annotator's judgments, sorted by time."""
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


def exceeded_limits(profile: Profile, limits: Limits) -> list[str]:
    phrases = _low_gold_accuracy(profile, limits.gold_accuracy, limits.n_gold)
    phrases += _low_median_seconds(profile, limits.median_seconds)
    if limits.longest_run and profile.longest_run > limits.longest_run:
        phrases.append(f"{profile.longest_run} equal labels in a row")
    return phrases


def flags_of(profile: Profile, limits: Limits, label_shares: Mapping[str, float]) -> list[str]:
    """Return the reasons to review an annotator: exceeded limits, or exceeded defaults if the round sets no limit.

    By default, a run is flagged if the probability of a run of its length is below UNLIKELY, given the `label_shares`
    of the whole round.
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


def _low_gold_accuracy(profile: Profile, minimum: float | None, n_gold: int) -> list[str]:
    if minimum is None or not profile.n_gold or profile.n_gold < n_gold:
        return []
    is_low = is_below(minimum, profile.n_gold_right, profile.n_gold)
    return [f"{profile.n_gold_right} of {profile.n_gold} gold statements correct"] if is_low else []


def _low_median_seconds(profile: Profile, minimum: float | None) -> list[str]:
    seconds = profile.median_seconds
    if minimum is None or seconds is None or profile.n < MIN_JUDGMENTS or seconds >= minimum:
        return []
    return [f"median of {seconds:.1f} seconds"]


def is_below(limit: float, n_right: int, n: int) -> bool:
    """Return True if `n_right` of `n` answers show an accuracy below `limit`. Valid for repeated checks.

    The probability that an annotator at or above the limit is ever reported is at most FALSE_ALARMS. The evidence is
    the likelihood ratio against the limit, averaged uniformly over all accuracies below it. This evidence is a
    supermartingale, so the probability that it ever reaches 1 / FALSE_ALARMS is at most FALSE_ALARMS (Ville 1939;
    Robbins 1970).
    The average is the sum over j > n_right of C(n + 1, j) / C(n, n_right) / (n + 1) * odds(limit) ** (j - n_right - 1).
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
    """Return the length of the longest run of equal labels, or 0 if there are no labels."""
    return max((sum(1 for _ in run) for _, run in groupby(labels)), default=0)


def chance_of_run(length: int, n: int, shares: Mapping[str, float]) -> float:
    """Return the approximate probability that `n` independent labels contain a run of at least `length` (>= 1).

    Poisson approximation for the number of positions at which such a run of any label begins (Arratia, Goldstein, and
    Gordon 1990, example 3). A run begins at the first position or after a different label. The result is a few percent
    too low for n < 100.
    """
    if length > n:
        return 0.0
    if max(shares.values()) == 1:
        return 1.0
    begins = sum(share**length * (1 + (n - length) * (1 - share)) for share in shares.values())
    return 1 - exp(-begins)


def expected_longest_run(n: int, shares: Mapping[str, float]) -> float:
    """Return the mean length of the longest run of `n` independent labels, which is the sum of P(longest >= length)."""
    if not n or not any(shares.values()):
        return 0.0
    total = 1.0  # a run of length 1 always exists
    for length in range(2, n + 1):
        chance = chance_of_run(length, n, shares)
        if chance < 1e-9:
            break
        total += chance
    return total


# Signs of inattention

# Adults silently read 175 to 300 words of six characters per minute (Brysbaert 2019). The limit is 600 words.
FASTEST_READING = 60.0  # characters per second
SHORTEST_PASTED = 30  # letters and digits; shorter texts can be equal by chance


class JudgmentSigns(NamedTuple):
    """One current judgment, with the values that the inattention rules use.

    n_characters: length of the statement. seconds: None if unknown. others: other counted judgments of the task by
    label; empty for gold, which is not compared.
    """

    label: str
    seconds: float | None
    n_characters: int
    others: Mapping[str, int]


def attention_flags(
    judgments: Sequence[JudgmentSigns], n_annotators: int, *, is_order_random: bool = True
) -> list[str]:
    """Return the reasons to review an annotator, as phrases. There are no reasons below MIN_JUDGMENTS judgments.

    judgments: sorted by time. n_annotators: number of annotators with at least MIN_JUDGMENTS judgments.
    is_order_random: False skips the test of runs, which requires statements in random order.
    """
    if len(judgments) < MIN_JUDGMENTS:
        return []
    level = FALSE_ALARMS / max(1, n_annotators)
    flags = []
    speed = reading_speed(judgments)
    if speed is not None and speed > FASTEST_READING:
        flags.append(f"half of the statements judged at more than {FASTEST_READING:.0f} characters per second")
    labels = [judgment.label for judgment in judgments]
    if is_order_random and chance_of_longest_run(labels) < level:
        flags.append(f"{longest_run(labels)} equal labels in a row, improbable under random order")
    if below_chance := _below_chance(judgments, level):
        flags.append(below_chance)
    return flags


def reading_speed(judgments: Iterable[JudgmentSigns]) -> float | None:
    """Return the median number of characters per second, or None if fewer than MIN_JUDGMENTS times were recorded.

    The median is robust to wrong times, which result from double clicks and from answers that waited in the browser.
    """
    timed = [judgment for judgment in judgments if judgment.seconds is not None]
    if len(timed) < MIN_JUDGMENTS:
        return None
    return median(judgment.n_characters / max(judgment.seconds or 0.0, 0.001) for judgment in timed)


def chance_of_longest_run(labels: Sequence[str]) -> float:
    """Return an upper bound on the probability that a random order of `labels` has a run as long as in the given order.

    Statements are shown in random order, so all orders of honest labels are equally likely. A run of a label with m of
    n judgments begins at the first position or after a different label, that is, at n - m + 1 positions, each with
    probability m / n * (m - 1) / (n - 1) * ... (`length` factors). The sum over all labels is the bound (Bonferroni).
    """
    length, n = longest_run(labels), len(labels)
    counts = [m for m in Counter(labels).values() if m >= length]
    return min(1.0, sum((n - m + 1) * prod((m - i) / (n - i) for i in range(length)) for m in counts))


class Agreement(NamedTuple):
    """Permutation test of an annotator's agreement with others.

    observed: the share of other annotators' labels that equal the annotator's label, summed over tasks. expected: mean
    of this sum over all permutations of the annotator's labels. chance: one-sided p-value for low agreement; None if
    the variance is zero.
    """

    observed: float
    expected: float
    chance: float | None


def agreement_against_chance(judgments: Iterable[JudgmentSigns]) -> Agreement:
    """Test an annotator's agreement with others by permuting the annotator's labels over the tasks.

    The mean and variance of the sum over all permutations are from Hoeffding (1951), A combinatorial central limit
    theorem, theorem 2. The p-value uses the normal approximation.
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
    shares = f"{agreement.observed / n:.0%} agreement with others; expected by chance: {agreement.expected / n:.0%}"
    return f"far below chance: {shares.replace('%', ' %')}"


def pasted_texts(texts: Iterable[tuple[int, str]]) -> dict[int, int]:
    """Return, per annotator, the number of texts that another annotator also wrote. texts: (annotator, text) pairs.

    Ignores spaces, punctuation, and case. Texts shorter than SHORTEST_PASTED do not count.
    """
    writers: dict[str, set[int]] = defaultdict(set)
    normalized = [(annotator, "".join(filter(str.isalnum, text.casefold()))) for annotator, text in texts]
    for annotator, letters in normalized:
        writers[letters].add(annotator)
    shared = Counter(
        annotator for annotator, letters in normalized if len(letters) >= SHORTEST_PASTED and len(writers[letters]) > 1
    )
    return dict(shared)
