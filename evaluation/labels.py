"""Accuracy, agreement, and comparisons of labels: a CSV file, a pandas DataFrame, or a list of mappings.

The numbers are those of `report FILE.csv`; docs/label-files.md describes the columns. Imports neither Django nor
Celery, and pandas only for `to_pandas`. All functions raise ImportRefused (one line per invalid row) or NoSuchFile.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from evaluation.evidence.evidence import Evidence, cells_of, drawn_verdicts, evidence_of_rows
from evaluation.evidence.label_files import Labels, read_labels, rows_of_labels, rules_of_labels
from evaluation.reports.sections.annotators import agreement_entries
from evaluation.reports.sections.comparisons import comparison_entries
from evaluation.reports.sections.conventions import DEFAULT, convention_entries
from evaluation.reports.sections.rates import NO_COMPARISON, cell_entries, total_entries
from kgharvest.pages.number_format import share_with_interval, with_rounded_numbers
from kgharvest.statistics.paired_tests import MARGIN
from kgharvest.tables.results import Result
from kgharvest.tables.table import Column, Kind, Row, Table

Entry = TypeVar("Entry")
ONE_LABEL = (
    "Every statement has a single label, but a verdict needs two equal labels. Therefore, no statement is accepted. "
    "The convention by_reliability accepts single labels."
)


class LabelResult(Result):
    """A result with one row per part. Terminals show its sentence, and notebooks the sentence above a table."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.sentence()}>"

    @abstractmethod
    def sentence(self) -> str:
        """Return the main number with its interval."""

    def table(self) -> Table:
        """Return the rows as a table, without empty columns."""
        rows = self.rows()
        names = [name for name in self.COLUMNS if any(getattr(row, name) is not None for row in rows)]
        columns = tuple(Column(name, _kind_of(getattr(row, name) for row in rows)) for name in names)
        values = (Row([getattr(row, name) for name in names]) for row in rows)
        return Table("labels", self.sentence(), columns, tuple(values))


def _names_of(row: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(row))


def _kind_of(values: Iterable[Any]) -> Kind:
    value = next(value for value in values if value is not None)
    return Kind.TEXT if isinstance(value, str) else Kind.COUNT if isinstance(value, int) else Kind.SHARE


# Accuracy


@dataclass(frozen=True)
class CellAccuracy:
    """Rates of a cell (relation, LM, and setting), with 95 % intervals. reason: why the rates are None."""

    relation: str | None
    model: str | None
    setting: str | None
    n: int
    accepted: int
    rejected: int
    undecided: int
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    rejection: float | None
    rejection_low: float | None
    rejection_high: float | None
    reason: str | None


@dataclass(frozen=True)
class TotalAccuracy:
    """Means over the relations of an LM and setting.

    macro_accuracy_low, macro_accuracy_high: 95 % interval for these relations, as are macro_accuracy_these_low, _high.
    """

    model: str | None
    setting: str | None
    n_relations: int
    n: int
    accepted: int
    rejected: int
    undecided: int
    macro_accuracy: float | None
    macro_accuracy_low: float | None
    macro_accuracy_high: float | None
    macro_accuracy_these_low: float | None
    macro_accuracy_these_high: float | None
    macro_rejection: float | None


@dataclass(frozen=True)
class ConventionAccuracy:
    """Accuracy of the whole population under a convention, over n statements in its denominator."""

    name: str
    n: int
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    reason: str | None


@dataclass(frozen=True, repr=False)
class Accuracy(LabelResult):
    """Share of true statements in the whole population, with its 95 % interval, over n statements with a verdict.

    value, low, high, reason: of the convention `default`. conventions: the same number by other conventions of the
    field. reason: why value is None.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    reason: str | None
    cells: tuple[CellAccuracy, ...]
    totals: tuple[TotalAccuracy, ...]
    conventions: tuple[ConventionAccuracy, ...]

    COLUMNS = _names_of(CellAccuracy)

    def rows(self) -> Sequence[CellAccuracy]:
        return self.cells

    def sentence(self) -> str:
        if self.value is None:
            return f"Accuracy is not defined. {self.reason}"
        others = "; ".join(
            f"{other.name} {_with_interval(other.accuracy, other.accuracy_low, other.accuracy_high)}"
            for other in self.conventions
            if other.name != DEFAULT
        )
        return f"Accuracy {_with_interval(self.value, self.low, self.high)} over {self.n:,} statements ({others})."


def accuracy(labels: Labels, *, duplicates: str = "error") -> Accuracy:
    """Return the accuracy of each cell, LM and setting, and of the whole population.

    labels: path to a CSV file, a DataFrame, or a list of mappings, with the columns item, annotator, and label, or
    relation, entities, annotator, and label; optional columns: docs/label-files.md. duplicates: repeated judgments of
    an annotator on a statement are an "error", or keep the "first" or "last".
    """
    evidence = _evidence(labels, duplicates)
    drawn = drawn_verdicts(evidence)
    cells = cells_of(evidence, drawn)
    conventions = tuple(_all_of(ConventionAccuracy, convention_entries(evidence, drawn)))
    default = next(convention for convention in conventions if convention.name == DEFAULT)
    if len(evidence.judgments.task) == evidence.n_tasks:  # every statement of a file has a label
        warnings.warn(ONE_LABEL, stacklevel=2)
    return Accuracy(
        value=default.accuracy,
        low=default.accuracy_low,
        high=default.accuracy_high,
        n=int(evidence.is_complete.sum()),
        reason=default.reason,
        cells=tuple(_all_of(CellAccuracy, cell_entries(cells))),
        totals=tuple(_all_of(TotalAccuracy, total_entries(evidence, cells))),
        conventions=conventions,
    )


# Agreement


@dataclass(frozen=True)
class AgreementPart:
    """Agreement on the statements of a relation, of an LM and setting (by: "relation", "side"), or on all ("all").

    n_units: statements with two or more judgments. alpha: Krippendorff's, nominal, with its 95 % interval. gwet_ac1:
    Gwet's AC1. percent_agreement: share of equal pairs of labels. reason: why alpha is None.
    """

    by: str
    relation: str | None
    model: str | None
    setting: str | None
    n_tasks: int
    n_judgments: int
    n_units: int
    alpha: float | None
    alpha_low: float | None
    alpha_high: float | None
    gwet_ac1: float | None
    gwet_ac1_low: float | None
    gwet_ac1_high: float | None
    percent_agreement: float | None
    fleiss_kappa: float | None
    reason: str | None


@dataclass(frozen=True, repr=False)
class Agreement(LabelResult):
    """Agreement of the annotators. value, low, high, n, reason: Krippendorff's alpha over n statements.

    alpha_without_unjudgeable: alpha if Unjudgeable counts as a missing label. parts: all statements, then each
    relation, LM, and setting.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    reason: str | None
    alpha_without_unjudgeable: float | None
    parts: tuple[AgreementPart, ...]

    COLUMNS = _names_of(AgreementPart)

    def rows(self) -> Sequence[AgreementPart]:
        return self.parts

    def sentence(self) -> str:
        if self.value is None:
            return f"Krippendorff's alpha is not defined. {self.reason}"
        return f"Krippendorff's alpha {_with_interval(self.value, self.low, self.high)} over {self.n:,} statements."


def agreement(labels: Labels, *, duplicates: str = "error") -> Agreement:
    """Return the agreement of annotators on all statements, by relation, and by LM and setting.

    Arguments and errors as for `accuracy`.
    """
    evidence = _evidence(labels, duplicates)
    entries = with_rounded_numbers(agreement_entries(evidence))
    size = {"n_tasks": evidence.n_tasks, "n_judgments": len(evidence.judgments.task)}
    everything = {**entries, **size, "by": "all", "relation": None, "model": None, "setting": None}
    alpha = entries["alpha"]
    return Agreement(
        value=alpha["value"],
        low=alpha["low"],
        high=alpha["high"],
        n=alpha["n_units"],
        reason=alpha["reason"],
        alpha_without_unjudgeable=entries["alpha_without_unjudgeable"]["value"],
        parts=tuple(_agreement_part(entry) for entry in (everything, *entries["agreement"])),
    )


def _agreement_part(entry: Mapping[str, Any]) -> AgreementPart:
    names = ("by", "relation", "model", "setting", "n_tasks", "n_judgments", "percent_agreement")
    alpha, ac1 = entry["alpha"], entry["gwet_ac1"]
    return AgreementPart(
        **{name: entry[name] for name in names},
        n_units=alpha["n_units"],
        alpha=alpha["value"],
        alpha_low=alpha["low"],
        alpha_high=alpha["high"],
        gwet_ac1=ac1["value"],
        gwet_ac1_low=ac1["low"],
        gwet_ac1_high=ac1["high"],
        fleiss_kappa=entry["fleiss_kappa"]["value"],
        reason=alpha["reason"],
    )


# Comparisons


@dataclass(frozen=True)
class PairComparison:
    """Two settings of an LM (kind "settings"), or two LMs in a setting (kind "models").

    difference: accuracy of `a` minus accuracy of `b`, mean over n_relations relations, with its 95 % interval over
    relations or statements (unit). these_low, these_high: 95 % interval for these relations. p_holm: p adjusted for all
    pairs.
    """

    kind: str
    model: str | None
    setting: str | None
    a: str | None
    b: str | None
    unit: str
    n_relations: int
    n_shared_tuples: int
    difference: float | None
    low: float | None
    high: float | None
    these_low: float | None
    these_high: float | None
    p: float | None
    p_holm: float | None
    reason: str | None


@dataclass(frozen=True, repr=False)
class Comparison(LabelResult):
    """Comparisons of LMs and settings. n: number of pairs. reason: why there is none."""

    n: int
    reason: str | None
    pairs: tuple[PairComparison, ...]
    totals: tuple[TotalAccuracy, ...]

    COLUMNS = _names_of(PairComparison)

    def rows(self) -> Sequence[PairComparison]:
        return self.pairs

    def sentence(self) -> str:
        return self.reason or f"{self.n:,} comparisons of LMs and settings (p adjusted after Holm)."


def compare(labels: Labels, *, duplicates: str = "error", equivalence_margin: float = MARGIN) -> Comparison:
    """Compare all settings of each LM, and all LMs in each setting, that share at least two relations.

    The labels need the column model or setting. Other arguments and errors as for `accuracy`. equivalence_margin: as a
    share.
    """
    evidence = _evidence(labels, duplicates)
    drawn = drawn_verdicts(evidence)
    cells = cells_of(evidence, drawn)
    has_pairs = len(evidence.sides) > 1
    entries = comparison_entries(evidence, cells, drawn, equivalence_margin) if has_pairs else []
    return Comparison(
        n=len(entries),
        reason=None if entries else NO_COMPARISON,
        pairs=tuple(_all_of(PairComparison, entries)),
        totals=tuple(_all_of(TotalAccuracy, total_entries(evidence, cells))),
    )


def _evidence(labels: Labels, duplicates: str) -> Evidence:
    people = read_labels(labels)
    return evidence_of_rows(rows_of_labels(people, duplicates), rules_of_labels(people.name))


def _all_of(result: type[Entry], entries: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    """Yield an object of the dataclass `result` for each entry of a report; keys that an entry lacks are None."""
    names = _names_of(result)
    return (result(**{name: entry.get(name) for name in names}) for entry in map(with_rounded_numbers, entries))


def _with_interval(value: float | None, low: float | None, high: float | None) -> str:
    return "not defined" if value is None else share_with_interval(value, low, high)
