"""Plan a round: draw its samples, store nothing, and say what they cost and tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from annotation.models import Annotator, Judgment, Round
from annotation.rounds.builder import Sample
from annotation.rounds.freezing import Frozen, freeze
from annotation.rounds.planning import (
    ASSUMED_ACCURACY,
    StratumSize,
    Workload,
    effective_size,
    half_width,
    macro_half_width,
    workload,
)
from annotation.rounds.spec import RoundSpec

ANNOTATORS_LOOKED_AT = 20
JUDGMENTS_LOOKED_AT = 5000
SHOWN_CELLS = 20


def in_points(share: float) -> str:
    """Return a share in percentage points, as people say it."""
    return f"{100 * share:.1f} points"


@dataclass(frozen=True)
class CellPlan:
    """half_width: of the interval of its accuracy to expect. n_strata: 1 for a simple sample."""

    name: str
    population: int
    n: int
    n_strata: int
    half_width: float

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
    workload: Workload
    accuracy: float
    cells: list[CellPlan]
    macros: list[MacroPlan]
    n_gold: int
    n_training: int

    @property
    def percent(self) -> str:
        """The assumed accuracy."""
        return f"{100 * self.accuracy:g}"

    @property
    def n_cells_left(self) -> int:
        return max(len(self.cells) - SHOWN_CELLS, 0)


def plan_round(spec: RoundSpec, accuracy: float = ASSUMED_ACCURACY) -> Plan:
    """Return what a round of this description would be. Raises what opening it raises, but for its name and study."""
    draft = Round(
        name=spec.name,
        judgments_per_task=spec.judgments_per_task,
        third_only_if_split=spec.third_only_if_split,
        gold_share=spec.gold_share,
        training_size=spec.training_size,
        seed=spec.seed,
    )
    return plan_of(spec, freeze(draft, spec), accuracy)


def plan_of(spec: RoundSpec, frozen: Frozen, accuracy: float = ASSUMED_ACCURACY) -> Plan:
    cells = _by_cell(frozen.samples)
    n_gold = sum(task.is_gold for task in frozen.statements)
    work = workload(
        [len(sample.tuples) for sample in frozen.samples],
        len(frozen.statements) - n_gold,
        spec.judgments_per_task,
        third_only_if_split=spec.third_only_if_split,
        gold_share=spec.gold_share,
        seconds_per_judgment=measured_pace(),
    )
    cell_plans = [_cell_plan(samples, accuracy) for samples in cells]
    return Plan(work, accuracy, cell_plans, _macro_plans(cells, accuracy), n_gold, len(frozen.training))


def measured_pace() -> float | None:
    """Return the median active seconds per judgment of the people who joined last, None if nobody was measured."""
    people = Annotator.objects.filter(round__source=Round.Source.PEOPLE, n_judged__gt=0).order_by("-pk")
    ids = list(people.values_list("pk", flat=True)[:ANNOTATORS_LOOKED_AT])
    seconds = Judgment.objects.filter(annotator__in=ids, seconds__gt=0).values_list("seconds", flat=True)
    measured = list(seconds[:JUDGMENTS_LOOKED_AT])
    return median(measured) if measured else None


def _by_cell(samples: Sequence[Sample]) -> list[list[Sample]]:
    cells: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        cells[sample.stratum.job_id].append(sample)
    return list(cells.values())


def _sizes(samples: Sequence[Sample]) -> list[StratumSize]:
    return [StratumSize(sample.stratum.population, sample.stratum.sample_size) for sample in samples]


def _cell_plan(samples: Sequence[Sample], accuracy: float) -> CellPlan:
    sizes = _sizes(samples)
    return CellPlan(
        name=str(samples[0].stratum.job),
        population=sum(size.population for size in sizes),
        n=sum(size.sample_size for size in sizes),
        n_strata=len(sizes),
        half_width=half_width(effective_size(sizes), accuracy),
    )


def _macro_plans(cells: Sequence[Sequence[Sample]], accuracy: float) -> list[MacroPlan]:
    columns: dict[str, list[float]] = defaultdict(list)
    for samples in cells:
        job = samples[0].stratum.job
        columns[f"{job.language_model.short_name} × {job.setting}"].append(effective_size(_sizes(samples)))
    return [
        MacroPlan(name, len(sizes), macro_half_width(sizes, accuracy))
        for name, sizes in columns.items()
        if len(sizes) > 1
    ]
