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


COMPARISON = {
    "baseline": Column("compared with"),
    "difference": Column("difference", Kind.POINTS),
    "n_better": Column("better", Kind.COUNT),
    "n_worse": Column("worse", Kind.COUNT),
    "p": Column("p", Kind.P),
    "p_best": Column("p, best method", Kind.P),
}
SIGN_TEST_LEVEL = 0.02  # as in Qin & Eisner (2021)


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
        f"P@1, P@10, and MRR: unweighted means over {relations}. Low, high: 95 % t interval of P@1 for similar "
        "relations. "
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
        "interval; p: sign-flip permutation test, exact for up to 20 relations and with random patterns for more; "
        "p, Holm: adjusted over methods.",
    )
    return Table("differences", "Differences from the manual prompts", columns, tuple(rows), notes)


def comparison_table(document: Document) -> Table:
    """Micro averages and sign tests over facts: Tables 1 to 6 of Qin & Eisner (2021)."""
    summary = {row["method"]: row for row in document["summary"]}
    rows = []
    for row in document.get("comparisons", ()):
        if row["n_facts"]:
            is_best = row["method"] == row["best"]
            is_tied = is_best or (row["p_best"] is not None and row["p_best"] >= SIGN_TEST_LEVEL)
            micro = [summary[row["method"]][f"{measure}_micro"] for measure in ("p1", "p10", "mrr")]
            compared = [row[key] or "" if key == "baseline" else row[key] for key in COMPARISON]
            group = "best" if is_best else "not worse" if is_tied else ""
            rows.append(Row((row["method"], row["n_facts"], *micro, *compared, group)))
    micro_columns = (Column(name, Kind.SHARE, "all facts") for name in ("P@1", "P@10", "MRR"))
    columns = (Column("method"), Column("facts", Kind.COUNT), *micro_columns, *COMPARISON.values(), Column("best"))
    notes = (
        "P@1, P@10, and MRR: means over all test facts. Better, worse: test facts that only this method, and only the "
        "method that it is compared with, answers correctly; p: exact two-sided sign test (McNemar's test). Methods "
        "that are learned are compared with their initial prompts, deep prompts with soft prompts, and other methods "
        f"with the manual prompts. Not worse: not significantly worse than the best method (p ≥ {SIGN_TEST_LEVEL}).",
    )
    return Table("comparisons", "Comparisons by test fact", columns, tuple(rows), notes)


def statistics_table(document: Document) -> Table:
    """Tables 7, 8, and 10 of Qin & Eisner (2021), and the numbers in the caption of its Figure 1."""
    keys = ("of", "n", "mean", "sd", "min", "max")
    rows = [Row((row["name"], *(row[key] for key in keys))) for row in document.get("statistics", ())]
    numbers = (Column(name, Kind.NUMBER) for name in ("mean", "sd", "minimum", "maximum"))
    columns = (Column("statistic"), Column("of"), Column("n", Kind.COUNT), *numbers)
    notes = (
        "Facts, subjects, and objects are distinct, before facts are discarded. Words of a prompt include its slots. "
        "Effective prompts: exponential of the entropy of the weights. p(w | v): softmax of the dot products of a "
        "learned vector v and all word embeddings, at the most probable word; p(w0 | v0): the same for the original "
        "word and its embedding; norm ratio: the norm of v divided by that of v0.",
    )
    return Table("statistics", "Facts, prompts, and soft words", columns, tuple(rows), notes)


def type_table(document: Document) -> Table:
    methods = _methods(document, "summary")
    rows = [
        Row((row["type"], row["n_relations"], *(row["p1"].get(method) for method in methods)))
        for row in document["types"]
    ]
    columns = (Column("type"), Column("relations", Kind.COUNT), *(Column(method, Kind.SHARE) for method in methods))
    notes = (
        "Mean P@1 over the relations of a type. N-M: a subject has 1.5 objects or more on average; N-1: an object has "
        "1.5 subjects or more on average; 1-1: all other relations. Types in the relations file take precedence.",
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


def rewrite_table(document: Document) -> Table:
    """Rewritten questions whose answers were wrong before and are correct after rewriting."""
    keys = ("relation", "method", "part", "before", "text")
    rows = [Row(tuple(rewrite.get(key, "") for key in keys)) for rewrite in document.get("rewrites", [])]
    columns = tuple(map(Column, ("relation", "method", "part", "question", "rewrite")))
    notes = ("The first five questions per relation and part with a wrong answer before and a correct one after.",)
    return Table("rewrites", "Rewrites that corrected the answer", columns, tuple(rows), notes)


def part_of_speech_table(document: Document) -> Table:
    """Replaced tokens by part of speech, as shares of all replaced tokens of a method."""
    rows = []
    for row in document["summary"]:
        counts = row.get("parts_of_speech", {})
        total = sum(counts.values())
        ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
        rows += [Row((row["method"], tag, n, n / total)) for tag, n in ordered]
    columns = (Column("method"), Column("tag"), Column("tokens", Kind.COUNT), Column("share", Kind.SHARE))
    notes = ("Tokens of the test questions that the rewriter replaced. Penn Treebank tags of the replaced words.",)
    return Table("parts_of_speech", "Replaced parts of speech", columns, tuple(rows), notes)


def _methods(document: Document, key: str) -> Sequence[str]:
    return [row["method"] for row in document[key]]


TABLES: tuple[Callable[[Document], Table], ...] = (
    summary_table,
    difference_table,
    comparison_table,
    type_table,
    relation_table,
    fact_table,
    statistics_table,
    rewrite_table,
    part_of_speech_table,
)
