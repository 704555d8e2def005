"""Coverage at six looks at a growing sample: how often intervals miss at any look, and how wide they are at the first.

`python benches/sequential_coverage.py [--runs 2000]`. A cell has N tuples, of which a share is true. Statements are
judged in random order, with a look after each sixth of `most`. Any miss: the share of runs in which an interval misses
the cell's own accuracy at some look. The intervals are the anytime-valid one from people alone (P), that with the
labels of a judge (J), and that of a sample fixed beforehand (F), which reports print for the accuracy. Width: that of P
and J at the first look, relative to F. Labels: mean number of labels until P and J were at most .15 wide.

Then averages over several relations, of which `truth` are true on average, from .1 less to .1 more in each: any miss of
six looks, and the width at the first and the last look, relative to the usual interval there (of 50 runs).
"""

from __future__ import annotations

import argparse
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from kgharvest.statistics.judge_assisted import JudgedSample, people_alone, post_strata, tells_apart
from kgharvest.statistics.rates import VerdictSample, population_rate, simple_interval
from kgharvest.statistics.sequential import SeenStrata, anytime_average, anytime_interval

N_LOOKS, TARGET_WIDTH = 6, 0.15


class Setting(NamedTuple):
    population: int
    most: int
    truth: float
    sensitivity: float
    specificity: float

    def __str__(self) -> str:
        judge = f"{self.sensitivity:.2f}/{self.specificity:.2f}"
        return f"N {self.population:5} n {self.most // N_LOOKS:3}..{self.most:3} truth {self.truth:.2f} judge {judge}"


SETTINGS = [
    Setting(population, most, truth, *judge)
    for population, most in ((200, 90), (400, 150), (1000, 300))
    for truth in (0.5, 0.8, 0.95, 0.99)
    for judge in ((0.95, 0.9), (0.9, 0.6), (0.5, 0.5))
]


@cache
def interval(n: tuple[int, ...], hits: tuple[int, ...], population: tuple[int, ...]) -> tuple[float, float]:
    """Return the interval for people alone (one stratum), or with a judge (the whole, then a stratum per label)."""

    def strata(part: slice) -> SeenStrata:
        return SeenStrata(*(np.array(column[part]) for column in (n, hits, hits, population)))

    with_judge = strata(slice(1, None)) if len(n) > 1 else None
    return anytime_interval(strata(slice(0, 1)), with_judge)


def look(setting: Setting, is_true: np.ndarray, label: np.ndarray, n: int) -> list[tuple[float, float]]:
    """Return the intervals P, J, and F after the first `n` tuples are judged."""
    hits = int(is_true[:n].sum())
    per_label = np.bincount(label[:n], minlength=2)
    hits_per_label = np.bincount(label[:n], is_true[:n], minlength=2).astype(int)
    sizes = np.bincount(label, minlength=2)
    present = np.flatnonzero(sizes)
    with_judge = [
        (whole, *parts[present].tolist())
        for whole, parts in ((n, per_label), (hits, hits_per_label), (setting.population, sizes))
    ]
    alone = interval((n,), (hits,), (setting.population,))
    return [alone, interval(*with_judge), simple_interval(hits, n, setting.population)]


def simulate(setting: Setting, runs: int) -> str:
    rng = np.random.default_rng(zlib.crc32(str(setting).encode()))
    n_true = round(setting.truth * setting.population)
    truth, says_true = n_true / setting.population, np.array([1 - setting.specificity, setting.sensitivity])
    looks = [setting.most * number // N_LOOKS for number in range(1, N_LOOKS + 1)]
    limits = np.empty((runs, N_LOOKS, 3, 2))
    for run in range(runs):
        is_true = (rng.permutation(setting.population) < n_true).astype(int)
        label = (rng.random(setting.population) < says_true[is_true]).astype(int)
        limits[run] = [look(setting, is_true, label, n) for n in looks]
    low, high = limits[..., 0], limits[..., 1]
    missed = ((low > truth + 1e-9) | (high < truth - 1e-9)).any(axis=1).mean(axis=0)
    width = high - low
    at_first = width[:, 0].mean(axis=0)
    is_narrow = width <= TARGET_WIDTH
    stopped = np.where(is_narrow.any(axis=1), np.array(looks)[is_narrow.argmax(axis=1)], setting.population).mean(
        axis=0
    )
    return (
        f"{setting}  any miss P {missed[0]:.4f} J {missed[1]:.4f} F {missed[2]:.4f}   width at the first look "
        f"P {at_first[0] / at_first[2]:.2f} J {at_first[1] / at_first[2]:.2f} of {at_first[2]:.3f}   "
        f"labels P {stopped[0]:5.0f} J {stopped[1]:5.0f}"
    )


# Averages


class Average(NamedTuple):
    n_relations: int
    population: int
    most: int  # per relation
    truth: float
    sensitivity: float
    specificity: float

    def __str__(self) -> str:
        judge = f"{self.sensitivity:.2f}/{self.specificity:.2f}"
        return (
            f"{self.n_relations:2} relations, {self.most // N_LOOKS}..{self.most} of {self.population}, "
            f"truth {self.truth:.2f} judge {judge}"
        )


AVERAGES = [
    Average(*shape, truth, *judge)
    for shape in ((2, 400, 60), (6, 400, 60), (14, 200, 12), (14, 400, 48))
    for truth in (0.5, 0.8, 0.95)
    for judge in ((0.9, 0.8), (0.5, 0.5))
]


def simulate_average(average: Average, runs: int) -> str:
    rng = np.random.default_rng(zlib.crc32(str(average).encode()))
    R, N, most = average.n_relations, average.population, average.most
    shares = np.clip(average.truth + np.linspace(-0.1, 0.1, R), 0, 1)
    n_true = np.rint(shares * N).astype(int)
    says_true = np.array([1 - average.specificity, average.sensitivity])
    weights, truth = np.full(R, 1 / R), n_true.mean() / N
    missed, widths = np.zeros(2), np.zeros((N_LOOKS, 2))
    usual = np.zeros(N_LOOKS)
    for run in range(runs):
        is_true = rng.permuted(np.arange(N) < n_true[:, np.newaxis], axis=1).astype(int)  # (R, N), in random order
        label = (rng.random((R, N)) >= says_true[is_true]).astype(int)  # 0: called true
        misses = np.zeros(2, dtype=bool)
        for number in range(N_LOOKS):
            n = most * (number + 1) // N_LOOKS
            for column, interval_ in enumerate(average_look(is_true, label, n, most, weights)):
                misses[column] |= not interval_[0] - 1e-9 <= truth <= interval_[1] + 1e-9
                widths[number, column] += interval_[1] - interval_[0]
            if run < 50 and number in (0, N_LOOKS - 1):
                rate = population_rate(is_true[:, :n].sum(axis=1), np.full(R, n), np.full(R, N), weights)
                usual[number] += (rate.high - rate.low) / min(50, runs)
        missed += misses
    first, last = (widths[number] / runs / usual[number] for number in (0, -1))
    return (
        f"{average}  any miss P {missed[0] / runs:.4f} J {missed[1] / runs:.4f}   width at the first look "
        f"P {first[0]:.2f} J {first[1]:.2f}, at the last P {last[0]:.2f} J {last[1]:.2f} of {usual[-1]:.3f}"
    )


def average_look(
    is_true: np.ndarray, label: np.ndarray, n: int, most: int, weights: np.ndarray
) -> list[tuple[float, float]]:
    """Return the intervals of people alone and with the judge's groups, after `n` of each relation are judged."""

    def by_label(until: int, values: np.ndarray) -> np.ndarray:
        return np.stack([((label == group) * values)[:, :until].sum(axis=1) for group in range(3)], axis=1)

    ones = np.ones_like(label)
    sizes, drawn, judged, hits = (
        by_label(label.shape[1], ones),
        by_label(most, ones),
        by_label(n, ones),
        by_label(n, is_true),
    )
    sample = JudgedSample(sizes, drawn, VerdictSample.of_complete(judged, hits))
    intervals = []
    for each in (people_alone(sample), sample if tells_apart(sample) else people_alone(sample)):
        groups = post_strata(each)
        kept = groups.population > 0
        n_drawn = np.bincount(groups.group_of.ravel(), each.drawn.ravel(), len(kept))[kept]
        columns = (groups.accepted.n, groups.accepted.n_hits, groups.accepted.n_hits, groups.population)
        seen = SeenStrata(*(column[kept].astype(int) for column in columns))
        intervals.append(anytime_average(seen, groups.weights(weights)[kept], n_drawn))
    return intervals


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=2000)
    runs = arguments.parse_args().runs
    for setting in SETTINGS:
        print(simulate(setting, runs), flush=True)
    for average in AVERAGES:
        print(simulate_average(average, runs), flush=True)


if __name__ == "__main__":
    main()
