"""Agreement of annotators over all statements, per relation, and per LM and setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evaluation.evidence.evidence import Evidence
from evaluation.rendering.documents import Document, about_side, lm_and_setting
from kgharvest.statistics.agreement import (
    N_DRAWS,
    annotators_interval,
    expected_flips,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    percent_agreement,
)
from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE, UNJUDGEABLE, Codes
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD = (
    "Agreement: Krippendorff's alpha, nominal, over statements with two or more judgments; Gwet's AC1 (2008), with the "
    "shares of labels over all statements judged. Their intervals, for statements like these and the same people: 2.5 "
    "and 97.5 % quantiles, of few statements farther out as Student's t is (Hesterberg 2015), of 5,000 draws, 1,000 "
    "for a part of the statements, of the Bayesian bootstrap (Rubin 1981) over all patterns that the judgments of a "
    "statement could show. Alpha's for annotators like these, too: each arm added in squares to that of two-way "
    "clustering by annotator (Cameron, Gelbach and Miller 2011). Percent agreement is the share of agreeing pairs of "
    "judgments. Fleiss' kappa: over all statements, where each has the same number of judgments. Verdict stability: "
    "panels as large as most here, with propensities to be called True fitted by EM on a grid; interval: from "
    "polynomials below and above what any propensity flips."
)
N_DRAWS_OF_PARTS = 1000
AC1 = "Gwet's AC1"
OTHER_PEOPLE = "annotators like these"
HELD_FIXED = f"low, high: for statements like these, judged by the same people; {OTHER_PEOPLE}: for other people, too."
PARADOX = (
    "Where nearly all statements are true, alpha is low however much people agree (the prevalence paradox), because "
    "most agreement is then expected by chance; Gwet's AC1 is not."
)
NO_VERDICT = "No statement has a verdict."
MOSTLY_ALONE = "Most statements have fewer than two judgments, so nothing tells how panels differ."
ALL_OR_NONE = "Either no statement is accepted or every one, which does not tell how often panels differ."


def agreement_entries(evidence: Evidence) -> dict[str, Any]:
    every_task, patterns = np.arange(evidence.n_tasks), evidence.first_two.patterns
    # Without Unjudgeable, its judgments pair with nothing.
    without_unjudgeable = _alpha_entry(
        evidence, every_task, patterns.counts[:, :UNJUDGEABLE], patterns.n_tasks, N_DRAWS
    )
    return _coefficients(evidence, every_task, N_DRAWS) | {"alpha_without_unjudgeable": without_unjudgeable}


def agreement_part_entries(evidence: Evidence) -> list[dict[str, Any]]:
    """Return one entry per relation, then one per LM and setting; a statement counts once in each that drew it."""
    relations = sorted({cell.relation for cell in evidence.cells})
    number_of = {relation: number for number, relation in enumerate(relations)}
    relation_of_cell = np.array([number_of[cell.relation] for cell in evidence.cells], dtype=np.int64)
    of_relations = _tasks_by(evidence, relation_of_cell, len(relations))
    of_sides = _tasks_by(evidence, evidence.side_of_cell, len(evidence.sides))
    parts: list[tuple[str, str | None, str | None, str | None, Codes]] = [
        ("relation", relation, None, None, tasks) for relation, tasks in zip(relations, of_relations, strict=True)
    ]
    parts += [("side", None, *side, tasks) for side, tasks in zip(evidence.sides, of_sides, strict=True)]
    return [
        {
            "by": by,
            "relation": relation,
            "model": model,
            "setting": setting,
            "n_tasks": len(tasks),
            "n_judgments": int(evidence.counts[tasks].sum()),
            **_coefficients(evidence, tasks, N_DRAWS_OF_PARTS),
        }
        for by, relation, model, setting, tasks in parts
    ]


def _tasks_by(evidence: Evidence, group_of_cell: Codes, n_groups: int) -> list[Codes]:
    """Return the statements of each group of cells, each once."""
    group = group_of_cell[evidence.cell_of_draw]  # (D,)
    pairs = np.unique(group * evidence.n_tasks + evidence.draws.task)
    edges = np.searchsorted(pairs, np.arange(1, n_groups) * evidence.n_tasks)
    return (
        [part % evidence.n_tasks for part in np.split(pairs, edges)][:n_groups]
        if evidence.n_tasks
        else [pairs] * n_groups
    )


def _coefficients(evidence: Evidence, tasks: Codes, n_draws: int) -> dict[str, Any]:
    patterns = evidence.first_two.patterns  # (P, 3): judgments by label
    counts, n_tasks = patterns.counts, np.bincount(patterns.of_task[tasks], minlength=len(patterns.counts))
    return {
        "alpha": _alpha_entry(evidence, tasks, counts, n_tasks, n_draws),
        "gwet_ac1": gwet_ac1(counts, n_tasks, np.random.default_rng(evidence.seed), n_draws)._asdict(),
        "percent_agreement": percent_agreement(counts, n_tasks),
        "fleiss_kappa": fleiss_kappa(counts, n_tasks)._asdict(),
        "verdict_stability": _stability(evidence, tasks, counts, n_tasks, n_draws),
    }


def _alpha_entry(evidence: Evidence, tasks: Codes, counts: Codes, n_tasks: Codes, n_draws: int) -> dict[str, Any]:
    """Return alpha of these statements. counts (P, C), n_tasks (P,): patterns of their labels, C of them."""
    alpha = krippendorff_alpha(counts, n_tasks, np.random.default_rng(evidence.seed), n_draws)
    is_in_part = np.zeros(evidence.n_tasks, dtype=np.bool_)
    is_in_part[tasks] = True
    judgments = evidence.first_two.judgments
    counted = is_in_part[judgments.task] & (judgments.label < counts.shape[1])
    interval = annotators_interval(alpha, *(column[counted] for column in judgments[:3]))
    return alpha._asdict() | {"annotators": interval._asdict()}


def _stability(evidence: Evidence, tasks: Codes, counts: Codes, n_tasks: Codes, n_draws: int) -> dict[str, Any]:
    """Return how many of the verdicts of these statements a fresh panel would overturn (docs/report-json.md)."""
    verdicts = evidence.verdict[tasks]
    n_complete = int(np.count_nonzero(verdicts != INCOMPLETE))
    n_accepted = int(np.count_nonzero(verdicts == ACCEPTED))
    if n_accepted in (0, n_complete):
        reason = ALL_OR_NONE if n_complete else NO_VERDICT
        return {"k": None, "flips": None, "low": None, "high": None, "reason": reason}
    usual = int(np.bincount(counts.sum(axis=1), n_tasks)[1:].argmax()) + 1
    if usual < 2:
        return {"k": None, "flips": None, "low": None, "high": None, "reason": MOSTLY_ALONE}
    k = evidence.judgments_per_task if evidence.has_thirds else usual  # two alike decide as three would
    is_usual = counts.sum(axis=1) == usual
    by_n_true = np.bincount(counts[is_usual, 0], n_tasks[is_usual], minlength=usual + 1).astype(np.int64)
    flips = expected_flips(by_n_true, k, np.random.default_rng(evidence.seed), n_draws)
    return {"k": k, "flips": flips.value, "low": flips.low, "high": flips.high, "reason": None}


AGREEMENT_COLUMNS = (
    *of_kind(Kind.COEFFICIENT, "value", "low", "high"),
    *of_kind(Kind.COEFFICIENT, "low", "high", group=OTHER_PEOPLE),
    Column("statements", Kind.COUNT),
    Column("why not"),
)


def agreement_table(document: Document) -> Table:
    coefficients = {
        "Krippendorff's alpha": document["alpha"],
        "Krippendorff's alpha without Unjudgeable": document["alpha_without_unjudgeable"],
        AC1: document.get("gwet_ac1"),  # absent from reports made before it was computed
    }
    rows = [Row(_agreement_values(name, entry), about={}) for name, entry in coefficients.items() if entry is not None]
    kappa = document.get("fleiss_kappa", {"value": None, "reason": None})
    percent = document["percent_agreement"]
    # All three rest on the statements with two judgments or more.
    n_units = document["alpha"]["n_units"]
    why_not = document["alpha"]["reason"] if percent is None else None
    rows.append(Row(_agreement_values("Fleiss' kappa", {"n_units": n_units, **kappa}), about={}))
    percent_entry = {"value": percent, "n_units": n_units, "reason": why_not}
    rows.append(Row(_agreement_values("percent agreement", percent_entry), about={}))
    if stability := document.get("verdict_stability"):
        entry = stability | {"value": stability["flips"]}
        rows.append(Row(_agreement_values("verdicts that a fresh panel would change", entry), about={}))
    notes = (HELD_FIXED, PARADOX) if "gwet_ac1" in document else ()
    return Table("agreement", "Agreement", (Column("measure"), *AGREEMENT_COLUMNS), tuple(rows), notes)


def _agreement_values(name: str, entry: Mapping[str, Any]) -> tuple[Any, ...]:
    annotators = entry.get("annotators") or {}  # absent from reports made before there was this interval
    intervals = (part.get(end) for part in (entry, annotators) for end in ("low", "high"))
    why_not = entry["reason"] or annotators.get("reason")
    return (name, entry["value"], *intervals, entry.get("n_units"), why_not)


def agreement_parts_table(document: Document) -> Table:
    rows = [
        Row((
            part["relation"] if part["by"] == "relation" else lm_and_setting(part),
            *(part["alpha"][key] for key in ("value", "low", "high")),
            *((part.get("gwet_ac1") or {}).get(key) for key in ("value", "low", "high")),
            part["percent_agreement"],
            (part.get("verdict_stability") or {}).get("flips"),
            part["n_tasks"],
            part["n_judgments"],
        ), about=about_side(part) | {"relation": part.get("relation")})
        for part in document.get("agreement", [])
    ]  # fmt: skip
    columns = (
        Column("relation, or LM and setting"),
        *of_kind(Kind.COEFFICIENT, "alpha", "low", "high", "AC1", "AC1 low", "AC1 high"),
        *of_kind(Kind.SHARE, "percent agreement", "would change"),
        *of_kind(Kind.COUNT, "statements", "judgments"),
    )
    notes = ("would change: verdicts that a fresh panel of the same size is expected to change.",)
    return Table("agreement-parts", "Agreement per relation and per LM and setting", columns, tuple(rows), notes)
