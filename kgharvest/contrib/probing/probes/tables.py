"""Tables of a probe document: methods, differences, types, relations, and facts."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from evaluation.rendering.documents import Document
from kgharvest.contrib.probing.probes.facts import PARTS
from kgharvest.pages.number_format import counted
from kgharvest.tables.table import Column, Kind, Row, Table

CONTROL = "random weights"

SUMMARY = {
    "p1": Column("P@1", Kind.SHARE),
    "p1_low": Column("low", Kind.SHARE),
    "p1_high": Column("high", Kind.SHARE),
    "p1_micro": Column("micro", Kind.SHARE),
    "p10": Column("P@10", Kind.SHARE),
    "mrr": Column("MRR", Kind.SHARE),
    "dev_nll": Column("dev NLL", Kind.NUMBER),
    "n_parameters": Column("parameters", Kind.COUNT),
    "forwards": Column("forward passes", Kind.COUNT),
    "forwards_per_second": Column("forward passes/s", Kind.COUNT),
    "seconds": Column("seconds", Kind.NUMBER),
}
DIFFERENCE = {
    "n_compared": Column("relations", Kind.COUNT),
    "difference": Column("difference", Kind.POINTS),
    "difference_low": Column("low", Kind.POINTS),
    "difference_high": Column("high", Kind.POINTS),
    "p": Column("p", Kind.P),
    "p_holm": Column("p, Holm", Kind.P),
}


def probe_tables(document: Document) -> list[Table]:
    """Return all non-empty tables."""
    return [table for build in TABLES if (table := build(document)).rows]


def summary_table(document: Document) -> Table:
    """One row per method, followed by the rows of the control."""
    methods, control = method_table(document), control_table(document)
    rows = [
        row._replace(values=(f"{row.values[0]}, {CONTROL}", *row.values[1:]), is_summary=True) for row in control.rows
    ]
    return replace(methods, name="summary", rows=(*methods.rows, *rows), notes=methods.notes + control.notes)


def method_table(document: Document) -> Table:
    relations = counted(max((row["n_relations"] for row in document["summary"]), default=0), "relation")
    n_facts = max((row["n_facts"] for row in document["summary"]), default=0)
    notes = (
        f"P@1, P@10, and MRR: unweighted means over {relations}, with 95 % t intervals for similar relations. "
        f"Micro: mean over all {n_facts:,} facts. NLL: in nats. Forward passes: sequences that the LM read while "
        "learning.",
        *(["Methods measured on different numbers of relations are not comparable."] if is_partial(document) else []),
    )
    return _table_of_methods("methods", "Methods", "summary", document, notes)


def is_partial(document: Document) -> bool:
    """Return whether some methods have not been measured on all relations yet."""
    return len({row["n_relations"] for key in ("summary", "control") for row in document[key]}) > 1


def control_table(document: Document) -> Table:
    notes = (f"An LM with {CONTROL} has no knowledge: its correct answers were learned from the training facts.",)
    title = f"Control: the same LM with {CONTROL}"
    return _table_of_methods("control", title, "control", document, notes if document["control"] else ())


def _table_of_methods(name: str, title: str, key: str, document: Document, notes: tuple[str, ...]) -> Table:
    columns = {"n_relations": Column("relations", Kind.COUNT), **SUMMARY} if is_partial(document) else SUMMARY
    rows = []
    for row in document[key]:
        speed = row["forwards_per_second"]
        values = row | {"forwards_per_second": speed and round(speed)}
        rows.append(Row((row["method"], *(values[column] for column in columns))))
    return Table(name, title, (Column("method"), *columns.values()), tuple(rows), notes)


def difference_table(document: Document) -> Table:
    compared = [row for row in document["summary"] if row["difference"] is not None]
    rows = [Row((row["method"], *(row[key] for key in DIFFERENCE), row["reason"] or "")) for row in compared]
    columns = (Column("method"), *DIFFERENCE.values(), Column("note"))
    notes = (
        "Difference in P@1 from the manual prompts in percentage points, paired by relation, with 95 % bootstrap-t "
        "interval; p: exact sign-flip permutation test (random patterns beyond 20 relations), Holm-adjusted over "
        "methods.",
    )
    return Table("differences", "Differences from the manual prompts", columns, tuple(rows), notes)


def type_table(document: Document) -> Table:
    methods = _methods(document, "summary")
    rows = [
        Row((row["type"], row["n_relations"], *(row["p1"].get(method) for method in methods)))
        for row in document["types"]
    ]
    columns = (Column("type"), Column("relations", Kind.COUNT), *(Column(method, Kind.SHARE) for method in methods))
    notes = (
        "Mean P@1 over the relations of a type. N-M: a subject has 1.5 objects or more on average; N-1: an object has "
        "that many subjects; 1-1: all other relations. Types stated in the relations file take precedence.",
    )
    return Table("types", "P@1 by relation type", columns, tuple(rows), notes)


def relation_table(document: Document) -> Table:
    """One row per relation. Columns: methods, followed by methods on the control."""
    methods, controls = _methods(document, "summary"), _methods(document, "control")
    rows = [
        Row((
            entry["relation"],
            entry["type"],
            entry["n_test"],
            *(entry["p1"].get(method) for method in methods),
            *(entry["control_p1"].get(method) for method in controls),
        ))
        for entry in document["relations"]
    ]  # fmt: skip
    columns = (
        Column("relation"),
        Column("type"),
        Column("facts", Kind.COUNT),
        *(Column(method, Kind.SHARE) for method in methods),
        *(Column(method, Kind.SHARE, CONTROL) for method in controls),
    )
    return Table("relations", "P@1 per relation", columns, tuple(rows))


def fact_table(document: Document) -> Table:
    """Numbers of used and discarded facts per relation."""
    rows = []
    for entry in document["relations"]:
        left_out = [
            f"{part}: {', '.join(f'{n} {reason}' for reason, n in sorted(reasons.items()))}"
            for part in PARTS
            if (reasons := entry["left_out"][part])
        ]
        rows.append(Row((entry["relation"], *(entry[f"n_{part}"] for part in PARTS), "; ".join(left_out))))
    columns = (Column("relation"), *(Column(part, Kind.COUNT) for part in PARTS), Column("left out"))
    return Table("facts", "Used and discarded facts", columns, tuple(rows))


def _methods(document: Document, key: str) -> Sequence[str]:
    return [row["method"] for row in document[key]]


TABLES: tuple[Callable[[Document], Table], ...] = (
    summary_table,
    difference_table,
    type_table,
    relation_table,
    fact_table,
)
