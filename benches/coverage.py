"""How often the 95 % intervals of reports hold what is true, over simulated rounds.

    python benches/coverage.py [N_ROUNDS]

A round: relations drawn from a world of relations, each with its accuracy in two settings; statements drawn per cell,
each true with that accuracy. The interval of a cell should hold the cell's accuracy; that of the difference should hold
the difference between the settings in the world, whichever relations were drawn.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from evaluation.comparisons import compare_sides
from evaluation.evidence import CellKey
from evaluation.metrics.intervals import rate

N_ROUNDS = 500
SIZES = ((5, 20), (8, 20), (14, 20), (14, 50), (14, 200), (40, 20))  # relations, statements per cell
MEAN, SPREAD = np.array([0.55, 0.68]), 0.15  # of the accuracies in the world, per setting
SETTINGS = ("human", "multi")


def simulate(n_relations: int, n_statements: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the accuracies and the numbers of true statements, both (relations, settings)."""
    spread = MEAN * (1 - MEAN) / SPREAD**2 - 1  # of the Beta distribution that has this mean and spread
    accuracies = rng.beta(MEAN * spread, (1 - MEAN) * spread, size=(n_relations, 2))
    return accuracies, rng.binomial(n_statements, accuracies)


def covered_cells(accuracies: np.ndarray, n_true: np.ndarray, n_statements: int) -> float:
    """Return the share of cells whose interval holds the cell's accuracy."""
    rates = [rate(int(n), n_statements) for n in n_true.flat]
    return float(np.mean([each.low <= truth <= each.high for each, truth in zip(rates, accuracies.flat, strict=True)]))


def difference_interval(n_true: np.ndarray, n_statements: int, seed: int) -> tuple[float, float] | None:
    observed = {
        CellKey(f"r{relation:02}", "lm", setting): n_true[relation, column] / n_statements
        for relation in range(len(n_true))
        for column, setting in enumerate(SETTINGS)
    }
    [compared] = compare_sides(observed, {}, seed)
    return None if compared["low"] is None else (compared["low"], compared["high"])


def cover(n_relations: int, n_statements: int, n_rounds: int) -> str:
    """Return one row of the table."""
    rng, cells, intervals = np.random.default_rng(0), [], []
    for seed in range(n_rounds):
        accuracies, n_true = simulate(n_relations, n_statements, rng)
        cells.append(covered_cells(accuracies, n_true, n_statements))
        intervals.append(difference_interval(n_true, n_statements, seed))
    defined = np.array([interval for interval in intervals if interval])  # (D, 2)
    truth = MEAN[0] - MEAN[1]
    covered = np.mean((defined[:, 0] <= truth) & (truth <= defined[:, 1]))
    width = np.mean(defined[:, 1] - defined[:, 0])
    undefined = n_rounds - len(defined)
    return f"{n_relations:9} {n_statements:11} {np.mean(cells):17.1%} {covered:19.1%} {width:15.3f} {undefined:10}"


def main() -> None:
    n_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else N_ROUNDS
    print(f"{n_rounds} rounds a line")
    print("relations  statements  accuracy covered  difference covered  its mean width  undefined")
    for n_relations, n_statements in SIZES:
        print(cover(n_relations, n_statements, n_rounds), flush=True)


if __name__ == "__main__":
    main()
