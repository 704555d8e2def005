"""The alternative annotator test: whether a judge may take the place of one of the people who annotate.

Calderon, Reichart and Dror (2025), "The Alternative Annotator Test for LLM-as-a-Judge: How to Statistically Justify
Replacing Human Annotators with LLMs", ACL 2025, section 3. Each annotator in turn is left out. On every statement that
they judged, they and the judge are scored by the share of the others' labels that theirs equals. W are the statements
on which the judge scores at least as well, H those on which the annotator does. The judge wins against the annotator if
the share of H less that of W is shown to be below epsilon, which is what the judge's lower price is worth: a one-sided
t test, p values adjusted over annotators by Benjamini and Yekutieli (2001). Omega is the share of annotators that the
judge wins against, rho the mean share of W. The test is passed if omega is at least one half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import false_discovery_control, t

from kgharvest.statistics.arrays import Codes, Floats
from kgharvest.statistics.rates import SIGNIFICANCE

EPSILON = {"experts": 0.2, "skilled": 0.15, "crowd": 0.1}  # by kind of annotator, as the authors advise
FEWEST_ANNOTATORS = 3
FEWEST_STATEMENTS = 30  # of each annotator
PASSED = 0.5

TOO_FEW = (
    f"The test asks for {FEWEST_ANNOTATORS} people or more who each judged {FEWEST_STATEMENTS} statements or more that "
    "somebody else judged too, and the judge labelled."
)


class LeftOut(NamedTuple):
    """One annotator against the judge. n: statements. advantage: share on which the judge scores at least as well.

    p: that the annotator is better by epsilon or more, adjusted.
    """

    annotator: int
    n: int
    advantage: float
    p: float

    @property
    def is_won(self) -> bool:
        """Return whether the judge wins."""
        return self.p <= SIGNIFICANCE


class AlternativeAnnotator(NamedTuple):
    """omega, rho: in [0, 1]; None where `reason` says why there is no test. annotators: with enough statements."""

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
    """Return the test of `judge` (T,) against those who gave the judgments (J,), one each of a task and annotator.

    judge: labels as in `label`; another code where the judge's answer is none of them, which equals nobody's; negative
    where there is no answer, which leaves the statement out.
    """
    n_judgments = np.bincount(task, minlength=len(judge))
    is_shared = (n_judgments >= 2) & (judge >= 0)
    kept = is_shared[task]
    task, annotator, label = task[kept], annotator[kept], label[kept]
    n_labels = int(max(label.max(initial=0), judge.max(initial=0))) + 1
    counts = np.bincount(task * n_labels + label, minlength=len(judge) * n_labels).reshape(-1, n_labels)
    # Shares of the same others: counts order them alike.
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
    """Return the p of a mean of `epsilon` or more, Student's; all alike, they leave no doubt."""
    mean, error = differences.mean(), differences.std(ddof=1) / np.sqrt(len(differences))
    if error == 0:
        return float(mean >= epsilon)
    return float(t.cdf((mean - epsilon) / error, len(differences) - 1))
