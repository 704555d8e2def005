"""Coverage and width of intervals for the accuracy of a harvest labeled by a judge.

    python benches/judge_coverage.py [N_RUNS] [--potato FOLDER]

A harvest has N tuples, of which a share is true. A judge labels true tuples True with its sensitivity and false tuples
False with its specificity, and labels some tuples neither. n tuples are drawn for people, whose verdicts are the truth.
People: their verdicts alone. PPI++: prediction_powered_mean, and, if ppi-python is installed, its own function, which
must give equal results. Potato: its `ppi_mean` at 95 %, if FOLDER contains its unpacked wheel (GPL; not part of this
project). Judge: the share that the judge labels true, from its labels alone.

Also prints averages over several strata, and how often a comparison of two sides has the wrong sign.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from kgharvest.statistics.judge_assisted import (
    JudgedSample,
    JudgedSide,
    judge_assisted_rate,
    judged_difference,
    people_alone,
    tells_apart,
)
from kgharvest.statistics.rates import Z_95, Rate, VerdictSample, simple_interval

N_RUNS = 2000


class Setting(NamedTuple):
    population: int
    n: int
    truth: float
    sensitivity: float
    specificity: float
    neither: float = 0.0

    def __str__(self) -> str:
        neither = f", neither {self.neither}" if self.neither else ""
        return f"{self.n} of {self.population}, true {self.truth}, judge {self.sensitivity}/{self.specificity}{neither}"


SETTINGS = tuple(Setting(*values) for values in (
    (200, 25, 0.9, 0.9, 0.6), (400, 50, 0.7, 0.95, 0.9), (400, 50, 0.7, 0.9, 0.8), (400, 50, 0.7, 0.75, 0.6),
    (400, 50, 0.9, 0.9, 0.6), (400, 50, 0.95, 0.95, 0.7), (400, 50, 0.99, 0.97, 0.7), (1000, 100, 0.95, 0.95, 0.7),
    (200, 25, 0.5, 0.9, 0.8), (200, 25, 0.8, 0.9, 0.8), (400, 50, 0.5, 0.97, 0.95), (400, 50, 0.8, 0.97, 0.95),
    (1000, 100, 0.8, 0.9, 0.8), (1000, 100, 0.9, 0.97, 0.95), (400, 100, 0.7, 0.9, 0.8), (200, 50, 0.7, 0.9, 0.8, 0.05),
    (400, 25, 0.95, 0.95, 0.7), (400, 50, 0.7, 0.2, 0.2), (400, 50, 0.9, 0.2, 0.2), (1000, 100, 0.8, 0.2, 0.2),
    (400, 50, 0.7, 0.5, 0.5), (400, 50, 0.9, 0.5, 0.5), (200, 25, 0.8, 0.7, 0.3), (1000, 100, 0.6, 0.5, 0.5),
    (1000, 50, 0.95, 0.9, 0.1),
))  # fmt: skip
AVERAGES = (
    ("6 relations alike", [Setting(400, 50, 0.8, 0.9, 0.8)] * 6, False),
    ("14 small relations", [Setting(200, 10, 0.9, 0.9, 0.8, 0.02)] * 14, False),
    ("14 small relations, unlike", [Setting(200, 10, p, 0.97, 0.95) for p in np.linspace(0.5, 1, 14)], False),
    ("14 relations, random judge", [Setting(400, 25, 0.9, 0.5, 0.5)] * 14, False),
    ("14 relations, weak judge", [Setting(400, 25, 0.8, 0.75, 0.6)] * 14, False),
    ("14 relations, hardly a judge", [Setting(400, 25, 0.8, 0.6, 0.5)] * 14, False),
    ("3 relations, random judge", [Setting(400, 50, 0.8, 0.5, 0.5)] * 3, False),
    ("2 strata of a harvest", [Setting(100, 30, 0.95, 0.9, 0.8), Setting(900, 30, 0.7, 0.9, 0.8)], True),
    ("4 strata of a harvest", [Setting(size, 12, p, 0.9, 0.8) for size, p in
                               ((50, 0.95), (100, 0.9), (200, 0.8), (500, 0.7))], True),
)  # fmt: skip
SIDES = (Setting(400, 50, 0.8, 0.9, 0.8), Setting(400, 50, 0.75, 0.95, 0.6))


class Simulated(NamedTuple):
    """Simulated harvests by the judge's label (R, 3): tuples, draws, and accepted draws. truth: equal in all runs."""

    truth: float
    population: np.ndarray
    drawn: np.ndarray
    hits: np.ndarray

    def sample(self, run: int) -> JudgedSample:
        accepted = VerdictSample.of_complete(self.drawn[run : run + 1], self.hits[run : run + 1])
        return JudgedSample(self.population[run : run + 1], self.drawn[run : run + 1], accepted)


def simulate(setting: Setting, n_runs: int, rng: np.random.Generator) -> Simulated:
    n_true = round(setting.population * setting.truth)
    answered = 1 - setting.neither
    of_true = (setting.sensitivity * answered, (1 - setting.sensitivity) * answered, setting.neither)
    of_false = ((1 - setting.specificity) * answered, setting.specificity * answered, setting.neither)
    tuples = np.concatenate([
        rng.multinomial(n_true, of_true, n_runs), rng.multinomial(setting.population - n_true, of_false, n_runs)
    ], axis=1)  # fmt: skip
    drawn = np.array([rng.multivariate_hypergeometric(row, setting.n) for row in tuples])
    both = [counts[:, :3] + counts[:, 3:] for counts in (tuples, drawn)]
    return Simulated(n_true / setting.population, both[0], both[1], drawn[:, :3])


# Cells

Interval = tuple[float, float]
Method = Callable[[Simulated, int], Interval]


def by_people(cell: Simulated, run: int) -> Interval:
    return simple_interval(int(cell.hits[run].sum()), int(cell.drawn[run].sum()), int(cell.population[run].sum()))


def with_judge(cell: Simulated, run: int) -> Interval:
    rate = judge_assisted_rate(cell.sample(run)).rate
    return rate.low, rate.high


def predictions(cell: Simulated, run: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return people's and the judge's labels of the drawn tuples, and the judge's labels of all tuples, as 0 or 1."""
    hits, misses = cell.hits[run], cell.drawn[run] - cell.hits[run]
    label = np.repeat([1.0, 0.0], [hits.sum(), misses.sum()])
    is_true = np.array([1.0, 0.0, 0.0])
    predicted = np.concatenate([np.repeat(is_true, hits), np.repeat(is_true, misses)])
    return label, predicted, np.repeat(is_true, cell.population[run])


def prediction_powered_mean(label: np.ndarray, predicted: np.ndarray, predicted_of_all: np.ndarray) -> Rate:
    """Return the mean label with its normal 95 % interval by PPI++, which can exceed [0, 1]. Requires n >= 1.

    Angelopoulos, Duchi, and Zrnic (2023), PPI++: Efficient Prediction-Powered Inference, arXiv 2311.01453. The result
    equals `ppi_mean_ci` in ppi-python 0.2.3.

    label, predicted (n,): labels of people and of the judge on the labeled sample. predicted_of_all (N,): the judge's
    labels of the whole population. The judge's weight, in [0, 1], is the covariance of `label` and `predicted` divided
    by the pooled variance of `predicted` and `predicted_of_all`, following the gradients in section 6 of the paper.
    """
    y, f, f_all = (np.asarray(values, dtype=np.float64) for values in (label, predicted, predicted_of_all))
    n, n_all = len(y), len(f_all)
    covariance = float(((y - y.mean()) * (f - f.mean())).mean())
    variance = float(np.var(np.concatenate([f, f_all]), ddof=1))
    weight = min(1.0, max(0.0, covariance / ((1 + n / n_all) * variance))) if variance > 0 else 0.0
    value = weight * float(f_all.mean()) + float((y - weight * f).mean())
    error = float(np.sqrt(weight**2 * f_all.var() / n_all + (y - weight * f).var() / n))
    return Rate(value, value - Z_95 * error, value + Z_95 * error)


def prediction_powered(cell: Simulated, run: int) -> Interval:
    rate = prediction_powered_mean(*predictions(cell, run))
    return rate.low, rate.high


def peers(potato: Path | None) -> Iterator[tuple[str, Method]]:
    """Yield the third-party estimators that are installed."""
    try:
        from ppi_py import ppi_mean_ci

        yield (
            "ppi-python",
            lambda cell, run: tuple(float(v[0]) for v in ppi_mean_ci(*predictions(cell, run), alpha=0.05)),
        )
    except ImportError:
        pass
    if potato:
        sys.path.append(str(potato))
        ppi_mean = importlib.import_module("potato.labeling_engine.contracts.ppi").ppi_mean

        def by_potato(cell: Simulated, run: int) -> Interval:
            result = ppi_mean(*predictions(cell, run), 0.95)
            return max(0.0, result["lo"]), min(1.0, result["hi"])

        yield "Potato 2.12.1", by_potato


def judge_alone(cell: Simulated) -> float:
    """Return the coverage of Wilson's interval for the judge's share of True."""
    population = cell.population[0].sum()
    share = cell.population[:, 0] / population
    half = 1.96 * np.sqrt(share * (1 - share) / population)
    return float(np.mean(np.abs(share - cell.truth) <= half))


def coverage_and_width(intervals: np.ndarray, truth: float) -> tuple[float, float]:
    """Return coverage and mean width."""
    low, high = intervals.T
    return float(np.mean((low - 1e-9 <= truth) & (truth <= high + 1e-9))), float(np.mean(high - low))


def print_cells(n_runs: int, potato: Path | None) -> None:
    methods = {"people": by_people, "with judge": with_judge, "PPI++": prediction_powered, **dict(peers(potato))}
    print(f"{n_runs} runs per row; coverage / mean width\n")
    print(f"| harvest | {' | '.join(methods)} | judge alone |\n|---|{'---|' * (len(methods) + 1)}")
    every: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for number, setting in enumerate(SETTINGS):
        cell = simulate(setting, n_runs, np.random.default_rng(number))
        for name, method in methods.items():
            every[name].append(coverage_and_width(np.array([method(cell, run) for run in range(n_runs)]), cell.truth))
        numbers = " | ".join(f"{coverage:.3f} / {width:.3f}" for coverage, width in (v[-1] for v in every.values()))
        print(f"| {setting} | {numbers} | {judge_alone(cell):.3f} |", flush=True)
    of_people = np.array([width for _, width in every["people"]])
    for name, values in every.items():
        coverage, width = np.array(values).T
        ratio = width / of_people
        print(
            f"\n{name}: coverage {coverage.min():.3f} to {coverage.max():.3f}, mean {coverage.mean():.4f}; width "
            f"{ratio.min():.2f} to {ratio.max():.2f} of the width with people alone, mean {ratio.mean():.2f}"
        )


# Averages and comparisons


def joined(samples: Sequence[JudgedSample]) -> JudgedSample:
    population, drawn, accepted = zip(*samples, strict=True)
    return JudgedSample(
        np.concatenate(population),
        np.concatenate(drawn),
        VerdictSample(*map(np.concatenate, zip(*accepted, strict=True))),
    )


def print_averages(n_runs: int) -> None:
    print(f"\n{n_runs} runs per row; coverage / mean width, bias\n\n| average | people | with judge |\n|---|---|---|")
    for number, (name, settings, by_size) in enumerate(AVERAGES):
        rng = np.random.default_rng(number)
        cells = [simulate(setting, n_runs, rng) for setting in settings]
        sizes = np.array([setting.population for setting in settings])
        weights = sizes / sizes.sum() if by_size else np.full(len(cells), 1 / len(cells))
        truth = float(weights @ [cell.truth for cell in cells])
        samples = (joined([cell.sample(run) for cell in cells]) for run in range(n_runs))
        rates = [judge_assisted_rate(each if tells_apart(each) else people_alone(each), weights) for each in samples]
        columns = []
        for part in (1, 0):
            value, *interval = np.array([rate[part][:3] for rate in rates], dtype=float).T
            coverage, width = coverage_and_width(np.array(interval).T, truth)
            columns.append(f"{coverage:.3f} / {width:.4f}, {value.mean() - truth:+.4f}")
        print(f"| {name} | {' | '.join(columns)} |", flush=True)


def print_wrong_signs(n_runs: int) -> None:
    rng = np.random.default_rng(0)
    cells = [simulate(setting, n_runs, rng) for setting in SIDES]
    true_difference = cells[0].truth - cells[1].truth
    wrong, covered, widths = np.zeros(2), np.zeros(2), np.zeros(2)
    for run in range(n_runs):
        sides = [
            JudgedSide(cell.sample(run), np.array([number]), np.ones(1), np.zeros(1, dtype=np.int64))
            for number, cell in enumerate(cells)
        ]
        with_labels = judged_difference(*sides).difference
        alone = judged_difference(*(side._replace(sample=people_alone(side.sample)) for side in sides)).difference
        for column, difference in enumerate((alone, with_labels)):
            low, high = difference.interval
            wrong[column] += 0.5 if difference.value == 0 else difference.value < 0
            covered[column] += low - 1e-9 <= true_difference <= high + 1e-9
            widths[column] += high - low
    print(f"\nComparison of {SIDES[0]} with {SIDES[1]}: {n_runs} runs\n\n| | people | with judge |\n|---|---|---|")
    for name, values in (("wrong sign, ties count half", wrong), ("coverage", covered), ("mean width", widths)):
        print(f"| {name} | {' | '.join(f'{value / n_runs:.3f}' for value in values)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n_runs", type=int, nargs="?", default=N_RUNS)
    parser.add_argument("--potato", type=Path, help="folder of Potato's unpacked wheel")
    arguments = parser.parse_args()
    print_cells(arguments.n_runs, arguments.potato)
    print_wrong_signs(arguments.n_runs)
    print_averages(arguments.n_runs)
