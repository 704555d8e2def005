"""Bias and coverage of the best side named by its estimate, and of the sides of the leading group.

`python benches/leading_group.py [--runs 150] [--relations 14] [--accuracies .8 .8 .8 .8 .65 .65 .65 .65]`. Each side
has these relations, 20 of 200 tuples judged in each, with its accuracy as the expected share of true tuples.
"""

from __future__ import annotations

import argparse
import sys
from itertools import combinations
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kgharvest.statistics.paired_tests import PairTest, better_by_tests, mean_difference, rank_intervals, sign_flip_p
from kgharvest.statistics.rates import population_rate

N, POPULATION = 20, 200  # per relation


def simulate(accuracies: np.ndarray, n_relations: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Return (S, 2): error and coverage of each side's average; (S,): True in the leading group; the named side."""
    n_true = rng.binomial(POPULATION, np.repeat(accuracies[:, None], n_relations, axis=1))
    hits = rng.hypergeometric(n_true, POPULATION - n_true, N)
    sizes = [N] * n_relations, [POPULATION] * n_relations, [1 / n_relations] * n_relations
    rates = [population_rate(of_side, *sizes) for of_side in hits]
    truths = n_true.mean(axis=1) / POPULATION
    results = [(rate.value - truth, rate.low <= truth <= rate.high) for rate, truth in zip(rates, truths, strict=True)]
    pairs = [(a, b, (hits[a] - hits[b]) / N) for a, b in combinations(range(len(hits)), 2)]
    tests = [PairTest(a, b, mean_difference(apart), sign_flip_p(apart, rng)) for a, b, apart in pairs]
    is_leading = rank_intervals(better_by_tests(len(hits), tests))[:, 0] == 1
    return np.array(results), is_leading, int(np.argmax([rate.value for rate in rates]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=150)
    parser.add_argument("--relations", type=int, default=14)
    parser.add_argument("--accuracies", type=float, nargs="+", default=[0.8] * 8)
    options = parser.parse_args()
    rng, accuracies = np.random.default_rng(1), np.array(options.accuracies)
    runs = [simulate(accuracies, options.relations, rng) for _ in range(options.runs)]
    named = np.mean([results[best] for results, _, best in runs], axis=0)
    listed = np.concatenate([results[is_leading] for results, is_leading, _ in runs]).mean(axis=0)
    print("named best: bias {:+.4f}, coverage {:.3f}".format(*named))
    print("leading group: bias {:+.4f}, coverage {:.3f}".format(*listed))
    size = np.mean([is_leading.sum() for _, is_leading, _ in runs])
    has_best = np.mean([is_leading[accuracies == accuracies.max()].any() for _, is_leading, _ in runs])
    print(f"sides in the group: {size:.1f} of {len(accuracies)}; a best side is in it: {has_best:.3f}")


if __name__ == "__main__":
    main()
