"""Coverage of the product's 95 % intervals: the simulations behind docs/statistics.md.

`python benches/interval_coverage.py [--runs 2000] [--only WORD]`. Each line is one design: populations with the shares
of true tuples in the line's name, samples drawn from them without replacement, people with an error rate, and the
interval of each sample from the function that reports call. Each line has its own seed, so it can be run alone.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.simulated_intervals import (
    Crowd,
    Line,
    Overlap,
    Sample,
    World,
    of_alpha,
    of_annotators,
    of_another_panel,
    of_clustered_annotators,
    of_clustered_judge,
    of_clustered_round,
    of_clusters,
    of_difference,
    of_incomplete,
    of_interim,
    of_other_annotators,
    of_relations,
    of_sample,
    of_statements,
)
from kgharvest.statistics.paired_tests import FEWEST_RELATIONS_TO_TELL


def lines() -> Iterator[Line]:
    yield from lines_of_rates()
    yield from lines_of_worlds(("these", "similar"))
    yield from lines_of_models()
    yield from lines_of_differences()
    yield from lines_of_incomplete()
    yield from lines_of_agreement()


def lines_of_rates() -> Iterator[Line]:
    for population, n in ((20, 10), (50, 10), (100, 20), (200, 50), (1000, 10), (1000, 50), (1000, 200), (10_000, 100)):
        for share in (0.5, 0.8, 0.9, 0.95, 0.99):
            yield of_sample("cell", Sample((population,), (n,), (share,)))
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
        yield of_sample("strata", Sample(population, n, share))
    yield from lines_of_thin_strata()
    small = tuple(range(4, 14))
    for n_large, share in ((10, 0.7), (10, 0.9), (10, 0.98), (50, 0.8)):
        yield of_sample("total", Sample((5000, *[50] * 10), (n_large, *small), (share, *[0.8] * 10)))
    designs = ((4, 10, 0.9), (14, 10, 0.9), (14, 10, 0.98), (14, 48, 0.5), (14, 50, 0.7), (80, 10, 0.95), (80, 30, 0.6))
    for n_cells, n, share in designs:
        equal = [1 / n_cells] * n_cells
        yield of_sample("macro", Sample([200] * n_cells, [n] * n_cells, [share] * n_cells, equal))


def lines_of_thin_strata() -> Iterator[Line]:
    for n_strata, n, size in ((20, 2, 25), (20, 3, 25), (70, 5, 100)):
        for share in (0.8, 0.95):
            yield of_sample("thin strata", Sample([size] * n_strata, [n] * n_strata, [share] * n_strata))
        n_bad = round((1 - SHARE_GOOD) * n_strata)
        shares = [BAD] * n_bad + [GOOD] * (n_strata - n_bad)
        yield of_sample("thin strata", Sample([size] * n_strata, [n] * n_strata, shares))
    for n_clusters, share in ((30, 0.8), (30, 0.95), (60, 0.8), (60, 0.95)):
        yield of_clusters(n_clusters, 5, 1000, share)
    for n, effect, share in product((60, 120, 200), (1.4, 1.9), (0.8, 0.9, 0.95)):
        yield of_clustered_round(n, 200, share, effect)
    for (n, size, share), kind in product(
        ((60, 5, 0.8), (100, 5, 0.7), (100, 10, 0.7), (200, 10, 0.8), (200, 5, 0.95)), ("independent", "knows half")
    ):
        yield of_clustered_judge(n, size, share, kind)
    for n, effect, share in product((60, 200), (1.4, 1.9), (0.8, 0.9)):
        yield of_clustered_annotators(n, share, effect, Crowd(10, 0.85, 0.8, 0.1))


GOOD, BAD, SHARE_GOOD = 0.95, 0.3, 0.85
WORLDS = (
    World("p Beta(8, 2)", lambda rng, n: rng.beta(8, 2, n), 0.8),
    World("p Beta with mean 0.95 and sd 0.08", lambda rng, n: rng.beta(6.1, 0.321, n), 0.95),
    World(
        "85% with p 0.95, 15% with p 0.3",
        lambda rng, n: np.where(rng.random(n) < SHARE_GOOD, GOOD, BAD),
        SHARE_GOOD * GOOD + (1 - SHARE_GOOD) * BAD,
    ),
)


def lines_of_worlds(intervals: Sequence[str]) -> Iterator[Line]:
    for interval in intervals:
        for world in WORLDS:
            for n_relations in (3, 5, 8, 14, 30):
                if interval != "similar" or n_relations >= FEWEST_RELATIONS_TO_TELL:
                    yield of_relations(world, n_relations, 20, 200, interval)


def lines_of_models() -> Iterator[Line]:
    for population, n, share, crowd, n_gold in (
        (1000, 50, 0.5, Crowd(10, 0.85, 0.85), 0),
        (1000, 50, 0.8, Crowd(5, 0.75, 0.75), 0),
        (1000, 50, 0.8, Crowd(10, 0.85, 0.8, 0.1), 0),
        (1000, 50, 0.8, Crowd(10, 0.85, 0.8, 0.1), 20),
        (1000, 50, 0.95, Crowd(10, 0.97, 0.97), 0),
        (100, 100, 0.8, Crowd(10, 0.85, 0.8), 0),
        (1000, 200, 0.5, Crowd(5, 0.75, 0.75), 0),
        (1000, 200, 0.8, Crowd(10, 0.85, 0.75, 0.1), 0),
        (1000, 200, 0.8, Crowd(20, 0.97, 0.9), 0),
        (1000, 200, 0.95, Crowd(5, 0.75, 0.75), 0),
        (1000, 200, 0.95, Crowd(10, 0.85, 0.8, 0.1), 20),
    ):
        yield of_annotators(Sample((population,), (n,), (share,)), crowd, n_gold)
    yield of_annotators(Sample((100, 900), (30, 30), (0.95, 0.7)), Crowd(8, 0.85, 0.8, 0.1))
    yield of_annotators(Sample([200] * 14, [10] * 14, [0.9] * 14, [1 / 14] * 14), Crowd(8, 0.85, 0.8, 0.1))


def lines_of_differences() -> Iterator[Line]:
    for n, a, b in ((10, 0.9, 0.6), (20, 0.95, 0.9), (50, 0.8, 0.8), (50, 0.98, 0.9), (200, 0.7, 0.6)):
        yield of_difference(Sample([1000], [n], [a]), Sample([400], [n], [b]))
    yield of_difference(Sample((100, 900), (10, 10), (0.95, 0.8)), Sample((100, 900), (30, 5), (0.9, 0.6)))
    for population, n, n_both, is_coordinated in (
        ((1000, 1000), (20, 20), 0, False),
        ((100, 400), (30, 20), 60, False),
        ((100, 100), (50, 50), 100, False),
        ((100, 100), (30, 30), 80, True),
        ((40, 40), (30, 20), 20, True),
        ((200, 200), (10, 10), 50, False),
    ):
        for p_a, p_b in ((0.9, 0.9), (0.9, 0.6), (0.98, 0.95)):
            yield of_statements(*[Overlap(population, n, n_both, p_a, p_b, 0.9, is_coordinated)] * 3)
    yield of_statements(
        *(Overlap((200, 300), (10, 30), 40, a, b, 0.7, True) for a, b in ((0.9, 0.5), (0.6, 0.6), (0.3, 0.8)))
    )


def lines_of_incomplete() -> Iterator[Line]:
    for n, population, share, accuracy, excluded, waiting in (
        (50, 1000, 0.7, 0.85, 0.4, 0),
        (50, 1000, 0.7, 0.85, 0.8, 0),
        (100, 400, 0.6, 0.75, 0.8, 0),
        (200, 1000, 0.7, 0.8, 0.4, 0),
        (50, 1000, 0.7, 0.8, 0, 0.4),
        (100, 1000, 0.7, 0.8, 0, 0.7),
        (20, 200, 0.8, 0.85, 0.4, 0.2),
        (100, 1000, 0.9, 0.9, 0.4, 0),
    ):
        yield of_incomplete(n, population, share, accuracy, excluded, waiting)
    for share, accuracy in ((0.7, 0.85), (0.7, 0.97), (0.95, 0.9)):
        for judged in ((0.1, 0.5, 0.3, 0.1), (0.2, 0.2, 0.2, 0.4)):
            yield of_interim(50, 1000, share, accuracy, judged)


def lines_of_agreement() -> Iterator[Line]:
    for n in (20, 50, 100):
        for share, accuracy in ((0.5, 0.75), (0.5, 0.97), (0.8, 0.75), (0.8, 0.97), (0.95, 0.9), (0.95, 0.97)):
            yield of_alpha(n, share, accuracy)
    for n, n_annotators, share, accuracy, precision in (
        (50, 5, 0.5, 0.85, 8),
        (200, 5, 0.5, 0.85, 8),
        (200, 10, 0.5, 0.85, 8),
        (1000, 10, 0.7, 0.85, 8),
        (100, 10, 0.9, 0.9, 10),
        (30, 20, 0.7, 0.9, 10),
        (200, 20, 0.7, 0.9, 1000),
        (200, 40, 0.7, 0.85, 8),
        (1000, 40, 0.7, 0.85, 8),
    ):
        yield of_other_annotators(n, n_annotators, share, accuracy, precision)
    for n_annotators in (5, 7, 10, 30):
        for n, leniency in ((200, 0.5), (200, 1), (1000, 0.5), (1000, 1)):
            yield of_another_panel(n, 1000, n_annotators, leniency)
        yield of_another_panel(200, 1000, n_annotators, 0.5, has_thirds=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", default="", help="run only lines whose name contains this word")
    options = parser.parse_args()
    print(f"| design | coverage of {options.runs:,} runs | mean width | no interval |\n|---|---|---|---|")
    covered = []
    for line in lines():
        if options.only in line.name:
            rng = np.random.default_rng(zlib.crc32(line.name.encode()))
            results = line.simulate(rng, options.runs)
            has_interval = ~np.isnan(results[:, 1])
            truth, low, high = results[has_interval].T
            covered.append(((low - 1e-9 <= truth) & (truth <= high + 1e-9)).mean())
            none = f"{1 - has_interval.mean():.3f}" if not has_interval.all() else ""
            print(f"| {line.name} | {covered[-1]:.3f} | {(high - low).mean():.3f} | {none} |", flush=True)
    print(f"\n{len(covered)} lines: minimum {min(covered):.3f}, mean {np.mean(covered):.3f}")


if __name__ == "__main__":
    main()
