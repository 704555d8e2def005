"""Preregistration section of reports: the frozen plan, deviations, and outcomes of hypotheses."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from annotation.models import Round
from evaluation.evidence.evidence import Evidence
from evaluation.rendering.documents import Document, lm_and_setting
from evaluation.reports.report_sections import Facts, ReportSection
from evaluation.reports.sections.comparisons import sides_of
from kgharvest.audit.tables import canonical_json, sha256
from kgharvest.contrib.publishing.preregistration.deviations import deviations
from kgharvest.contrib.publishing.preregistration.plan import (
    SIDES,
    TEXTS,
    Expects,
    PlanSerializer,
    planned_sides,
    sides_of_plan,
    whole_hypothesis,
)
from kgharvest.contrib.publishing.preregistration.round_state import state_of, stored_parts
from kgharvest.pages.number_format import counted
from kgharvest.statistics.rates import SIGNIFICANCE
from kgharvest.tables.table import Column, Kind, Row, Table

METHOD = (
    "Preregistration: the comparisons in the frozen document are one family, and all others, which are exploratory, "
    "another; p is adjusted by Holm's method within each family. A hypothesis that one side is more accurate, or that "
    "two sides differ, is supported if the adjusted p of the comparison is below .05 and the difference has the "
    "expected sign, and not supported if the sign is opposite. Equivalence is supported if two one-sided tests at .05 "
    "show a difference within the planned margin, and not supported if the 95 % interval is beyond the margin. "
    "Otherwise the outcome is undecided. Deviations: values of the frozen document that have changed at the report, "
    "exclusions of people before a limit of the round paused them, and a report or end of judging before the closing "
    "rule of the round applied."
)
SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "undecided"
SHA256 = re.compile(r"[0-9a-f]{64}")
NOT_COMPARED = "Not compared: too few shared relations have a verdict."


# Hypotheses


def hypothesis_outcome(hypothesis: Mapping[str, Any], comparisons: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a hypothesis with its outcome. comparison: its number in the report, starting at 1."""
    pair = sides_of_plan(hypothesis)
    numbered = enumerate(comparisons, start=1)
    number, compared = next(((n, entry) for n, entry in numbered if set(sides_of(entry)) == pair), (None, None))
    entry = {key: hypothesis[key] for key in ("words", *SIDES, "expects", "margin")}
    if compared is None:
        nothing = dict.fromkeys(("comparison", "difference", "low", "high", "p_holm", "smallest_margin"))
        return entry | nothing | {"outcome": UNDECIDED, "reason": NOT_COMPARED}
    numbers = {
        **_from_first(compared, tuple(hypothesis["first"].values())),
        "p_holm": compared["p_holm"],
        "smallest_margin": (compared.get("equivalence") or {}).get("smallest_margin"),
    }
    expects = Expects(hypothesis["expects"])
    outcome = _alike(numbers, hypothesis["margin"]) if expects == Expects.ALIKE else _ahead(numbers, expects)
    return entry | {"comparison": number, **numbers, "outcome": outcome, "reason": None}


def _from_first(compared: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, float | None]:
    """Return the difference and its interval with the sign relative to the hypothesis's first side."""
    difference, low, high = (compared[key] for key in ("difference", "low", "high"))
    if sides_of(compared)[0] != first:
        difference, low, high = (None if end is None else 0.0 - end for end in (difference, high, low))
    return {"difference": difference, "low": low, "high": high}


def _ahead(numbers: Mapping[str, Any], expects: Expects) -> str:
    if numbers["p_holm"] is None or numbers["p_holm"] >= SIGNIFICANCE:
        return UNDECIDED
    is_first = numbers["difference"] > 0
    expected = {Expects.FIRST: is_first, Expects.SECOND: not is_first, Expects.DIFFERENT: True}
    return SUPPORTED if expected[expects] else NOT_SUPPORTED


def _alike(numbers: Mapping[str, Any], margin: float) -> str:
    """margin: in percentage points."""
    smallest, low, high, within = numbers["smallest_margin"], numbers["low"], numbers["high"], margin / 100
    if smallest is not None and smallest < within:
        return SUPPORTED
    is_beyond = low is not None and high is not None and (low > within or high < -within)
    return NOT_SUPPORTED if is_beyond else UNDECIDED


# Tables


def preregistration_table(document: Document) -> Table:
    registered = document.get("preregistration")
    rows = tuple(Row(row) for row in _facts(registered) if row[1]) if registered else ()
    notes = ("Times are in UTC. The SHA-256 is that of the preregistration's JSON file, also in the audit log.",)
    return Table("preregistration", "Preregistration", (Column("item"), Column("value")), rows, notes)


def _facts(registered: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    yield "frozen", _minute(registered["frozen_at"])
    yield "first judgment", _minute(registered["first_judgment_at"]) or "none yet"
    yield "version", str(registered["version"])
    yield "SHA-256", registered["sha256"]
    yield "written by", registered["written_by"]
    for name in TEXTS:
        yield str(PlanSerializer().fields[name].label).lower(), registered["plan"][name]
    judges = [f"{run['name']} ({counted(run['n_answers'], 'answer')})" for run in registered["judges_before"]]
    yield "earlier LM judge runs", ", ".join(judges)
    yield "deviations", counted(len(registered["deviations"]), "deviation") if registered["deviations"] else "none"


def _minute(at: str | None) -> str | None:
    return at[:16].replace("T", " ") if at else None


def hypothesis_table(document: Document) -> Table:
    keys = ("difference", "low", "high", "p_holm", "smallest_margin", "reason")
    entries = (document.get("preregistration") or {}).get("hypotheses", [])
    columns = (
        Column("hypothesis"), Column("outcome"), Column("first, second"), Column("difference", Kind.POINTS),
        Column("low", Kind.POINTS), Column("high", Kind.POINTS), Column("p (Holm)", Kind.P),
        Column("equivalence bound", Kind.POINTS), Column("reason"),
    )  # fmt: skip
    notes = ("difference: first minus second; p adjusted over planned comparisons.",)
    rows = tuple(
        Row((whole_hypothesis(entry), entry["outcome"], sides, *(entry[key] for key in keys)))
        for entry in entries
        for sides in [", ".join(lm_and_setting(entry[side]) for side in SIDES)]
    )
    return Table("hypotheses", "Hypotheses", columns, rows, notes)


def deviation_table(document: Document) -> Table:
    entries = (document.get("preregistration") or {}).get("deviations", [])
    rows = tuple(Row((entry["path"], _short(entry["planned"]), _short(entry["actual"]))) for entry in entries)
    columns = (Column("item"), Column("planned"), Column("actual"))
    has_hash = any(_short(entry[side]) != entry[side] for entry in entries for side in ("planned", "actual"))
    notes = ("Hashes are shortened to 16 characters; the JSON file contains the full hashes.",) if has_hash else ()
    return Table("deviations", "Deviations from the preregistration", columns, rows, notes)


def _short(text: str | None) -> str | None:
    return f"{text[:16]}…" if text and SHA256.fullmatch(text) else text


def in_a_badge(day: str, n_deviations: int | None = None) -> str:
    """Return the text of the badge. n_deviations: None without a report."""
    if n_deviations is None:
        return f"Preregistered {day}"
    return f"Preregistered {day}, {counted(n_deviations, 'deviation') if n_deviations else 'no deviations'}"


class PreregistrationSection(ReportSection):
    """The last preregistration of the round: deviations from it, and outcomes of its hypotheses.

    Facts from the database: `document` (frozen) and `state` (of the round at the report). Facts in a package:
    `document` and `deviations`.
    """

    key = "preregistration"
    title = "Preregistration"
    template = "publishing/preregistration/_report_section.html"
    method = METHOD
    tables = (preregistration_table, hypothesis_table, deviation_table)

    def gather(self, round: Round) -> Facts | None:
        frozen = round.preregistrations.order_by("-version").first()
        return frozen and {"document": frozen.document, "state": state_of(stored_parts(round))}

    def packed_facts(self, round: Round, entry: Mapping[str, Any]) -> Facts:
        frozen = round.preregistrations.get(version=entry["version"])
        return {"document": frozen.document, "deviations": entry["deviations"]}

    def prepared(self, evidence: Evidence, facts: Facts) -> Evidence:
        return replace(evidence, planned=planned_sides(facts["document"]))

    def entry(self, document: Document, facts: Facts) -> dict[str, Any]:
        planned, entries = facts["document"], facts.get("deviations")
        if entries is None:
            entries = [entry._asdict() for entry in deviations(planned, facts["state"], document["conduct"])]
        return {
            "version": planned["version"],
            "sha256": sha256(canonical_json(planned)),
            "frozen_at": planned["frozen_at"],
            "first_judgment_at": document["conduct"]["dates"]["first_judgment_at"],
            "written_by": planned["written_by"],
            "plan": planned["plan"],
            "judges_before": planned["judges_before"],
            "hypotheses": [
                hypothesis_outcome(entry, document["comparisons"]) for entry in planned["plan"]["hypotheses"]
            ],
            "deviations": list(entries),
        }

    def headline(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        return {"n_deviations": len(entry["deviations"])}

    def badge(self, entry: Mapping[str, Any]) -> str:
        return in_a_badge(entry["frozen_at"][:10], len(entry["deviations"]))


SECTION = PreregistrationSection()
