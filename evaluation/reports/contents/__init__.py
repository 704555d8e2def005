"""The tables that a report's document holds, in reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from evaluation.reports.contents import curves, paper, quality, sensitivity
from evaluation.reports.tables import ORIGINS, Document, Table, without_empty_columns

READ = (
    paper.relation_table,
    paper.setting_table,
    paper.model_table,
    paper.size_table,
    quality.comparison_table,
    quality.agreement_table,
    quality.agreement_parts_table,
    quality.annotator_table,
    quality.pair_table,
    quality.annotator_model_table,
    sensitivity.sensitivity_table,
    sensitivity.left_out_table,
    sensitivity.sensitive_comparison_table,
    sensitivity.left_out_claim_table,
    sensitivity.rule_table,
    quality.plan_table,
)
LISTS = (
    paper.cell_list,
    sensitivity.sensitive_cell_table,
    curves.size_curve_table,
    curves.calibration_table,
)  # for programs: people would drown in them


def report_tables(document: Document) -> list[Table]:
    """Return every table that has a row; what rests on no people says so in its caption."""
    return _built(READ + LISTS, document)


def tables_to_read(document: Document) -> list[Table]:
    """Return what people read: without the long lists, and without columns that say nothing."""
    return [without_empty_columns(table) for table in _built(READ, document)]


def _built(builders: Iterable[Callable[[Document], Table]], document: Document) -> list[Table]:
    origin = ORIGINS.get(document["source"], "")
    return [replace(table, origin=origin) for build in builders if (table := build(document)).rows]
