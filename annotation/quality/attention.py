"""Signs that somebody may not have judged in earnest: flags for people to decide on, which change nothing.

Each rule is a test of people who do their best. Over all annotators of a round together, the chance that a rule flags
any honest one is at most FALSE_ALARMS: each is tested at FALSE_ALARMS over their number (Bonferroni). Two rules need no
chance: nobody reads as fast as FASTEST_READING, and nobody writes long texts word for word as others do. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import erfc, prod, sqrt
from statistics import median
from typing import NamedTuple

from annotation.quality.profiles import LABELS, MIN_JUDGMENTS, longest_run

FALSE_ALARMS = 0.05  # of each rule that has a chance, over all honest annotators of a round together
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
