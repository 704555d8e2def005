"""What the pages of a running round show of its agreement; its interval is left to reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from evaluation.statistics.agreement import ALL_ALIKE, NOTHING_PAIRED, alpha_of_counts, pairable, percent_agreement


def agreement(patterns: Iterable[Sequence[int]]) -> dict[str, Any]:
    """Return percent_agreement, alpha, n_units and the reason if alpha is None.

    patterns: n_true, n_false, n_unjudgeable and how many tasks show them. n_units: tasks with two judgments or more.
    """
    table = np.array(list(patterns), dtype=np.int64).reshape(-1, 4)
    counts, n_tasks = pairable(table[:, :3], table[:, 3])
    found = {"percent_agreement": percent_agreement(counts, n_tasks), "n_units": int(n_tasks.sum())}
    if not len(counts):
        return found | {"alpha": None, "reason": NOTHING_PAIRED}
    [alpha] = alpha_of_counts(counts, n_tasks[np.newaxis])
    is_defined = not np.isnan(alpha)
    return found | {"alpha": float(alpha) if is_defined else None, "reason": None if is_defined else ALL_ALIKE}
