"""The tables of a report. Writers and pages lay the same tables out in their own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

Document = Mapping[str, Any]

MOST_ANNOTATORS_IN_MATRIX = 20  # as many columns as a page can hold


class ColumnGroup(NamedTuple):
    """An LM and the settings under it."""

    model: str
    settings: list[str]


@dataclass(frozen=True)
class CellTable:
    """Relations as rows, LM and setting as columns: the shape of the paper's Table 5.

    rows: relation name and its cells, as in the report's JSON, None where the relation was not sampled.
    averages: the totals in the order of the columns.
    """

    groups: list[ColumnGroup]
    rows: list[tuple[str, list[Mapping[str, Any] | None]]]
    averages: list[Mapping[str, Any]]

    @property
    def columns(self) -> list[str]:
        return [f"{group.model} · {setting}" for group in self.groups for setting in group.settings]


def cell_table(document: Document) -> CellTable:
    averages = document["totals"]
    keys = [(total["model"], total["setting"]) for total in averages]
    cells = {(cell["relation"], cell["model"], cell["setting"]): cell for cell in document["cells"]}
    relations = sorted({cell["relation"] for cell in document["cells"]})
    return CellTable(
        groups=[
            ColumnGroup(name_of(model), [name_of(setting) for _, setting in group])
            for model, group in groupby(keys, key=lambda key: key[0])
        ],
        rows=[(relation, [cells.get((relation, *key)) for key in keys]) for relation in relations],
        averages=averages,
    )


def name_of(model_or_setting: str | None) -> str:
    return "not named" if model_or_setting is None else model_or_setting


def short(share: float | None) -> str:
    """Return a share or coefficient with two digits as papers print it: .73, -.05, 1.00; a dash for None."""
    if share is None:
        return "–"
    return f"{share:.2f}".replace("0.", ".", 1) if abs(share) < 0.995 else f"{share:.2f}"


def agreement_in_words(alpha: Mapping[str, Any]) -> str:
    """Return alpha with its interval, or why there is none."""
    if alpha["value"] is None:
        return f"not defined: {alpha['reason']}"
    interval = f" ({short(alpha['low'])} to {short(alpha['high'])})" if alpha["low"] is not None else ""
    return f"{short(alpha['value'])}{interval} over {alpha['n_units']} statements"


def agreement_matrix(document: Document) -> list[tuple[str, list[Mapping[str, Any] | None]]]:
    """Return annotators as rows and, in the same order, as columns; None where two share no statement.

    Empty if nobody shares one, or if there are too many annotators for a page.
    """
    codes = [annotator["annotator"] for annotator in document["annotators"]]
    if len(codes) > MOST_ANNOTATORS_IN_MATRIX or not document["annotator_pairs"]:
        return []
    pairs = {frozenset((pair["a"], pair["b"])): pair for pair in document["annotator_pairs"]}
    return [(code, [pairs.get(frozenset((code, other))) for other in codes]) for code in codes]


def footnotes(document: Document) -> list[str]:
    """Return what stands under the table, in every format."""
    return [
        "Accepted / rejected share per cell; averages over relations.",
        f"{document['n_judgments']} judgments, {document['n_complete']} of {document['n_tasks']} statements complete.",
        f"Krippendorff's alpha: {agreement_in_words(document['alpha'])}; "
        f"without Unjudgeable: {agreement_in_words(document['alpha_without_unjudgeable'])}; "
        f"percent agreement: {short(document['percent_agreement'])}.",
        *document["notes"],
    ]
