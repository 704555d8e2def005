"""Plan of a round: the required statements, judgments, and hours, and the expected intervals. Nothing is stored."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from math import ceil, inf, sqrt
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform

from annotation.judges.cost import (
    StratumPlan,
    Way,
    Wish,
    accuracy_of,
    assumed_strata,
    judge_of,
    statements_for,
    variance,
)
from annotation.judging.verdicts import Verdict
from annotation.models import Annotator, Judgment, JudgmentTask, Round
from annotation.rounds.builder import FrozenRound, Sample, freeze_round
from annotation.rounds.models import cell_names
from kgharvest.pages.number_format import in_points, percent, seconds
from kgharvest.statistics.arrays import Codes, Flags
from kgharvest.statistics.clusters import expected_effect
from kgharvest.statistics.fixed_width import expected_statements
from kgharvest.statistics.paired_tests import (
    FEWEST_RELATIONS_TO_TELL,
    CellKey,
    Pair,
    compared_cells,
    difference_by_statements,
    difference_over_relations,
    fewest_relations,
    statements_to_shrink,
)
from kgharvest.statistics.rates import SIGNIFICANCE, wilson_interval_of_share

ASSUMED_SECONDS = 6.0  # per judgment of a statement about a new subject, used if no time has been measured
ASSUMED_ACCURACY = 0.5  # gives the widest intervals
PACE_ANNOTATORS = 20  # number of recent annotators used to measure the time per judgment
PACE_JUDGMENTS = 5000
SUBJECT_SHARE = 45 / (45 + 25)  # share of this time to identify the subject (Gao et al. 2019, PVLDB 12)
ASSUMED_DESIGN_EFFECT = 1.5  # typical of subjects in knowledge graphs: 1.1 to 1.9
FEWEST_TIMES = 30  # judgments that follow a judgment of the same subject
SHOWN_CELLS = 20


@dataclass(frozen=True)
class Workload:
    """Work of the annotators. n_judgments_least: n_judgments without adaptive third judgments.

    n_gold_shown: total number of gold statements shown, summed over annotators.
    """

    n_drawn: int
    n_tasks: int
    n_judgments_least: int
    n_judgments: int
    n_gold_shown: int
    seconds_per_judgment: float
    is_measured: bool

    @property
    def n_shared(self) -> int:
        """Number of draws that cost nothing because another cell drew the same tuple."""
        return self.n_drawn - self.n_tasks

    @property
    def gold_rate(self) -> float:
        """Expected share of gold among the statements of an annotator."""
        return self.n_gold_shown / max(self.n_judgments + self.n_gold_shown, 1)

    @property
    def hours(self) -> float:
        return (self.n_judgments + self.n_gold_shown) * self.seconds_per_judgment / 3600


def workload(
    draft: Round, n_drawn: int, n_tasks: int, seconds_per_judgment: float | None = None, n_gold: int | None = None
) -> Workload:
    """Return the workload for `n_drawn` draws of `n_tasks` distinct tuples, given the options of the draft.

    n_gold: number of gold statements. Defaults to the number that the gold share requires.
    """
    n_judgments = n_tasks * draft.judgments_per_task
    n_gold_shown = round(n_judgments * draft.gold_share / (1 - draft.gold_share))
    if n_gold is not None and not draft.gold_reuse:
        n_gold_shown = n_gold * draft.judgments_per_task
    return Workload(
        n_drawn=n_drawn,
        n_tasks=n_tasks,
        n_judgments_least=2 * n_tasks if draft.third_only_if_split else n_judgments,
        n_judgments=n_judgments,
        n_gold_shown=n_gold_shown,
        seconds_per_judgment=seconds_per_judgment or ASSUMED_SECONDS,
        is_measured=seconds_per_judgment is not None,
    )


def half_width(n: float, accuracy: float = ASSUMED_ACCURACY) -> float:
    """Return the half-width of the 95 % Wilson interval for a simple random sample of size `n`; 0 if n is inf."""
    low, high = wilson_interval_of_share(accuracy, n)
    return (high - low) / 2


def half_width_of(variance: float, accuracy: float) -> float:
    """Return the half-width for a simple random sample with this variance, drawn from an infinite population."""
    return half_width(accuracy * (1 - accuracy) / variance if variance > 0 else inf, accuracy)


def macro_half_width(variances: Sequence[float], accuracy: float = ASSUMED_ACCURACY) -> float:
    """Return the half-width of the 95 % interval of the mean over independently sampled cells.

    Covers sampling error only, not variation between relations.
    """
    return half_width_of(sum(variances) / len(variances) ** 2, accuracy)


class CellPlan(NamedTuple):
    """Plan for a cell. half_width: half-width of the expected 95 % interval. n_strata: 1 for a simple random sample.

    n_to_halve: number of statements that would halve the half-width, at most the population. design_effect: expected
    effect of clusters in the finite population, as in reports; 1 for simple random samples.
    """

    name: str
    population: int
    n: int
    n_strata: int
    half_width: float
    n_to_halve: int
    design_effect: float = 1.0


class Costs(NamedTuple):
    """Seconds of one annotator to identify a subject, and to judge a statement about it."""

    subject: float
    statement: float
    is_measured: bool

    def per_judgment(self, n_statements: float, n_subjects: float) -> float:
        """Return the mean time per judgment if the statements of a subject follow one another."""
        return self.statement + self.subject * n_subjects / n_statements

    def __str__(self) -> str:
        source = "measured" if self.is_measured else "ratio of Gao et al. 2019"
        return f"{seconds(self.subject)} per subject and {seconds(self.statement)} per statement ({source})"


class Design(NamedTuple):
    """Work to reach the target half-width in each cell with a sampling design: "simple" or "clusters".

    n_subjects: expected number of different subjects of each cell, added up. seconds_per_judgment: mean, by `costs`.
    """

    name: str
    n_statements: int
    n_subjects: int
    seconds_per_judgment: float
    hours: float
    costs: Costs


class MacroPlan(NamedTuple):
    """Planned average over the relations of one LM and setting."""

    name: str
    n_relations: int
    half_width: float


class PlannedComparison(NamedTuple):
    """Comparison of two sides in a planned round. unit: unit of the test, as in reports.

    difference: smallest difference detected with 80 % power, or None. For a test over relations, the difference is a
    lower bound, because it is assumed to be the same in all relations.
    """

    name: str
    n_relations: int
    unit: str
    difference: float | None


class PlannedComparisons(NamedTuple):
    """Comparisons in a planned round. level: Holm's threshold for the smallest p.

    fewest_relations: minimum number of relations with which a test over relations can reach this threshold.
    """

    comparisons: list[PlannedComparison]
    level: float | None
    fewest_relations: int | None

    @property
    def rule(self) -> str:
        """Explanation of the threshold and the required number of relations; empty without comparisons."""
        if self.level is None:
            return ""
        n = len(self.comparisons)
        several = f"Holm's correction for {n} comparisons: the smallest p must be below .05 / {n}."
        level = several if n > 1 else "One comparison: its p must be below .05."
        return (
            f"{level} A test over relations requires at least {self.fewest_relations} relations. With fewer than "
            f"{FEWEST_RELATIONS_TO_TELL}, the test is over statements and its result holds for these relations only."
        )


class ClosingPlan(NamedTuple):
    """Expected work until a round reaches its target half-width. is_reached: False if the sample is too small."""

    half_width: float
    n_statements: int
    n_judgments: int
    hours: float
    is_reached: bool


@dataclass(frozen=True)
class Plan:
    """Plan of a round. compared: smallest differences that the comparisons of the report can detect.

    ways: work and cost of reaching the target half-width in each cell, with people only and with a judge. designs: work
    with simple random samples and with clusters; empty if the round has no clusters.
    """

    workload: Workload
    accuracy: float
    cells: list[CellPlan]
    macros: list[MacroPlan]
    compared: PlannedComparisons
    n_gold: int
    n_training: int
    wish: Wish
    ways: list[Way]
    noise_warnings: list[dict[str, Any]]
    closing: ClosingPlan | None = None
    designs: Sequence[Design] = ()

    @property
    def n_comparisons_left(self) -> int:
        return max(len(self.compared.comparisons) - SHOWN_CELLS, 0)

    @property
    def n_cells_left(self) -> int:
        return max(len(self.cells) - SHOWN_CELLS, 0)


def plan_round(
    round: Round,
    accuracy: float = ASSUMED_ACCURACY,
    frozen: FrozenRound | None = None,
    by=None,
    wish: Wish = Wish(),  # noqa: B008 - immutable
) -> Plan:
    """Return the plan of the draft. Raises the same errors as freeze_round.

    frozen: result of freeze_round, if it was already called.
    """
    frozen = frozen or freeze_round(round, by)
    cells: dict[int, list[Sample]] = defaultdict(list)
    for sample in frozen.samples:
        cells[sample.stratum.job_id].append(sample)
    n_gold = sum(task.is_gold for task in frozen.tasks)
    pace = measured_pace()
    n_drawn = sum(len(sample.tuples) for sample in frozen.samples)
    work = workload(round, n_drawn, len(frozen.tasks) - n_gold, pace, n_gold)
    names = cell_names(sample.stratum for sample in frozen.samples)
    of_labels = frozen.judged.accuracy if frozen.judged else {}
    earlier = cache(partial(_earlier_verdicts, by))
    # Strata defined by judge labels have the accuracy estimated for their label.
    expected = {
        job: [
            StratumPlan(stratum.population, stratum.sample_size, of_labels.get(stratum.judge_label, accuracy), effect)
            for stratum, *_ in samples
        ]
        for job, samples in cells.items()
        for effect in [_design_effect(samples, earlier)]
    }
    designs = _designs(round, list(zip(cells.values(), expected.values(), strict=True)), wish, pace)
    pace_of_wish = work.seconds_per_judgment
    if designs:
        n_subjects = len({task.entities[0].casefold() for task in frozen.tasks if not task.is_gold})
        work = replace(work, seconds_per_judgment=designs[-1].costs.per_judgment(work.n_tasks, n_subjects))
        pace_of_wish = designs[-1].seconds_per_judgment
    named = [(names[cells[job][0].stratum.cell], strata) for job, strata in expected.items()]
    cell_plans = [
        CellPlan(
            name=" × ".join(name),
            population=sum(stratum.population for stratum in strata),
            n=sum(stratum.n for stratum in strata),
            n_strata=len(strata),
            half_width=half_width_of(variance(strata), accuracy_of(strata)),
            n_to_halve=sum(statements_to_shrink(stratum.n, stratum.population, 0.5) for stratum in strata),
            design_effect=share + (1 - share) * strata[0].effect,
        )
        for name, strata in named
        for share in [sum(stratum.n for stratum in strata) / sum(stratum.population for stratum in strata)]
    ]
    variances = {name: variance(strata) for name, strata in named}
    by_side: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (_, *side), strata in named:
        by_side[" × ".join(side)].append((variance(strata), accuracy_of(strata)))
    macros = [
        MacroPlan(side, len(of_side), macro_half_width(of_cells, sum(accuracies) / len(of_side)))
        for side, of_side in by_side.items()
        for of_cells, accuracies in [list(zip(*of_side, strict=True))]
        if len(of_side) > 1
    ]
    return Plan(
        work,
        accuracy,
        cell_plans,
        macros,
        planned_comparisons(dict(sorted(variances.items()))),
        n_gold,
        len(frozen.training),
        wish,
        _ways(round, list(expected.values()), bool(frozen.judged), wish, pace_of_wish),
        frozen.noise_warnings(),
        _closing(round, named, work),
        designs,
    )


def _earlier_verdicts(by, relation: int) -> tuple[Flags, Codes]:
    """Return which earlier verdicts on the relation are ACCEPTED, and the subjects of their statements, as numbers."""
    rounds = Round.objects.visible_to(by).filter(source=Round.Source.PEOPLE)
    tasks = JudgmentTask.objects.without_gold().complete().filter(round__in=rounds)
    tasks = tasks.filter(knowledge_tuple__relation=relation).order_by("-pk")
    subject = KeyTextTransform("0", "knowledge_tuple__entities")
    rows = tasks.values_list("round", subject, "verdict")[:PACE_JUDGMENTS]
    number: dict[tuple[int, str], int] = {}
    cluster = np.array([number.setdefault(row[:2], len(number)) for row in rows], dtype=np.int64)
    return np.array([row[2] == Verdict.ACCEPTED for row in rows], dtype=np.bool_), cluster


def _design_effect(samples: Sequence[Sample], earlier: Callable[[int], tuple[Flags, Codes]]) -> float:
    """Return the expected design effect of a cell, estimated from earlier verdicts on its relation if possible."""
    if not samples[0].clusters:
        return 1.0
    n = np.array([size for sample in samples for size in sample.n_by_subject.values()])
    n_parts = -(-n // samples[0].stratum.round.cluster_size)
    verdicts = earlier(samples[0].stratum.relation_id)
    return expected_effect(*verdicts, np.repeat(n / n_parts, n_parts)) or ASSUMED_DESIGN_EFFECT


def _designs(
    round: Round, cells: Sequence[tuple[Sequence[Sample], Sequence[StratumPlan]]], wish: Wish, pace: float | None
) -> list[Design]:
    """Return the designs, or nothing for simple random samples."""
    if not round.cluster_size:
        return []
    costs, designs = costs_of_statements(pace), []
    for name, most in (("simple", 1), ("clusters", round.cluster_size)):
        n_statements, n_subjects = 0, 0.0
        for samples, strata in cells:
            population, effect = sum(part.population for part in strata), strata[0].effect if most > 1 else 1.0
            whole = [StratumPlan(population, 0, accuracy_of(strata), effect)]
            n = statements_for(whole, half_width_of, wish.half_width)
            n_parts: Counter[str] = Counter()  # a subject can have tuples in several strata
            for sample in samples:
                n_parts.update({subject: ceil(size / most) for subject, size in sample.n_by_subject.items()})
            n_statements += n
            n_subjects += float((1 - (1 - n / population) ** np.array(list(n_parts.values()))).sum())
        pace = costs.per_judgment(n_statements, n_subjects)
        hours = workload(round, n_statements, n_statements, pace).hours
        designs.append(Design(name, n_statements, ceil(n_subjects - 1e-9), pace, hours, costs))
    return designs


def _closing(
    round: Round, cells: Sequence[tuple[tuple[str, ...], Sequence[StratumPlan]]], work: Workload
) -> ClosingPlan | None:
    """Return the expected work until the round closes at its half-width, or None if another rule closes it.

    Statements are judged in random order, so the same share of each sample is judged. The LM and setting that requires
    the largest share of its sample determines the end.
    """
    if round.closes_at_half_width is None:
        return None
    sides: dict[tuple[str, ...], list[StratumPlan]] = defaultdict(list)
    for (_, *side), strata in cells:
        sides[tuple(side)] += strata
    share = max(
        expected_statements(accuracy_of(strata), round.closes_at_half_width, sum(part.population for part in strata))
        / sum(part.n for part in strata)
        for strata in sides.values()
    )
    judged = min(share, 1)
    n_statements, n_judgments = (ceil(judged * n - 1e-9) for n in (work.n_tasks, work.n_judgments))
    return ClosingPlan(round.closes_at_half_width, n_statements, n_judgments, judged * work.hours, share <= 1)


def _ways(round: Round, cells: Sequence[Sequence[StratumPlan]], is_judged: bool, wish: Wish, pace: float) -> list[Way]:
    """Return the work with people only, and the work with a judge.

    The judge is that of the round or, if the round has none, an assumed judge. A statement that several cells share
    counts once per cell.
    """
    judge, judge_cost = judge_of(round)
    ways = []
    for name, cost in (("", None), (judge, judge_cost)):
        n = 0
        for strata in cells:
            population, accuracy = sum(part.population for part in strata), accuracy_of(strata)
            if not name:
                strata = [StratumPlan(population, 0, accuracy, strata[0].effect)]
            elif not is_judged:
                strata = [part._replace(effect=strata[0].effect) for part in assumed_strata(population, accuracy)]
            n += statements_for(strata, half_width_of, wish.half_width)
        work = workload(round, n, n, pace)
        pay = None if wish.pay_per_hour is None else work.hours * wish.pay_per_hour
        ways.append(Way(name, n, work.n_judgments, work.hours, pay, cost))
    return ways


def measured_pace() -> float | None:
    """Return the median active seconds per judgment of the most recent annotators; None if no times were measured."""
    measured = list(_timed_judgments().values_list("seconds", flat=True)[:PACE_JUDGMENTS])
    return median(measured) if measured else None


def _timed_judgments() -> QuerySet[Judgment]:
    people = Annotator.objects.filter(round__source=Round.Source.PEOPLE, n_judged__gt=0).order_by("-pk")
    ids = list(people.values_list("pk", flat=True)[:PACE_ANNOTATORS])
    return Judgment.objects.filter(annotator__in=ids, seconds__gt=0)


def costs_of_statements(pace: float | None) -> Costs:
    """Return the times per subject and per statement.

    They are measured if annotators judged enough statements directly after a statement with the same subject. Otherwise
    they share the measured pace, or ASSUMED_SECONDS, in the ratio of Gao et al.
    """
    in_order = _timed_judgments().order_by("annotator", "judged_at")
    subject = KeyTextTransform("0", "task__entities")
    rows = list(in_order.values_list("annotator", subject, "seconds")[:PACE_JUDGMENTS])
    first, repeated = [], []
    for before, row in pairwise(rows):
        (repeated if before[:2] == row[:2] else first).append(row[2])
    if min(len(first), len(repeated)) >= FEWEST_TIMES:
        statement = median(repeated)
        return Costs(max(median(first) - statement, 0.0), statement, True)
    pace = pace or ASSUMED_SECONDS
    return Costs(pace * SUBJECT_SHARE, pace * (1 - SUBJECT_SHARE), False)


def planned_comparisons(variances: Mapping[tuple[str, str, str], float]) -> PlannedComparisons:
    """Return the smallest differences that the comparisons of a planned round can detect.

    variances: variance of the expected accuracy by (relation, LM, setting). Statements shared by two sides are treated
    as independent, which overestimates the differences.
    """
    pairs = list(compared_cells({CellKey(*names): variance for names, variance in variances.items()}))
    planned = [_planned(pair, shared, len(pairs)) for pair, shared in pairs]
    if not planned:
        return PlannedComparisons([], None, None)
    return PlannedComparisons(planned, SIGNIFICANCE / len(planned), fewest_relations(len(planned)))


def _planned(pair: Pair, shared: Sequence[tuple[float, float]], n_comparisons: int) -> PlannedComparison:
    n, total_variance = len(shared), sum(a + b for a, b in shared)
    name = f"{pair.common}: {' and '.join(pair.names)}"
    if n < FEWEST_RELATIONS_TO_TELL:
        difference = difference_by_statements(sqrt(total_variance) / n, n_comparisons)
        return PlannedComparison(name, n, "statements", difference if difference < 1 else None)
    difference = difference_over_relations(sqrt(total_variance / n), n, n_comparisons)
    is_found = difference < 1 and n >= fewest_relations(n_comparisons)
    return PlannedComparison(name, n, "relations", difference if is_found else None)


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the plan as lines of text."""
    work = plan.workload
    least = f"{work.n_judgments_least} to " if work.n_judgments_least != work.n_judgments else ""
    pace = "measured" if work.is_measured else "assumed"
    yield f"statements: {work.n_tasks} ({work.n_drawn} drawn, {work.n_shared} of them shared between cells)"
    yield f"judgments: {least}{work.n_judgments}"
    rate = f"{percent(work.gold_rate)} of an annotator's statements"
    yield f"gold: {plan.n_gold} statements, shown at most {work.n_gold_shown} times in total ({rate})"
    costs = f": {plan.designs[-1].costs}" if plan.designs else ""
    yield f"annotator time: {work.hours:.1f} h at {seconds(work.seconds_per_judgment)} per judgment ({pace}){costs}"
    yield f"expected 95 % intervals at {percent(plan.accuracy)} accuracy:"
    for cell in plan.cells:
        halved = f" (to halve the width: {cell.n_to_halve})" if cell.half_width else ""
        effect = f", design effect {cell.design_effect:.2f}" * bool(plan.designs)
        yield f"  {cell.name}: {cell.n} of {cell.population}, +- {in_points(cell.half_width)}{halved}{effect}"
    yield from (f"Warning: {warning['harvest']}. {warning['text']}" for warning in plan.noise_warnings)
    for macro in plan.macros:
        yield f"  {macro.name}, average of {macro.n_relations} relations: +- {in_points(macro.half_width)}"
    yield f"required for +- {in_points(plan.wish.half_width)} in each cell:"
    for way in plan.ways:
        method = f"people, with {way.judge}" if way.judge else "people alone"
        yield f"  {method}: {way.n_statements} statements, {way.n_judgments} judgments, {way.hours:.1f} h"
    for name, n_statements, n_subjects, _, hours, _ in plan.designs:
        sampling = "clusters of subjects" if name == "clusters" else "simple random samples"
        yield f"  {sampling}: {n_statements} statements, {n_subjects} subjects, {hours:.1f} h"
    if closing := plan.closing:
        work = f"{closing.n_statements} statements, {closing.n_judgments} judgments, {closing.hours:.1f} h"
        target = f"+- {in_points(closing.half_width)}"
        if closing.is_reached:
            yield f"expected until the round closes at {target}: {work}"
        else:
            yield f"the sample is too small to close at {target}; all of it: {work}. Draw more statements."
    if plan.compared.comparisons:
        yield "detectable differences (80 % power):"
    for comparison in plan.compared.comparisons:
        over = f"over {comparison.n_relations} relations, by {comparison.unit}"
        difference = "none" if comparison.difference is None else in_points(comparison.difference)
        yield f"  {comparison.name}: {difference}, {over}"
    if plan.compared.rule:
        yield plan.compared.rule
