"""Simulated designs: draw samples and judgments, and return the truth with the interval that reports give."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from evaluation.evidence.evidence import DrawnVerdicts, Judgments, StratumKey, cells_of, drawn_verdicts, patterns_of
from evaluation.reports.sections.annotators import with_another_panel
from evaluation.reports.sections.rates import total_entries
from kgharvest.statistics.agreement import (
    alpha_of_shares,
    annotators_interval,
    krippendorff_alpha,
    pattern_interval,
)
from kgharvest.statistics.annotator_errors import Sample as StatementSample
from kgharvest.statistics.annotator_errors import (
    corrected_rate,
    sample_truths,
    why_unidentified,
)
from kgharvest.statistics.annotator_models import Judged
from kgharvest.statistics.arrays import ACCEPTED, FALSE, REJECTED, TRUE
from kgharvest.statistics.clusters import design_effects, draw_clusters, parts_of_clusters
from kgharvest.statistics.judge_assisted import JudgedSample, judge_assisted_rate
from kgharvest.statistics.paired_tests import interval_for_similar
from kgharvest.statistics.rates import (
    Rate,
    VerdictSample,
    difference_interval,
    macro_interval,
    population_rate,
    sample_rate,
)
from kgharvest.statistics.statement_test import SharedStatements, SideSample, StatementDifference, statement_difference
from tests.evaluation.evidence_factory import CellKey, make_evidence

K = 3  # judgments per statement


class Line(NamedTuple):
    """simulate: takes a generator and the number of runs; returns (truth, low, high) of each, NaN for no interval."""

    name: str
    simulate: Callable[[np.random.Generator, int], np.ndarray]


class Sample(NamedTuple):
    """population, n, share: per stratum. weights: weights of the strata in the rate; None for their sizes."""

    population: Sequence[int]
    n: Sequence[int]
    share: Sequence[float]
    weights: Sequence[float] | None = None

    def __str__(self) -> str:
        return f"{listed(self.n)} of {listed(self.population)}, p {listed(self.share)}"

    @property
    def n_true(self) -> np.ndarray:
        return np.array([round(size * share) for size, share in zip(self.population, self.share, strict=True)])

    @property
    def truth(self) -> float:
        weights = np.array(self.population) / sum(self.population) if self.weights is None else self.weights
        return float(np.dot(weights, self.n_true / self.population))

    def rates(self, rng: np.random.Generator, runs: int) -> list[Rate]:
        n_false = np.array(self.population) - self.n_true
        samples = rng.hypergeometric(self.n_true, n_false, self.n, (runs, len(self.n)))
        different, of_run = np.unique(samples, axis=0, return_inverse=True)
        rates = [population_rate(hits, self.n, self.population, self.weights) for hits in different]
        return [rates[number] for number in of_run.reshape(-1)]


def listed(values: Sequence[float]) -> str:
    if len(values) > 3 and len(set(values)) == 1:
        return f"{len(values)} x {values[0]:g}"
    shown = [f"{value:g}" for value in values]
    return " + ".join(shown if len(shown) <= 4 else [shown[0], f"({len(shown) - 1} of {shown[1]} to {shown[-1]})"])


def of_sample(kind: str, sample: Sample) -> Line:
    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        return np.array([(sample.truth, rate.low, rate.high) for rate in sample.rates(rng, runs)])

    return Line(f"{kind}: {sample}", simulate)


def of_clusters(n_clusters: int, size: int, population: int, share: float) -> Line:
    """Clusters drawn from a population of `population` clusters, whose shares of true tuples have precision 2."""

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results = []
        for _ in range(runs):
            is_true = rng.random((population, size)) < rng.beta(2 * share, 2 * (1 - share), (population, 1))
            drawn = is_true[rng.choice(population, n_clusters, replace=False)]
            stratum, cluster = np.zeros(drawn.size, dtype=np.int64), np.repeat(np.arange(n_clusters), size)
            effect = design_effects(drawn.reshape(-1), stratum, cluster, 1)
            sample = VerdictSample.of_complete([drawn.size], [drawn.sum()]).divided(effect)
            results.append((is_true.mean(), *sample_rate(sample, [is_true.size])[1:3]))
        return np.array(results)

    return Line(f"clusters: {n_clusters} of {population:g}, {size} tuples each, mean p {share:g}", simulate)


def of_clustered_round(n: int, n_subjects: int, share: float, effect: float, most: int = 5) -> Line:
    """Draws of a round from subjects with 1 to 10 tuples, whose shares of true tuples give this design effect."""
    subject = np.repeat(np.arange(n_subjects), 1 + np.arange(n_subjects) % 10)
    size = np.bincount(parts_of_clusters(subject, most, np.random.default_rng(0)))
    correlation = (effect - 1) / ((size**2).sum() / size.sum() - 1)
    precision = 1 / correlation - 1

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results = []
        for _ in range(runs):
            is_true = (
                rng.random(len(subject)) < rng.beta(precision * share, precision * (1 - share), n_subjects)[subject]
            )
            cluster = parts_of_clusters(subject, most, rng)
            drawn = draw_clusters(cluster, n, rng)
            stratum, population = np.zeros(n, dtype=np.int64), np.array([float(len(subject))])
            effects = design_effects(is_true[drawn], stratum, cluster[drawn], 1, population)
            sample = VerdictSample.of_complete([n], [is_true[drawn].sum()]).divided(effects)
            results.append((is_true.mean(), *sample_rate(sample, [len(subject)])[1:3]))
        return np.array(results)

    of_subjects = f"at most {most} per cluster, design effect {effect:g}"
    return Line(f"clustered round: {n} of {len(subject)}, {of_subjects}, mean p {share:g}", simulate)


def of_clustered_judge(n: int, size: int, share: float, kind: str) -> Line:
    """Draws of a round of clusters, from 1,000 tuples of subjects with `size` tuples each, with the labels of a judge.

    kind: "independent" (sensitivity .9, specificity .8), or "knows half" (right for half of the subjects, and True for
    all tuples of the others). Verdicts do not depend on the subject, so the errors of the judge are more alike in a
    cluster than the verdicts.
    """
    subject = np.repeat(np.arange(1000 // size), size)

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results, stratum, population = [], np.zeros(n, dtype=np.int64), np.array([1000.0])
        for _ in range(runs):
            is_true = rng.random(1000) < share
            says_true = rng.random(1000) < np.where(is_true, 0.9, 0.2)
            if kind == "knows half":
                says_true = is_true | (rng.random(len(subject) // size) < 0.5)[subject]
            cluster, group = parts_of_clusters(subject, size, rng), np.where(says_true, 0, 1)
            drawn = draw_clusters(cluster, n, rng)
            columns = is_true[drawn], stratum, cluster[drawn], 1, population
            effect, of_errors = design_effects(*columns), design_effects(*columns, group[drawn])
            n_drawn, hits = np.bincount(group[drawn], minlength=3), np.bincount(group[drawn], is_true[drawn], 3)
            accepted = VerdictSample.of_complete([n_drawn], [hits]).divided(effect)
            in_all = np.bincount(group, minlength=3)[np.newaxis]
            sample = JudgedSample(in_all, n_drawn[np.newaxis], accepted, np.maximum(of_errors / effect, 1))
            results.append((is_true.mean(), *judge_assisted_rate(sample).rate[1:3]))
        return np.array(results)

    return Line(f"clusters, judge: {n} of 1000, {size} per subject, p {share:g}, {kind}", simulate)


def of_clustered_annotators(n: int, share: float, effect: float, crowd: Crowd) -> Line:
    """Accuracy of a round of clusters, corrected for errors of annotators. The same people judge a whole cluster."""
    subject = np.repeat(np.arange(200), 1 + np.arange(200) % 10)
    size = np.bincount(parts_of_clusters(subject, 5, np.random.default_rng(0)))
    precision = ((size**2).sum() / size.sum() - 1) / (effect - 1) - 1
    none, stratum, population = np.zeros(0, dtype=np.int64), np.zeros(n, dtype=np.int64), np.array([len(subject)])

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results = []
        for _ in range(runs):
            of_subject = rng.beta(precision * share, precision * (1 - share), 200)
            is_true = rng.random(len(subject)) < of_subject[subject]
            cluster = parts_of_clusters(subject, 5, rng)
            drawn = draw_clusters(cluster, n, rng)
            number = np.unique(cluster[drawn], return_inverse=True)[1].reshape(-1)
            judged = crowd.judge(is_true[drawn], 0, rng, number)
            if why_unidentified(judged, none):
                results.append((is_true.mean(), np.nan, np.nan))
                continue
            truths = sample_truths(judged, none, StatementSample(np.arange(n), stratum, 1), rng)
            is_accepted = np.bincount(judged.task, judged.label == 0, n) > K / 2
            effects = design_effects(is_accepted, stratum, number, 1, population.astype(float))
            rate = corrected_rate(truths, np.array([0]), population, np.ones(1), effects)
            results.append((is_true.mean(), rate.low, rate.high))
        return np.array(results)

    return Line(
        f"clusters, annotators' errors: {n} of {len(subject)}, design effect {effect:g}, p {share:g}, {crowd}", simulate
    )


def of_difference(a: Sample, b: Sample) -> Line:
    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        pairs = zip(a.rates(rng, runs), b.rates(rng, runs), strict=True)
        return np.array([(a.truth - b.truth, *difference_interval(x, y)) for x, y in pairs])

    return Line(f"difference: {a} against {b}", simulate)


class Overlap(NamedTuple):
    """Two harvests of one relation.

    n_both: number of tuples in both harvests, of which a share `p_both` is true. p_a, p_b: shares of true tuples among
    the rest. is_coordinated: whether tuples in both harvests are drawn alike for both.
    """

    population: tuple[int, int]
    n: tuple[int, int]
    n_both: int
    p_a: float
    p_b: float
    p_both: float
    is_coordinated: bool = False

    def verdicts(self) -> list[np.ndarray]:
        """Return the verdicts of each harvest, with the tuples in both first."""
        return [
            np.concatenate([first_true(self.n_both, self.p_both), first_true(size - self.n_both, share)])
            for size, share in zip(self.population, (self.p_a, self.p_b), strict=True)
        ]

    def draw(self, rng: np.random.Generator) -> list[np.ndarray]:
        common = rng.random(self.n_both)
        orders = []
        for size in self.population:
            of_both = common if self.is_coordinated else rng.random(self.n_both)
            orders.append(np.concatenate([of_both, rng.random(size - self.n_both)]))
        return [np.argsort(order)[:n] for order, n in zip(orders, self.n, strict=True)]


def first_true(size: int, share: float) -> np.ndarray:
    return np.arange(size) < round(size * share)


def statement_differences(
    relations: Sequence[Overlap], rng: np.random.Generator, runs: int
) -> list[StatementDifference]:
    verdicts = [overlap.verdicts() for overlap in relations]
    number, weight = np.arange(len(relations)), np.full(len(relations), 1 / len(relations))
    differences = []
    for _ in range(runs):
        draws = [overlap.draw(rng) for overlap in relations]
        hits = np.array([
            [of[drawn].sum() for of, drawn in zip(*pair, strict=True)] for pair in zip(verdicts, draws, strict=True)
        ])  # fmt: skip
        both = [
            np.intersect1d(a[a < overlap.n_both], b[b < overlap.n_both])
            for overlap, (a, b) in zip(relations, draws, strict=True)
        ]
        n_true = [of[drawn].sum() for (of, _), drawn in zip(verdicts, both, strict=True)]
        shared = SharedStatements(np.diag([len(drawn) for drawn in both]), np.diag(n_true))
        a, b = (
            SideSample(
                VerdictSample.of_complete([overlap.n[side] for overlap in relations], hits[:, side]),
                np.array([overlap.population[side] for overlap in relations]),
                weight,
                number,
            )
            for side in (0, 1)
        )
        differences.append(statement_difference(a, b, shared))
    return differences


def of_statements(*relations: Overlap) -> Line:
    """Return the line of the statement-level comparison of two sides over these relations."""

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        truth = np.mean([of_a.mean() - of_b.mean() for of_a, of_b in (overlap.verdicts() for overlap in relations)])
        return np.array([(truth, *difference.interval) for difference in statement_differences(relations, rng, runs)])

    (n_a, n_b), (of_a, of_b) = relations[0].n, relations[0].population
    drawn = "drawn alike" if relations[0].is_coordinated else "drawn apart"
    name = (
        f"{len(relations)} relations, {n_a} of {of_a} against {n_b} of {of_b}, {relations[0].n_both} in both, {drawn}"
    )
    shares = ", ".join(f"p {overlap.p_a:g} and {overlap.p_b:g}" for overlap in dict.fromkeys(relations))
    return Line(f"statements: {name}, {shares}", simulate)


def of_incomplete(n: int, population: int, share: float, accuracy: float, excluded: float, waiting: float) -> Line:
    """Two people judge each statement, a third if they differ. The truth is three honest people's verdict on all.

    excluded: share of statements that lost a judgment by a person who always answered True. waiting: share of disputes
    without a third judgment so far.
    """

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results = []
        for _ in range(runs):
            is_true = rng.random(population) < share
            says_true = rng.random((population, K)) < np.where(is_true, accuracy, 1 - accuracy)[:, None]
            first, second, third = says_true[rng.choice(population, n, replace=False)].T
            lost = rng.random(n) < excluded
            differ = first != np.where(lost, True, second)
            has_third = differ & (rng.random(n) >= waiting)
            n_judgments = 2 - lost.astype(int) + has_third
            n_true = first.astype(int) + (~lost & second) + (has_third & third)
            truth = (says_true.sum(axis=1) >= 2).mean()
            results.append((truth, *limits_of_labels(n_true, n_judgments, population)))
        return np.array(results)

    name = f"{n} of {population}, p {share:g}, people right {accuracy:g}, {excluded:.0%} lost one, {waiting:.0%} wait"
    return Line(f"incomplete: {name}", simulate)


def limits_of_labels(n_true: np.ndarray, n_judgments: np.ndarray, population: int) -> tuple[float, float]:
    """Return the interval of a cell, given the numbers of True and of all judgments so far per statement."""
    n = len(n_true)
    counts = np.stack([n_true, n_judgments - n_true, np.zeros(n, dtype=int)], axis=1)
    draws = np.zeros(n, dtype=int), np.arange(n)
    drawn = DrawnVerdicts(1, draws, patterns_of(counts, np.full(n, K)), quorum=1)
    rate = sample_rate(drawn.of_groups(ACCEPTED), [population])
    return (rate.low, rate.high) if rate.low is not None and rate.high is not None else (0, 1)


def of_interim(n: int, population: int, share: float, accuracy: float, judged: Sequence[float]) -> Line:
    """judged: shares of statements with 0, 1, 2, and 3 judgments so far."""

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results = []
        for _ in range(runs):
            is_true = rng.random(population) < share
            says_true = rng.random((population, K)) < np.where(is_true, accuracy, 1 - accuracy)[:, None]
            n_judgments = rng.choice(K + 1, n, p=judged)
            sample = says_true[rng.choice(population, n, replace=False)]
            n_true = (sample & (np.arange(K) < n_judgments[:, None])).sum(axis=1)
            truth = (says_true.sum(axis=1) >= 2).mean()
            results.append((truth, *limits_of_labels(n_true, n_judgments, population)))
        return np.array(results)

    so_far = "/".join(f"{part:.0%}" for part in judged)
    name = f"{n} of {population}, p {share:g}, people right {accuracy:g}, {so_far} have 0/1/2/3 judgments"
    return Line(f"incomplete: {name}", simulate)


class Crowd(NamedTuple):
    """People who label true tuples True with `sensitivity` and false tuples False with `specificity`, on average.

    spread: individual values lie evenly up to this much above and below; more sensitive people are less specific.
    """

    n_annotators: int
    sensitivity: float
    specificity: float
    spread: float = 0

    def __str__(self) -> str:
        unlike = f" +- {self.spread:g}" if self.spread else ""
        return f"{self.n_annotators} people right {self.sensitivity:g} and {self.specificity:g}{unlike}"

    def judge(
        self, is_true: np.ndarray, n_gold: int, rng: np.random.Generator, cluster: np.ndarray | None = None
    ) -> Judged:
        """is_true: truth of the statements, of which the last `n_gold` are gold.

        cluster: number of each statement's cluster, if the same people judge all statements of a cluster.
        """
        n = len(is_true)
        order = np.argsort(rng.random((n, self.n_annotators)), axis=1)[:, :K]
        annotator = (order if cluster is None else order[cluster]).ravel()
        away = np.linspace(-self.spread, self.spread, self.n_annotators)[annotator]
        true_called_true, false_called_false = (
            np.minimum(skill, 0.995) for skill in (self.sensitivity + away, self.specificity - away)
        )
        task = np.repeat(np.arange(n), K)
        says_true = rng.random(n * K) < np.where(is_true[task], true_called_true, 1 - false_called_false)
        return Judged(task, annotator, np.where(says_true, 0, 1), n, self.n_annotators, 2, n_gold)


def of_annotators(sample: Sample, crowd: Crowd, n_gold: int = 0) -> Line:
    """Accuracy corrected for annotators' errors. n_gold: number of statements with known truth, half of them true."""
    population, n = np.array(sample.population), np.array(sample.n)
    weights = population / population.sum() if sample.weights is None else np.array(sample.weights)
    stratum = np.repeat(np.arange(len(n)), n)
    is_true_gold = np.arange(n_gold) % 2 == 0

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results = []
        for _ in range(runs):
            drawn = [
                rng.choice(size, n_drawn, replace=False) < n_true
                for size, n_drawn, n_true in zip(population, n, sample.n_true, strict=True)
            ]
            judged = crowd.judge(np.concatenate([*drawn, is_true_gold]), n_gold, rng)
            gold_truth = np.where(is_true_gold, 0, 1)
            if why_unidentified(judged, gold_truth):
                results.append((sample.truth, np.nan, np.nan))
                continue
            truths = sample_truths(judged, gold_truth, StatementSample(np.arange(n.sum()), stratum, len(n)), rng)
            rate = corrected_rate(truths, np.arange(len(n)), population, weights)
            results.append((sample.truth, rate.low, rate.high))
        return np.array(results)

    gold = f", {n_gold} gold" if n_gold else ""
    return Line(f"annotators' errors: {sample}, {crowd}{gold}", simulate)


class World(NamedTuple):
    """Relations like those of a report. draw: returns the shares of true tuples of n relations. mean: their mean."""

    name: str
    draw: Callable[[np.random.Generator, int], np.ndarray]
    mean: float


def of_relations(world: World, n_relations: int, n: int, population: int, interval: str) -> Line:
    """Relations drawn from a world. interval: "these", "similar", or "Student's t" (of old reports)."""

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results = []
        for _ in range(runs):
            n_true = rng.binomial(population, world.draw(rng, n_relations))
            hits = rng.hypergeometric(n_true, population - n_true, n)
            if interval == "these":
                sizes = [n] * n_relations, [population] * n_relations, [1 / n_relations] * n_relations
                results.append(((n_true / population).mean(), *population_rate(hits, *sizes)[1:3]))
            elif interval == "similar":
                results.append((world.mean, *interval_for_similar(hits / n, rng)[:2]))
            else:
                results.append((world.mean, *macro_interval((hits / n).tolist())))
        return np.array(results, dtype=np.float64)

    return Line(f"{interval}: {n_relations} relations, {n} of {population}, {world.name}", simulate)


def of_alpha(n: int, share: float, accuracy: float) -> Line:
    patterns = np.array([[n_true, K - n_true] for n_true in range(K + 1)])

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        ways, n_true = np.array([1, 3, 3, 1]), np.arange(K + 1)
        if_true = ways * accuracy**n_true * (1 - accuracy) ** (K - n_true)
        shares = share * if_true + (1 - share) * if_true[::-1]
        [truth] = alpha_of_shares(patterns, shares[np.newaxis])
        samples = rng.multinomial(n, shares, size=runs)
        intervals = (pattern_interval(alpha_of_shares, patterns, sample, rng, 1000) for sample in samples)
        return np.array([(truth, *interval) for interval in intervals])

    return Line(f"alpha: {n} statements, p {share:g}, people right {accuracy:g}", simulate)


def of_other_annotators(n: int, n_annotators: int, share: float, accuracy: float, precision: float) -> Line:
    """People are right with Beta(accuracy * precision, (1 - accuracy) * precision). The truth is others' alpha."""

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        n_true = share * accuracy + (1 - share) * (1 - accuracy)
        truth = 1 - accuracy * (1 - accuracy) / (n_true * (1 - n_true))
        task = np.repeat(np.arange(n), K)
        results = []
        for _ in range(runs):
            accuracies = rng.beta(accuracy * precision, (1 - accuracy) * precision, n_annotators)
            annotator = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :K].ravel()
            is_true = np.repeat(rng.random(n) < share, K)
            label = np.where(rng.random(n * K) < accuracies[annotator], is_true, ~is_true).astype(int)
            counts = np.stack([(label == code).reshape(n, K).sum(axis=1) for code in (0, 1)], axis=1)
            alpha = krippendorff_alpha(*np.unique(counts, axis=0, return_counts=True), rng, 1000)
            interval = annotators_interval(alpha, task, annotator, label)
            results.append((truth, interval.low, interval.high) if interval.low is not None else (truth, -1, 1))
        return np.array(results)

    name = f"{n} statements, p {share:g}, {n_annotators} people right {accuracy:g}, precision {precision:g}"
    return Line(f"alpha for annotators like these: {name}", simulate)


def of_another_panel(n: int, population: int, n_annotators: int, leniency: float, has_thirds: bool = False) -> Line:
    """The truth is the accuracy found by another panel that judges all tuples.

    Three of four tuples are mostly judged True. leniency: standard deviation of annotators' logits of True.
    """
    key = CellKey("r", "lm", "multi")

    def panel(rng: np.random.Generator, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return three annotators of each statement, and whether they judge it True."""
        annotator = np.argsort(rng.random((len(logits), n_annotators)), axis=1)[:, :K]
        lenient = rng.normal(0, leniency, n_annotators)
        return annotator, rng.random(annotator.shape) < scipy.special.expit(logits[:, None] + lenient[annotator])

    def simulate(rng: np.random.Generator, runs: int) -> np.ndarray:
        results = []
        for _ in range(runs):
            logits = np.where(rng.random(population) < 0.75, 1.5, -1.5) + rng.normal(0, 1, population)
            annotator, is_true = panel(rng, logits[:n])
            is_needed = np.ones((n, K), dtype=bool)
            if has_thirds:
                is_needed[:, 2] = is_true[:, 0] != is_true[:, 1]
            accepted = 2 * is_true.sum(axis=1) > K
            task = np.repeat(np.arange(n), K).reshape(n, K)[is_needed]
            order = np.lexsort((annotator[is_needed], task))
            label = np.where(is_true, TRUE, FALSE)[is_needed]
            evidence = make_evidence(
                {key: (int(accepted.sum()), int(n - accepted.sum()))},
                range(n_annotators),
                verdict=np.where(accepted, ACCEPTED, REJECTED),
                strata=[StratumKey(0, 1, population, population)],
                judgments=Judgments(task, annotator[is_needed][order], label[order], np.full(len(task), np.nan)),
                has_thirds=has_thirds,
                third=np.where(is_needed[:, 2], annotator[:, 2], -1),
            )
            cells = cells_of(evidence, drawn_verdicts(evidence))
            [total] = with_another_panel(total_entries(evidence, cells), evidence, cells)
            truth = (2 * panel(rng, logits)[1].sum(axis=1) > K).mean()
            limits = total["another_panel"]
            results.append((truth, *(np.nan if limits[end] is None else limits[end] for end in ("low", "high"))))
        return np.array(results)

    thirds = ", third only if split" if has_thirds else ""
    name = f"{n} of {population}, {n_annotators} people, leniency {leniency:g}{thirds}"
    return Line(f"another panel: {name}", simulate)
