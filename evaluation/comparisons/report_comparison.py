"""Report comparison: two reports, or a report and a published table, on their shared relations.

Only `shared_verdicts` queries the database.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from django.db.models import Count

from annotation.judging.verdicts import Verdict
from annotation.models import JudgmentTask, Round
from evaluation.rendering.documents import ORIGINS, Document, name_of
from evaluation.reports.sections.comparisons import compare_pair, comparison_in_words, tested
from evaluation.reports.sections.rates import rates_of
from kgharvest.names import short_name, shortest_names
from kgharvest.pages.number_format import p_value
from kgharvest.statistics.paired_tests import CellKey, Pair, PairedDifference, Side, holm, mcnemar_p
from kgharvest.statistics.rates import SIGNIFICANCE, VerdictSample, macro_average
from kgharvest.statistics.statement_test import SideSample, statement_difference
from kgharvest.tables.table import Column, Kind, Rates, Row, Table

FEWEST_RELATIONS = 2


@dataclass(frozen=True)
class ReportSide:
    """One of the two compared reports.

    `cells` has the shape {side: {plain name of the relation: cell}}, in report order.

    origin: source of the judgments, or empty if people made them. demonstrators: names of built-in LMs.
    """

    name: str
    origin: str
    cells: Mapping[Side, Mapping[str, Mapping[str, Any]]]
    demonstrators: frozenset[str] = frozenset()

    def lm(self, side: Side) -> str:
        """Return the LM's name for tables, with an asterisk if it is a demonstrator."""
        return name_of(side.model) + ("*" if side.model in self.demonstrators else "")

    def column(self, side: Side) -> str:
        return f"{self.lm(side)} · {name_of(side.setting)}"


def report_side(name: str, document: Document) -> ReportSide:
    """Return one side of a comparison from a report's document.

    LM names are shortened to the last part of the path or hub id.

    For example, FacebookAI/roberta-large matches the paper's roberta-large. Names are not shortened if the result would
    be ambiguous.
    """
    models = shortest_names(cell["model"] for cell in document["cells"] if cell["model"])
    relations = shortest_names((cell["relation"] for cell in document["cells"]), plain_name)
    cells: dict[Side, dict[str, Mapping[str, Any]]] = {}
    for cell in document["cells"]:
        side = Side(models.get(cell["model"] or ""), cell["setting"])
        cells.setdefault(side, {})[relations[cell["relation"]]] = cell
    demonstrators = frozenset(models.get(model, model) for model in document.get("demonstrators", []))
    return ReportSide(name, ORIGINS.get(document.get("source") or "", ""), cells, demonstrators)


def with_distinct_names(a: ReportSide, b: ReportSide) -> tuple[ReportSide, ReportSide]:
    """Append "first" and "second" to the names of the sides if both reports are on the same round."""
    if a.name != b.name:
        return a, b
    return replace(a, name=f"{a.name}, first"), replace(b, name=f"{b.name}, second")


def plain_name(relation: str) -> str:
    """Return a relation's name in lower case, without its set, and with "_" between words.

    For example, NEED A TO DO B becomes need_a_to_do_b.
    """
    return re.sub(r"[\s_-]+", "_", short_name(relation).casefold())


def shared_relations(a: ReportSide, b: ReportSide) -> list[str]:
    names_a, names_b = ({name for cells in report.cells.values() for name in cells} for report in (a, b))
    return sorted(names_a & names_b)


# Tables


def report_comparison_table(a: ReportSide, b: ReportSide) -> Table:
    """Return the rates on the shared relations, with the columns of `a` first and the averages in the last row."""
    relations = shared_relations(a, b)
    sides = [(report, side) for report in (a, b) for side in report.cells]
    rows = [Row((relation, *(_rates(report, side, relation) for report, side in sides))) for relation in relations]
    average = Row(("average", *(_average(report, side, relations) for report, side in sides)), is_summary=True)
    columns = [
        Column(report.column(side), Kind.RATES, f"{report.name} ({report.origin})" if report.origin else report.name)
        for report, side in sides
    ]
    notes: tuple[str, ...] = ("Relations in both reports, matched by name. Averages are over these relations.",)
    if a.demonstrators or b.demonstrators:
        notes = (*notes, "* Demonstrator: its accuracy says nothing about other LMs.")
    body = (*rows, average) if rows else ()
    return Table("report-comparison", f"{a.name} and {b.name}", (Column("relation"), *columns), body, notes)


def _rates(report: ReportSide, side: Side, relation: str) -> Rates | None:
    cell = report.cells[side].get(relation)
    return None if cell is None else rates_of(cell)


def _average(report: ReportSide, side: Side, relations: Sequence[str]) -> Rates | None:
    rates = [_rates(report, side, relation) for relation in relations]
    defined = [rate for rate in rates if rate is not None and rate.accepted is not None]
    if not defined:
        return None
    accepted, rejected = (macro_average(shares) for shares in zip(*(rate[:2] for rate in defined), strict=True))
    n = None if any(rate.n is None for rate in defined) else sum(rate.n or 0 for rate in defined)
    return Rates(accepted, rejected, n=n)


def difference_table(a: ReportSide, b: ReportSide) -> Table:
    """Return the accuracy of `a` minus the accuracy of `b` for each relation and each pair of matched sides."""
    pairs = list(matched_sides(a, b))
    rows = [
        Row((relation, *(_difference(a.cells[side_a], b.cells[side_b], relation) for side_a, side_b in pairs)))
        for relation in shared_relations(a, b)
    ]
    columns = [
        Column(" − ".join(dict.fromkeys((a.column(side_a), b.column(side_b)))), Kind.POINTS) for side_a, side_b in pairs
    ]
    return Table("differences", "Differences in percentage points", (Column("relation"), *columns), tuple(rows))


def _difference(a: Mapping[str, Any], b: Mapping[str, Any], relation: str) -> float | None:
    accuracy_a, accuracy_b = (cells[relation]["accuracy"] if relation in cells else None for cells in (a, b))
    return None if accuracy_a is None or accuracy_b is None else float(accuracy_a - accuracy_b)


# Tests


def matched_sides(a: ReportSide, b: ReportSide) -> Iterator[tuple[Side, Side]]:
    """Yield pairs of sides with the same LM and setting; if there are none, pairs with the same setting."""
    same_lm = [(side, side) for side in a.cells if side in b.cells]
    same_setting = ((side_a, side_b) for side_a in a.cells for side_b in b.cells if side_a.setting == side_b.setting)
    yield from same_lm or same_setting


def comparisons_between(a: ReportSide, b: ReportSide, seed: int) -> list[dict[str, Any]]:
    """Compare the matched sides that share at least FEWEST_RELATIONS relations.

    The differences are paired by relation, and the p-values are adjusted by Holm's method.
    """
    compared = []
    for side_a, side_b in matched_sides(a, b):
        cells_a, cells_b = a.cells[side_a], b.cells[side_b]
        differences = {name: _difference(cells_a, cells_b, name) for name in shared_relations(a, b)}
        differences = {name: difference for name, difference in differences.items() if difference is not None}
        if len(differences) >= FEWEST_RELATIONS:
            sample_a, sample_b = (_sample([cells[name] for name in differences]) for cells in (cells_a, cells_b))
            statements = sample_a and sample_b and statement_difference(sample_a, sample_b)
            paired = compare_pair(np.array(list(differences.values())), statements or None, seed)
            compared.append((side_a, side_b, paired))
    adjusted = holm([paired.p for *_, paired in compared])
    return [_entry(a, b, *pair, p_holm) for pair, p_holm in zip(compared, adjusted, strict=True)]


def _sample(cells: Sequence[Mapping[str, Any]]) -> SideSample | None:
    """Return the strata of the report's cells, with equal weight for each cell, or None if the report has no counts.

    Populations are treated as infinite, because different annotators can reach different verdicts even if every tuple
    is judged. The two reports are treated as independent. Tuples judged in both rounds are compared by a separate
    McNemar test.
    """
    if not all(cell.get("strata") for cell in cells):
        return None
    strata = [(number, stratum) for number, cell in enumerate(cells) for stratum in cell["strata"]]
    samples = [
        stratum.get("completed")
        or {"n": stratum["n"], **dict.fromkeys(("n_hits", "least", "most"), stratum["accepted"])}
        for _, stratum in strata
    ]
    relation = np.array([number for number, _ in strata])
    effects = np.array([stratum.get("design_effect", 1.0) for _, stratum in strata])
    size = np.array([stratum["population"] or 1 for _, stratum in strata], dtype=np.float64)
    return SideSample(
        VerdictSample(*(np.array([sample[key] for sample in samples]) / effects for key in VerdictSample._fields)),
        np.zeros(len(strata), dtype=np.int64),
        size / np.bincount(relation, size)[relation] / len(cells),
        relation,
    )


def _entry(
    a: ReportSide, b: ReportSide, side_a: Side, side_b: Side, paired: PairedDifference, p_holm: float
) -> dict[str, Any]:
    names = f"{a.lm(side_a)} ({a.name})", f"{b.lm(side_b)} ({b.name})"
    pair = Pair("models", side_a.setting, Side(names[0], side_a.setting), Side(names[1], side_a.setting))
    return {
        "kind": "models",
        "setting": side_a.setting,
        "a": names[0],
        "b": names[1],
        "n_relations": paired.n_relations,
        "difference": paired.difference,
        "low": paired.low,
        "high": paired.high,
        **tested(paired, p_holm),
        "sentence": comparison_in_words(pair, paired, p_holm),
    }


# Published tables


@dataclass(frozen=True)
class PublishedTable:
    """Shares (0 to 1) of accepted and rejected tuples for each cell, and averages over relations for each side."""

    title: str
    source: str
    note: str
    cells: dict[CellKey, tuple[float, float]]
    averages: dict[Side, tuple[float, float]]


def load_table5() -> PublishedTable:
    """Return Table 5 of the paper: 14 relations; RoBERTa-large in four settings; five LMs in the setting `multi`."""
    table = json.loads((Path(__file__).parent / "table5.json").read_text(encoding="utf-8"))
    sides = [Side(column["model"], column["setting"]) for column in table["columns"]]
    cells = {
        CellKey(row["relation"], *side): tuple(shares)
        for row in table["rows"]
        for side, shares in zip(sides, row["cells"], strict=True)
    }
    averages = {side: tuple(shares) for side, shares in zip(sides, table["averages"], strict=True)}
    return PublishedTable(table["title"], table["source"], table["note"], cells, averages)


def published_document(table: PublishedTable) -> dict[str, Any]:
    """Return a published table in the format of a report's document, without counts and intervals."""
    unknown = {"n": None, "accuracy_low": None, "accuracy_high": None, "incomplete": 0}
    return {
        "cells": [
            {**key._asdict(), "accuracy": accuracy, "rejection": rejection, **unknown}
            for key, (accuracy, rejection) in table.cells.items()
        ]
    }


def published_table(paper: PublishedTable) -> Table:
    """Return a published table as printed, with its averages in the last row."""
    relations = dict.fromkeys(key.relation for key in paper.cells)
    rows = [
        Row((relation, *(Rates(*paper.cells[CellKey(relation, *side)]) for side in paper.averages)))
        for relation in relations
    ]
    average = Row(("average", *(Rates(*shares) for shares in paper.averages.values())), is_summary=True)
    columns = [Column(name_of(side.setting), Kind.RATES, name_of(side.model)) for side in paper.averages]
    return Table("published", paper.title, (Column("relation"), *columns), (*rows, average))


# Shared verdicts


class SharedVerdicts(NamedTuple):
    """Counts of the tuples that have a verdict in both rounds: accepted by both, by one, or by neither.

    p: p-value of the exact McNemar test, or None if the rounds never disagree, or if a round has clusters.
    """

    both: int
    only_a: int
    only_b: int
    neither: int
    p: float | None

    @property
    def n(self) -> int:
        return self.both + self.only_a + self.only_b + self.neither

    def in_words(self, a: str, b: str) -> str:
        """Return the result as text. a, b: names of the rounds."""
        start = f"{self.n:,} tuples have a verdict in both rounds"
        if self.only_a == self.only_b == 0:
            return f"{start}, and the rounds accept the same tuples."
        counts = f"{a} alone accepts {self.only_a:,}, {b} alone {self.only_b:,}"
        if self.p is None:
            return f"{start}: {counts}. McNemar's test does not apply, because a round has clusters."
        p = p_value(self.p)
        counts += f" (McNemar's exact p {p if p.startswith('<') else f'= {p}'})"
        if self.p >= SIGNIFICANCE:
            return f"{start}: {counts}. The rounds are not distinguishable."
        return f"{start}: {counts}. {a if self.only_a > self.only_b else b} accepts more."


def shared_verdicts(a: Round, b: Round) -> SharedVerdicts | None:
    """Compare the current verdicts. Return None if the two rounds are the same or share no judged tuple."""
    if a == b:
        return None
    tasks = JudgmentTask.objects.without_gold().complete()
    pairs = (
        tasks.filter(round=a, knowledge_tuple__judgment_tasks__in=tasks.filter(round=b))
        .order_by()
        .values_list("verdict", "knowledge_tuple__judgment_tasks__verdict")
        .annotate(n=Count("pk"))
    )
    counts: dict[tuple[bool, bool], int] = {}
    for verdict_a, verdict_b, n in pairs:
        accepted = verdict_a == Verdict.ACCEPTED, verdict_b == Verdict.ACCEPTED
        counts[accepted] = counts.get(accepted, 0) + n
    if not counts:
        return None
    both, only_a, only_b, neither = (
        counts.get(key, 0) for key in ((True, True), (True, False), (False, True), (False, False))
    )
    has_clusters = a.cluster_size or b.cluster_size
    return SharedVerdicts(both, only_a, only_b, neither, None if has_clusters else mcnemar_p(only_a, only_b))
