"""Alternative annotator test: decide if a judge can replace a human annotator.

Calderon, Reichart and Dror (2025), "The Alternative Annotator Test for LLM-as-a-Judge: How to Statistically Justify
Replacing Human Annotators with LLMs", ACL 2025, section 3. Each annotator is excluded in turn. On each of their
statements, annotator and judge are scored by the share of the other annotators' labels equal to theirs. W is the set of
statements on which the judge scores at least as high, H that on which the annotator does. The judge wins if the share
of H minus that of W is significantly below epsilon, which represents the judge's lower cost: a one-sided t test, with p
values adjusted over annotators (Benjamini and Yekutieli 2001). Omega is the share of annotators that the judge wins
against, rho the mean share of W. The test is passed if omega is at least one half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import false_discovery_control, t

from kgharvest.statistics.arrays import Codes, Floats
from kgharvest.statistics.rates import SIGNIFICANCE

EPSILON = {"experts": 0.2, "skilled": 0.15, "crowd": 0.1}  # by kind of annotator, as recommended by the authors
FEWEST_ANNOTATORS = 3
FEWEST_STATEMENTS = 30  # per annotator
PASSED = 0.5

TOO_FEW = (
    f"The test needs at least {FEWEST_ANNOTATORS} annotators with at least {FEWEST_STATEMENTS} statements each that "
    "another annotator judged and the judge labeled."
)


class LeftOut(NamedTuple):
    """One annotator compared with the judge on n statements.

    advantage: share on which the judge scores at least as high. p: adjusted, for the null hypothesis that the annotator
    is better by epsilon or more.
    """

    annotator: int
    n: int
    advantage: float
    p: float

    @property
    def is_won(self) -> bool:
        return self.p <= SIGNIFICANCE


class AlternativeAnnotator(NamedTuple):
    """omega, rho: in [0, 1], or None with a `reason`. annotators: those with enough statements."""

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

    judge: codes of `label`, another code for an answer that equals no label, or negative for no answer. Statements
    without an answer are excluded.
    """
    n_judgments = np.bincount(task, minlength=len(judge))
    is_shared = (n_judgments >= 2) & (judge >= 0)
    kept = is_shared[task]
    task, annotator, label = task[kept], annotator[kept], label[kept]
    n_labels = int(max(label.max(initial=0), judge.max(initial=0))) + 1
    counts = np.bincount(task * n_labels + label, minlength=len(judge) * n_labels).reshape(-1, n_labels)
    # Both are compared with the same other annotators, so counts order them like shares.
    of_annotator = counts[task, label] - 1
    of_judge = counts[task, judge[task]] - (judge[task] == label)
    wins, holds = (of_judge >= of_annotator).astype(np.float64), (of_annotator >= of_judge).astype(np.float64)
    people = [code for code, n in enumerate(np.bincount(annotator)) if n >= FEWEST_STATEMENTS]
    if len(people) < FEWEST_ANNOTATORS:
        return AlternativeAnnotator(epsilon, None, None, [], TOO_FEW)
    own = [annotator == code for code in people]
    adjusted = false_discovery_control([_p_less(holds[mine] - wins[mine], epsilon) for mine in own], method="by")
    left_out = [
        LeftOut(code, int(mine.sum()), float(wins[mine].mean()), float(p))
        for code, mine, p in zip(people, own, adjusted, strict=True)
    ]
    omega = sum(row.is_won for row in left_out) / len(left_out)
    return AlternativeAnnotator(epsilon, omega, sum(row.advantage for row in left_out) / len(left_out), left_out)


def _p_less(differences: Floats, epsilon: float) -> float:
    """Return Student's p value of a mean of `epsilon` or more; 0 or 1 if all differences are equal."""
    mean, error = differences.mean(), differences.std(ddof=1) / np.sqrt(len(differences))
    if error == 0:
        return float(mean >= epsilon)
    return float(t.cdf((mean - epsilon) / error, len(differences) - 1))
