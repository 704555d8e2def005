"""Judge quality: errors, calibration, consistency, agreement with people, effective votes, and replacing annotators.

Letters in array shapes: T statements, J judgments of people, R repeats, M judges.
"""

from typing import NamedTuple

import numpy as np
import scipy

from kgharvest.statistics.agreement import ALL_ALIKE, NOTHING_PAIRED, alpha_of_counts
from kgharvest.statistics.arrays import ACCEPTED, FALSE, REJECTED, TRUE, Codes, Counts, Flags, Floats
from kgharvest.statistics.paired_tests import mcnemar_p
from kgharvest.statistics.rates import SIGNIFICANCE, Rate, difference_interval, hajek_share, rate

UNPARSABLE = 3  # label of an unreadable answer; other labels have the same codes as people's labels
N_LABELS, N_VERDICTS = 4, 3
N_BINS = 10
FEWEST_FOR_VOTES = 10  # minimum number of statements with a verdict

NONE_ACCEPTED = "People accepted no statement that the judge labeled."
NONE_REJECTED = "People rejected no statement that the judge labeled."
ONE_JUDGE = "Effective votes need at least two judges."
TOO_FEW_FOR_VOTES = f"Fewer than {FEWEST_FOR_VOTES} statements have a verdict and a label from each judge."


# Errors


class Errors(NamedTuple):
    """Errors of a judge. sensitivity: share of accepted statements that the judge calls True.

    specificity: share of rejected statements that the judge calls False. youden_j: sensitivity plus specificity minus
    1; 0 for an uninformative judge. An answer that is neither True nor False is an error of both kinds. confusion (3,
    4): unweighted numbers of statements by verdict and label.
    """

    sensitivity: Rate
    specificity: Rate
    youden_j: Rate
    confusion: Counts


def judge_errors(verdict: Codes, label: Codes, weight: Floats) -> Errors:
    """Return the errors of a judge compared with people's verdicts, with 95 % intervals. Arrays have shape (T,).

    weight: number of tuples that a statement represents (the inverse inclusion probability), on any scale. Shares use
    Wilson's interval with Kish's effective sample size. J (Youden 1950, Cancer 3) is the difference of two independent
    shares of True, so it uses Newcombe's interval.
    """
    sensitivity = _weighted_share(verdict == ACCEPTED, label == TRUE, weight, NONE_ACCEPTED)
    specificity = _weighted_share(verdict == REJECTED, label == FALSE, weight, NONE_REJECTED)
    confusion = np.bincount(verdict * N_LABELS + label, minlength=N_VERDICTS * N_LABELS).reshape(N_VERDICTS, N_LABELS)
    return Errors(sensitivity, specificity, _youden_j(sensitivity, specificity), confusion)


def _weighted_share(among: Flags, is_hit: Flags, weight: Floats, why_none: str) -> Rate:
    if not among.any():
        return Rate(reason=why_none)
    weights, hits = weight[among], is_hit[among]
    return Rate(*hajek_share(float(weights.sum()), float(weights[hits].sum()), float((weights**2).sum())))


def _youden_j(sensitivity: Rate, specificity: Rate) -> Rate:
    if sensitivity.with_interval is None or specificity.with_interval is None:
        return Rate(reason=sensitivity.reason or specificity.reason or "")
    value, low, high = specificity.with_interval
    false_alarms = Rate(1 - value, 1 - high, 1 - low)
    difference = sensitivity.with_interval[0] - (1 - value)
    return Rate(difference, *difference_interval(sensitivity, false_alarms))


# Calibration


class CalibrationBin(NamedTuple):
    """Number and weighted means of the statements whose probability of True is in [low, high).

    The last bin includes 1.
    """

    low: float
    high: float
    n: int
    probability: float
    accepted: float


class Calibration(NamedTuple):
    """Calibration of a judge. error: expected calibration error over nonempty bins.

    brier: mean squared error in [0, 1].
    """

    error: float
    brier: float
    n: int
    bins: list[CalibrationBin]


def calibration(probability: Floats, is_accepted: Flags, weight: Floats) -> Calibration | None:
    """Compare a judge's probability of True (T,) with people's verdicts. Returns None if there are no statements.

    There are N_BINS bins of equal width. The error is a mean over statements. For each statement, it takes the absolute
    difference between the mean probability and the share of accepted statements in the statement's bin (Naeini, Cooper,
    and Hauskrecht 2015; Guo et al. 2017, equation 3). If bins have few statements, the error is biased upward, even for
    a calibrated judge.
    """
    if not len(probability):
        return None
    share = weight / weight.sum()
    number = np.minimum((probability * N_BINS).astype(np.int64), N_BINS - 1)
    n, mass, predicted, accepted = (
        np.bincount(number, column, N_BINS) for column in (None, share, share * probability, share * is_accepted)
    )
    filled = np.flatnonzero(n).tolist()
    bins = [
        CalibrationBin(
            part / N_BINS, (part + 1) / N_BINS, int(n[part]), predicted[part] / mass[part], accepted[part] / mass[part]
        )
        for part in filled
    ]
    error = float(np.abs(predicted - accepted).sum())
    brier = float(share @ (probability - is_accepted) ** 2)
    return Calibration(error, brier, len(probability), bins)


# Consistency of repeats


class Flips(NamedTuple):
    """Label changes between repeats. n: number of tuples with at least two repeats.

    n_changing: number of tuples with different labels.

    flip_rate: probability that two repeats of a tuple differ, averaged over tuples.
    """

    n: int
    n_changing: int
    flip_rate: float


def flips(counts: Counts) -> Flips | None:
    """Return how often repeats of a judge differ, or None if there are no repeats.

    counts (T, 4): number of repeats by label. An unreadable answer is a separate label.
    """
    n_repeats = counts.sum(axis=1)
    counts, n_repeats = counts[n_repeats >= 2], n_repeats[n_repeats >= 2]
    if not len(counts):
        return None
    alike = (counts * (counts - 1)).sum(axis=1) / (n_repeats * (n_repeats - 1))
    return Flips(len(counts), int(np.count_nonzero(counts.max(axis=1) < n_repeats)), float(1 - alike.mean()))


# Agreement with people


class Consensus(NamedTuple):
    """Agreement with the other annotators of each statement. alpha: Krippendorff's nominal alpha, or None."""

    percent: float | None
    alpha: float | None
    reason: str | None


class AgreementWithPeople(NamedTuple):
    """Comparison of a judge with people on the same statements.

    The consensus of a judgment is the most frequent label of the statement's other annotators. n: number of judgments
    with a unique consensus. people: agreement of these judgments with the consensus. judge: agreement of the judge's
    labels with the consensus. A judge cannot be expected to agree more than people do.
    """

    n: int
    judge: Consensus
    people: Consensus


def agreement_with_people(task: Codes, label: Codes, judge: Codes) -> AgreementWithPeople:
    """Compare a judge with people. task, label: task and label of each judgment (J,). judge: labels (T,).

    A negative label means that the judge did not label the statement, which is then excluded.
    """
    kept = judge[task] >= 0
    task, label = task[kept], label[kept]
    counts = np.bincount(task * N_LABELS + label, minlength=len(judge) * N_LABELS).reshape(-1, N_LABELS)
    others = counts[task] - np.eye(N_LABELS, dtype=np.int64)[label]  # (J, 4)
    most = others.max(axis=1, initial=0)
    has_consensus = (most > 0) & ((others == most[:, None]).sum(axis=1) == 1)
    consensus, own = others[has_consensus].argmax(axis=1), label[has_consensus]
    return AgreementWithPeople(
        int(has_consensus.sum()), _consensus(judge[task[has_consensus]], consensus), _consensus(own, consensus)
    )


def _consensus(label: Codes, consensus: Codes) -> Consensus:
    if not len(label):
        return Consensus(None, None, NOTHING_PAIRED)
    pair, n = np.unique(np.sort(np.column_stack([label, consensus]), axis=1), axis=0, return_counts=True)
    patterns = np.eye(N_LABELS, dtype=np.int64)[pair].sum(axis=1)
    percent = float(np.mean(label == consensus))
    if np.count_nonzero(n @ patterns) < 2:
        return Consensus(percent, None, ALL_ALIKE)
    [alpha] = alpha_of_counts(patterns, n[np.newaxis])
    return Consensus(percent, float(alpha), None)


# Panels of judges


class EffectiveVotes(NamedTuple):
    """Number of independent judges to which a panel is equivalent, or None with a `reason`.

    kish: M / (1 + (M - 1) r), where r is the mean correlation of two judges' errors. eigenvalue: squared sum of the
    eigenvalues of the correlation matrix, divided by the sum of their squares.
    """

    n_judges: int
    n: int
    kish: float | None
    eigenvalue: float | None
    reason: str | None = None


def effective_votes(is_wrong: Flags) -> EffectiveVotes:
    """Return the effective votes of a panel, given its errors (T, M) on statements with a verdict.

    `kish` follows Kish (1965, Survey Sampling, section 5.4) for clustered judgments. `eigenvalue` is the participation
    ratio, which also detects pairs with similar errors if the mean correlation is small. Many judges can amount to few
    votes: "Nine Judges, Two Effective Votes" (arXiv 2605.29800). Judges who never or always err have correlation 0. A
    negative mean correlation counts as 0, because it would give more votes than judges, which can only be due to
    chance.
    """
    n, n_judges = is_wrong.shape
    if n_judges < 2:
        return EffectiveVotes(n_judges, n, None, None, ONE_JUDGE)
    if n < FEWEST_FOR_VOTES:
        return EffectiveVotes(n_judges, n, None, None, TOO_FEW_FOR_VOTES)
    centred = is_wrong - is_wrong.mean(axis=0)
    norm = np.sqrt((centred**2).sum(axis=0))
    scale = np.outer(norm, norm)
    correlations = centred.T @ centred / np.where(scale > 0, scale, 1)
    np.fill_diagonal(correlations, 1)
    mean = (correlations.sum() - n_judges) / (n_judges * (n_judges - 1))
    kish = n_judges / (1 + (n_judges - 1) * max(float(mean), 0.0))
    return EffectiveVotes(n_judges, n, kish, float(n_judges**2 / (correlations**2).sum()))


# Comparison of two runs


class Change(NamedTuple):
    """Comparison of two runs on the n tuples that both labeled. An unreadable answer is a separate label.

    n_differing, share: number and share of tuples whose labels differ. kappa: Cohen's kappa. n_to_true: number of
    tuples called True only by the other run. n_from_true: number of tuples called True only by this run. more_true:
    (n_to_true - n_from_true) / n. p: two-sided p value of the hypothesis that changes to True and from True are equally
    probable (exact McNemar test); None if both counts are 0.
    """

    n: int
    n_differing: int
    share: Rate
    kappa: Rate
    n_to_true: int
    n_from_true: int
    more_true: float
    p: float | None


def change_between(label: Codes, other: Codes) -> Change | None:
    """Compare the labels (T,) of two runs that differ in wording, order, seed, or LM. Return None if T is 0.

    The intervals and p hold for similar tuples.
    """
    n = len(label)
    if not n:
        return None
    n_differing = int(np.count_nonzero(label != other))
    share = rate(n_differing, n)
    n_to_true, n_from_true = (
        int(np.count_nonzero((now == TRUE) & (then != TRUE))) for now, then in ((other, label), (label, other))
    )
    return Change(
        n,
        n_differing,
        share,
        _cohens_kappa(label, other, share),
        n_to_true,
        n_from_true,
        (n_to_true - n_from_true) / n,
        mcnemar_p(n_to_true, n_from_true),
    )


def _cohens_kappa(label: Codes, other: Codes, differing: Rate) -> Rate:
    """Return Cohen's kappa (1960): (P - P_e) / (1 - P_e), where P is the share of equal labels.

    P_e is the share of equal labels expected by chance, given each run's label shares. The limits are computed from the
    limits of P, with P_e fixed.
    """
    of_run, of_other = (np.bincount(labels, minlength=N_LABELS) / len(labels) for labels in (label, other))
    by_chance = float(of_run @ of_other)
    if by_chance == 1:
        return Rate(reason=ALL_ALIKE)
    value, low, high = (None if part is None else 1 - part / (1 - by_chance) for part in differing[:3])
    return Rate(value, high, low)


# Alternative annotator test: decide if a judge can replace a human annotator.
#
# Calderon, Reichart, and Dror (2025), "The Alternative Annotator Test for LLM-as-a-Judge: How to Statistically Justify
# Replacing Human Annotators with LLMs", ACL 2025, section 3. Each annotator is excluded in turn. On each statement of
# this annotator, the annotator and the judge are scored by the share of the other annotators' labels that equal their
# own label. W is the set of statements on which the judge scores at least as high as the annotator, and H is the set on
# which the annotator scores at least as high as the judge. The judge wins if the share of H minus the share of W is
# significantly below epsilon, which represents the judge's lower cost. This uses a one-sided t test, with p values
# adjusted over annotators (Benjamini and Yekutieli 2001). Omega is the share of annotators against whom the judge wins,
# and rho is the mean share of W. The test is passed if omega is at least one half.


EPSILON = {"experts": 0.2, "skilled": 0.15, "crowd": 0.1}  # epsilon by kind of annotator, as recommended by the authors
FEWEST_ANNOTATORS = 3
FEWEST_STATEMENTS = 30  # minimum number of statements per annotator
PASSED = 0.5

TOO_FEW = (
    f"The test needs at least {FEWEST_ANNOTATORS} annotators with at least {FEWEST_STATEMENTS} statements each that "
    "another annotator judged and the judge labeled."
)


class LeftOut(NamedTuple):
    """One annotator compared with the judge on n statements.

    advantage: share of statements on which the judge scores at least as high as the annotator. p: adjusted p value of
    the null hypothesis that the annotator is better by epsilon or more.
    """

    annotator: int
    n: int
    advantage: float
    p: float

    @property
    def is_won(self) -> bool:
        return self.p <= SIGNIFICANCE


class AlternativeAnnotator(NamedTuple):
    """Result of the alternative annotator test. omega, rho: values in [0, 1], or None with a `reason`.

    annotators: the annotators with enough statements.
    """

    epsilon: float
    omega: float | None
    rho: float | None
    annotators: list[LeftOut]
    reason: str | None = None

    @property
    def is_passed(self) -> bool | None:
        return None if self.omega is None else self.omega >= PASSED


def alternative_annotator_test(
    task: Codes, annotator: Codes, label: Codes, judge: Codes, epsilon: float
) -> AlternativeAnnotator:
    """Test `judge` (T,) against the annotators of judgments (J,), at most one per task and annotator.

    judge: a code that `label` uses, another code for an answer that equals no label, or a negative number for no
    answer. Statements without an answer are excluded.
    """
    n_judgments = np.bincount(task, minlength=len(judge))
    is_shared = (n_judgments >= 2) & (judge >= 0)
    kept = is_shared[task]
    task, annotator, label = task[kept], annotator[kept], label[kept]
    n_labels = int(max(label.max(initial=0), judge.max(initial=0))) + 1
    counts = np.bincount(task * n_labels + label, minlength=len(judge) * n_labels).reshape(-1, n_labels)
    # The annotator and the judge are compared with the same other annotators, so counts rank the two in the same way as
    # shares do.
    of_annotator = counts[task, label] - 1
    of_judge = counts[task, judge[task]] - (judge[task] == label)
    wins, holds = (of_judge >= of_annotator).astype(np.float64), (of_annotator >= of_judge).astype(np.float64)
    people = [code for code, n in enumerate(np.bincount(annotator)) if n >= FEWEST_STATEMENTS]
    if len(people) < FEWEST_ANNOTATORS:
        return AlternativeAnnotator(epsilon, None, None, [], TOO_FEW)
    own = [annotator == code for code in people]
    ps = []  # p values of the null hypothesis that the mean is at least `epsilon`; 0 or 1 if all differences are equal
    for mine in own:
        differences = holds[mine] - wins[mine]
        mean, error = differences.mean(), differences.std(ddof=1) / np.sqrt(len(differences))
        ps.append(
            scipy.stats.t.cdf((mean - epsilon) / error, len(differences) - 1) if error else float(mean >= epsilon)
        )
    adjusted = scipy.stats.false_discovery_control(ps, method="by")
    left_out = [
        LeftOut(code, int(mine.sum()), float(wins[mine].mean()), float(p))
        for code, mine, p in zip(people, own, adjusted, strict=True)
    ]
    omega = sum(row.is_won for row in left_out) / len(left_out)
    return AlternativeAnnotator(epsilon, omega, sum(row.advantage for row in left_out) / len(left_out), left_out)
