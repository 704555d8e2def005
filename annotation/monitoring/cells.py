"""The cells of a round: what became of the statements drawn for each, and its accuracy as reports have it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from django.db.models import Count

from annotation.models import Draw, Round, Stratum
from annotation.monitoring.progress import OUTCOMES, CachedCount, cached_count
from annotation.rounds.sample_models import CellId, cell_names
from kgharvest.models import HarvestJob
from kgharvest.statistics.arrays import ACCEPTED
from kgharvest.statistics.cell_rates import population_share, sample_rate
from kgharvest.statistics.incomplete_statements import CompletedVerdicts
from kgharvest.statistics.rates import Rate

MOST_AT_A_LOOK = 200  # strata; the intervals of more are computed aside
LATER = "Accuracies are being computed; look again in a moment."

CellNames = tuple[str, str, str]  # of relation, LM and setting
DecisiveLabels = tuple[int, int, int, int]  # n_true, n_false, n_unjudgeable and how many judgments decide


class StratumCounts(NamedTuple):
    """How many of the statements drawn for a stratum have which labels, and how many which of OUTCOMES."""

    labels: Counter[DecisiveLabels]
    outcomes: Counter[str]


def round_cells(round: Round, now: datetime) -> CachedCount:
    """Return one dict a cell, as count_cells does; of a round with many, perhaps as they were a while ago."""
    is_quick = round.strata.count() <= MOST_AT_A_LOOK
    first = None if is_quick else partial(count_cells, has_accuracy=False)
    return cached_count(round, "cells", count_cells, now, first=first)


def count_cells(round: Round, *, has_accuracy: bool = True) -> list[dict[str, Any]]:
    """Return for each cell its names and ids, how it was sampled, the outcomes of its statements, and its accuracy.

    accuracy, low, high: with the 95 % interval of reports; None for the `reason`.
    """
    return _described(round, strata_by_cell(round), stratum_counts(round), has_accuracy=has_accuracy)


def harvest_cells(job: HarvestJob, rounds: Iterable[Round], now: datetime) -> Iterator[tuple[Round, dict[str, Any]]]:
    """Yield each of `rounds` that drew from a harvest with the harvest's cell in it, as count_cells has it."""
    for round in rounds:
        for cell in cached_count(round, f"harvest {job.pk}", partial(_harvest_cells, job=job), now).content:
            yield round, cell


def _harvest_cells(round: Round, job: HarvestJob) -> list[dict[str, Any]]:
    return _described(round, strata_by_cell(round, job), stratum_counts(round, job))


def _described(
    round: Round,
    cells: Sequence[tuple[CellNames, Sequence[Stratum]]],
    counts: defaultdict[int, StratumCounts],
    *,
    has_accuracy: bool = True,
) -> list[dict[str, Any]]:
    rates = cell_rates(round, [strata for _, strata in cells], counts) if has_accuracy else [None] * len(cells)
    return [
        {
            **dict(zip(("relation", "model", "setting"), names, strict=True)),
            "relation_id": strata[0].relation_id,
            "model_id": strata[0].language_model_id,
            "job": strata[0].job_id,
            "cut": strata[0].cut,
            "n_strata": len(strata),
            "drawn": sum(stratum.sample_size for stratum in strata),
            "population": sum(stratum.population or 0 for stratum in strata),
            **{outcome: sum(counts[stratum.pk].outcomes[outcome] for stratum in strata) for outcome in OUTCOMES},
            "accuracy": rate and rate.value,
            "low": rate and rate.low,
            "high": rate and rate.high,
            "reason": rate.reason if rate else LATER,
        }
        for (names, strata), rate in zip(cells, rates, strict=True)
    ]


def cell_rates(
    round: Round,
    cells: Sequence[Sequence[Stratum]],
    counts: defaultdict[int, StratumCounts],
    *,
    has_interval: bool = True,
) -> list[Rate]:
    """Return the accuracy of each cell, as in reports. cells: their strata. The interval takes time to compute."""
    labels = [+counts[stratum.pk].labels for strata in cells for stratum in strata]
    rows = sorted({row for n_tasks in labels for row in n_tasks})
    patterns = np.array(rows, dtype=np.int64).reshape(-1, 4)
    n_tasks = np.array([[of_stratum[row] for row in rows] for of_stratum in labels], dtype=np.int64)
    n_tasks = n_tasks.reshape(len(labels), len(rows))  # a draft has no labels
    accepted = CompletedVerdicts(patterns[:, :3], patterns[:, 3], n_tasks, round.quorum).of_groups(ACCEPTED)
    rates, first = [], 0
    for strata in cells:
        sample = accepted.at(list(range(first, first + len(strata))))
        population = [stratum.population or 0 for stratum in strata]
        rates.append(
            sample_rate(sample, population) if has_interval else population_share(sample.n_hits, sample.n, population)
        )
        first += len(strata)
    return rates


def strata_by_cell(round: Round, job: HarvestJob | None = None) -> list[tuple[CellNames, list[Stratum]]]:
    """Return relation, LM and setting of each cell, by name, and its strata; of one harvest's if `job` is given."""
    cells: defaultdict[CellId, list[Stratum]] = defaultdict(list)
    strata = round.strata.sampled().filter(**({"job": job} if job else {})).order_by("pk")
    for stratum in strata.select_related("relation__relation_set", "language_model"):
        cells[stratum.cell].append(stratum)
    names = cell_names(stratum for strata in cells.values() for stratum in strata)
    return [(name, cells[cell]) for cell, name in names.items()]


def stratum_counts(round: Round, job: HarvestJob | None = None) -> defaultdict[int, StratumCounts]:
    """Return the counts of each stratum by its id, none at first; of one harvest's if `job` is given."""
    counts: defaultdict[int, StratumCounts] = defaultdict(lambda: StratumCounts(Counter(), Counter()))
    columns = [f"task__{name}" for name in ("n_true", "n_false", "n_unjudgeable", "n_wanted", "verdict")]
    drawn = Draw.objects.filter(stratum__round=round, **({"stratum__job": job} if job else {}))
    groups = drawn.order_by().values_list("stratum", *columns).annotate(n=Count("pk"))
    for stratum, *labels, n_wanted, verdict, n in groups:
        counts[stratum].labels[*labels, max(n_wanted, round.least_k)] += n
        counts[stratum].outcomes[verdict or "incomplete"] += n
    return counts
