"""What rows do not tell of a round, and a report repeats: its rules, its dates, its log. `round.json` of a pack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from annotation.models import Round
from evaluation.evidence.rows import conduct_facts, rules_of_round
from evaluation.paper.files import PackFile
from evaluation.reports.report_sections import sections_of
from kgharvest.audit.tables import canonical_json

PATH = "rows/round.json"
PREREGISTRATION = "preregistration.json"
# Of the block `conduct`: what is repeated. The rest is counted from rows.
REPEATED = ("design", "limits", "training", "exclusions", "imports", "timeline")
REPEATED_OF = {
    "dates": ("created_at", "opened_at", "closed_at"),
    "people": ("n_invited",),
    "gold": ("n_confirmed_by", "confirmed_from", "confirmed_to"),
    "judgments": ("n_skipped", "n_reports"),
    "adjudications": ("n_superseded", "n_blind", "n_experts"),
}


def round_facts(round: Round, document: Mapping[str, Any]) -> dict[str, Any]:
    """document: the frozen report's, which says how it was asked for."""
    facts = conduct_facts(round)
    conduct = {name: facts[name] for name in REPEATED}
    parts = {part: {name: facts[part][name] for name in names} for part, names in REPEATED_OF.items()}
    return {
        **rules_of_round(round),
        "equivalence_margin": document["equivalence_margin"],
        "conduct": conduct | parts,
        **{section.key: section.packed_facts(round, document[section.key]) for section in sections_of(document)},
    }


def preregistration_files(facts: Mapping[str, Any]) -> list[PackFile]:
    """Return what was frozen before the first judgment, as the file whose hash was announced."""
    if not (registered := facts.get("preregistration")):
        return []
    text = canonical_json(registered["document"])
    about = "The preregistration; its SHA-256 is that of this file."
    return [PackFile(PREREGISTRATION, text.encode(), "application/json", about)]


def repeated_paths() -> list[str]:
    """Return the paths in the document of what is repeated, and of novelty, which rests on a file that is not here."""
    of_parts = [f"conduct.{part}.{name}" for part, names in REPEATED_OF.items() for name in names]
    return ["novelty", "preregistration.deviations", *(f"conduct.{name}" for name in REPEATED), *of_parts]
