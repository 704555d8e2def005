"""ConceptNet's assertions as facts for score evaluations, filtered as in BertNet (Appendix B)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

from kgharvest.bulk.file_reading import read_lines
from kgharvest.bulk.file_values import entities_error
from kgharvest.errors import BadEntry, ImportRefused

LANGUAGE = "/c/en/"
SHAPE = "is not an assertion of ConceptNet: URI, relation, start, end, and JSON with a weight, separated by tabs"
# Linguistic and trivial relations. The appendix names two examples: EtymologicallyDerivedFrom and RelatedTo.
EXCLUDED = frozenset(
    {
        *("RelatedTo", "SimilarTo", "Synonym", "ExternalURL"),
        *("FormOf", "DerivedFrom", "EtymologicallyDerivedFrom", "EtymologicallyRelatedTo"),
    }
)
# Relations of the set kgharvest-commonsense with names other than those of ConceptNet
OTHER_NAMES = {
    "NotDesires": "does_not_want",
    "PartOf": "component_of",
    "IsA": "kind_of",
    "MadeOf": "made_out_of",
    "HasFirstSubevent": "begins_with",
    "HasLastSubevent": "ends_with",
    "HasSubevent": "involves",
    "MotivatedByGoal": "motivated_by",
    "ObstructedBy": "hindered_by",
}


def filtered_facts(
    path: Path,
    names: Collection[str],
    min_weight: float = 1.0,
    min_facts: int = 1000,
    per_relation: int | None = None,
    seed: int = 0,
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return the English facts of the relations in `names` that pass the filter, and numbers of skipped facts.

    Weights must exceed `min_weight`, and relations need `min_facts` facts, of which `per_relation` are drawn. Raises
    NoSuchFile or ImportRefused.
    """
    skipped: Counter[str] = Counter()
    weights: dict[str, dict[tuple[str, str], float]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        try:
            _, relation, *concepts, values = line.rstrip("\r\n").split("\t")
            relation, (head, tail) = relation.removeprefix("/r/"), map(label_of, concepts)
            weight = float(json.loads(values)["weight"])
        except (ValueError, KeyError, TypeError):
            raise ImportRefused(path.name, [BadEntry(f"line {number}", SHAPE)]) from None
        if head is None or tail is None:
            skipped["not English"] += 1
        elif reason := _fault_of(head, tail):
            skipped[reason] += 1
        elif relation in EXCLUDED:
            skipped["of linguistic or trivial relations"] += 1
        elif weight <= min_weight:
            skipped[f"with a weight of at most {min_weight:g}"] += 1
        else:
            facts = weights.setdefault(relation, {})
            skipped["duplicates"] += (head, tail) in facts
            facts[head, tail] = max(weight, facts.get((head, tail), 0.0))
    rows: list[dict[str, Any]] = []
    for relation, facts in weights.items():
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", relation).lower()
        name = next((name for name in (relation, snake, OTHER_NAMES.get(relation)) if name in names), None)
        if len(facts) < min_facts:
            skipped[f"of relations with fewer than {min_facts:,}"] += len(facts)
        elif name is None:
            skipped["of relations that the set lacks"] += len(facts)
        else:
            sample = Random(seed).sample(list(facts), min(len(facts), per_relation or len(facts)))
            skipped["not sampled"] += len(facts) - len(sample)
            rows += ({"relation": name, "entities": [*pair], "weight": facts[pair]} for pair in sample)
    return rows, +skipped


def _fault_of(head: str, tail: str) -> str | None:
    """Return the reason to skip a fact that score evaluations refuse, or None."""
    if entities_error([head, tail], 2):
        return "with an empty or invalid entity"
    return "with equal entities" if head == tail else None


def label_of(uri: str) -> str | None:
    """Return the text of an English concept: /c/en/ice_cream/n becomes "ice cream". None for other languages."""
    return uri.removeprefix(LANGUAGE).partition("/")[0].replace("_", " ") if uri.startswith(LANGUAGE) else None
