"""Cost of estimating the accuracy of a knowledge graph to a margin of .05, on graphs with human ground truth.

`python benches/kg_accuracy.py --data FOLDER [--runs 600] [--seed 1] [--graph G] [--method M] [--design D] [--json]`.
FOLDER contains a folder for each graph, with `kg.json.gz` (fact id to subject, predicate, and object) and `gt.json.gz`
(fact id to 1 or 0). In each run, facts are labeled until the interval of the method has a half-width of at most .05.
Coverage: the share of runs in which the interval at the stop contains the accuracy of the graph. Labels and hours are
means over runs. An entity takes 45 seconds and a fact 25 seconds (Gao et al. 2019, "Efficient knowledge graph accuracy
evaluation", PVLDB 12); entities and facts that are drawn again cost nothing.

Designs: srs, simple random sampling of facts, with a look after every fact; twcs, two-stage weighted cluster sampling
of subjects with replacement and at most 3 facts of each, with a look after every subject.

Methods: wald, wilson, and ahpd as published (Marchesin and Silvello 2025, "Credible intervals for knowledge graph
accuracy estimation", SIGMOD): draws with replacement, at least 30 facts, and the effective sample size of the design.
kgharvest: the fixed-width rule by which rounds close; srs without replacement. kgharvest+judge: the same with the
labels of a simulated LM judge for all facts (sensitivity .9, specificity .8), by post-stratification (srs) or by a
regression estimator (twcs).
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kgharvest.statistics.fixed_width import center_and_half_width, closing_rule, effective_size, interval_at_stop
from kgharvest.statistics.rates import SIGNIFICANCE, Z_95

MARGIN = 0.05
ENTITY_SECONDS, FACT_SECONDS = 45, 25
FEWEST_FACTS = 30  # of the published rules
FACTS_OF_SUBJECT = 3  # second stage of twcs
FEWEST_SUBJECTS = 15  # of our rule with twcs; the variance of fewer subjects is uncertain
FEWEST_IN_GROUP = 3  # labels in each group of a judge, as in kgharvest.statistics.judge_assisted
SENSITIVITY, SPECIFICITY = 0.9, 0.8
PRIORS = (1 / 3, 1 / 2, 1)  # Kerman, Jeffreys, and uniform, of which ahpd uses the shortest interval
GRAPHS, DESIGNS = ("yago", "nell", "dbpedia", "factbench"), ("srs", "twcs")
METHODS = ("wald", "wilson", "ahpd", "kgharvest", "kgharvest+judge")
AT_ONCE = 40  # labels that a run receives between two checks of all runs


class Graph(NamedTuple):
    """subject, is_true (F,): facts sorted by subject. start, size (E,): facts of each subject."""

    subject: np.ndarray
    is_true: np.ndarray
    start: np.ndarray
    size: np.ndarray

    @property
    def accuracy(self) -> float:
        return float(self.is_true.mean())


def read_graph(folder: Path) -> Graph:
    facts, truth = (json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes())) for name in ("kg", "gt"))
    # In FactBench, a fact is a list of a triple and its dates.
    names = [json.dumps(fact[0] if isinstance(fact[0], str) else fact[0][0]) for fact in facts.values()]
    _, subject = np.unique(names, return_inverse=True)
    order = np.argsort(subject, kind="stable")
    size = np.bincount(subject)
    is_true = np.array([truth[key] for key in facts])[order]
    return Graph(subject[order], is_true, np.cumsum(size) - size, size)


class Looks(NamedTuple):
    """Estimates (R, L) at looks: share, effective sample size, and number of labels."""

    share: np.ndarray
    n: np.ndarray
    labels: np.ndarray


def intervals(method: str, looks: Looks, z: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the limits (R, L), as far apart as infinity before the method may stop."""
    share, n, labels = looks
    if method.startswith("kgharvest"):
        center, half = center_and_half_width(share, n, z)
        low, high = interval_at_stop(center, MARGIN)
        is_wide = ~(half <= MARGIN)
    else:
        if method == "wald":
            half = Z_95 * np.sqrt(share * (1 - share) / n)
            low, high = share - half, share + half
        elif method == "wilson":
            center = (share + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
            half = Z_95 / (1 + Z_95**2 / n) * np.sqrt(share * (1 - share) / n + Z_95**2 / (4 * n**2))
            low, high = center - half, center + half
        else:
            low, high = shortest_credible(share, n)
        is_wide = labels < FEWEST_FACTS
    return np.where(is_wide, -np.inf, low), np.where(is_wide, np.inf, high)


def shortest_credible(share: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shortest of the highest posterior density intervals for PRIORS."""
    states, number = np.unique(np.column_stack([share.ravel(), n.ravel()]).round(9), axis=0, return_inverse=True)
    hits, misses = states[:, 0] * states[:, 1], (1 - states[:, 0]) * states[:, 1]
    shortest = np.full((2, len(states)), np.inf) * [[-1], [1]]
    for prior in PRIORS:
        limits = highest_density(hits + prior, misses + prior)
        shortest = np.where(np.ptp(limits, axis=0) < np.ptp(shortest, axis=0), limits, shortest)
    low, high = shortest[:, number.reshape(-1)].reshape(2, *share.shape)
    return low, high


def highest_density(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the limits (2, K) of 95 % intervals of beta distributions, by golden-section search for the lower tail."""
    quantile, golden = scipy.special.betaincinv, (5**0.5 - 1) / 2

    def width(tail: np.ndarray) -> np.ndarray:
        return quantile(a, b, tail + 1 - SIGNIFICANCE) - quantile(a, b, tail)

    low, high = np.zeros(len(a)), np.full(len(a), SIGNIFICANCE)
    for _ in range(16):
        left, right = high - golden * (high - low), low + golden * (high - low)
        is_left = width(left) < width(right)
        low, high = np.where(is_left, low, left), np.where(is_left, right, high)
    tail = (low + high) / 2
    tail = np.where(b <= 1, SIGNIFICANCE, np.where(a <= 1, 0, tail))  # monotone densities
    return np.array([quantile(a, b, tail), quantile(a, b, np.minimum(tail + 1 - SIGNIFICANCE, 1))])


def simple_looks(graph: Graph, facts: np.ndarray, judged: np.ndarray | None, *, is_finite: bool) -> Looks:
    """Return the looks at facts (R, L), which are labeled in this order. judged (R, F): labels of the judge."""
    labels = np.broadcast_to(np.arange(1, facts.shape[1] + 1), facts.shape)
    size = len(graph.is_true)
    is_true = graph.is_true[facts]
    share = is_true.cumsum(axis=1) / labels
    n = effective_size(labels, closing_rule(MARGIN, size)[0]) if is_finite else labels.astype(np.float64)
    if judged is None:
        return Looks(share, n, labels)
    estimate, smoothed, variance = np.zeros((3, *facts.shape))
    fewest = np.full(facts.shape, np.inf)
    for called in (True, False):
        is_in = np.take_along_axis(judged, facts, axis=1) == called
        in_group, all_in_group = is_in.cumsum(axis=1), (judged == called).sum(axis=1)[:, None]
        hits, weight = (is_in & (is_true == 1)).cumsum(axis=1), all_in_group / size
        of_group = (hits + 0.5) / (in_group + 1)
        estimate += weight * hits / np.maximum(in_group, 1)
        smoothed += weight * of_group
        unjudged = (all_in_group - in_group) / np.maximum(all_in_group - 1, 1)
        variance += weight**2 * of_group * (1 - of_group) / np.maximum(in_group, 1) * unjudged
        fewest = np.minimum(fewest, in_group)
    with np.errstate(divide="ignore"):
        with_judge = np.where(variance > 0, smoothed * (1 - smoothed) / variance, np.inf)
    is_used = (fewest >= FEWEST_IN_GROUP) & (with_judge > n)
    return Looks(np.where(is_used, estimate, share), np.where(is_used, with_judge, n), labels)


def draw_subjects(graph: Graph, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return facts (R, C, 3) of subjects drawn in proportion to their sizes, and whether each fact exists."""
    subject = graph.subject[rng.integers(len(graph.is_true), size=shape)]
    size = graph.size[subject]
    # The first facts of a random permutation of each subject's facts (Floyd's sampling of positions).
    places: list[np.ndarray] = []
    for number in range(FACTS_OF_SUBJECT):
        place = (rng.random(shape) * np.maximum(size - number, 1)).astype(np.int64)
        for other in np.sort(np.array(places), axis=0) if places else ():
            place += place >= other
        places.append(place)
    is_drawn = np.arange(FACTS_OF_SUBJECT) < size[..., None]
    facts = graph.start[subject][..., None] + np.where(is_drawn, np.stack(places, axis=-1), 0)
    return facts, is_drawn


def clustered_looks(
    graph: Graph, facts: np.ndarray, is_drawn: np.ndarray, judged: np.ndarray | None, *, is_published: bool
) -> Looks:
    """Return the looks at subjects (R, C) whose facts are labeled in this order."""
    runs, n_subjects = facts.shape[:2]
    n_facts = is_drawn.sum(axis=2)

    def mean(values: np.ndarray) -> np.ndarray:
        of_subjects: np.ndarray = (values * is_drawn).sum(axis=2) / n_facts
        return of_subjects

    labels, count = n_facts.cumsum(axis=1), np.arange(1, n_subjects + 1)
    is_true = graph.is_true[facts]
    accuracy = mean(is_true)
    share = accuracy.cumsum(axis=1) / count

    def variance_of_mean(total: np.ndarray, squares: np.ndarray) -> np.ndarray:
        variance: np.ndarray = (squares / count - (total / count) ** 2).clip(0) / np.maximum(count - 1, 1)
        return variance

    variance = variance_of_mean(accuracy.cumsum(axis=1), (accuracy**2).cumsum(axis=1))
    simple = share * (1 - share)
    with np.errstate(divide="ignore", invalid="ignore"):
        if is_published:
            return Looks(share, np.where(variance > 0, simple / variance, labels), labels)
        # As in kgharvest.statistics.clusters: the effect is at least 1, its degrees of freedom are those of the
        # subjects, and if all labels agree, the facts of a subject count as one.
        wider = (scipy.special.stdtrit(np.maximum(count - 1, 1), 0.975) / Z_95) ** 2
        people = np.where(variance > 0, np.minimum(simple / variance, labels) / wider, count)
    n = np.where(count >= FEWEST_SUBJECTS, people, 1)
    if judged is None:
        return Looks(share, n, labels)
    called = np.take_along_axis(judged, facts.reshape(runs, -1), axis=1).reshape(facts.shape)
    called_true, both = mean(called), mean(called * is_true)
    total, of_true, of_both = (values.cumsum(axis=1) for values in (accuracy, called_true, both))
    # The slope is the difference between the accuracies of the facts that the judge calls true and false.
    slope = (of_both + 0.5) / (of_true + 1) - (total - of_both + 0.5) / (count - of_true + 1)
    squares = [(a * b).cumsum(axis=1) for a, b in
               ((accuracy, accuracy), (accuracy, called_true), (called_true, called_true))]  # fmt: skip
    residual_squares = squares[0] - 2 * slope * squares[1] + slope**2 * squares[2]
    residual = total - slope * of_true
    estimate = np.clip(share + slope * (judged.mean(axis=1)[:, None] - of_true / count), 0, 1)
    assisted = variance_of_mean(residual, residual_squares)
    fewest = np.minimum(of_both, np.minimum(of_true, count - of_true))
    with np.errstate(divide="ignore", invalid="ignore"):
        with_judge = estimate * (1 - estimate) / assisted / wider
    is_used = (count >= FEWEST_SUBJECTS) & (fewest >= FEWEST_IN_GROUP) & (with_judge > n)
    is_used &= (assisted > 0) & (variance > 0)
    return Looks(np.where(is_used, estimate, share), np.where(is_used, with_judge, n), labels)


def measure(graph: Graph, design: str, method: str, runs: int, rng: np.random.Generator) -> dict[str, float]:
    """Return labels, hours, and coverage of one method with one design."""
    size, is_ours = len(graph.is_true), method.startswith("kgharvest")
    judged = None
    if method.endswith("judge"):
        judged = rng.random((runs, size)) < np.where(graph.is_true, SENSITIVITY, 1 - SPECIFICITY)
    _, z = closing_rule(MARGIN, size if design == "srs" else 0)
    most = 600
    if design == "srs":
        facts = (
            np.array([rng.permutation(size)[:most] for _ in range(runs)])
            if is_ours
            else rng.integers(size, size=(runs, most))
        )
        looks = simple_looks(graph, facts, judged, is_finite=is_ours)
        facts, is_drawn = facts[..., None], np.ones((runs, most, 1), dtype=np.bool_)
    else:
        facts, is_drawn = draw_subjects(graph, rng, (runs, most))
        looks = clustered_looks(graph, facts, is_drawn, judged, is_published=not is_ours)
    stop = np.full(runs, -1)
    limits = np.zeros((2, runs))
    for start in range(0, looks.share.shape[1], AT_ONCE):
        [active] = np.nonzero(stop < 0)
        part = Looks(*(column[active, start : start + AT_ONCE] for column in looks))
        low, high = intervals(method, part, z)
        is_narrow = high - low <= 2 * MARGIN + 1e-9
        found, first = is_narrow.any(axis=1), is_narrow.argmax(axis=1)
        stop[active[found]] = start + first[found]
        limits[:, active[found]] = low[found, first[found]], high[found, first[found]]
        if (stop >= 0).all():
            break
    if (stop < 0).any():
        raise SystemExit(f"{method}, {design}: a run did not stop within {most} looks.")
    hours = 0.0
    for run, last in enumerate(stop.tolist()):
        drawn = np.unique(facts[run, : last + 1][is_drawn[run, : last + 1]])
        hours += (len(drawn) * FACT_SECONDS + len(np.unique(graph.subject[drawn])) * ENTITY_SECONDS) / 3600 / runs
    covered = (limits[0] - 1e-9 <= graph.accuracy) & (graph.accuracy <= limits[1] + 1e-9)
    labels = looks.labels[np.arange(runs), stop].mean()
    return {"labels": round(float(labels), 1), "hours": round(hours, 2), "coverage": round(float(covered.mean()), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder for each graph")
    parser.add_argument("--runs", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graph", choices=GRAPHS)
    parser.add_argument("--design", choices=DESIGNS)
    parser.add_argument("--method", choices=METHODS)
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    options = parser.parse_args()
    if not options.json:
        print("| graph | design | method | labels | hours | coverage |\n|---|---|---|---:|---:|---:|")
    for name in [options.graph] if options.graph else GRAPHS:
        if not (options.data / name / "kg.json.gz").is_file():
            parser.error(f"{options.data / name} does not contain kg.json.gz. Name the folder that contains {name}/.")
        graph = read_graph(options.data / name)
        for design in [options.design] if options.design else DESIGNS:
            for method in [options.method] if options.method else METHODS:
                # The same seed for a row, whichever other rows are printed.
                rng = np.random.default_rng([options.seed, zlib.crc32(f"{name} {design} {method}".encode())])
                row = {"graph": name, "design": design, "method": method}
                row |= measure(graph, design, method, options.runs, rng)
                print(json.dumps(row) if options.json else f"| {' | '.join(map(str, row.values()))} |", flush=True)


if __name__ == "__main__":
    main()
