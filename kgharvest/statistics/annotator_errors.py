"""Accuracy corrected for annotator errors with unknown error rates.

The model is that of Dawid and Skene (1979) with two classes. Statements drawn for the same strata form a group. The
probability that a statement is true is the prevalence of its group. Annotator a labels a true statement True with
probability s_a (sensitivity) and a false statement False with probability c_a (specificity), independently of other
annotators. Sensitivities, specificities, and prevalences each have a Beta distribution with unknown mean and precision,
so annotators and groups with few judgments borrow strength from the others (Paun et al. 2018, Comparing Bayesian models
of annotation, TACL 6). The average annotator is assumed to be right more often than not, on both true and false
statements. The truth of gold statements is known. Posterior draws come from a Gibbs sampler, which draws truths, rates,
and the distributions of rates in turn.

Letters in array shapes: P patterns (statements of one group with the same judgments), A annotators, G groups, C chains,
S strata, R draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kgharvest.statistics.annotator_models import Judged
from kgharvest.statistics.arrays import TRUE, Codes, Floats
from kgharvest.statistics.rates import SIGNIFICANCE, Rate, population_rate


class BetaGrid(NamedTuple):
    """Candidate Beta distributions (H,) of rates, with shape parameters a and b and equal prior probability."""

    a: Floats
    b: Floats

    def draw(self, rates: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw shape parameters (C,) from the posterior, given rates (n, C) in (0, 1)."""
        logs, complements = np.log(rates).sum(axis=0), np.log1p(-rates).sum(axis=0)  # (C,)
        norms = scipy.special.betaln(self.a, self.b)  # (H,)
        weights = np.outer(logs, self.a - 1) + np.outer(complements, self.b - 1) - len(rates) * norms  # (C, H)
        cumulated = np.exp(weights - weights.max(axis=1, keepdims=True)).cumsum(axis=1)  # (C, H)
        chosen = (cumulated < rng.random((len(logs), 1)) * cumulated[:, -1:]).sum(axis=1)
        return self.a[chosen], self.b[chosen]


def beta_grid(means: Floats, precisions: Floats) -> BetaGrid:
    """Return all Beta distributions with these means and precisions. The precision is a + b."""
    mean, precision = (values.ravel() for values in np.meshgrid(means, precisions))
    return BetaGrid(mean * precision, (1 - mean) * precision)


Shapes = Sequence[tuple[Floats, Floats]]  # a and b (C,), for sensitivities, specificities, and prevalences

FEWEST_OPINIONS = 3
N_SWEEPS, N_BURNT = 160, 40
# Work is the number of judgments times the number of chains.
FEWEST_CHAINS, MOST_CHAINS, WORK_OF_SWEEP = 4, 64, 1_000_000
STARTING_SHAPES = ((4.0, 1.0), (4.0, 1.0), (1.0, 1.0))
SMALLEST = 1e-12

NO_OPINION = "No statement was labeled True or False."
TOO_FEW_OPINIONS = (
    "Error rates are not identified without gold: no statement was labeled True or False by three annotators."
)
BY_CHANCE = "Error rates are not identified: annotators do not agree more than by chance."


SKILLS = beta_grid(np.linspace(0.5, 1, 14)[:-1], np.geomspace(4, 256, 4))
PREVALENCES = beta_grid(np.sin(np.pi / 2 * (np.arange(16) + 0.5) / 16) ** 2, np.geomspace(1, 256, 5))


class Sample(NamedTuple):
    """The task and stratum (D,) of each draw, and the number of strata."""

    task: Codes
    stratum: Codes
    n_strata: int


class Truths(NamedTuple):
    """Posterior draws. n (S,): number of statements per stratum that were labeled True or False.

    n_true (R, S): number of these statements that are true. sensitivity, specificity (R,): averages over all judgments.
    """

    n: Codes
    n_true: Floats
    sensitivity: Floats
    specificity: Floats


class Patterns(NamedTuple):
    """Patterns of judgments. n (P,): number of statements per pattern. group (P,): group of these statements.

    says (P, 2 A): 1 in column a if annotator a said True, and 1 in column A + a if annotator a said False. drawn (S,
    P): 1 if the statements of the pattern were drawn for the stratum.
    """

    n: Codes
    group: Codes
    says: scipy.sparse.csr_array
    drawn: scipy.sparse.csr_array


class Rates(NamedTuple):
    """Sensitivities (A, C), specificities (A, C), and prevalences (G, C) of the chains."""

    sensitivity: Floats
    specificity: Floats
    prevalence: Floats


# Identifiability


def why_unidentified(judged: Judged, gold_truth: Codes) -> str | None:
    """Return the reason why judgments and gold do not identify error rates, or None if they do.

    Three judgments of a statement are needed to identify two error rates and a prevalence. Annotators are assumed to be
    better than chance only if they agree more than annotators who ignore the statements.
    """
    of_sample = judged.task < judged.n_tasks - judged.n_gold
    if not of_sample.any():
        return NO_OPINION
    # Gold statements identify the rates if True is more frequent on true than on false ones (one-sided Fisher's exact
    # test, .05).
    n_annotators = judged.n_annotators
    table = [[column[:n_annotators].sum(), column[n_annotators:].sum()] for column in _gold_counts(judged, gold_truth)]
    if judged.n_gold and scipy.stats.fisher_exact(table, alternative="greater").pvalue < SIGNIFICANCE:
        return None
    if np.bincount(judged.task[of_sample]).max(initial=0) < FEWEST_OPINIONS:
        return TOO_FEW_OPINIONS
    if _agreement_score(judged, of_sample) < scipy.special.ndtri(1 - SIGNIFICANCE):
        return BY_CHANCE
    return None


def _agreement_score(judged: Judged, counted: NDArray[np.bool_]) -> float:
    """Return the z score of pairwise agreement beyond chance, given each annotator's share of True labels.

    This is the score test of the null hypothesis that statements do not differ (Liang 1987, Biometrika 74).
    """
    task, annotator, label = (column[counted] for column in judged[:3])
    share = np.bincount(annotator, label) / np.maximum(np.bincount(annotator), 1)
    residual, variance = label - share[annotator], (share * (1 - share))[annotator]
    agreement, spread = (
        (np.bincount(task, values) ** 2 - np.bincount(task, values**2)).sum() / 2 for values in (residual, variance)
    )
    return float(agreement / np.sqrt(spread)) if spread > 0 else 0.0


# Posterior


def sample_truths(judged: Judged, gold_truth: Codes, sample: Sample, rng: np.random.Generator) -> Truths:
    """Draw the number of true statements in each stratum. judged: only TRUE and FALSE judgments, with gold tasks last.

    The likelihood is symmetric in the two classes. Chains start from each statement's share of True labels. Therefore,
    the class that most judgments label True becomes the class of true statements.
    """
    sampler = Sampler(judged, gold_truth, _patterns(judged, sample), rng)
    n_true = sampler.starting_truths()
    shapes = [(np.full(n_true.shape[1], a), np.full(n_true.shape[1], b)) for a, b in STARTING_SHAPES]
    kept = []
    for sweep in range(N_SWEEPS):
        rates = sampler.draw_rates(n_true, shapes)
        shapes = [grid.draw(part, rng) for grid, part in zip((SKILLS, SKILLS, PREVALENCES), rates, strict=True)]
        n_true = sampler.draw_truths(rates)
        if sweep >= N_BURNT:
            skills = (sampler.weights @ part for part in (rates.sensitivity, rates.specificity))
            kept.append(((sampler.patterns.drawn @ n_true).T, *skills))
    in_strata, sensitivity, specificity = (np.concatenate(column) for column in zip(*kept, strict=True))
    n = (sampler.patterns.drawn @ sampler.patterns.n).astype(np.int64)
    return Truths(n, in_strata, sensitivity, specificity)


class Sampler:
    """Gibbs sampler with its steps. weights (A,): share of each annotator in the judgments."""

    def __init__(self, judged: Judged, gold_truth: Codes, patterns: Patterns, rng: np.random.Generator) -> None:
        self.patterns, self.rng = patterns, rng
        self._n_annotators = judged.n_annotators
        self._n = patterns.n[:, np.newaxis]  # (P, 1)
        self._repeated = np.flatnonzero(patterns.n > 1)
        self._of_code = patterns.says.T.tocsr()  # (2 A, P)
        n_patterns = len(patterns.n)
        pairs = (patterns.group, np.arange(n_patterns))
        self._of_group = scipy.sparse.csr_array((np.ones(n_patterns), pairs))  # (G, P)
        self._gold = [counts[:, np.newaxis] for counts in _gold_counts(judged, gold_truth)]  # (2 A, 1) each
        self._n_said = self._of_code @ self._n + sum(self._gold)  # (2 A, 1)
        n_judgments = self._n_said[: self._n_annotators, 0] + self._n_said[self._n_annotators :, 0]
        self.weights = n_judgments / n_judgments.sum()

    def starting_truths(self) -> Floats:
        says = self.patterns.says
        n_chains = int(np.clip(WORK_OF_SWEEP // says.nnz, FEWEST_CHAINS, MOST_CHAINS))
        share = says[:, : self._n_annotators].sum(axis=1) / says.sum(axis=1)
        return self.rng.binomial(self._n, np.repeat(share[:, np.newaxis], n_chains, axis=1)).astype(np.float64)

    def draw_rates(self, n_true: Floats, shapes: Shapes) -> Rates:
        """Draw the rates, given the numbers of true statements (P, C)."""
        of_true = self._of_code @ n_true + self._gold[0]  # (2 A, C)
        of_false = self._n_said - of_true
        in_group = self._of_group @ n_true  # (G, C)
        hits_and_misses = (
            np.split(of_true, 2),
            np.split(of_false, 2)[::-1],
            (in_group, self._of_group @ self._n - in_group),
        )
        return Rates(*(
            np.clip(self.rng.beta(a + hits, b + misses), SMALLEST, 1 - SMALLEST)
            for (a, b), (hits, misses) in zip(shapes, hits_and_misses, strict=True)
        ))  # fmt: skip

    def draw_truths(self, rates: Rates) -> Floats:
        """Return the number of true statements of each pattern (P, C)."""
        is_true = self.probabilities(rates)
        n_true = (self.rng.random(is_true.shape) < is_true).astype(np.float64)
        n_true[self._repeated] = self.rng.binomial(self._n[self._repeated], is_true[self._repeated])
        return n_true

    def probabilities(self, rates: Rates) -> Floats:
        """Return the probability (P, C) that a statement of each pattern is true (Dawid and Skene, equation 2.5)."""
        sensitivity, specificity, prevalence = rates
        odds_of_true = np.log(sensitivity) - np.log1p(-specificity)  # (A, C): log odds added by a judgment of True
        odds_of_false = np.log1p(-sensitivity) - np.log(specificity)
        odds = self.patterns.says @ np.concatenate([odds_of_true, odds_of_false])
        probabilities: Floats = scipy.special.expit(odds + scipy.special.logit(prevalence)[self.patterns.group])
        return probabilities


def _patterns(judged: Judged, sample: Sample) -> Patterns:
    """Group statements by a hash: the sum of random 64-bit numbers for the judgments and strata of a statement.

    Each combination of annotator and label has a random number, and so has each stratum. A million
    statements take one second. A collision occurs once in many millions of rounds.
    """
    numbers = np.random.default_rng(0).integers(2**64, size=2 * judged.n_annotators + sample.n_strata, dtype=np.uint64)
    code = judged.label * judged.n_annotators + judged.annotator
    labels = _sums(numbers[code], judged.task, judged.n_tasks)
    strata = _sums(numbers[2 * judged.n_annotators + sample.stratum], sample.task, judged.n_tasks)
    is_judged = judged.per_task() > 0
    is_judged[judged.n_tasks - judged.n_gold :] = False
    tasks = np.flatnonzero(is_judged)
    _, first, n = np.unique((labels + strata)[tasks], return_index=True, return_counts=True)
    _, group = np.unique(strata[tasks[first]], return_inverse=True)
    pattern = np.full(judged.n_tasks, -1)
    pattern[tasks[first]] = np.arange(len(first))
    counted, drawn = pattern[judged.task] >= 0, pattern[sample.task] >= 0
    says = (pattern[judged.task[counted]], code[counted])
    of_strata = (sample.stratum[drawn], pattern[sample.task[drawn]])
    return Patterns(
        n,
        group.reshape(-1),
        scipy.sparse.csr_array((np.ones(len(says[0])), says), (len(n), 2 * judged.n_annotators)),
        scipy.sparse.csr_array((np.ones(len(of_strata[0])), of_strata), (sample.n_strata, len(n))),
    )


def _sums(values: NDArray[np.uint64], task: NDArray[np.integer], n_tasks: int) -> NDArray[np.uint64]:
    """Return the sum of the values of each task (T,), modulo 2**64."""
    order = np.argsort(task, kind="stable")
    cumulated = np.concatenate([np.zeros(1, dtype=np.uint64), values[order].cumsum(dtype=np.uint64)])
    edges = np.searchsorted(task[order], np.arange(n_tasks + 1))
    return np.diff(cumulated[edges])


def _gold_counts(judged: Judged, gold_truth: Codes) -> tuple[Floats, Floats]:
    """Return two arrays (2 A,) of counts, for true gold and for false gold.

    Each array contains the numbers of True labels per annotator, followed by the numbers of False labels per annotator.
    """
    start = judged.n_tasks - judged.n_gold
    is_gold = judged.task >= start
    code = (judged.label * judged.n_annotators + judged.annotator)[is_gold]
    is_true = gold_truth[judged.task[is_gold] - start] == TRUE
    of_true, of_false = (
        np.bincount(code[kind], minlength=2 * judged.n_annotators).astype(np.float64) for kind in (is_true, ~is_true)
    )
    return of_true, of_false


# Rates of harvests


def corrected_rate(
    truths: Truths, strata: Codes, population: Codes, weights: Floats, effects: Floats | float = 1.0
) -> Rate:
    """Return the share of true tuples in the population of `strata`. population, weights: see `population_rate`.

    effects: design effects of the strata.

    Each arm of the interval is the square root of the sum of two squared arms (Zou and Donner 2008, Statistics in
    Medicine 27): the arm of `population_rate` for the rounded expected number of true statements, and the arm of the
    posterior draws. Even in a census, the uncertainty about annotator errors remains.
    """
    n, n_true = truths.n[strata], truths.n_true[:, strata]
    expected = n_true.mean(axis=0)
    sampled = population_rate(np.rint(expected) / effects, n / effects, population, weights)
    if sampled.value is None or sampled.low is None or sampled.high is None:
        return sampled
    value = float((expected / n) @ weights)
    low, high = np.quantile((n_true / n) @ weights, [0.025, 0.975])
    below = np.hypot(sampled.value - sampled.low, max(value - low, 0))
    above = np.hypot(sampled.high - sampled.value, max(high - value, 0))
    return Rate(value, max(0.0, value - float(below)), min(1.0, value + float(above)))
