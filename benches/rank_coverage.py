"""Coverage of the reports' rank intervals over all sides at once: the table in docs/statistics.md.

`python benches/rank_coverage.py [--runs 1000] [--only WORD]`. Each row is one design: the number of LMs and settings
(sides), the number of relations that they harvested, the number of statements drawn from each harvest, and the true
difference between the sides. The ranks come from the function that reports call. With six or more relations, relations
are drawn again in each run, and the truth is the sides' means over all such relations. With fewer relations, the truth
is the mean over these harvests. Tied sides have all the ranks that they share, and the interval must contain all of
these ranks.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from evaluation.evidence.evidence import Draws, Evidence, Judgments, StratumKey, cells_of, drawn_verdicts
from evaluation.reports.sections.comparisons import rank_entry
from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE
from kgharvest.statistics.paired_tests import FEWEST_RELATIONS_TO_TELL, CellKey

RUNS = 1000
HARDEST = 0.15  # largest deviation of a relation from the sides' means, in either direction
ROUNDING = 1e-9


class Design(NamedTuple):
    """Design of a simulated round.

    means: accuracies of the sides. overlap: share of each harvest that all sides found, drawn alike for all sides.
    spread: largest deviation of a side on one relation, in either direction. is_skewed: few large deviations instead of
    many small ones. of_relation: whether the ranks are those of cells within the first relation.
    """

    means: Sequence[float]
    n_relations: int
    population: int
    n: int
    overlap: float = 0.0
    spread: float = 0.05
    is_skewed: bool = False
    of_relation: bool = False

    def __str__(self) -> str:
        means = np.unique(self.means)
        shares = f"p {means[0]:g}" if len(means) == 1 else f"p {means[0]:g} to {means[-1]:g}"
        tied = ", tied in pairs" if 1 < len(means) < len(self.means) else ", all tied" if len(means) == 1 else ""
        relations = "one relation" if self.of_relation else f"{self.n_relations} relations"
        shared = f", {self.overlap:.0%} shared" if self.overlap else ""
        skewed = ", skewed" if self.is_skewed else ""
        return f"{len(self.means)} sides, {relations}, {self.n} of {self.population}, {shares}{tied}{shared}{skewed}"


def spaced(n_sides: int, low: float, high: float) -> tuple[float, ...]:
    return tuple(np.linspace(low, high, n_sides).round(4).tolist())


def in_pairs(n_sides: int, low: float, high: float) -> tuple[float, ...]:
    return tuple(np.repeat(np.linspace(low, high, n_sides // 2), 2).round(4).tolist())


DESIGNS = [
    *(
        Design(means, *shape)
        for shape, n_sides in product(((2, 200, 20), (4, 400, 30), (6, 200, 20), (14, 200, 10), (14, 400, 50)), (2, 8))
        for means in ((0.7,) * n_sides, spaced(n_sides, 0.5, 0.8))
    ),
    *(Design(means, 14, 400, 30) for means in ((0.7,) * 4, in_pairs(4, 0.6, 0.8), in_pairs(8, 0.5, 0.8))),
    *(Design(means, 3, 200, 40) for means in ((0.75,) * 12, in_pairs(12, 0.4, 0.8))),
    *(Design(means, 14, 200, 20) for means in ((0.75,) * 12, in_pairs(12, 0.4, 0.8))),
    Design((0.7,) * 4, 40, 200, 10),
    Design(in_pairs(4, 0.6, 0.8), 40, 200, 10),
    *(Design(means, 4, 200, 40, 0.6) for means in ((0.8,) * 4, in_pairs(4, 0.7, 0.8))),
    *(Design(means, 14, 200, 20, 0.6) for means in ((0.8,) * 4, in_pairs(4, 0.7, 0.8))),
    *(Design((0.7,) * 8, n, 200, 20, spread=0.12, is_skewed=True) for n in (6, 14, 40)),
    *(Design((0.95,) * n_sides, n, 200, 20, spread=0.02) for n_sides, n in ((4, 3), (8, 3), (8, 14))),
    *(
        Design(means, 1, *shape, spread=0.0, of_relation=True)
        for shape in ((200, 20), (400, 50), (40, 30))
        for means in ((0.7,) * 8, in_pairs(8, 0.5, 0.9), (0.95,) * 8)
    ),
    Design((0.7,) * 12, 1, 200, 20, spread=0.0, of_relation=True),
]


# Simulated round


def shares_of(design: Design, rng: np.random.Generator) -> np.ndarray:
    """Return (R, S) the shares of true tuples of a round's harvests. Their expected values are the sides' means."""
    room = min(1 - max(design.means), min(design.means), HARDEST + design.spread) - design.spread
    shape = (design.n_relations, len(design.means))
    if design.is_skewed:  # a side is much worse on an eighth of the relations
        deviation = np.where(rng.random(shape) < 1 / 8, -7, 1) * design.spread / 4
    else:
        deviation = rng.uniform(-design.spread, design.spread, shape)
    ease = 0.0 if design.of_relation else rng.uniform(-max(room, 0), max(room, 0), (design.n_relations, 1))
    return np.clip(np.array(design.means) + ease + deviation, 0, 1)


def harvests_of(design: Design, shares: np.ndarray) -> np.ndarray:
    """Return (R, S, N) whether tuples are true. The first tuples of each harvest are common to all sides."""
    n_common = round(design.overlap * design.population)
    n_true = np.round(shares * design.population).astype(int)  # (R, S)
    common = np.minimum(np.round(shares.mean(axis=1) * n_common).astype(int), n_true.min(axis=1))
    place = np.arange(design.population)
    rest = n_common + (n_true - common[:, None])
    is_common_true = place < common[:, None, None]
    return is_common_true | ((place >= n_common) & (place < rest[..., None]))


def evidence_of(design: Design, harvests: np.ndarray, rng: np.random.Generator) -> Evidence:
    n_relations, n_sides, population = harvests.shape
    n_common = round(design.overlap * design.population)
    task, verdict, stratum = [], [], []
    n_tasks = 0
    for relation in range(n_relations):
        order = rng.random((n_sides, population))
        order[:, :n_common] = order[0, :n_common]
        drawn = np.argsort(order, axis=1)[:, : design.n]  # (S, n)
        keys = np.where(drawn < n_common, drawn, n_common + np.arange(n_sides)[:, None] * population + drawn)
        different, first, number = np.unique(keys, return_index=True, return_inverse=True)
        is_true = np.take_along_axis(harvests[relation], drawn, axis=1).ravel()
        task.append(n_tasks + number.ravel())
        verdict.append(np.where(is_true[first], 0, 1))
        stratum.append(np.repeat(relation * n_sides + np.arange(n_sides), design.n))
        n_tasks += len(different)
    verdicts, draws = np.concatenate(verdict), np.concatenate(task)
    cells = [CellKey(f"r{relation:02}", "lm", f"s{side}") for relation in range(n_relations) for side in range(n_sides)]
    return Evidence(
        round="simulated", source="simulated", seed=0, judgments_per_task=1, quorum=1, has_thirds=False,
        verdict=verdicts, adjudicated=np.full(n_tasks, INCOMPLETE), third=np.full(n_tasks, -1),
        wanted=np.ones(n_tasks, dtype=np.int64),
        judgments=Judgments(np.arange(n_tasks), np.zeros(n_tasks, dtype=np.int64), verdicts, np.zeros(n_tasks)),
        cells=cells,
        strata=[StratumKey(number, 1, population, population) for number in range(len(cells))],
        draws=Draws(draws, np.concatenate(stratum), np.ones_like(draws), np.zeros(len(draws))),
        annotators=["a"], gold=Judgments(*np.zeros((3, 0), dtype=np.int64), np.zeros(0)),
        gold_truth=np.zeros(0, dtype=np.int64), demonstrators=[],
    )  # fmt: skip


def ranks_of(design: Design, evidence: Evidence) -> np.ndarray:
    """Return (S, 2) the rank intervals of a report."""
    drawn = drawn_verdicts(evidence)
    rates = [(cell.key, cell.rate_of(ACCEPTED)) for cell in cells_of(evidence, drawn)]
    cells = [
        {**key._asdict(), "accuracy": rate.value,
         "accuracy_low": rate.low if design.of_relation else None, "accuracy_high": rate.high, "n": design.n}
        for key, rate in rates
    ]  # fmt: skip
    entry = rank_entry(evidence, cells, drawn)
    n_sides = len(design.means)
    if design.of_relation:
        of_relations = entry["relations"]
        return ranks_in_order(of_relations[0]["sides"]) if of_relations else np.array([[1, n_sides]] * n_sides)
    return ranks_in_order(entry["sides"])


def ranks_in_order(sides: Sequence[dict]) -> np.ndarray:
    by_name = {side["setting"]: (side["low"], side["high"]) for side in sides}
    return np.array([by_name[f"s{number}"] for number in range(len(sides))])


def true_ranks(truth: np.ndarray) -> np.ndarray:
    """Return (S, 2) the first and the last rank that each side shares with the sides that are truly tied with it."""
    is_above = truth[:, None] > truth + ROUNDING
    return np.column_stack([1 + is_above.sum(axis=0), len(truth) - is_above.sum(axis=1)])


# Coverage of a design


class Covered(NamedTuple):
    """all_ranks: share of runs in which all true ranks are covered. width: mean number of ranks in an interval."""

    all_ranks: float
    width: float


def simulate(design: Design, runs: int) -> Covered:
    rng = np.random.default_rng(zlib.crc32(repr(design).encode()))
    is_over_relations = design.n_relations >= FEWEST_RELATIONS_TO_TELL
    is_covered, widths = [], []
    for _ in range(runs):
        harvests = harvests_of(design, shares_of(design, rng))
        truth = np.array(design.means) if is_over_relations else harvests.mean(axis=2).mean(axis=0)
        ranks, true = ranks_of(design, evidence_of(design, harvests, rng)), true_ranks(truth)
        is_covered.append(bool(((ranks[:, 0] <= true[:, 0]) & (true[:, 1] <= ranks[:, 1])).all()))
        widths.append(float((ranks[:, 1] - ranks[:, 0] + 1).mean()))
    return Covered(float(np.mean(is_covered)), float(np.mean(widths)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"simulated rounds per row (default: {RUNS})")
    parser.add_argument("--only", default="", metavar="WORD", help="run only designs whose name contains this word")
    options = parser.parse_args()
    print("| design | all true ranks covered | ranks in an interval, of |\n|---|---|---|")
    for design in DESIGNS:
        if options.only in str(design):
            covered = simulate(design, options.runs)
            print(f"| {design} | {covered.all_ranks:.3f} | {covered.width:.1f} of {len(design.means)} |", flush=True)


if __name__ == "__main__":
    main()
