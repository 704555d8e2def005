"""Who is judged next: a round's sample shared among strata, those of a judge's labels among them.

What a judge calls true is mostly alike, and so is what it calls false: a few statements of each tell most of it. A
stratum of tuples that are unlike each other deserves more. Which stratum a tuple is in depends on the judge alone, so
that the sample stays simple within strata, with known inclusion probabilities, however good the judge is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import sqrt
from typing import NamedTuple

from annotation.judges.labels import check_one_judge, judge_labels
from annotation.judges.models import JudgeRun
from annotation.judging.verdicts import Verdict
from annotation.models import Label
from annotation.rounds.models import Round
from kgharvest.errors import DomainError
from kgharvest.models import Job

OTHER = "other"  # what a judge calls neither true nor false: unjudgeable, unparsable, or not answered
JUDGE_STRATA = (Label.TRUE.value, Label.FALSE.value, OTHER)
ASSUMED_ACCURACY = {Label.TRUE.value: 0.9, Label.FALSE.value: 0.3, OTHER: 0.5}  # where nobody has judged such tuples
LEAST_PER_STRATUM = 5  # statements of a judge's label, where there are as many: fewer do not show that it errs


class JudgeStrata(NamedTuple):
    """Labels of a judge by knowledge tuple, and how accurate each of JUDGE_STRATA seems to be."""

    labels: Mapping[int, str]
    accuracy: Mapping[str, float]

    def strata(self, ranks: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
        """Return the ranks of each stratum that has any, in the order of JUDGE_STRATA; `ranks` with their tuples."""
        strata: dict[str, list[int]] = {label: [] for label in JUDGE_STRATA}
        for rank, tuple_id in ranks:
            label = self.labels.get(tuple_id, "")
            strata[label if label in strata else OTHER].append(rank)
        return {label: members for label, members in strata.items() if members}

    def spreads(self, strata: Sequence[str]) -> list[float]:
        return [sqrt(self.accuracy[label] * (1 - self.accuracy[label])) for label in strata]


def judge_strata(round: Round) -> JudgeStrata | None:
    """Return what the judge that the round names says; None if it names none. Raises JudgeNotReady, SeveralJudges."""
    if not round.judge:
        return None
    run = round.judge_runs.filter(name=round.judge).first() if round.pk else None
    if run is None:
        raise DomainError(
            "JudgeNotReady",
            f"judge: the round {round.name} has no judge run {round.judge!r}; keep it as a draft, start the run on its "
            "page, and open the round once the run has finished.",
        )
    if run.status != Job.Status.SUCCEEDED:
        raise DomainError("JudgeNotReady", f"judge: run {run.name} is {run.status}; wait until it has succeeded.")
    check_one_judge(run)
    return JudgeStrata(judge_labels(run), accuracy_by_label(run))


def accuracy_by_label(run: JudgeRun) -> dict[str, float]:
    """Return the accuracy of each of JUDGE_STRATA in earlier rounds of the project that the same judge labelled.

    Simulated people say nothing of it. One accepted and one rejected statement are added to each, so that none is
    certain; ASSUMED_ACCURACY without any.
    """
    same = {"prompt_sha256": run.prompt_sha256, "model": run.model, "revision": run.revision, "dtype": run.dtype}
    runs = JudgeRun.objects.filter(**same, judge_kind=run.judge_kind, threshold=run.threshold)
    n: Counter[str] = Counter()
    n_accepted: Counter[str] = Counter()
    runs = runs.filter(round__project=run.round.project_id).exclude(round__source=Round.Source.SIMULATED)
    for other in runs.exclude(round=run.round_id):
        verdicts = other.round.tasks.without_gold().complete().values_list("knowledge_tuple", "verdict")
        labels = judge_labels(other)
        for tuple_id, verdict in verdicts:
            if (label := labels.get(tuple_id)) is not None:
                stratum = label if label in JUDGE_STRATA else OTHER
                n[stratum] += 1
                n_accepted[stratum] += verdict == Verdict.ACCEPTED
    return {
        label: (n_accepted[label] + 1) / (n[label] + 2) if n[label] else ASSUMED_ACCURACY[label]
        for label in JUDGE_STRATA
    }


def allocate(
    n: int, sizes: Sequence[int], allocation: str, spreads: Sequence[float] | None = None, least: int = 1
) -> list[int]:
    """Return how many of `n` each stratum of the given size gets: at least one, at most all that it has.

    allocation: "equal" or "proportional" to the sizes; what a small stratum cannot take goes to the others in the same
    manner. "optimal" makes the variance of the population's rate as small as it can be, given the standard deviations
    `spreads` (Neyman 1934), in whole numbers within the bounds (Wright 2012, "The equivalence of Neyman optimum
    allocation for sampling and equal proportions for apportioning the U.S. House of Representatives", American
    Statistician 66). least: of each stratum that has as many, where n suffices for all. The sum is n, which must lie
    between the number of strata and the sum of sizes.
    """
    if allocation == "optimal":
        weights = [size * spread for size, spread in zip(sizes, spreads or [1.0] * len(sizes), strict=True)]
        # One more takes weight^2 / (share (share + 1)) off the variance.
        return _one_by_one(n, sizes, weights, lambda share: sqrt(share * (share + 1)), least)
    weights = [1 if allocation == "equal" else size for size in sizes]
    return _one_by_one(n, sizes, weights, lambda share: 2 * share + 1, least)  # Webster


def _one_by_one(
    n: int, sizes: Sequence[int], weights: Sequence[float], divisor: Callable[[int], float], least: int
) -> list[int]:
    """Give one after the other to the stratum with the largest weight over the divisor of what it has."""
    shares = [min(least, size) for size in sizes]
    if sum(shares) > n:
        shares = [1] * len(sizes)
    owed = [
        (-weights[stratum] / divisor(share), stratum) for stratum, share in enumerate(shares) if sizes[stratum] > share
    ]
    heapify(owed)
    for _ in range(n - sum(shares)):
        _, stratum = heappop(owed)
        shares[stratum] += 1
        if shares[stratum] < sizes[stratum]:
            heappush(owed, (-weights[stratum] / divisor(shares[stratum]), stratum))
    return shares
