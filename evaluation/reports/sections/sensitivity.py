"""Sensitivity: accuracies, ranks, and comparisons under other verdict rules and without each annotator."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.evidence import (
    DrawnVerdicts,
    Evidence,
    accuracies_of,
    changed_patterns,
    drawn_verdicts,
    patterns_of,
    statement_comparisons,
)
from evaluation.rendering.documents import Document, about_side, lm_and_setting, name_of
from evaluation.reports.sections.annotators import DAWID_SKENE, TITLE, FittedModel
from evaluation.reports.sections.comparisons import ComparedRules, common_about, common_of, compare_rules, pair_entry
from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE, LABELS, VERDICTS, Codes, Floats
from kgharvest.statistics.paired_tests import Pair
from kgharvest.statistics.rates import SIGNIFICANCE, VerdictSample
from kgharvest.statistics.statement_test import StatementDifference
from kgharvest.statistics.verdicts import CompletedVerdicts, unanimous, unjudgeable_as_false
from kgharvest.tables.table import Column, Kind, Marked, Row, Table, of_kind

FEWEST_ANNOTATORS = 2


class WithoutAnnotator(NamedTuple):
    """Results of a round without the judgments of one annotator.

    As after an exclusion, these judgments count as missing.

    counts (4,): number of statements by verdict, in the order of VERDICTS. Statements with a verdict that is no longer
    certain are INCOMPLETE. n_changed: expected number of changed verdicts. accuracy (C,): accuracies of cells, NaN if
    undefined. drawn: function that computes the drawn verdicts. A call takes as long as for the whole round.
    """

    annotator: str
    counts: Codes
    n_changed: float
    accuracy: Floats
    drawn: Callable[[], DrawnVerdicts]


def without_each_annotator(evidence: Evidence) -> Iterator[WithoutAnnotator]:
    """Yield the results without each annotator in turn. Yield nothing if there is only one annotator.

    Statements are counted once by pattern, verdict, and stratum. Omitting an annotator changes few of these counts.
    Therefore, updating the counts for each of hundreds of annotators takes little more time than counting once.
    """
    if len(evidence.annotators) < FEWEST_ANNOTATORS:
        return

    def drawn_without(tasks: Codes, labels: Codes) -> DrawnVerdicts:
        counts = evidence.counts.copy()
        counts[tasks, labels] -= 1
        return drawn_verdicts(evidence, patterns_of(counts, evidence.wanted))

    draws, old, is_complete = evidence.draws, evidence.patterns, evidence.is_complete
    n_patterns = len(old.counts)
    verdicts_of = _count_pairs(evidence.verdict[is_complete], old.of_task[is_complete], (len(LABELS), n_patterns))
    drawn_of = _count_pairs(draws.stratum, old.of_task[draws.task], (len(evidence.strata), n_patterns))
    order = np.argsort(evidence.judgments.annotator, kind="stable")
    edges = np.searchsorted(evidence.judgments.annotator[order], np.arange(1, len(evidence.annotators)))
    for annotator, numbers in zip(evidence.annotators, np.split(order, edges), strict=True):
        tasks, labels = evidence.judgments.task[numbers], evidence.judgments.label[numbers]  # one judgment per task
        counts = evidence.counts[tasks] - np.eye(len(LABELS), dtype=np.int64)[labels]
        new, renumbered = changed_patterns(old, tasks, counts, evidence.wanted[tasks])
        complete = is_complete[tasks]
        moves = evidence.verdict[tasks][complete], old.of_task[tasks][complete], new.of_task[complete]
        n_of_pattern = _moved(verdicts_of, renumbered, len(new.counts), moves).T  # (P, 3): complete statements
        position = np.full(evidence.n_tasks, -1)
        position[tasks] = np.arange(len(tasks))
        changed = np.flatnonzero(position[draws.task] >= 0)
        moves = draws.stratum[changed], old.of_task[draws.task[changed]], new.of_task[position[draws.task[changed]]]
        drawn = _moved(drawn_of, renumbered, len(new.counts), moves)  # (S, P): draws
        whole = CompletedVerdicts(new.counts, new.wanted, n_of_pattern.sum(axis=1)[None], evidence.quorum)
        in_strata = CompletedVerdicts(new.counts, new.wanted, drawn, evidence.quorum)
        certain = (whole.certain * n_of_pattern.sum(axis=1)[:, None]).sum(axis=0).astype(np.int64)
        yield WithoutAnnotator(
            annotator,
            np.append(certain, evidence.n_tasks - certain.sum()),
            float((n_of_pattern * (1 - whole.probability[0])).sum()),
            accuracies_of(evidence, in_strata.shares(ACCEPTED)),
            partial(drawn_without, tasks, labels),
        )


def _count_pairs(rows: Codes, columns: Codes, shape: tuple[int, int]) -> Codes:
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)


def _moved(table: Codes, renumbered: Codes, n_columns: int, moves: tuple[Codes, Codes, Codes]) -> Codes:
    """Return `table` after moving one count per entry of `moves` (row, old column, new column).

    renumbered: new number of each old column, or a negative number for columns that disappear.
    """
    rows, before, after = moves
    stay = table - _count_pairs(rows, before, table.shape)
    moved = _count_pairs(rows, after, (len(table), n_columns))
    moved[:, renumbered[renumbered >= 0]] += stay[:, renumbered >= 0]
    return moved


CLAIMS = "±: the sign changes. !: the significance changes (Holm-adjusted p, level .05)."


def sensitivity_part(document: Document, name: str) -> list[Mapping[str, Any]]:
    entries: list[Mapping[str, Any]] = (document.get("sensitivity") or {}).get(name, [])
    return entries


NO_ANNOTATOR_OMITTED = {
    **dict.fromkeys(("macro_accuracy", "rank", "difference", "p_holm"), ()),
    **dict.fromkeys(("changes", "sign_changes", "significance_changes"), ()),
    **dict.fromkeys(("low", "high", "n_changes")),
}


def without_one(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of an entry with the results without each annotator.

    The result is empty for old documents, which list omitted annotators among the rules.
    """
    without: Mapping[str, Any] = entry.get("left_out", NO_ANNOTATOR_OMITTED)
    return without


def marked_ranks(total: Mapping[str, Any]) -> Iterable[float | Marked | None]:
    moved = set(total["changes"])
    for position, (value, rank) in enumerate(zip(total["macro_accuracy"], total["rank"], strict=True)):
        yield Marked(value, f"({rank})") if position in moved else value


def leave_one_out_table(document: Document) -> Table:
    """Return a table with a row per annotator: changed verdicts and accuracies without this annotator."""
    totals = [{**total, **without_one(total)} for total in sensitivity_part(document, "totals")]
    accuracies = zip(*(marked_ranks(total) for total in totals), strict=True)
    rows = [
        Row((entry["annotator"], entry["n_changed"], entry["n"], *values), about={"annotator": entry["annotator"]})
        for entry, values in zip(sensitivity_part(document, "left_out"), accuracies, strict=False)
    ]
    columns = (
        Column("excluded annotator"),
        Column("changed verdicts", Kind.NUMBER),
        Column("with a verdict", Kind.COUNT),
        *(Column(name_of(total["setting"]), Kind.SHARE, name_of(total["model"])) for total in totals),
    )
    notes = (
        "changed verdicts: expected number of statements whose verdict changes without this annotator, given their "
        "other labels. with a verdict: number of statements that the other labels decide. Accuracy: mean over "
        "relations; in parentheses: changed rank in this sample. See Ranks for rank intervals.",
    )
    return Table("left-out", "Accuracy without each annotator", columns, tuple(rows), notes)


def leave_one_out_comparison_table(document: Document) -> Table:
    """Return the table of comparisons whose sign or significance changes without one annotator."""
    codes = [entry["annotator"] for entry in sensitivity_part(document, "left_out")]
    rows = []
    for comparison in sensitivity_part(document, "comparisons"):
        without = without_one(comparison)
        differences = list(marked_differences(without))
        for position in sorted({*without["sign_changes"], *without["significance_changes"]}):
            values = contrast_of(comparison), codes[position], differences[position], without["p_holm"][position]
            rows.append(Row(values, about={"annotator": codes[position]}))
    columns = (Column("comparison"), Column("without"), Column("difference", Kind.POINTS), Column("p (Holm)", Kind.P))
    title = "Comparisons that change without one annotator"
    return Table("left-out-comparisons", title, columns, tuple(rows), (CLAIMS,))


def contrast_of(comparison: Mapping[str, Any]) -> str:
    return f"{common_of(comparison)}: {comparison['a']} − {comparison['b']}"


def marked_differences(claims: Mapping[str, Any]) -> Iterable[float | Marked | None]:
    for position, difference in enumerate(claims["difference"]):
        changes = {"±": claims["sign_changes"], "!": claims["significance_changes"]}
        mark = " ".join(mark for mark, positions in changes.items() if position in positions)
        yield Marked(difference, mark) if mark else difference


# Rules that decide by label counts, in addition to the report's majority rule.
COUNTING_RULES = (
    ("unanimous", "Unanimous", unanimous),
    ("unjudgeable_as_false", "Unjudgeable as False", unjudgeable_as_false),
)


class AppliedRule(NamedTuple):
    """A verdict rule, the resulting verdicts (T,), and the evidence for the verdict ACCEPTED, by draw (D,).

    Statements that are INCOMPLETE in the report remain INCOMPLETE. Verdicts and evidence are None if the rule cannot be
    applied; `reason` says why.
    """

    rule: str
    title: str
    verdict: Codes | None
    accepted: VerdictSample | None
    reason: str | None = None


def sensitivity_entry(evidence: Evidence, drawn: DrawnVerdicts, model: FittedModel) -> dict[str, Any]:
    rules = list(_rules(evidence, drawn, model))
    left_out = list(without_each_annotator(evidence))
    accuracies = []  # accuracies of cells (C,), NaN if undefined
    for rule in rules:
        if rule.accepted is None:
            accuracies.append(np.full(len(evidence.cells), np.nan))
            continue
        sample = rule.accepted.summed(evidence.draws.stratum, len(evidence.strata))
        with np.errstate(invalid="ignore"):
            accuracies.append(accuracies_of(evidence, sample.n_hits / sample.n))
    table = np.array([*accuracies, *(without.accuracy for without in left_out)])

    def by_statements(pair: Pair, number: int) -> StatementDifference | None:
        if number >= len(rules):
            return compare_statements(pair.a, pair.b, left_out[number - len(rules)].drawn().accepted)
        accepted = rules[number].accepted
        return None if accepted is None else compare_statements(pair.a, pair.b, accepted)

    comparisons = []
    if len(evidence.sides) > 1:
        compare_statements = statement_comparisons(evidence)
        comparisons = compare_rules(evidence.cells, table, evidence.seed, by_statements, evidence.planned)
    return {
        "rules": [
            {
                "rule": rule.rule,
                "title": rule.title,
                **(
                    dict.fromkeys(("n", *VERDICTS[:INCOMPLETE]))
                    if rule.verdict is None
                    else _numbers_of(np.bincount(rule.verdict, minlength=len(VERDICTS)))
                ),
                "reason": rule.reason,
            }
            for rule in rules
        ],
        "left_out": [
            {"annotator": without.annotator, **_numbers_of(without.counts), "n_changed": without.n_changed}
            for without in left_out
        ],
        "cells": list(_cell_entries(evidence, table, len(rules))),
        "totals": list(_total_entries(evidence, table, len(rules))),
        "comparisons": [
            pair_entry(compared.pair)
            | _claims(compared, slice(len(rules)))
            | {"left_out": _claims(compared, slice(len(rules), None))}
            for compared in comparisons
        ],
    }


def _rules(evidence: Evidence, drawn: DrawnVerdicts, model: FittedModel) -> Iterator[AppliedRule]:
    """Yield the rules, starting with the majority rule of the report."""
    majority = drawn.accepted
    yield AppliedRule("majority", "Majority", evidence.verdict, majority)
    # With tie-breaking third judgments, two equal labels complete a statement, so the rules use its current labels.
    required = np.where(evidence.is_complete, evidence.counts.sum(axis=1), evidence.wanted)
    patterns = patterns_of(evidence.counts, required)
    for name, title, rule in COUNTING_RULES:
        verdict = np.where(evidence.is_complete, rule(evidence.counts, evidence.quorum), INCOMPLETE)
        yield AppliedRule(name, title, verdict, drawn_verdicts(evidence, patterns, rule).accepted)
    if model.verdict is None:
        yield AppliedRule(DAWID_SKENE, TITLE, None, None, model.reason)
    else:
        has_labels = (evidence.counts.sum(axis=1) > 0)[evidence.draws.task]
        accepted = has_labels & (model.verdict[evidence.draws.task] == ACCEPTED)
        verdict = np.where(evidence.is_complete, model.verdict, INCOMPLETE)
        yield AppliedRule(DAWID_SKENE, TITLE, verdict, VerdictSample.of_complete(has_labels, accepted))
    by_expert = np.where(evidence.is_complete, evidence.adjudicated, INCOMPLETE)
    if (by_expert != INCOMPLETE).any():
        # This rule uses the expert's verdict if there is one, otherwise the majority verdict.
        verdict = np.where(by_expert == INCOMPLETE, evidence.verdict, by_expert)
        has_none, is_accepted = ((by_expert == code)[evidence.draws.task] for code in (INCOMPLETE, ACCEPTED))
        columns = (np.where(has_none, column, is_accepted) for column in majority[1:])
        sample = VerdictSample(np.where(has_none, majority.n, 1), *columns)
        yield AppliedRule("adjudicated", "Adjudicated", verdict, sample)


def _numbers_of(counts: Codes) -> dict[str, int]:
    numbers = dict(zip(VERDICTS[:INCOMPLETE], counts[:INCOMPLETE].tolist(), strict=True))
    return {"n": sum(numbers.values()), **numbers}


def _cell_entries(evidence: Evidence, table: Floats, n_rules: int) -> Iterator[dict[str, Any]]:
    """Yield an entry per cell.

    table (R + A, C): accuracies under each rule, followed by accuracies without each annotator. An entry contains the
    accuracy under every rule, but only a summary of the accuracies without each annotator.
    """
    relations = np.array([cell.relation for cell in evidence.cells], dtype=object)
    ranks = np.full(table.shape, np.nan)
    for relation in dict.fromkeys(relations.tolist()):
        columns = np.flatnonzero(relations == relation)
        ranks[:, columns] = _ranks(table[:, columns])
    for number, key in enumerate(evidence.cells):
        values, cell_ranks = table[:, number], ranks[:, number]
        accuracies = values[n_rules:][~np.isnan(values[n_rules:])]
        low, high = (float(accuracies.min()), float(accuracies.max())) if len(accuracies) else (None, None)
        yield {
            **key._asdict(),
            "accuracy": _numbers(values[:n_rules]),
            **_ranking(values, cell_ranks, slice(n_rules)),
            "left_out": {
                "low": low,
                "high": high,
                "n_changes": len(_ranking(values, cell_ranks, slice(n_rules, None))["changes"]),
            },
        }


def _total_entries(evidence: Evidence, table: Floats, n_rules: int) -> Iterator[dict[str, Any]]:
    averages = np.full((len(table), len(evidence.sides)), np.nan)
    for side in range(len(evidence.sides)):
        of_side = table[:, evidence.side_of_cell == side]
        n = np.count_nonzero(~np.isnan(of_side), axis=1)
        np.divide(np.nansum(of_side, axis=1), n, out=averages[:, side], where=n > 0)
    ranks = _ranks(averages) if averages.size else averages
    for number, (model, setting) in enumerate(evidence.sides):
        values, side_ranks = averages[:, number], ranks[:, number]
        of_rules, of_annotators = (
            {"macro_accuracy": _numbers(values[part]), **_ranking(values, side_ranks, part)}
            for part in (slice(n_rules), slice(n_rules, None))
        )
        yield {"model": model, "setting": setting, **of_rules, "left_out": of_annotators}


def _ranks(table: Floats) -> Floats:
    """Return the rank of each value in its row, 1 for the largest. Ties share the better rank; NaN stays NaN."""
    is_above = table[:, np.newaxis, :] > table[:, :, np.newaxis] + 1e-9  # (R, n, n)
    return np.where(np.isnan(table), np.nan, 1 + is_above.sum(axis=2))


def _ranking(values: Floats, ranks: Floats, part: slice) -> dict[str, Any]:
    """Return the ranks in `part` of the rows, and the positions in `part` at which the rank differs from row 0."""
    is_known = ~np.isnan(values) & ~np.isnan(values[0])
    changes = np.flatnonzero((is_known & (ranks != ranks[0]))[part])
    return {"rank": [None if np.isnan(rank) else int(rank) for rank in ranks[part]], "changes": changes.tolist()}


def _numbers(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def _claims(compared: ComparedRules, part: slice) -> dict[str, Any]:
    """Return a comparison under `part` of the rules. Values are None under rules that leave too few relations."""
    difference, p = compared.difference, compared.p_holm
    is_known = ~np.isnan(difference)
    sign_changes = is_known & (np.sign(difference) != np.sign(difference[0]))
    significance_changes = is_known & ((p < SIGNIFICANCE) != (p[0] < SIGNIFICANCE))
    return {
        "difference": _numbers(difference[part]),
        "p_holm": _numbers(p[part]),
        "sign_changes": np.flatnonzero(sign_changes[part]).tolist(),
        "significance_changes": np.flatnonzero(significance_changes[part]).tolist(),
    }


WITHOUT_ONE = "without one annotator"


def _rule_columns(document: Document, kind: Kind) -> list[Column]:
    return [Column(rule["title"], kind) for rule in sensitivity_part(document, "rules")]


def rule_table(document: Document) -> Table:
    rows = [
        Row((rule["title"], *(rule[key] for key in ("n", "accepted", "rejected", "undecided", "reason"))))
        for rule in sensitivity_part(document, "rules")
    ]
    counts = (Column(name, Kind.COUNT) for name in ("with a verdict", "accepted", "rejected", "undecided"))
    columns = (Column("rule"), *counts, Column("reason"))
    return Table("rules", "Verdicts under other rules", columns, tuple(rows), tuple(_adjudicated(document)))


def _adjudicated(document: Document) -> Iterable[str]:
    if n := document.get("n_adjudicated"):
        yield f"Adjudicated: experts decided {n:,} of {document['n_complete']:,} statements."


def sensitivity_table(document: Document) -> Table:
    """Return the table of average accuracies of LMs and settings under every rule, with changed ranks."""
    rows = []
    for total in sensitivity_part(document, "totals"):
        without = without_one(total)
        n_changes = len(without["changes"]) if without["rank"] else None
        values = (lm_and_setting(total), *marked_ranks(total), *_range(without["macro_accuracy"]), n_changes)
        rows.append(Row(values, about=about_side(total)))
    columns = (
        Column("LM and setting"),
        *_rule_columns(document, Kind.SHARE),
        *of_kind(Kind.SHARE, "lowest", "highest", group=WITHOUT_ONE),
        Column("rank changes", Kind.COUNT, WITHOUT_ONE),
    )
    notes = (
        "Accuracy: mean over relations. In parentheses: changed rank in this sample. See Ranks for rank intervals.",
        *_adjudicated(document),
        *_leave_one_out_notes(document),
    )
    return Table("sensitivity", "Accuracy under other rules", columns, tuple(rows), notes)


def _range(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    defined = [value for value in values if value is not None]
    return (min(defined), max(defined)) if defined else (None, None)


def _leave_one_out_notes(document: Document) -> Iterable[str]:
    if n := len(sensitivity_part(document, "left_out")):
        yield (
            f"Without one annotator: each of the {n:,} annotators is omitted in turn. Lowest and highest accuracy, and "
            "the number of annotators whose omission changes the rank."
        )
        yield (
            "Statements that the omitted annotator judged contribute the probability of each verdict given their other "
            "labels, as they would if the annotator were excluded."
        )
    elif len(document["annotators"]) == 1:
        yield "A single annotator cannot be omitted: no judgments would remain."


def sensitive_cell_table(document: Document) -> Table:
    rows = []
    for cell in sensitivity_part(document, "cells"):
        low, high, n_changes = (without_one(cell)[key] for key in ("low", "high", "n_changes"))
        names = cell["relation"], name_of(cell["model"]), name_of(cell["setting"])
        extremes = low, high, None if low is None else n_changes
        about = about_side(cell) | {"relation": cell["relation"]}
        rows.append(Row((*names, *cell["accuracy"], *extremes, len(cell["changes"])), about=about))
    columns = (
        *map(Column, ("relation", "LM", "setting")),
        *_rule_columns(document, Kind.SHARE),
        *of_kind(Kind.SHARE, "lowest", "highest", group=WITHOUT_ONE),
        Column("rank changes", Kind.COUNT, WITHOUT_ONE),
        Column("rules that change the rank", Kind.COUNT),
    )
    return Table("sensitivity-cells", "Every cell under other rules", columns, tuple(rows))


def sensitive_comparison_table(document: Document) -> Table:
    rows = []
    for comparison in sensitivity_part(document, "comparisons"):
        without = without_one(comparison)
        n_changes = [len(without[key]) for key in ("sign_changes", "significance_changes")]
        extremes = *_range(without["difference"]), *(n_changes if without["difference"] else (None, None))
        values = (contrast_of(comparison), *marked_differences(comparison), *extremes)
        rows.append(Row(values, about=common_about(comparison)))
    columns = (
        Column("comparison"),
        *_rule_columns(document, Kind.POINTS),
        *of_kind(Kind.POINTS, "lowest", "highest", group=WITHOUT_ONE),
        *of_kind(Kind.COUNT, "±", "!", group=WITHOUT_ONE),
    )
    notes = [f"Difference in percentage points, first minus second. {CLAIMS}"]
    if sensitivity_part(document, "left_out"):
        notes.append(
            "Without one annotator: lowest and highest difference, and the number of annotators whose omission "
            "changes the sign or the significance."
        )
    return Table("sensitivity-comparisons", "Comparisons under other rules", columns, tuple(rows), tuple(notes))
