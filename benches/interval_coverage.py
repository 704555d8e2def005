"""How often the 95 % intervals that the product prints hold the truth: the simulations behind docs/statistics.md.

`python benches/interval_coverage.py [--runs 2000] [--only WORD]`. Each line is one design: a population with the shares
of true tuples that it names, samples drawn from it without replacement, and the interval of each sample by the function
that reports call. Each line has its own seed, so that it can be run alone.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from evaluation.statistics.finite_population import population_rate, simple_interval

NOMINAL = 0.95


class Design(NamedTuple):
    """population, n, share: of each stratum. weights: of the strata in the rate; None for their sizes."""

    kind: str
    population: tuple[int, ...]
    n: tuple[int, ...]
    share: tuple[float, ...]
    weights: tuple[float, ...] | None = None

    def __str__(self) -> str:
        def short(values) -> str:
            different = list(dict.fromkeys(values))
            return (
                f"{len(values)} x {different[0]:g}"
                if len(different) == 1 and len(values) > 3
                else " + ".join(f"{v:g}" for v in values)
            )

        return f"{self.kind}: {short(self.n)} of {short(self.population)}, p {short(self.share)}"


def designs() -> Iterator[Design]:
    for population, n in (
        (20, 10),
        (50, 10),
        (100, 20),
        (200, 50),
        (1000, 10),
        (1000, 50),
        (1000, 200),
        (10_000, 10),
        (10_000, 100),
    ):
        for share in (0.5, 0.8, 0.9, 0.95, 0.99):
            yield Design("cell", (population,), (n,), (share,))
    for population, n, share in (
        ((100, 900), (10, 10), (0.95, 0.8)),
        ((100, 900), (30, 5), (0.95, 0.8)),
        ((100, 900), (30, 5), (0.95, 0.9)),
        ((100, 900), (2, 18), (0.95, 0.8)),
        ((10, 90, 900), (10, 10, 10), (0.9, 0.9, 0.8)),
        ((10, 90, 900), (3, 5, 20), (1, 0.9, 0.6)),
        ((500, 500), (10, 10), (0.7, 0.6)),
        ((500, 500), (5, 5), (0.98, 0.98)),
        ((100, 900, 9000), (20, 20, 20), (0.95, 0.8, 0.5)),
        ((20, 20), (10, 15), (0.9, 0.6)),
    ):
        yield Design("strata", population, n, share)
    small = tuple(range(4, 14))
    for share in (0.7, 0.9, 0.98):
        yield Design("total over one large cell", (5000, *[50] * 10), (10, *small), (share, *[0.8] * 10))
    yield Design("total over one large cell", (5000, *[50] * 10), (50, *small), (0.8, *[0.9] * 10))
    for n_cells, n, share in (
        (4, 10, 0.9),
        (14, 10, 0.9),
        (14, 10, 0.98),
        (14, 50, 0.7),
        (40, 10, 0.95),
        (80, 10, 0.95),
    ):
        yield Design("macro average", (200,) * n_cells, (n,) * n_cells, (share,) * n_cells, (1 / n_cells,) * n_cells)


def coverage(design: Design, runs: int) -> tuple[float, float]:
    """Return the share of intervals that hold the truth, and their mean width."""
    rng = np.random.default_rng(zlib.crc32(str(design).encode()))
    hits_in_all = np.array([round(size * share) for size, share in zip(design.population, design.share, strict=True)])
    weights = design.weights or np.array(design.population) / sum(design.population)
    truth = float(np.dot(weights, hits_in_all / design.population))
    samples = rng.hypergeometric(
        hits_in_all, np.array(design.population) - hits_in_all, design.n, (runs, len(design.n))
    )
    different, counts = np.unique(samples, axis=0, return_counts=True)
    rates = [population_rate(hits, design.n, design.population, design.weights) for hits in different]
    holds = [rate.low - 1e-9 <= truth <= rate.high + 1e-9 for rate in rates]
    return float(counts @ holds / runs), float(counts @ [rate.high - rate.low for rate in rates] / runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", default="", help="lines whose name has this word")
    options = parser.parse_args()
    print(f"| design | coverage of {options.runs:,} runs | mean width |\n|---|---|---|")
    covered = []
    for design in designs():
        if options.only in str(design):
            share, width = coverage(design, options.runs)
            covered.append(share)
            print(f"| {design} | {share:.3f} | {width:.3f} |", flush=True)
    print(f"\n{len(covered)} lines: least {min(covered):.3f}, mean {np.mean(covered):.3f}")
    simple_interval.cache_clear()


if __name__ == "__main__":
    main()
