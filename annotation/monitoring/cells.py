"""Cells of a round: outcomes, accuracy as in reports, and the tables of the round page."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import urlencode

import numpy as np
from django.db.models import Count
from django.http import QueryDict
from django.urls import reverse

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Round, Stratum
from annotation.monitoring.progress import OUTCOMES, CachedCount, cached_count, interval_picture
from annotation.rounds.models import CellId, cell_names, side_key
from kgharvest.models import HarvestJob
from kgharvest.pages.number_format import count, interval, share
from kgharvest.statistics.arrays import ACCEPTED, Floats
from kgharvest.statistics.clusters import design_effects
from kgharvest.statistics.rates import Rate, population_rate, sample_rate
from kgharvest.statistics.verdicts import CompletedVerdicts

MOST_AT_A_LOOK = 200  # strata; if there are more, intervals are computed in the background
LATER = "Accuracies are being computed. Reload the page in a moment."

CellNames = tuple[str, str, str]  # names of relation, LM, and setting
DecisiveLabels = tuple[int, int, int, int]  # n_true, n_false, n_unjudgeable, number of judgments required


# Numbers of drawn statements by stratum id, and then by label counts or by outcome (one of OUTCOMES)
LabelsByStratum = defaultdict[int, Counter[DecisiveLabels]]
OutcomesByStratum = defaultdict[int, Counter[str]]


def round_cells(round: Round, now: datetime) -> CachedCount:
    """Return the result of count_cells, possibly cached. For many strata, accuracies are computed in the background."""
    if round.strata.count() <= MOST_AT_A_LOOK:
        return cached_count(round, "cells", count_cells, now)
    return cached_count(round, "cells", count_cells, now, most=0, first=partial(count_cells, has_accuracy=False))


def count_cells(round: Round, *, job: HarvestJob | None = None, has_accuracy: bool = True) -> list[dict[str, Any]]:
    """Return one dict per cell of the round or of harvest `job`: names and ids, sampling, outcomes, and accuracy.

    accuracy, low, high: accuracy and 95 % interval as in reports, or None with a `reason`.
    """
    cells, (labels, outcomes) = strata_by_cell(round, job), stratum_counts(round, job)
    rates = cell_rates(round, [strata for _, strata in cells], labels) if has_accuracy else [None] * len(cells)
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
            **{outcome: sum(outcomes[stratum.pk][outcome] for stratum in strata) for outcome in OUTCOMES},
            "accuracy": rate and rate.value,
            "low": rate and rate.low,
            "high": rate and rate.high,
            "reason": rate.reason if rate else LATER,
        }
        for (names, strata), rate in zip(cells, rates, strict=True)
    ]


def harvest_cells(job: HarvestJob, rounds: Iterable[Round], now: datetime) -> Iterator[tuple[Round, dict[str, Any]]]:
    """Yield (round, cell) for each cell of the harvest in `rounds`. Cells are dicts as returned by count_cells."""
    for round in rounds:
        for cell in cached_count(round, f"harvest {job.pk}", partial(count_cells, job=job), now).content:
            yield round, cell


def cell_rates(
    round: Round,
    cells: Sequence[Sequence[Stratum]],
    labels: LabelsByStratum,
    *,
    has_interval: bool = True,
) -> list[Rate]:
    """Return the accuracy of each cell as in reports.

    cells: strata by cell. has_interval: False omits the intervals, which is much faster.
    """
    n_by_labels = [+labels[stratum.pk] for strata in cells for stratum in strata]
    rows = sorted({row for n_tasks in n_by_labels for row in n_tasks})
    patterns = np.array(rows, dtype=np.int64).reshape(-1, 4)
    n_tasks = np.array([[n_by_row[row] for row in rows] for n_by_row in n_by_labels], dtype=np.int64)
    n_tasks = n_tasks.reshape(len(n_by_labels), len(rows))  # needed for drafts, which have no labels
    accepted = CompletedVerdicts(patterns[:, :3], patterns[:, 3], n_tasks, round.quorum).of_groups(ACCEPTED)
    if has_interval:
        accepted = accepted.effective(accuracy_effects(round, [stratum for strata in cells for stratum in strata]))
    rates, first = [], 0
    for strata in cells:
        sample = accepted.at(list(range(first, first + len(strata))))
        population = [stratum.population or 0 for stratum in strata]
        rates.append(
            sample_rate(sample, population)
            if has_interval
            else population_rate(sample.n_hits, sample.n, population, has_limits=False)
        )
        first += len(strata)
    return rates


def accuracy_effects(round: Round, strata: Sequence[Stratum]) -> Floats:
    """Return the design effects on the accuracy of `strata` (S,) of the round, as in reports."""
    if not round.cluster_size:
        return np.ones(len(strata))
    number = {stratum.pk: position for position, stratum in enumerate(strata)}
    draws = Draw.objects.filter(stratum__round=round).exclude(task__verdict="").order_by()
    columns = draws.values_list("stratum", "cluster", "task__verdict")
    rows = [(number[pk], cluster, verdict == Verdict.ACCEPTED) for pk, cluster, verdict in columns if pk in number]
    stratum, cluster, is_hit = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    population = np.array([stratum.population or 0 for stratum in strata], dtype=np.float64)
    return design_effects(is_hit == 1, stratum, cluster, len(strata), population)


def strata_by_cell(round: Round, job: HarvestJob | None = None) -> list[tuple[CellNames, list[Stratum]]]:
    """Return (names, strata) of each cell, sorted by names (relation, LM, setting). job: only cells of this harvest."""
    cells: defaultdict[CellId, list[Stratum]] = defaultdict(list)
    strata = round.strata.sampled().filter(**({"job": job} if job else {})).order_by("pk")
    for stratum in strata.select_related("relation__relation_set", "language_model"):
        cells[stratum.cell].append(stratum)
    names = cell_names(stratum for strata in cells.values() for stratum in strata)
    return [(name, cells[cell]) for cell, name in names.items()]


def stratum_counts(round: Round, job: HarvestJob | None = None) -> tuple[LabelsByStratum, OutcomesByStratum]:
    """Count the drawn statements of each stratum, by labels and by outcome. job: only strata of this harvest."""
    n_by_labels: LabelsByStratum = defaultdict(Counter)
    n_by_outcome: OutcomesByStratum = defaultdict(Counter)
    columns = [f"task__{name}" for name in ("n_true", "n_false", "n_unjudgeable", "n_wanted", "verdict")]
    drawn = Draw.objects.filter(stratum__round=round, **({"stratum__job": job} if job else {}))
    groups = drawn.order_by().values_list("stratum", *columns).annotate(n=Count("pk"))
    for stratum, *labels, n_wanted, verdict, n in groups:
        n_by_labels[stratum][*labels, max(n_wanted, round.least_k)] += n
        n_by_outcome[stratum][verdict or "incomplete"] += n
    return n_by_labels, n_by_outcome


# Tables


Cell = Mapping[str, Any]  # as returned by count_cells
NOT_NAMED = "not named"
COLUMNS = ("relation", "model", "setting", "accuracy", "drawn", *OUTCOMES)  # columns of the list view


def cell_tables(cells: Sequence[Cell], address: QueryDict) -> dict[str, Any]:
    """Return the table for the URL parameters `cells` ("list" or "pivot"), `q` (words of names), and `sort` (a column).

    Without `cells`, a round with a single LM and setting is shown as a list, other rounds as a pivot table. Keys of the
    result: sides: columns of the pivot table. rows: rows of the pivot table or the list. n_shown: number of rows that
    match `q`. notice: reason for missing accuracies, otherwise empty.
    """
    sides = sorted({(cell["model"], cell["setting"]) for cell in cells})
    view = address.get("cells", "")
    view = view if view in ("pivot", "list") else "pivot" if len(sides) > 1 else "list"
    harvests_url = reverse("kgharvest:harvest_list")
    if view == "pivot":
        rows, columns = _pivot_rows(cells, sides, harvests_url), ["relation", *(f"s{n}" for n in range(len(sides)))]
    else:
        rows, columns = [shown(cell, harvests_url) for cell in cells], COLUMNS
    sort, q = address.get("sort", ""), address.get("q", "").strip()
    sort = sort if sort.removeprefix("-") in columns else "relation"
    key = sort.removeprefix("-")
    present, missing = [], []
    for row in rows:
        (missing if row.get(key) is None else present).append(row)
    # Missing values come last in both directions.
    rows = sorted(present, key=itemgetter(key), reverse=sort.startswith("-")) + missing
    words = q.casefold().replace("_", " ").split()  # pages show names of relations without underscores
    for row in rows:
        row["is_hidden"] = not all(word in row["names"].replace("_", " ") for word in words)
    groups = groupby(sides, key=itemgetter(0))
    return {
        "view": view,
        "q": q,
        "sort": sort,
        "models": [(model or NOT_NAMED, len(list(group))) for model, group in groups],
        "sides": [{"key": f"s{n}", "setting": setting or NOT_NAMED} for n, (_, setting) in enumerate(sides)],
        "rows": rows,
        "n_shown": sum(not row["is_hidden"] for row in rows),
        "n_cells": len(cells),
        "notice": LATER if any(cell["reason"] == LATER for cell in cells) else "",
    }


def _pivot_rows(cells: Sequence[Cell], sides: Sequence[tuple[str, str]], harvests_url: str) -> list[dict[str, Any]]:
    by_relation: dict[str, dict[tuple[str, str], Cell]] = {}
    for cell in cells:
        by_relation.setdefault(cell["relation"], {})[cell["model"], cell["setting"]] = cell
    return [
        {
            "relation": relation,
            "names": relation.casefold(),
            "cells": [by_side.get(side) and shown(by_side[side], harvests_url) for side in sides],
            **{f"s{n}": by_side[side]["accuracy"] for n, side in enumerate(sides) if side in by_side},
        }
        for relation, by_side in by_relation.items()
    ]


def shown(cell: Cell, harvests_url: str = "") -> dict[str, Any]:
    """Return the cell with the texts that the list and the pivot table show for it.

    URLs of statements are relative to the round page. harvests_url: URL of the list of harvests; pass the URL to avoid
    resolving it for each of thousands of cells.
    """
    harvests_url = harvests_url or reverse("kgharvest:harvest_list")
    limits = interval(cell["low"], cell["high"])
    counts = ", ".join(f"{count(cell[outcome])} {outcome}" for outcome in OUTCOMES)
    side = side_key(cell["model_id"], cell["setting"])
    return {
        **cell,
        "model": cell["model"] or NOT_NAMED,
        "setting": cell["setting"] or NOT_NAMED,
        "names": f"{cell['relation']} {cell['model']} {cell['setting']}".casefold(),
        "share": share(cell["accuracy"]),
        "interval": limits,
        "picture": interval_picture(cell["accuracy"], cell["low"], cell["high"]),
        "judged": f"{count(cell['drawn'] - cell['incomplete'])}/{count(cell['drawn'])}",
        "statements": f"statements/?{urlencode({'show': 'all', 'side': side, 'relation': cell['relation_id']})}",
        "harvest": f"{harvests_url}{cell['job']}/" if cell["job"] else "",
        "title": "; ".join(part for part in (limits and f"95 % interval {limits}", counts, cell["reason"]) if part),
    }
