"""The tables that a report's document holds, in reading order."""

from __future__ import annotations

from dataclasses import replace

from evaluation.reports.contents import curves, paper, quality
from evaluation.reports.tables import ORIGINS, Document, Table, without_empty_columns

LISTS = ("cells", "size-curves", "calibration")
BUILDERS = (
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
    quality.rule_table,
    quality.sensitivity_table,
    quality.sensitive_comparison_table,
    quality.plan_table,
    paper.cell_list,
    curves.size_curve_table,
    curves.calibration_table,
)


def report_tables(document: Document) -> list[Table]:
    """Return every table that has a row; what rests on no people says so in its caption."""
    origin = ORIGINS.get(document["source"], "")
    return [replace(table, origin=origin) for build in BUILDERS if (table := build(document)).rows]


def tables_to_read(document: Document) -> list[Table]:
    """Return what people read: without the long lists that are for programs, and without columns that say nothing."""
    return [without_empty_columns(table) for table in report_tables(document) if table.name not in LISTS]
