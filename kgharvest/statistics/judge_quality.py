"""How good a judge is: its errors, calibration, steadiness and agreement with people, and the votes of a panel.

Letters of shapes: T statements, J judgments of people, R repeats, M judges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kgharvest.statistics.agreement import ALL_ALIKE, NOTHING_PAIRED, alpha_of_counts
from kgharvest.statistics.arrays import ACCEPTED, FALSE, REJECTED, TRUE, Codes, Counts, Flags, Floats
from kgharvest.statistics.paired_tests import mcnemar_p
from kgharvest.statistics.rates import Z_95, Rate, difference_interval, hajek_share, rate, unknown_rate

UNPARSABLE = 3  # the label of a judge's answer that cannot be read; the others have the codes of people's labels
N_LABELS, N_VERDICTS = 4, 3
N_BINS = 10
FEWEST_FOR_VOTES = 10  # statements with a verdict

NONE_ACCEPTED = "No statement that the judge labelled was accepted by people."
NONE_REJECTED = "No statement that the judge labelled was rejected by people."
ONE_JUDGE = "One judge alone is one vote."
TOO_FEW_FOR_VOTES = f"Fewer than {FEWEST_FOR_VOTES} statements have a verdict and a label of each judge."


# -- errors ------------------------------------------------------------------------------------------------------------


class Errors(NamedTuple):
    """sensitivity: of what people accept, the share that the judge calls True. specificity: of what they reject, the
    share that it calls False. youden_j: their sum less 1; 0 for a judge who tells nothing. An answer that is neither
    True nor False is an error of both. confusion (3, 4): statements by verdict and label, not weighted.
    """

    sensitivity: Rate
    specificity: Rate
    youden_j: Rate
    confusion: Counts


def judge_errors(verdict: Codes, label: Codes, weight: Floats) -> Errors:
    """Return the errors of a judge against people's verdicts, each with its 95 % interval. Shapes (T,).

    weight: for how many tuples a statement stands, the inverse of its inclusion probability; its scale does not matter.
    Shares by Wilson's interval, at Kish's effective size where weights differ. J (Youden 1950, Cancer 3) is the
    difference of two independent shares of True, so its interval is Newcombe's.
    """
    sensitivity = _weighted_share(verdict == ACCEPTED, label == TRUE, weight, NONE_ACCEPTED)
    specificity = _weighted_share(verdict == REJECTED, label == FALSE, weight, NONE_REJECTED)
    confusion = np.bincount(verdict * N_LABELS + label, minlength=N_VERDICTS * N_LABELS).reshape(N_VERDICTS, N_LABELS)
    return Errors(sensitivity, specificity, _youden_j(sensitivity, specificity), confusion)


def _weighted_share(among: Flags, is_hit: Flags, weight: Floats, why_none: str) -> Rate:
    if not among.any():
        return unknown_rate(why_none)
    weights, hits = weight[among], is_hit[among]
    return Rate(*hajek_share(float(weights.sum()), float(weights[hits].sum()), float((weights**2).sum())))


def _youden_j(sensitivity: Rate, specificity: Rate) -> Rate:
    if sensitivity.with_interval is None or specificity.with_interval is None:
        return unknown_rate(sensitivity.reason or specificity.reason or "")
    value, low, high = specificity.with_interval
    false_alarms = Rate(1 - value, 1 - high, 1 - low)
    difference = sensitivity.with_interval[0] - (1 - value)
    return Rate(difference, *difference_interval(sensitivity, false_alarms))


# -- calibration -------------------------------------------------------------------------------------------------------


class CalibrationBin(NamedTuple):
    """Statements whose probability of True lies in [low, high), the last bin's in [low, high]: n, weighted means."""

    low: float
    high: float
    n: int
    probability: float
    accepted: float


class Calibration(NamedTuple):
    """error: expected calibration error over the bins that hold statements. brier: mean squared distance, in [0, 1]."""

    error: float
    brier: float
    n: int
    bins: list[CalibrationBin]


def calibration(probability: Floats, is_accepted: Flags, weight: Floats) -> Calibration | None:
    """Compare a judge's probability of True (T,) with people's verdicts; None without a statement.

    N_BINS bins of equal width; the error is the mean over statements of how far their bin's mean probability lies from
    its share of accepted ones (Naeini, Cooper and Hauskrecht 2015; Guo et al. 2017, equation 3). Few statements a bin
    make it too large, even for a judge who is calibrated.
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


# -- steadiness --------------------------------------------------------------------------------------------------------


class Flips(NamedTuple):
    """n: tuples that were asked twice or more. n_changing: those whose repeats are not all alike.

    flip_rate: how likely two repeats of a tuple differ, the mean over tuples.
    """

    n: int
    n_changing: int
    flip_rate: float


def flips(counts: Counts) -> Flips | None:
    """Return how often a judge changes its mind; None where no tuple was asked twice.

    counts (T, 4): repeats by label; an answer that cannot be read is a label of its own.
    """
    n_repeats = counts.sum(axis=1)
    counts, n_repeats = counts[n_repeats >= 2], n_repeats[n_repeats >= 2]
    if not len(counts):
        return None
    alike = (counts * (counts - 1)).sum(axis=1) / (n_repeats * (n_repeats - 1))
    return Flips(len(counts), int(np.count_nonzero(counts.max(axis=1) < n_repeats)), float(1 - alike.mean()))


# -- agreement with people ---------------------------------------------------------------------------------------------


class Consensus(NamedTuple):
    """How well somebody agrees with the others of each statement. alpha: Krippendorff's, nominal; None for `reason`."""

    percent: float | None
    alpha: float | None
    reason: str | None


class AgreementWithPeople(NamedTuple):
    """Judge and people, compared on the same terms. n: judgments whose statement has others with one label most given.

    Each judgment is left out in turn: `people` is how it agrees with the most frequent label of the others, `judge` how
    the judge's label of that statement does. What is the ceiling for a judge is what people reach themselves.
    """

    n: int
    judge: Consensus
    people: Consensus


def agreement_with_people(task: Codes, label: Codes, judge: Codes) -> AgreementWithPeople:
    """task, label: of judgments (J,); judge (T,): labels, negative for none, which leaves a statement out."""
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


# -- panels ------------------------------------------------------------------------------------------------------------


class EffectiveVotes(NamedTuple):
    """How many judges who err independently a panel is worth; None where `reason` says why it is not known.

    kish: M / (1 + (M - 1) r), with r the mean correlation of two judges' errors. eigenvalue: the squared sum of the
    eigenvalues of the matrix of correlations over the sum of their squares.
    """

    n_judges: int
    n: int
    kish: float | None
    eigenvalue: float | None
    reason: str | None = None


def effective_votes(is_wrong: Flags) -> EffectiveVotes:
    """Return the votes of a panel from who was wrong about which statement with a verdict, (T, M).

    Kish (1965, Survey Sampling, section 5.4) for judgments in clusters; the eigenvalue form is the participation ratio,
    which also sees pairs who err alike in a panel whose mean correlation is small. That many judges are few votes:
    "Nine Judges, Two Effective Votes" (arXiv 2605.29800). Judges who never, or always, err correlate with nobody.
    Negative mean correlations count as none: more votes than judges would be chance.
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


# -- two runs compared -------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """Two runs on the n tuples that both labelled; an answer that cannot be read is a label of its own.

    n_differing: with another label in the other run; share: of all. kappa: Cohen's, of both runs' labels. n_to_true:
    only the other run calls them True; n_from_true: only this one does. more_true: their difference over n. p: that
    both are as likely, two-sided (McNemar, exact); None where there are none.
    """

    n: int
    n_differing: int
    share: Rate
    kappa: Rate
    n_to_true: int
    n_from_true: int
    more_true: Rate
    p: float | None


def change_between(label: Codes, other: Codes) -> Change | None:
    """Compare the labels (T,) of two runs that differ in wording, order, seed, or LM. Return None if T is 0.

    Intervals and p are for tuples like these.
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
        Rate((n_to_true - n_from_true) / n, *_paired_interval(n_to_true, n_from_true, n)),
        mcnemar_p(n_to_true, n_from_true),
    )


def _cohens_kappa(label: Codes, other: Codes, differing: Rate) -> Rate:
    """Return (P - P_e) / (1 - P_e), P the share of alike labels, P_e that by chance from each run's shares of labels.

    Cohen (1960). Its limits are those of P, with P_e as it was seen.
    """
    of_run, of_other = (np.bincount(labels, minlength=N_LABELS) / len(labels) for labels in (label, other))
    by_chance = float(of_run @ of_other)
    if by_chance == 1:
        return unknown_rate(ALL_ALIKE)
    value, low, high = (None if part is None else 1 - part / (1 - by_chance) for part in differing[:3])
    return Rate(value, high, low)


def _paired_interval(n_to: int, n_from: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two paired shares.

    Wald's, after half a pair is added to each of the four kinds, which holds where next to nothing differs, too
    (Agresti and Min 2005, Statistics in Medicine 24).
    """
    n_adjusted = n + 2
    difference = (n_to - n_from) / n_adjusted
    error = Z_95 * float(np.sqrt(n_to + n_from + 1 - n_adjusted * difference**2)) / n_adjusted
    return max(-1.0, difference - error), min(1.0, difference + error)
