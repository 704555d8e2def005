"""Evidence for tests without a database, built from verdict counts of each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.evidence.evidence import Draws, Evidence, Judgments, StratumKey
from kgharvest.statistics.arrays import INCOMPLETE
from kgharvest.statistics.paired_tests import CellKey

# Alternating label patterns of three annotators for each verdict: accepted, rejected, undecided, incomplete.
LABELS = {0: [(0, 0, 0), (0, 0, 1), (0, 0, 2)], 1: [(1, 1, 1), (1, 0, 1)], 2: [(0, 1, 2)], 3: [()]}
NOBODY = Judgments(*np.zeros((3, 0), dtype=np.int64), np.zeros(0))


def make_evidence(
    cells: Mapping[CellKey, Sequence[int]], annotators: Sequence[str] = ("a1", "a2", "a3"), **fields: Any
) -> Evidence:
    """Create evidence whose labels match the verdicts. Incomplete statements have no judgments.

    cells: numbers of accepted, rejected, undecided, and incomplete statements. Trailing zeros can be omitted.
    verdict: verdict codes in a different order.
    """
    in_order = np.concatenate([np.repeat(range(len(counts)), counts) for counts in cells.values()])
    verdict = np.asarray(fields.pop("verdict", in_order), dtype=np.int64)
    sizes = [sum(counts) for counts in cells.values()]
    label_rows = [LABELS[code][number % len(LABELS[code])] for number, code in enumerate(verdict.tolist())]
    n_labels = [len(labels) for labels in label_rows]
    task = np.repeat(np.arange(len(verdict)), n_labels)
    values = {
        "round": "pilot_1",
        "source": "people",
        "seed": 0,
        "judgments_per_task": 3,
        "quorum": 1,
        "has_thirds": False,
        "verdict": verdict,
        "adjudicated": np.full(len(verdict), INCOMPLETE),
        "third": np.full(len(verdict), -1),
        "wanted": np.full(len(verdict), 3),
        "judgments": Judgments(
            task,
            np.array([number for n in n_labels for number in range(n)], dtype=np.int64),
            np.array([label for labels in label_rows for label in labels], dtype=np.int64),
            np.full(len(task), np.nan),
        ),
        "cells": list(cells),
        "strata": [StratumKey(number, 1, 10 * size, 10 * size) for number, size in enumerate(sizes)],
        "draws": Draws(
            np.arange(len(verdict)),
            np.repeat(range(len(sizes)), sizes).astype(np.int64),
            np.concatenate([np.arange(1, size + 1) * 10 for size in sizes]),
            np.concatenate([-np.arange(size, dtype=np.float64) for size in sizes]),
        ),
        "annotators": list(annotators),
        "gold": NOBODY,
        "gold_truth": np.zeros(0, dtype=np.int64),
        "demonstrators": [],
    }
    return Evidence(**{**values, **fields})
