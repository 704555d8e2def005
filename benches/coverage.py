"""Coverage of the reports' 95 % intervals over simulated rounds.

    python benches/coverage.py [N_ROUNDS]

A round consists of relations drawn from a population of relations, each with its accuracy in two settings, and of
statements drawn per cell, each true with that accuracy. The interval of a cell, and Newcombe's interval between two
cells, should contain the true value of the cells. The averages "these" should contain the true average of the relations
drawn. The averages "like" and the difference between the settings should contain the true average in the population,
regardless of which relations were drawn.

In the second table, a cell is a harvest whose accuracy falls from the first rank to the last, drawn in strata of ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from evaluation.reports.sections.comparisons import compare_sides
from kgharvest.statistics.paired_tests import CellKey, interval_for_similar
from kgharvest.statistics.rates import Rate, difference_interval, population_rate

N_ROUNDS = 500
SIZES = ((5, 20), (8, 20), (14, 20), (14, 50), (14, 200), (40, 20))  # relations, statements per cell
MEAN, SPREAD = np.array([0.55, 0.68]), 0.15  # accuracies in the population, per setting
SETTINGS = ("human", "multi")
STRATA = (  # sizes of the strata, draws from each, accuracy of the first and of the last rank
    ((100,) * 5, (10,) * 5, 0.95, 0.4),
    ((100, 900), (20, 20), 0.9, 0.5),
    ((10, 90, 400), (10, 20, 20), 0.95, 0.55),
    ((20,) * 10, (2,) * 10, 0.9, 0.4),
    ((50,) * 10, (5,) * 10, 0.98, 0.5),
    ((100, 400, 500), (30, 30, 40), 0.98, 0.9),
)

Interval = tuple[float | None, float | None]


def covered(intervals: Iterable[Interval], truths: Iterable[float]) -> float:
    """Return the share of the defined intervals that contain the true value; NaN if none is defined."""
    known = [(*interval, truth) for interval, truth in zip(intervals, truths, strict=True) if interval[0] is not None]
    return float(np.mean([low - 1e-12 <= truth <= high + 1e-12 for low, high, truth in known])) if known else np.nan


# Simple samples


def simulate(n_relations: int, n_statements: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the accuracies and the numbers of true statements, both (relations, settings)."""
    precision = MEAN * (1 - MEAN) / SPREAD**2 - 1  # of the Beta distribution with this mean and spread
    accuracies = rng.beta(MEAN * precision, (1 - MEAN) * precision, size=(n_relations, 2))
    return accuracies, rng.binomial(n_statements, accuracies)


def bootstrap_interval(n_true: np.ndarray, n_statements: int, seed: int) -> Interval:
    observed = {
        CellKey(f"r{relation:02}", "lm", setting): n_true[relation, column] / n_statements
        for relation in range(len(n_true))
        for column, setting in enumerate(SETTINGS)
    }
    [compared] = compare_sides(observed, {}, seed)
    return compared["low"], compared["high"]


def cover(n_relations: int, n_statements: int, n_rounds: int) -> str:
    """Return one row of the first table."""
    rng = np.random.default_rng(0)
    alike = [n_statements] * n_relations, [0] * n_relations, [1 / n_relations] * n_relations
    cells, newcombe, these, like, bootstrap = [], [], [], [], []
    for seed in range(n_rounds):
        accuracies, n_true = simulate(n_relations, n_statements, rng)
        rates = [[population_rate([n], [n_statements], [0]) for n in row] for row in n_true]
        pairs = [difference_interval(*row) for row in rates]
        shares = n_true[:, 0] / n_statements
        macro = population_rate(n_true[:, 0], *alike)
        cells.append(covered((interval[1:3] for row in rates for interval in row), accuracies.flat))
        newcombe.append(covered(pairs, accuracies[:, 0] - accuracies[:, 1]))
        these.append(covered([(macro.low, macro.high)], [accuracies[:, 0].mean()]))
        like.append(interval_for_similar(shares, np.random.default_rng(seed))[:2])
        bootstrap.append(bootstrap_interval(n_true, n_statements, seed))
    values = [np.mean(cells), np.mean(newcombe), np.mean(these)]
    values += [covered(like, [MEAN[0]] * n_rounds), covered(bootstrap, [MEAN[0] - MEAN[1]] * n_rounds)]
    undefined = sum(low is None for low, _ in bootstrap)
    return f"{n_relations:9} {n_statements:11}" + "".join(f"{value:11.1%}" for value in values) + f"{undefined:11}"


# Strata


def simulate_strata(population, drawn, accuracies, rng: np.random.Generator) -> tuple[Rate, float]:
    """Return the estimate of one harvest and its true accuracy."""
    is_true = rng.random(len(accuracies)) < accuracies
    parts = np.split(is_true, np.cumsum(population)[:-1])
    n_true = [rng.choice(part, n, replace=False).sum() for part, n in zip(parts, drawn, strict=True)]
    return population_rate(n_true, drawn, population), float(is_true.mean())


def cover_strata(population, drawn, first: float, last: float, n_rounds: int) -> str:
    """Return one row of the second table. The difference is between two harvests of the same kind."""
    rng = np.random.default_rng(0)
    accuracies = np.linspace(first, last, sum(population))
    rounds = [[simulate_strata(population, drawn, accuracies, rng) for _ in range(2)] for _ in range(n_rounds)]
    cells = covered(
        (estimate[1:3] for both in rounds for estimate, _ in both), (truth for both in rounds for _, truth in both)
    )
    pairs = [difference_interval(a, b) for (a, _), (b, _) in rounds]
    difference = covered(pairs, (a - b for (_, a), (_, b) in rounds))
    width = np.mean([estimate.high - estimate.low for both in rounds for estimate, _ in both])
    shape = f"{'+'.join(map(str, drawn))} of {'+'.join(map(str, population))}"
    return f"{shape:72} {cells:9.1%} {difference:11.1%} {width:11.3f}"


def main() -> None:
    n_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else N_ROUNDS
    print(f"{n_rounds} rounds per row")
    print("relations  statements   accuracy   Newcombe      these       like difference  undefined")
    for n_relations, n_statements in SIZES:
        print(cover(n_relations, n_statements, n_rounds), flush=True)
    print(f"\n{'strata':72}  accuracy  difference  mean width")
    for strata in STRATA:
        print(cover_strata(*strata, n_rounds), flush=True)


if __name__ == "__main__":
    main()
