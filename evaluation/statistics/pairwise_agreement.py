"""How often each two annotators agree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


class PairCounts(NamedTuple):
    """Two annotators, the first the smaller number, and on how many tasks that both judged they gave the same label."""

    a: int
    b: int
    n_shared: int
    n_agreeing: int


def pair_counts(task: Codes, annotator: Codes, label: Codes) -> list[PairCounts]:
    """Return the pairs who share a task, sorted. Judgments (J,) sorted by task, then annotator."""
    if not len(task):
        return []
    base = int(annotator.max()) + 1
    codes, agrees = [], []
    for distance in range(1, int(np.bincount(task).max())):
        is_same = task[distance:] == task[:-distance]
        codes.append((annotator[:-distance] * base + annotator[distance:])[is_same])
        agrees.append((label[:-distance] == label[distance:])[is_same])
    if not codes:
        return []
    shared, of_pair = np.unique(np.concatenate(codes), return_inverse=True)
    n_shared = np.bincount(of_pair)
    n_agreeing = np.bincount(of_pair[np.concatenate(agrees)], minlength=len(shared))
    return [
        PairCounts(code // base, code % base, *numbers)
        for code, *numbers in zip(shared.tolist(), n_shared.tolist(), n_agreeing.tolist(), strict=True)
    ]
