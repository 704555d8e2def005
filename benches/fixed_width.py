"""Expected labels to a margin of .05 by rules that cover every accuracy from .5 to .995 with at least .945.

`python benches/fixed_width.py`. Each rule stops at the first label after which its interval has a half-width of at most
.05. Its level is the largest one from .05 to .03, in steps of .001, with the guarantee. This is an exact calculation
for simple random samples without replacement from graphs of the sizes and accuracies of NELL, YAGO, and DBpedia. All
rules use the effective sample size n (N - 1) / (N - n).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kgharvest.statistics.fixed_width import COVERAGE, Stops, closing_z, effective_size, first_stops, stops

MARGIN = 0.05
GRAPHS = {"YAGO": (1386, 1375), "NELL": (1860, 1699), "DBpedia": (9344, 7949)}
LEVELS = np.arange(0.05, 0.03, -0.001)
FEWEST = 30  # labels, as in the published rules
Interval = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray]]


def beta_limits(low: tuple[float, float], high: tuple[float, float]) -> Interval:
    """Return the interval between quantiles of beta distributions. low, high: what is added to hits and to misses."""

    def limits(hits: np.ndarray, n: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        quantile = scipy.special.betaincinv
        lower = quantile(np.maximum(hits + low[0], 1e-9), n - hits + low[1], level / 2)
        upper = quantile(hits + high[0], np.maximum(n - hits + high[1], 1e-9), 1 - level / 2)
        return np.where(hits > 1e-9, lower, 0), np.where(n - hits > 1e-9, upper, 1)

    return limits


def wilson(hits: np.ndarray, n: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    z, share = scipy.special.ndtri(1 - level / 2), hits / n
    center = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return center - half, center + half


RULES = {
    "Clopper-Pearson": beta_limits((0, 1), (1, 0)),
    "Wilson": wilson,
    "Jeffreys": beta_limits((0.5, 0.5), (0.5, 0.5)),
}


def calibrated(interval: Interval, size: int) -> tuple[Stops, float] | None:
    for level in LEVELS:

        def limits(hits: np.ndarray, n: np.ndarray, level: float = level) -> tuple[np.ndarray, np.ndarray]:
            worth = effective_size(n, size)
            return interval(hits / n * worth, worth, level)

        def is_stop(hits: np.ndarray, n: int, limits: Callable = limits) -> np.ndarray:
            low, high = limits(hits, np.full(len(hits), n))
            return (high - low <= 2 * MARGIN) & (n >= FEWEST)

        rule = first_stops(is_stop, size)
        ends = limits(rule.n_hits, rule.n)
        if all(rule.least_coverage(ends, near_limits=near_limits) >= COVERAGE for near_limits in (False, True)):
            return rule, level
    return None


def main() -> None:
    print("| rule | " + " | ".join(GRAPHS) + " |\n|---|" + "---|" * len(GRAPHS))
    for name, interval in RULES.items():
        cells = []
        for size, n_true in GRAPHS.values():
            found = calibrated(interval, size)
            if found is None:
                cells.append(f"none down to {LEVELS[-1]:.3f}")
                continue
            rule, level = found
            [labels] = rule.probabilities(np.array([n_true])) @ rule.n
            cells.append(f"{labels:.1f} ({level:.3f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    cells = []
    for size, n_true in GRAPHS.values():
        rule = stops(MARGIN, z := closing_z(MARGIN, size), size)
        [labels] = rule.probabilities(np.array([n_true])) @ rule.n
        cells.append(f"{labels:.1f} (z {z:.3f})")
    print(f"| kgharvest | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
