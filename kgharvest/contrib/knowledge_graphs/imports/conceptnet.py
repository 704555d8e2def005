"""ConceptNet's assertions as facts for score evaluations, filtered as in BertNet (Appendix B)."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from kgharvest.bulk.file_reading import opened
from kgharvest.errors import BadEntry, ImportRefused

LANGUAGE = "/c/en/"
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
GZIP_START = b"\x1f\x8b"


class Filter(NamedTuple):
    """Weights must exceed `min_weight`. Relations need `min_facts` facts. per_relation: sample size; None for all."""

    min_weight: float = 1.0
    min_facts: int = 1000
    per_relation: int | None = None
    seed: int = 0


class FilteredFacts(NamedTuple):
    """rows: facts as JSON-serializable rows. skipped: numbers of skipped assertions and facts by reason."""

    rows: list[dict[str, object]]
    skipped: Counter[str]


def relation_names(relation: str) -> list[str]:
    """Return the possible names of a relation of ConceptNet here: UsedFor, used_for, and that of the shipped set."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", relation).lower()
    return [relation, snake, *filter(None, [OTHER_NAMES.get(relation)])]


def read_assertions(path: Path) -> Iterator[str]:
    """Yield the lines of an assertions file, compressed by gzip or not. Raises NoSuchFile or ImportRefused."""
    with opened(path) as file:
        is_compressed = file.read(2) == GZIP_START
        file.seek(0)
        try:
            for line in gzip.GzipFile(fileobj=file) if is_compressed else file:
                yield line.decode("utf-8")
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise ImportRefused(path.name, [BadEntry("the file", f"is damaged ({error})")]) from error


def filtered_facts(lines: Iterable[str], names: Collection[str], source: str, limits: Filter) -> FilteredFacts:
    """Return the English facts of the relations in `names` that pass the filter. Raises ImportRefused."""
    skipped: Counter[str] = Counter()
    weights: dict[str, dict[tuple[str, str], float]] = {}
    for number, line in enumerate(lines, start=1):
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) != 5 or not cells[1].startswith("/r/"):
            reason = "is not an assertion of ConceptNet: URI, relation, start, end, and JSON, separated by tabs"
            raise ImportRefused(source, [BadEntry(f"line {number}", reason)])
        relation = cells[1].removeprefix("/r/")
        if not (cells[2].startswith(LANGUAGE) and cells[3].startswith(LANGUAGE)):
            skipped["not English"] += 1
        elif relation in EXCLUDED:
            skipped["of linguistic or trivial relations"] += 1
        elif (weight := _weight(cells[4], number, source)) <= limits.min_weight:
            skipped[f"with a weight of at most {limits.min_weight:g}"] += 1
        else:
            facts, pair = weights.setdefault(relation, {}), (_label(cells[2]), _label(cells[3]))
            skipped["duplicates"] += pair in facts
            facts[pair] = max(weight, facts.get(pair, 0.0))
    rows: list[dict[str, object]] = []
    for relation, facts in weights.items():
        name = next((name for name in relation_names(relation) if name in names), None)
        if len(facts) < limits.min_facts:
            skipped[f"of relations with fewer than {limits.min_facts:,}"] += len(facts)
        elif name is None:
            skipped["of relations that the set lacks"] += len(facts)
        else:
            n = min(len(facts), limits.per_relation or len(facts))
            skipped["not sampled"] += len(facts) - n
            for head, tail in Random(limits.seed).sample(list(facts), n):
                rows.append({"relation": name, "entities": [head, tail], "weight": facts[head, tail]})
    return FilteredFacts(rows, +skipped)


def _weight(text: str, number: int, source: str) -> float:
    try:
        return float(json.loads(text)["weight"])
    except (ValueError, KeyError, TypeError):
        raise ImportRefused(source, [BadEntry(f"line {number}", 'has no "weight"')]) from None


def _label(uri: str) -> str:
    """Return the text of a concept: /c/en/ice_cream/n becomes "ice cream"."""
    return uri.removeprefix(LANGUAGE).partition("/")[0].replace("_", " ")
