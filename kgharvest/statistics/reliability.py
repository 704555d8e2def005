"""Aggregation of labels by the reliability of annotators, as in a published evaluation of DBpedia.

Marchesin, Silvello, and Alonso (HCOMP 2024), Utility-Oriented Knowledge Graph Accuracy Estimation with Limited
Annotations: A Case Study on DBpedia. The study measures the reliability of an annotator on statements that experts
judged. Here, the other annotators take the place of the experts, so that any round or file of labels can be aggregated.

Letters in array shapes: J judgments, at most one per annotator and statement; T statements; A annotators.
"""

import numpy as np
import scipy

from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE, LABELS, REJECTED, UNDECIDED, Codes, Floats

STEEPNESS = 5.0  # steepness of the weight as a function of kappa
N_LABELS = len(LABELS)
VERDICT_OF_LABEL = np.array([ACCEPTED, REJECTED, UNDECIDED])
POSITION = np.array([2, 0, 1])  # positions of True, False, and Unjudgeable on the scale False < Unjudgeable < True


def reliability_weights(task: Codes, annotator: Codes, label: Codes, n_annotators: int) -> Floats:
    """Return the weights of annotators (A,), sigmoid(5 kappa), which are in (0, 1).

    kappa is Cohen's kappa with linear weights. It compares the annotator's labels with the most frequent label of the
    other annotators of the same statement. Statements without other labels, or whose other labels tie, are not
    compared. If no statement can be compared, or both always give the same label, kappa is 0 and the weight is 1/2.
    """
    n_tasks = int(task.max(initial=-1)) + 1
    counts = np.bincount(task * N_LABELS + label, minlength=n_tasks * N_LABELS).reshape(-1, N_LABELS)
    others = counts[task]  # (J, 3)
    others[np.arange(len(task)), label] -= 1
    *_, second, first = np.sort(others, axis=1).T
    compared = first > second
    place = (annotator * N_LABELS + label) * N_LABELS + others.argmax(axis=1)
    tables = np.bincount(place[compared], minlength=n_annotators * N_LABELS**2)
    observed = tables.reshape(n_annotators, N_LABELS, N_LABELS).astype(np.float64)
    n = observed.sum(axis=(1, 2))
    by_chance = observed.sum(axis=2)[:, :, None] * observed.sum(axis=1)[:, None, :] / np.maximum(n, 1)[:, None, None]
    distance = np.abs(POSITION[:, None] - POSITION[None, :])
    expected = (by_chance * distance).sum(axis=(1, 2))
    kappa = 1 - np.where(expected > 0, (observed * distance).sum(axis=(1, 2)), 1) / np.where(expected > 0, expected, 1)
    weights: Floats = scipy.special.expit(STEEPNESS * kappa)
    return weights


def verdicts_by_reliability(task: Codes, annotator: Codes, label: Codes, n_tasks: int, weights: Floats) -> Codes:
    """Return the verdicts (T,) that follow from labels weighted by `weights` (A,).

    A single label decides. Two labels decide if they are equal. Of three or more labels, the label with the largest
    total weight decides; a tie leaves the statement undecided. Unjudgeable is undecided. Statements without labels are
    incomplete. Undecided statements do not belong to the denominator of the study's accuracy.
    """
    place = task * N_LABELS + label
    counts = np.bincount(place, minlength=n_tasks * N_LABELS).reshape(n_tasks, N_LABELS)
    totals = np.bincount(place, weights[annotator], n_tasks * N_LABELS).reshape(n_tasks, N_LABELS)
    *_, second, first = np.sort(totals, axis=1).T
    n = counts.sum(axis=1)
    differs = (n == 2) & (counts.max(axis=1, initial=0) == 1)
    is_tied = np.isclose(first, second, rtol=1e-9, atol=0)
    verdict = np.where(differs | is_tied, UNDECIDED, VERDICT_OF_LABEL[totals.argmax(axis=1)])
    return np.where(n == 0, INCOMPLETE, verdict)
