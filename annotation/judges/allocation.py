"""Sample allocation across strata, including strata defined by the labels of an LM judge.

Most tuples that a good judge labels true are true, and most that it labels false are false, so a few statements per
label suffice to estimate the accuracy. A stratum of true and false tuples needs more statements. The stratum of a tuple
depends only on the label of the judge, so each stratum has a simple random sample with known inclusion probabilities,
even if the judge is poor.
"""

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

OTHER = "other"  # unjudgeable, unparsable, or not answered
JUDGE_STRATA = (Label.TRUE.value, Label.FALSE.value, OTHER)
ASSUMED_ACCURACY = {Label.TRUE.value: 0.9, Label.FALSE.value: 0.3, OTHER: 0.5}  # used for labels without judged tuples
LEAST_PER_STRATUM = 5  # minimum statements per label, if available; fewer could miss the judge's errors


class JudgeStrata(NamedTuple):
    """Strata defined by the labels of a judge.

    labels: by knowledge tuple id. accuracy: estimate by stratum, in [0, 1].
    """

    labels: Mapping[int, str]
    accuracy: Mapping[str, float]

    def strata(self, ranks: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
        """Return the ranks in each non-empty stratum, in the order of JUDGE_STRATA. ranks: (rank, tuple id) pairs."""
        strata: dict[str, list[int]] = {label: [] for label in JUDGE_STRATA}
        for rank, tuple_id in ranks:
            label = self.labels.get(tuple_id, "")
            strata[label if label in strata else OTHER].append(rank)
        return {label: members for label, members in strata.items() if members}

    def spreads(self, strata: Sequence[str]) -> list[float]:
        return [sqrt(self.accuracy[label] * (1 - self.accuracy[label])) for label in strata]


def judge_strata(round: Round) -> JudgeStrata | None:
    """Return the strata of the round's judge, or None without a judge. Raises JudgeNotReady or SeveralJudges."""
    if not round.judge:
        return None
    run = round.judge_runs.filter(name=round.judge).first() if round.pk else None
    if run is None:
        raise DomainError(
            "JudgeNotReady",
            f"judge: round {round.name} has no judge run {round.judge!r}. Save a draft, start the run on its page, and "
            "open the round when the run has finished.",
        )
    if run.status != Job.Status.SUCCEEDED:
        raise DomainError("JudgeNotReady", f"judge: run {run.name} is {run.status}. Wait until it has succeeded.")
    check_one_judge(run)
    return JudgeStrata(judge_labels(run), accuracy_by_label(run))


def accuracy_by_label(run: JudgeRun) -> dict[str, float]:
    """Return the accuracy of each of JUDGE_STRATA in other rounds of the project that the same judge labeled.

    Simulated rounds are ignored. One accepted and one rejected statement are added to each stratum, so that no estimate
    is 0 or 1. Strata without any statement get ASSUMED_ACCURACY.
    """
    same = {"prompt_sha256": run.prompt_sha256, "model": run.model, "revision": run.revision, "dtype": run.dtype}
    runs = JudgeRun.objects.filter(**same, judge_kind=run.judge_kind, threshold=run.threshold)
    n: Counter[str] = Counter()
    n_accepted: Counter[str] = Counter()
    runs = runs.filter(round__project=run.round.project_id).exclude(round__source=Round.Source.SIMULATED)
    for earlier_run in runs.exclude(round=run.round_id):
        verdicts = earlier_run.round.tasks.without_gold().complete().values_list("knowledge_tuple", "verdict")
        labels = judge_labels(earlier_run)
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
    """Return the sample size of each stratum: at least 1, at most the size of the stratum, and `n` in total.

    `n` must lie between the number of strata and the sum of `sizes`. allocation: "equal", or "proportional" to the
    sizes. If a stratum is too small for its share, the surplus is allocated to the other strata in the same way.
    "optimal" finds the whole numbers within these limits that minimize the variance of the population rate, given the
    standard deviations `spreads` (Neyman 1934; Wright 2012, "The equivalence of Neyman optimum allocation for sampling
    and equal proportions for apportioning the U.S. House of Representatives", American Statistician 66). least: minimum
    sample size of each stratum (smaller strata are sampled completely); ignored if `n` is too small to provide it for
    every stratum.
    """
    if allocation == "optimal":
        weights = [size * spread for size, spread in zip(sizes, spreads or [1.0] * len(sizes), strict=True)]
        # With `share` statements in a stratum, one more draw reduces the variance by weight^2 / (share (share + 1)).
        return _one_by_one(n, sizes, weights, lambda share: sqrt(share * (share + 1)), least)
    weights = [1 if allocation == "equal" else size for size in sizes]
    return _one_by_one(n, sizes, weights, lambda share: 2 * share + 1, least)  # Webster's method


def _one_by_one(
    n: int, sizes: Sequence[int], weights: Sequence[float], divisor: Callable[[int], float], least: int
) -> list[int]:
    """Assign statements one at a time to the stratum with the highest weight / divisor(current share)."""
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
