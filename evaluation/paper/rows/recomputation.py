"""A report made again from the raw rows of a pack alone: no database, no files but these.

Rows may come from anywhere: a number that points nowhere, or is too large to count with, is refused with a sentence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evaluation.evidence.arrays import Conduct
from evaluation.paper.rows.conduct import conduct_of, excluded_judgments_of
from evaluation.paper.rows.evidence import Facts, evidence_of
from evaluation.paper.rows.judges import judge_answers_of, judged_tuples_of
from evaluation.paper.rows.tables import BadPack, PackRows, n_rows
from evaluation.preregistration.plan import planned_sides
from evaluation.preregistration.report_section import preregistration_entry
from evaluation.reports.document import build_document
from kgharvest.audit.tables import canonical_json, sha256
from kgharvest.errors import DomainError

MOST_WANTED = 10_000  # judgments of a statement
MOST_TUPLES = 100_000_000  # of a harvest

# Table and column, the least number that may stand there, and of what there are no more: rows of a table, or the above.
RANGES = (
    ("judgments", "statement", 1, "statements"),
    ("draws", "statement", 1, "statements"),
    ("draws", "stratum", 1, "strata"),
    ("strata", "harvest", 1, "harvests"),
    ("prompts", "harvest", 1, "harvests"),
    ("harvested", "harvest", 1, "harvests"),
    ("judge_answers", "run", 1, "judge_runs"),
    ("statements", "n_wanted", 0, "judgments"),
    ("strata", "rank_from", 1, "tuples"),
    ("strata", "rank_to", 0, "tuples"),
    ("strata", "population", 0, "tuples"),
    ("harvests", "n_tuples", 0, "tuples"),
    ("harvests", "last_rank", 0, "tuples"),
    ("draws", "rank", 1, "tuples"),
    ("harvested", "rank", 1, "tuples"),
)


def recompute(rows: PackRows, facts: Facts) -> dict[str, Any]:
    """Return the document of the report that the rows give. facts: of `round_facts`. Raises BadPack."""
    try:
        _check_references(rows)
        return _document(rows, facts)
    except BadPack:
        raise
    except (DomainError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadPack(f"The rows of this pack make no report ({reason:.150}); were they altered?") from error


def _document(rows: PackRows, facts: Facts) -> dict[str, Any]:
    evidence = evidence_of(rows, facts)
    happened = Conduct(conduct_of(rows, facts, evidence), excluded_judgments_of(rows))
    has_judge = bool(n_rows(rows["judge_runs"]))
    answers = judge_answers_of(rows, evidence) if has_judge else None
    judged = judged_tuples_of(rows, evidence) if has_judge else None
    registered = facts.get("preregistration")
    if registered:
        evidence = replace(evidence, planned=planned_sides(registered["document"]))
    document = build_document(evidence, facts["equivalence_margin"], happened, answers, judged)
    if registered:
        frozen, deviations = registered["document"], registered["deviations"]
        digest = sha256(canonical_json(frozen))
        document["preregistration"] = preregistration_entry(document, frozen, digest, deviations)
    return document


def _check_references(rows: PackRows) -> None:
    """Refuse numbers that point at no row, or that nothing can be counted with."""
    n = {name: n_rows(rows[name]) for name in ("statements", "strata", "harvests", "judge_runs")}
    n_max = {**n, "judgments": MOST_WANTED, "tuples": MOST_TUPLES}
    for table, column, least, most in RANGES:
        for number, value in enumerate(rows[table][column], start=1):
            if value is not None and not least <= value <= n_max[most]:
                raise BadPack(f"rows/{table}.jsonl, line {number}: {column} is {value}, which there is not.")
    for table, column in (("statements", "statement"), ("harvests", "harvest"), ("strata", "stratum")):
        if list(rows[table][column]) != list(range(1, n_rows(rows[table]) + 1)):
            raise BadPack(f"rows/{table}.jsonl: {column} does not count from 1.")
