"""Models of annotators, fitted to their judgments alone: Dawid-Skene and MACE, by EM with SQUAREM steps.

A judgment j is of task `task[j]`, by annotator `annotator[j]`, with label `label[j]`: whole numbers from 0, shape (J,).
Unjudgeable is left out by the caller: it is no opinion on what is true. Both models are fitted by EM from the shares of
labels of each task, without random numbers, until no parameter moves by more than TOLERANCE in a step of EM.

Written with numpy as a million judgments must be fitted in seconds; the tests hold both to crowd-kit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, softmax

from kgharvest.statistics.arrays import Codes, Floats

TOLERANCE = 1e-7
PLAIN_STEPS = 10  # before steps are lengthened, so that the maximum found is the one that EM rises to
# Most rounds take 30 to 100 steps; judgments that tell nothing take thousands, which a large round cannot wait for.
FEWEST_STEPS, MOST_STEPS, MOST_WORK = 150, 5000, 20_000_000  # work: steps times judgments
LONGEST_STRIDE = 64.0  # in steps of EM
SMALLEST = 1e-10  # a probability below this is taken as this, so that its logarithm exists
KNOWING_PRIOR = 0.5  # of the Beta distribution of competence, and of the Dirichlet one of guesses: as in crowd-kit
GUESSING_PRIOR = 10.0


class Judged(NamedTuple):
    """Judgments as three arrays (J,), and how many tasks, annotators and labels there are.

    n_gold: the last tasks, which somebody chose: how often which label is true among them says nothing of the others.
    """

    task: Codes
    annotator: Codes
    label: Codes
    n_tasks: int
    n_annotators: int
    n_labels: int
    n_gold: int = 0

    def per_task(self, weights: Floats | None = None) -> NDArray[Any]:
        return np.bincount(self.task, weights, self.n_tasks)

    def per_annotator_and_label(self, weights: Floats | None = None) -> NDArray[Any]:
        """Return (A, L)."""
        pair = self.annotator * self.n_labels + self.label
        return np.bincount(pair, weights, self.n_annotators * self.n_labels).reshape(-1, self.n_labels)


class DawidSkene(NamedTuple):
    """labels: (T, L) how likely each label is the true one. prior: (L,), without gold. errors: (A, L true, L given)."""

    labels: Floats
    prior: Floats
    errors: Floats
    n_steps: int
    converged: bool


class Mace(NamedTuple):
    """labels: (T, L). competence: (A,) the share of judgments that are known. guesses: (A, L) of the others."""

    labels: Floats
    competence: Floats
    guesses: Floats
    n_steps: int
    converged: bool


# -- Dawid and Skene (1979), Maximum likelihood estimation of observer error-rates using the EM algorithm --------------


def fit_dawid_skene(judged: Judged) -> DawidSkene:
    """Fit a prior and a confusion matrix per annotator. Tasks without a judgment have the prior and do not form it.

    Gold has a prior of its own; what it tells of annotators it tells like other tasks.
    """
    has_judgment = judged.per_task() > 0
    is_gold = np.arange(judged.n_tasks) >= judged.n_tasks - judged.n_gold
    groups = (has_judgment & ~is_gold, has_judgment & is_gold)
    n_labels, n_given = judged.n_labels, judged.per_annotator_and_label()
    labels_alike = np.full(n_labels, 1 / n_labels)

    def maximise(labels: Floats) -> Floats:
        # The expected numbers of judgments (A, L true, L given); those of the last label are the rest.
        given = [judged.per_annotator_and_label(labels[judged.task, true]) for true in range(n_labels - 1)]
        errors = np.maximum(np.stack([*given, n_given - sum(given)], axis=1), SMALLEST)
        errors /= errors.sum(axis=2, keepdims=True)
        means = [labels[group].mean(axis=0) if group.any() else labels_alike for group in groups]
        return np.concatenate([np.maximum(means, SMALLEST).ravel(), errors.ravel()])

    def expect(parameters: Floats) -> Floats:
        """Return (T, L) from the odds of each label against the last."""
        priors, errors = _priors_and_errors(parameters, judged)
        prior = priors[is_gold.astype(int)]  # (T, L)
        odds = np.log(errors[:, :-1]) - np.log(errors[:, -1:])  # (A, L - 1, L given)
        prior_odds = np.log(prior[:, :-1]) - np.log(prior[:, -1:])  # (T, L - 1)
        columns = [
            judged.per_task(odds[judged.annotator, true, judged.label]) + prior_odds[:, true]
            for true in range(n_labels - 1)
        ]
        labels: Floats = softmax(np.stack([*columns, np.zeros(judged.n_tasks)]), axis=0).T
        return labels

    # Start from the shares of labels of each task, equal ones if it has no judgment.
    place = judged.task * n_labels + judged.label
    of_label = np.bincount(place, minlength=judged.n_tasks * n_labels).reshape(-1, n_labels)
    n_judgments = of_label.sum(axis=1, keepdims=True)
    shares = np.where(n_judgments > 0, of_label / np.maximum(n_judgments, 1), 1 / n_labels)
    parameters, n_steps, converged = squarem(
        lambda current: maximise(expect(current)), maximise(shares), len(judged.task)
    )
    priors, errors = _priors_and_errors(parameters, judged)
    return DawidSkene(expect(parameters), priors[0], errors, n_steps, converged)


def _priors_and_errors(parameters: Floats, judged: Judged) -> tuple[Floats, Floats]:
    """Return (2, L), the second of gold, and (A, L true, L given)."""
    priors, errors = np.split(parameters, [2 * judged.n_labels])
    return priors.reshape(-1, judged.n_labels), errors.reshape(-1, judged.n_labels, judged.n_labels)


# -- Hovy, Berg-Kirkpatrick, Vaswani and Hovy (2013), Learning whom to trust with MACE ---------------------------------


def fit_mace(judged: Judged) -> Mace:
    """Fit by variational Bayes: an annotator knows the label, or guesses from a distribution of their own."""
    n_given = judged.per_annotator_and_label()

    def step(parameters: Floats) -> Floats:
        knows, guesses = _split(parameters, judged)
        _, is_known = _known(judged, knows, guesses)
        n_known = judged.per_annotator_and_label(is_known)  # (A, L)
        n_guessed = n_given - n_known
        both = np.stack([n_guessed.sum(axis=1), n_known.sum(axis=1)], axis=1)
        return np.concatenate(
            [_variational(both, KNOWING_PRIOR).ravel(), _variational(n_guessed, GUESSING_PRIOR).ravel()]
        )

    guesses = n_given + GUESSING_PRIOR
    start = np.concatenate(
        [np.full(2 * judged.n_annotators, 0.5), (guesses / guesses.sum(axis=1, keepdims=True)).ravel()]
    )
    parameters, n_steps, converged = squarem(step, start, len(judged.task))
    knows, guesses = _split(parameters, judged)
    # Variational weights fall short of 1 in sum, so competence is the share of knowing.
    competence = knows[:, 1] / knows.sum(axis=1)
    return Mace(_known(judged, knows, guesses)[0], competence, guesses, n_steps, converged)


def _split(parameters: Floats, judged: Judged) -> tuple[Floats, Floats]:
    """Return the weights of guessing and knowing (A, 2), and of each label when guessing (A, L)."""
    knows, guesses = np.split(parameters, [2 * judged.n_annotators])
    return knows.reshape(-1, 2), guesses.reshape(-1, judged.n_labels)


def _known(judged: Judged, knows: Floats, guesses: Floats) -> tuple[Floats, Floats]:
    """Return labels (T, L), the same prior for each, and how likely each judgment was known rather than guessed (J,).

    A judgment is as likely under every label but the one it names, so only that one's odds move.
    """
    guessed, known = knows[:, :1] * guesses, knows[:, 1:]  # (A, L), (A, 1)
    gain = np.log1p(known / guessed)[judged.annotator, judged.label]  # (J,)
    gains = [judged.per_task(gain * (judged.label == label)) for label in range(judged.n_labels)]
    labels: Floats = softmax(np.stack(gains), axis=0).T
    share = (known / (guessed + known))[judged.annotator, judged.label]
    return labels, labels[judged.task, judged.label] * share


def _variational(counts: Floats, prior: float) -> Floats:
    weighted = counts + prior
    weights: Floats = np.exp(digamma(weighted) - digamma(weighted.sum(axis=1, keepdims=True)))
    return weights


# -- SQUAREM: faster than EM -------------------------------------------------------------------------------------------


def squarem(step: Callable[[Floats], Floats], start: Floats, n_judgments: int) -> tuple[Floats, int, bool]:
    """Repeat `step` until its fixed point; return the parameters, the number of steps, and whether they came to rest.

    Two steps of EM tell direction and slowing; a third starts where they point to. Varadhan and Roland (2008), Simple
    and globally convergent methods for accelerating EM, scheme S3, here over the parameters' logarithms.
    """
    parameters, n_steps = start, 0
    most_steps = min(max(MOST_WORK // n_judgments, FEWEST_STEPS), MOST_STEPS)
    while n_steps < most_steps:
        once = step(parameters)
        n_steps += 1
        if np.abs(once - parameters).max() < TOLERANCE:
            return once, n_steps, True
        if n_steps < PLAIN_STEPS:
            parameters = once
            continue
        twice = step(once)
        n_steps += 1
        parameters = _extrapolate(*(np.log(np.maximum(point, SMALLEST)) for point in (parameters, once, twice)))
    return parameters, n_steps, False


def _extrapolate(here: Floats, once: Floats, twice: Floats) -> Floats:
    """Return the parameters to which two steps point; all three are logarithms."""
    first, slowing = once - here, twice - 2 * once + here
    stride = float(np.linalg.norm(first)) / max(float(np.linalg.norm(slowing)), SMALLEST)
    stride = min(max(stride, 1.0), LONGEST_STRIDE)
    extrapolated: Floats = np.exp(np.clip(here + 2 * stride * first + stride**2 * slowing, np.log(SMALLEST), 0))
    return extrapolated


FITS: dict[str, Callable[[Judged], DawidSkene | Mace]] = {"dawid_skene": fit_dawid_skene, "mace": fit_mace}
