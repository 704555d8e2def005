"""Plan of a round: statements, judgments and hours it needs, and the margin of error to expect; nothing is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import median
from typing import Any, NamedTuple

from annotation.models import Annotator, Judgment, Round
from annotation.rounds.builder import FrozenRound, Sample, freeze_round
from annotation.rounds.sample_models import CellId, cell_names
from kgharvest.pages.number_format import in_points
from kgharvest.registries import hook

Z_95 = 1.959964  # 97.5 % point of the normal distribution
ASSUMED_SECONDS = 6.0  # per judgment where nobody has judged yet
ASSUMED_ACCURACY = 0.5  # gives the widest intervals
PACE_ANNOTATORS = 20  # whose judgments say how long one takes
PACE_JUDGMENTS = 5000
SHOWN_CELLS = 20

CellNames = Mapping[CellId, tuple[str, str, str]]


class StratumSize(NamedTuple):
    population: int
    sample_size: int


@dataclass(frozen=True)
class Workload:
    """What people will do. Two numbers of judgments differ where a third person is asked only after a split.

    n_gold_shown: gold statements that the annotators together see beside those that count.
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
        """Draws that cost nothing, because another cell drew the same tuple."""
        return self.n_drawn - self.n_tasks

    @property
    def hours(self) -> float:
        return (self.n_judgments + self.n_gold_shown) * self.seconds_per_judgment / 3600


def workload(
    sizes: Iterable[int],
    n_tasks: int,
    judgments_per_task: int,
    *,
    third_only_if_split: bool = False,
    gold_share: float = 0,
    seconds_per_judgment: float | None = None,
) -> Workload:
    """Return the work of a round whose samples have `sizes` and share tuples, so that `n_tasks` are left."""
    n_judgments = n_tasks * judgments_per_task
    return Workload(
        n_drawn=sum(sizes),
        n_tasks=n_tasks,
        n_judgments_least=2 * n_tasks if third_only_if_split else n_judgments,
        n_judgments=n_judgments,
        n_gold_shown=round(n_judgments * gold_share / (1 - gold_share)),
        seconds_per_judgment=seconds_per_judgment or ASSUMED_SECONDS,
        is_measured=seconds_per_judgment is not None,
    )


def effective_size(strata: Sequence[StratumSize]) -> float:
    """Return the size of the endless population's simple sample that is as exact, if all strata are alike.

    1 / sum of W_h^2 (1 / n_h - 1 / N_h), which is infinite where all tuples are judged.
    """
    population = sum(stratum.population for stratum in strata)
    variance = sum(
        (size.population / population) ** 2 * (1 / size.sample_size - 1 / size.population) for size in strata
    )
    return 1 / variance if variance > 0 else inf


def half_width(n: float, accuracy: float = ASSUMED_ACCURACY) -> float:
    """Return half the width of the 95 % Wilson interval that a simple sample of `n` gives at this accuracy.

    0 for an infinite one, which is what all of a harvest is worth.
    """
    spread = accuracy * (1 - accuracy) / n + Z_95**2 / (4 * n**2)
    return Z_95 * sqrt(spread) / (1 + Z_95**2 / n)


def macro_half_width(effective_sizes: Sequence[float], accuracy: float = ASSUMED_ACCURACY) -> float:
    """Return half the width of the 95 % interval of the mean over cells, each with its own sample.

    Normal, and of sampling only: how far relations differ comes on top where one wants to speak of further ones.
    """
    variance = sum(accuracy * (1 - accuracy) / n for n in effective_sizes)
    return Z_95 * sqrt(variance) / len(effective_sizes)


@dataclass(frozen=True)
class CellPlan:
    """half_width: of the interval of its accuracy to expect. n_strata: 1 for a simple sample.

    n_to_halve: statements for half of that, never more than there are.
    """

    name: str
    population: int
    n: int
    n_strata: int
    half_width: float
    n_to_halve: int

    @property
    def points(self) -> str:
        return in_points(self.half_width)


@dataclass(frozen=True)
class MacroPlan:
    """The average over the relations of one LM and setting."""

    name: str
    n_relations: int
    half_width: float

    @property
    def points(self) -> str:
        return in_points(self.half_width)


@dataclass(frozen=True)
class Plan:
    """compared: what the comparisons of the report can find (evaluation.reports.sections.sample_size)."""

    workload: Workload
    accuracy: float
    cells: list[CellPlan]
    macros: list[MacroPlan]
    compared: Any
    n_gold: int
    n_training: int

    @property
    def percent(self) -> str:
        """The assumed accuracy."""
        return f"{100 * self.accuracy:g}"

    @property
    def n_comparisons_left(self) -> int:
        return max(len(self.compared.comparisons) - SHOWN_CELLS, 0)

    @property
    def n_cells_left(self) -> int:
        return max(len(self.cells) - SHOWN_CELLS, 0)


def plan_round(round: Round, accuracy: float = ASSUMED_ACCURACY, frozen: FrozenRound | None = None, by=None) -> Plan:
    """Return what opening the round would make of it; `frozen` where that is at hand. Raises as freeze_round does."""
    frozen = frozen or freeze_round(round, by)
    cells: dict[int, list[Sample]] = defaultdict(list)
    for sample in frozen.samples:
        cells[sample.stratum.job_id].append(sample)
    n_gold = sum(task.is_gold for task in frozen.tasks)
    work = workload(
        [len(sample.tuples) for sample in frozen.samples],
        len(frozen.tasks) - n_gold,
        round.judgments_per_task,
        third_only_if_split=round.third_only_if_split,
        gold_share=round.gold_share,
        seconds_per_judgment=measured_pace(),
    )
    names = cell_names(sample.stratum for sample in frozen.samples)
    cell_plans = [_cell_plan(samples, names, accuracy) for samples in cells.values()]
    macros = _macro_plans(cells.values(), names, accuracy)
    compared = hook("planned_comparisons")(_variances(cells.values(), names, accuracy))
    return Plan(work, accuracy, cell_plans, macros, compared, n_gold, len(frozen.training))


def measured_pace() -> float | None:
    """Return the median active seconds per judgment of the people who joined last, None if nobody was measured."""
    people = Annotator.objects.filter(round__source=Round.Source.PEOPLE, n_judged__gt=0).order_by("-pk")
    ids = list(people.values_list("pk", flat=True)[:PACE_ANNOTATORS])
    seconds = Judgment.objects.filter(annotator__in=ids, seconds__gt=0).values_list("seconds", flat=True)
    measured = list(seconds[:PACE_JUDGMENTS])
    return median(measured) if measured else None


def _sizes(samples: Sequence[Sample]) -> list[StratumSize]:
    return [StratumSize(sample.stratum.population, sample.stratum.sample_size) for sample in samples]


def _cell_plan(samples: Sequence[Sample], names: CellNames, accuracy: float) -> CellPlan:
    sizes = _sizes(samples)
    return CellPlan(
        name=" × ".join(names[samples[0].stratum.cell]),
        population=sum(size.population for size in sizes),
        n=sum(size.sample_size for size in sizes),
        n_strata=len(sizes),
        half_width=half_width(effective_size(sizes), accuracy),
        n_to_halve=sum(hook("statements_to_shrink")(size.sample_size, size.population, 0.5) for size in sizes),
    )


def _variances(
    cells: Iterable[Sequence[Sample]], names: CellNames, accuracy: float
) -> dict[tuple[str, str, str], float]:
    """Return the variance of each cell's accuracy, 0 where all of its tuples are judged; in the order of the names."""
    spread = accuracy * (1 - accuracy)
    variances = ((names[samples[0].stratum.cell], spread / effective_size(_sizes(samples))) for samples in cells)
    return dict(sorted(variances))


def _macro_plans(cells: Iterable[Sequence[Sample]], names: CellNames, accuracy: float) -> list[MacroPlan]:
    columns: dict[str, list[float]] = defaultdict(list)
    for samples in cells:
        _, *side = names[samples[0].stratum.cell]
        columns[" × ".join(side)].append(effective_size(_sizes(samples)))
    return [
        MacroPlan(name, len(sizes), macro_half_width(sizes, accuracy))
        for name, sizes in columns.items()
        if len(sizes) > 1
    ]
