"""Tables of the records of text tasks."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from evaluation.rendering.figures.drawing import Drawing
from kgharvest.contrib.probing.text_tasks.figures import draw_curves, draw_grid
from kgharvest.statistics.rates import macro_average, macro_interval
from kgharvest.tables.table import Column, Kind, Row, Table

Records = Sequence[Mapping[str, Any]]

CLASSIFICATION = {
    "dev_accuracy": Column("dev accuracy", Kind.SHARE),
    "dev_log_likelihood": Column("dev log-likelihood", Kind.NUMBER),
    "accuracy": Column("accuracy", Kind.SHARE),
    "accuracy_low": Column("low", Kind.SHARE),
    "accuracy_high": Column("high", Kind.SHARE),
    "log_likelihood": Column("log-likelihood", Kind.NUMBER),
}
EXTRACTION = {
    "p1": Column("P@1", Kind.SHARE),
    "p1_low": Column("low", Kind.SHARE),
    "p1_high": Column("high", Kind.SHARE),
    "p10": Column("P@10", Kind.SHARE),
    "mrr": Column("MRR", Kind.SHARE),
    "known_p1": Column("original P@1", Kind.SHARE),
}
PRECISION = {
    "label": Column("label"),
    "precision": Column("precision", Kind.SHARE),
    "precision_low": Column("low", Kind.SHARE),
    "precision_high": Column("high", Kind.SHARE),
    "n": Column("texts", Kind.COUNT),
}
CURVE = {
    "method": Column("method"),
    "train_size": Column("training texts", Kind.COUNT),
    "n": Column("subsets", Kind.COUNT),
    "mean": Column("dev accuracy, mean", Kind.SHARE),
    "sd": Column("standard deviation", Kind.NUMBER),
    "low": Column("minimum", Kind.SHARE),
    "high": Column("maximum", Kind.SHARE),
    "test_mean": Column("test accuracy, mean", Kind.SHARE),
}
GRID = {
    "n_triggers": Column("triggers", Kind.COUNT),
    "k": Column("tokens per label", Kind.COUNT),
    "n_candidates": Column("candidates", Kind.COUNT),
    "dev_accuracy": Column("dev accuracy", Kind.SHARE),
    "accuracy": Column("accuracy", Kind.SHARE),
}


def table_of(name: str, title: str, columns: Mapping[str, Column], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table with a row per mapping and a column per key of `columns`."""
    return Table(name, title, tuple(columns.values()), tuple(Row(tuple(row[key] for key in columns)) for row in rows))


def method_name(record: Mapping[str, Any]) -> str:
    """Return the name of a method in tables, with the kind of context and LM."""
    perturbed = ", perturbed" if record.get("is_perturbed") else ""
    return f"{record['method']}{perturbed}{', random weights' if record['is_control'] else ''}"


def method_table(name: str, columns: Mapping[str, Column], records: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table with one row per method, kind of context, and LM. columns: columns by record key."""
    cost = {"forwards": Column("forward passes", Kind.COUNT), "seconds": Column("seconds", Kind.NUMBER)}
    rows = ({"name": method_name(record), **record} for record in records)
    return table_of(name, "Methods", {"name": Column("method"), **columns, **cost}, rows)


def precision_table(records: Records) -> Table:
    """One row per method and label: the share of correct texts among the test texts that are classified so."""
    rows = (
        {"name": method_name(record), "label": label, "n": record["n_predicted"][label]}
        | {name: record[name][label] for name in PRECISION if name.startswith("precision")}
        for record in records
        for label in record["precision"]
    )
    return table_of("precision", "Precision per label", {"name": Column("method"), **PRECISION}, rows)


def curve_rows(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per method and size of the training subsets: mean, spread, and range of dev and test accuracy."""
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for record in records:
        if "train_size" in record:
            groups.setdefault((record["method"], record["train_size"]), []).append(record)
    rows = []
    for (method, size), group in groups.items():
        dev = [record["dev_accuracy"] for record in group]
        spread = {"mean": fmean(dev), "sd": stdev(dev) if len(dev) > 1 else None, "low": min(dev), "high": max(dev)}
        test_mean = fmean(record["accuracy"] for record in group)
        rows.append({"method": method, "train_size": size, "n": len(group), **spread, "test_mean": test_mean})
    return rows


def extraction_summary(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per method, kind of context, and LM: means over relations, Student's interval of P@1, and cost."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["is_perturbed"], record["is_control"], record["method"]), []).append(record)
    rows = []
    for key, group in groups.items():
        low, high = macro_interval([record["p1"] for record in group])
        averaged = ("p1", "p10", "mrr", "known_p1")
        rows.append({
            **dict(zip(("is_perturbed", "is_control", "method"), key, strict=True)),
            "n_relations": len(group),
            **{measure: macro_average(record[measure] for record in group) for measure in averaged},
            "p1_low": low,
            "p1_high": high,
            **{cost: sum(record[cost] for record in group) for cost in ("forwards", "seconds")},
        })  # fmt: skip
    return rows


def autoprompt_records(records: Records) -> list[Mapping[str, Any]]:
    """Return AutoPrompt's records for the LM itself, without those for the control."""
    return [record for record in records if record["method"] == "autoprompt" and not record["is_control"]]


def grid_cells(records: Records) -> list[Mapping[str, Any]]:
    """Return the cells of AutoPrompt's grid, or nothing if it has a single cell or there are only learning curves."""
    cells = [cell for record in autoprompt_records(records) for cell in record.get("grid", [])]
    return cells if len(cells) > 1 and not curve_rows(records) else []


def result_tables(records: Records) -> list[Table]:
    """Return all tables of the records of a text task."""
    if not records:
        return []
    if "p1" in records[0]:
        return [method_table("methods", EXTRACTION, extraction_summary(records))]
    if rows := curve_rows(records):
        return [table_of("curve", "Learning curve", CURVE, rows)]
    tables = [method_table("methods", CLASSIFICATION, records), precision_table(records)]
    cells = grid_cells(records)
    return [*tables, table_of("grid", "Grid of AutoPrompt", GRID, cells)] if cells else tables


def result_figure(records: Records) -> Drawing | None:
    """Return the figure of a learning curve or of a grid, or None if there is neither."""
    rows, cells = curve_rows(records), grid_cells(records)
    return draw_curves(rows) if rows else draw_grid(cells) if cells else None


def result_lines(records: Records) -> list[str]:
    """Return the prompts that AutoPrompt found, and the selected tokens of each label."""
    lines = []
    for record in autoprompt_records(records):
        name = f"{record['relation']}{', perturbed' if record['is_perturbed'] else ''}" if "p1" in record else "prompt"
        labels = record.get("labels", {}).items()
        lines += [f"{name}: {record['prompt']}", *(f"{label}: {', '.join(tokens)}" for label, tokens in labels)]
    return lines
