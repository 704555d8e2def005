"""Annotator model of Dawid and Skene, fitted to judgments alone, by EM with SQUAREM acceleration.

In judgment j, annotator `annotator[j]` gave the label `label[j]` to task `task[j]`. The arrays contain integers from 0
and have shape (J,). Callers omit Unjudgeable, which is not an opinion on the truth. EM starts from the label shares of
each task, uses no random numbers, and stops when no parameter changes by TOLERANCE or more in a step. The
implementation fits a million judgments in seconds. Tests compare it with crowd-kit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kgharvest.statistics.arrays import Codes, Floats

TOLERANCE = 1e-7
PLAIN_STEPS = 10  # EM steps before acceleration, so that EM and accelerated EM reach the same maximum
# Most rounds need 30 to 100 steps. Uninformative judgments need thousands, too many for a large round.
FEWEST_STEPS, MOST_STEPS, MOST_WORK = 150, 5000, 20_000_000  # work is the number of steps times the number of judgments
LONGEST_STRIDE = 64.0  # maximum length of an extrapolation in EM steps
SMALLEST = 1e-10  # lower bound of probabilities before taking logarithms


class Judged(NamedTuple):
    """Judgments as three arrays (J,), with the numbers of tasks, annotators, and labels.

    n_gold: number of gold tasks, which come last. They are not a random sample, so the shares of their labels differ.
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
        """Return the number of judgments, or the sum of their weights, by annotator and label (A, L)."""
        pair = self.annotator * self.n_labels + self.label
        return np.bincount(pair, weights, self.n_annotators * self.n_labels).reshape(-1, self.n_labels)


class DawidSkene(NamedTuple):
    """Fitted Dawid-Skene model. labels (T, L): probabilities of the true label.

    prior (L,): prior for tasks other than gold.

    errors (A, L true, L given): confusion matrix of each annotator.
    """

    labels: Floats
    prior: Floats
    errors: Floats
    n_steps: int
    converged: bool


# Dawid and Skene (1979), Maximum likelihood estimation of observer error-rates using the EM algorithm


def fit_dawid_skene(judged: Judged) -> DawidSkene:
    """Fit a prior and a confusion matrix per annotator. Tasks without judgments do not affect the prior.

    Gold tasks have their own prior, but contribute to the confusion matrices like other tasks.
    """
    has_judgment = judged.per_task() > 0
    is_gold = np.arange(judged.n_tasks) >= judged.n_tasks - judged.n_gold
    groups = (has_judgment & ~is_gold, has_judgment & is_gold)
    n_labels, n_given = judged.n_labels, judged.per_annotator_and_label()
    labels_alike = np.full(n_labels, 1 / n_labels)

    def maximise(labels: Floats) -> Floats:
        # Expected numbers of judgments (A, L true, L given). The numbers for the last true label are the remainder.
        given = [judged.per_annotator_and_label(labels[judged.task, true]) for true in range(n_labels - 1)]
        errors = np.maximum(np.stack([*given, n_given - sum(given)], axis=1), SMALLEST)
        errors /= errors.sum(axis=2, keepdims=True)
        means = [labels[group].mean(axis=0) if group.any() else labels_alike for group in groups]
        return np.concatenate([np.maximum(means, SMALLEST).ravel(), errors.ravel()])

    def expect(parameters: Floats) -> Floats:
        """Return the label probabilities (T, L), computed from the log odds of each label against the last label."""
        priors, errors = _priors_and_errors(parameters, judged)
        prior = priors[is_gold.astype(int)]  # (T, L)
        odds = np.log(errors[:, :-1]) - np.log(errors[:, -1:])  # (A, L - 1, L given)
        prior_odds = np.log(prior[:, :-1]) - np.log(prior[:, -1:])  # (T, L - 1)
        columns = [
            judged.per_task(odds[judged.annotator, true, judged.label]) + prior_odds[:, true]
            for true in range(n_labels - 1)
        ]
        labels: Floats = scipy.special.softmax(np.stack([*columns, np.zeros(judged.n_tasks)]), axis=0).T
        return labels

    # Start from the label shares of each task. Tasks without judgments start from uniform shares.
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
    """Return the priors (2, L) and the errors (A, L true, L given). The second prior is for gold."""
    priors, errors = np.split(parameters, [2 * judged.n_labels])
    return priors.reshape(-1, judged.n_labels), errors.reshape(-1, judged.n_labels, judged.n_labels)


# SQUAREM acceleration


def squarem(step: Callable[[Floats], Floats], start: Floats, n_judgments: int) -> tuple[Floats, int, bool]:
    """Iterate `step` to its fixed point. Return the parameters, the number of steps, and a convergence flag.

    Two EM steps give the direction and deceleration of an extrapolation. This is scheme S3 of Varadhan and Roland
    (2008, "Simple and globally convergent methods for accelerating EM"), applied to the logarithms of the parameters.
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
    """Extrapolate parameters from two steps. The arguments are logarithms."""
    first, slowing = once - here, twice - 2 * once + here
    stride = float(np.linalg.norm(first)) / max(float(np.linalg.norm(slowing)), SMALLEST)
    stride = min(max(stride, 1.0), LONGEST_STRIDE)
    extrapolated: Floats = np.exp(np.clip(here + 2 * stride * first + stride**2 * slowing, np.log(SMALLEST), 0))
    return extrapolated
