"""Expected labels to a margin of .05 by rules that cover every accuracy from .5 to .995 with at least .945.

`stops` calculates the stops and the coverage of the rule of rounds (kgharvest/statistics/fixed_width.py).

`python benches/fixed_width.py`. Each rule stops at the first label after which its interval has a half-width of at most
.05. Its level is the largest one from .05 to .03, in steps of .001, with the guarantee. This is an exact calculation
for simple random samples without replacement from graphs of the sizes and accuracies of NELL, YAGO, and DBpedia. All
rules use the effective sample size n (N - 1) / (N - n).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kgharvest.statistics.arrays import Counts, Flags, Floats
from kgharvest.statistics.fixed_width import center_and_half_width, closing_rule, effective_size, interval_at_stop

COVERAGE = 0.945
SHARES = (0.5, 0.995)  # by symmetry, the guarantee also holds from .005 to .5
MARGIN = 0.05
GRAPHS = {"YAGO": (1386, 1375), "NELL": (1860, 1699), "DBpedia": (9344, 7949)}
LEVELS = np.arange(0.05, 0.03, -0.001)
FEWEST = 30  # labels, as in the published rules
Interval = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray]]


class Stops(NamedTuple):
    """Numbers of statements and hits (K,) at which sampling stops in a population of `size` tuples.

    assumed: size of the population in the rule. weight (K,): share of the orders of hits and misses that do not stop
    earlier. All orders are equally likely.
    """

    n: Counts
    n_hits: Counts
    weight: Floats
    size: int
    assumed: float

    def probabilities(self, hits_in_all: Counts) -> Floats:
        """Return the probability (P, K) of each stop for numbers of hits in the population (P,)."""
        log_factorial = scipy.special.gammaln(np.arange(self.size + 1) + 1.0)

        def log_choose(n: Counts, k: Counts) -> Floats:
            inside = np.clip(k, 0, n)
            chosen = log_factorial[n] - log_factorial[inside] - log_factorial[n - inside]
            return np.where(inside == k, chosen, -np.inf)

        hits = hits_in_all[:, None]
        log = log_choose(hits, self.n_hits) + log_choose(self.size - hits, self.n - self.n_hits)
        probabilities: Floats = np.exp(log - log_choose(np.array(self.size), self.n)) * self.weight
        return probabilities

    def coverage(self, hits_in_all: Counts, limits: tuple[Floats, Floats]) -> Floats:
        """Return the probability (P,) that the interval at the stop contains the share of hits. limits (K,), (K,)."""
        low, high = limits
        share = hits_in_all[:, None] / self.size
        is_covered = (low <= share + 1e-9) & (share <= high + 1e-9)
        coverage: Floats = (self.probabilities(hits_in_all) * is_covered).sum(axis=1)
        return coverage

    def limits(self, margin: float) -> tuple[Floats, Floats]:
        """Return the limits (K,) of the interval at each stop."""
        center, _ = center_and_half_width(self.n_hits / self.n, effective_size(self.n, self.assumed), 1)
        return interval_at_stop(center, margin)

    def least_coverage(self, limits: tuple[Floats, Floats], *, near_limits: bool) -> float:
        """Return the minimum coverage over SHARES, on a grid or also on both sides of each limit of an interval.

        Between limits, the coverage changes smoothly.
        """
        grid = np.linspace(*SHARES, 100).round(4) * self.size
        if near_limits:
            near = np.rint(np.concatenate(limits) * self.size)
            grid = np.concatenate([grid, near - 1, near, near + 1])
        hits = np.unique(grid.round().astype(np.int64))
        hits = hits[(hits >= SHARES[0] * self.size) & (hits <= SHARES[1] * self.size)]
        parts = np.array_split(hits, len(hits) // 200 + 1)
        return min(float(self.coverage(part, limits).min(initial=1)) for part in parts)


def stops(margin: float, z: float, size: int, assumed: float) -> Stops:
    """Return the stops of the rule in a population of `size` tuples. `assumed` is the size in the rule."""
    return first_stops(
        lambda hits, n: center_and_half_width(hits / n, effective_size(np.array(n), assumed), z)[1] <= margin,
        size,
        assumed,
    )


def first_stops(is_stop: Callable[[Counts, int], Flags], size: int, assumed: float) -> Stops:
    """Return the stops of sampling that is checked after every statement.

    is_stop: whether sampling stops, for numbers of hits (n + 1,) among n statements.
    """
    surviving, found = np.ones(1), []
    for n in range(1, size + 1):
        # Of the orders with x hits among n statements, the share x / n ends with a hit.
        hits = np.arange(n + 1)
        arriving = np.append(surviving * (n - hits[:-1]) / n, 0)
        arriving[1:] += surviving * hits[1:] / n
        is_last = is_stop(hits, n) | (n == size)
        stopping = np.flatnonzero(is_last & (arriving > 0))
        found.append((np.full(len(stopping), n), stopping, arriving[stopping]))
        surviving = np.where(is_last, 0, arriving)
        if not surviving.any():
            break
    n_stop, n_hits, weight = map(np.concatenate, zip(*found, strict=True))
    return Stops(n_stop, n_hits, weight, size, assumed)


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

        rule = first_stops(is_stop, size, size)
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
        assumed, z = closing_rule(MARGIN, size)
        rule = stops(MARGIN, z, size, assumed)
        [labels] = rule.probabilities(np.array([n_true])) @ rule.n
        cells.append(f"{labels:.1f} (z {z:.3f})")
    print(f"| kgharvest | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
