"""The tables that a report's document holds, in reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from evaluation.rendering.tables import ORIGINS, Document, Table, without_empty_columns
from evaluation.reports.sections import curves, quality_tables, rates, sensitivity

READ = (
    rates.relation_table,
    rates.setting_table,
    rates.model_table,
    rates.size_table,
    quality_tables.comparison_table,
    quality_tables.agreement_table,
    quality_tables.agreement_parts_table,
    quality_tables.annotator_table,
    quality_tables.pair_table,
    quality_tables.annotator_model_table,
    sensitivity.sensitivity_table,
    sensitivity.left_out_table,
    sensitivity.sensitive_comparison_table,
    sensitivity.left_out_claim_table,
    sensitivity.rule_table,
    quality_tables.plan_table,
)
LISTS = (
    rates.cell_list,
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
