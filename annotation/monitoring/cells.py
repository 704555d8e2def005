"""Cells of a round: outcomes of the statements drawn for each, accuracy as in reports, and tables of the page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np
from django.db.models import Count
from django.http import QueryDict
from django.urls import reverse
from django.utils.safestring import SafeString

from annotation.models import Draw, Round, Stratum
from annotation.monitoring.progress import OUTCOMES, CachedCount, cached_count
from annotation.quality.statement_list import side_key
from annotation.rounds.models import CellId, cell_names
from kgharvest.models import HarvestJob
from kgharvest.pages.number_format import count, interval, share
from kgharvest.statistics.arrays import ACCEPTED
from kgharvest.statistics.rates import Rate, population_share, sample_rate
from kgharvest.statistics.verdicts import CompletedVerdicts

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

    def count(round: Round) -> list[dict[str, Any]]:
        return _described(round, strata_by_cell(round, job), stratum_counts(round, job))

    for round in rounds:
        for cell in cached_count(round, f"harvest {job.pk}", count, now).content:
            yield round, cell


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


# Tables of the page


Cell = Mapping[str, Any]  # as count_cells has them
NOT_NAMED = "not named"
COLUMNS = ("relation", "model", "setting", "accuracy", "drawn", *OUTCOMES)  # of the list
WIDTH, HEIGHT = 64, 10  # of the picture of an interval


@dataclass(frozen=True)
class CellTables:
    """What the page shows: `sides` and `rows` of the pivot, or `rows` of the list. n_shown: rows that fit `q`.

    notice: why there are no accuracies yet, empty where there are.
    """

    view: str
    q: str
    sort: str
    models: Sequence[tuple[str, int]]
    sides: Sequence[Mapping[str, str]]
    rows: Sequence[Mapping[str, Any]]
    n_shown: int
    n_cells: int
    notice: str


def cell_tables(cells: Sequence[Cell], address: QueryDict) -> CellTables:
    """Return the tables that the address asks for: `cells` is "list" or "pivot", `q` words of names, `sort` a column.

    A round of one LM and setting has no pivot unless it is asked for.
    """
    sides = sorted({(cell["model"], cell["setting"]) for cell in cells})
    view = address.get("cells", "")
    view = view if view in ("pivot", "list") else "pivot" if len(sides) > 1 else "list"
    addresses = Addresses()
    if view == "pivot":
        rows, columns = _pivot_rows(cells, sides, addresses), ["relation", *(f"s{n}" for n in range(len(sides)))]
    else:
        rows, columns = [shown(cell, addresses) for cell in cells], COLUMNS
    sort, q = address.get("sort", ""), address.get("q", "").strip()
    sort = sort if sort.removeprefix("-") in columns else "relation"
    rows = _sorted(rows, sort)
    words = q.casefold().split()
    for row in rows:
        row["is_hidden"] = not all(word in row["names"] for word in words)
    return CellTables(
        view=view,
        q=q,
        sort=sort,
        models=[(model or NOT_NAMED, len(list(group))) for model, group in groupby(sides, key=lambda side: side[0])],
        sides=[{"key": f"s{n}", "setting": setting or NOT_NAMED} for n, (_, setting) in enumerate(sides)],
        rows=rows,
        n_shown=sum(not row["is_hidden"] for row in rows),
        n_cells=len(cells),
        notice=LATER if any(cell["reason"] == LATER for cell in cells) else "",
    )


def _pivot_rows(cells: Sequence[Cell], sides: Sequence[tuple[str, str]], addresses: Addresses) -> list[dict[str, Any]]:
    by_relation: dict[str, dict[tuple[str, str], Cell]] = {}
    for cell in cells:
        by_relation.setdefault(cell["relation"], {})[cell["model"], cell["setting"]] = cell
    return [
        {
            "relation": relation,
            "names": relation.casefold(),
            "cells": [of_side.get(side) and shown(of_side[side], addresses) for side in sides],
            **{f"s{n}": of_side[side]["accuracy"] for n, side in enumerate(sides) if side in of_side},
        }
        for relation, of_side in by_relation.items()
    ]


def _sorted(rows: list[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    """Return the rows by a column, those without a value last whichever way."""
    key = sort.removeprefix("-")
    known = [row for row in rows if row.get(key) is not None]
    return sorted(known, key=lambda row: row[key], reverse=sort.startswith("-")) + [
        row for row in rows if row.get(key) is None
    ]


def shown(cell: Cell, addresses: Addresses | None = None) -> dict[str, Any]:
    """Return a cell with what its row or its place in the pivot prints."""
    addresses = addresses or Addresses()
    limits = interval(cell["low"], cell["high"])
    counts = ", ".join(f"{count(cell[outcome])} {outcome}" for outcome in OUTCOMES)
    return {
        **cell,
        "model": cell["model"] or NOT_NAMED,
        "setting": cell["setting"] or NOT_NAMED,
        "names": f"{cell['relation']} {cell['model']} {cell['setting']}".casefold(),
        "share": share(cell["accuracy"]),
        "interval": limits,
        "picture": interval_picture(cell["accuracy"], cell["low"], cell["high"]),
        "judged": f"{count(cell['drawn'] - cell['incomplete'])}/{count(cell['drawn'])}",
        "statements": addresses.statements(cell),
        "harvest": addresses.harvest(cell),
        "title": "; ".join(part for part in (limits and f"95 % interval {limits}", counts, cell["reason"]) if part),
    }


class Addresses:
    """Where cells lead, from the page of their round. There may be thousands: what they share is made once."""

    def __init__(self) -> None:
        # From the right: the installation may lie below a path with a 0.
        self._harvest, self._end = reverse("kgharvest:harvest_detail", args=[0]).rsplit("0", 1)
        self._sides: dict[tuple[int | None, str], str] = {}

    def harvest(self, cell: Cell) -> str:
        return f"{self._harvest}{cell['job']}{self._end}" if cell["job"] else ""

    def statements(self, cell: Cell) -> str:
        side = cell["model_id"], cell["setting"]
        if side not in self._sides:
            self._sides[side] = urlencode({"show": "all", "side": side_key(*side)})
        return f"statements/?{self._sides[side]}&relation={cell['relation_id']}"


def interval_picture(value: float | None, low: float | None, high: float | None) -> SafeString:
    """Return an SVG of a share in [0, 1] with its interval; nothing without one. It repeats what stands beside it."""
    if value is None or low is None or high is None:
        return SafeString("")
    x_value, x_low, x_high = (f"{3 + number * (WIDTH - 6):.1f}" for number in (value, low, high))
    return SafeString(  # of numbers alone
        f'<svg class="interval-picture" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<path d="M{x_low} 5H{x_high}"/><circle cx="{x_value}" cy="5" r="2.5"/></svg>'
    )
