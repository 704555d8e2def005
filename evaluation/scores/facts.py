"""Facts for score evaluations, from the embedded LMs' world or from a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.scores.negative_sampling import Entities, folded
from kgharvest.bulk.file_reading import CONTROL, Line, lines_of, read_json_lines
from kgharvest.bulk.file_values import BadValue, read_entities
from kgharvest.embedded_lm.world import load_world
from kgharvest.errors import BadEntry, DomainError, Faults
from kgharvest.models import Relation
from kgharvest.names import shortest_names
from kgharvest.relations.names import resolve_relation

DEMO_SET = Path(__file__).resolve().parents[2] / "kgharvest" / "relation_sets" / "demo.json"
BUILT_IN = "embedded LM's world"
MOST_FACTS = 50_000
SHAPE = 'is not {"relation": "...", "entities": ["...", "..."]}'


@dataclass(frozen=True)
class ScoredRelation:
    """A relation with its prompts and the facts to score.

    path: set/name. seed_tuples: tuples used to weight or learn prompts. facts: facts without seed tuples. learned_from:
    all tuples that are excluded from the facts because they were used to weight or learn prompts.
    """

    name: str
    initial_prompts: Sequence[str]
    prompts: Sequence[str]
    seed_tuples: Sequence[Entities]
    facts: Sequence[Entities]
    path: str = ""
    learned_from: Sequence[Entities] = ()

    def without(self, learned_from: Sequence[Entities]) -> ScoredRelation:
        """Return the relation without the facts in `learned_from`, ignoring case."""
        excluded = {folded(entities) for entities in learned_from}
        facts = [entities for entities in self.facts if folded(entities) not in excluded]
        return replace(self, facts=facts, learned_from=[*self.learned_from, *learned_from])


class NamedRelation(NamedTuple):
    """Relation of a file, before its name is resolved."""

    name: str
    arity: int | None = None


def built_in_facts() -> list[ScoredRelation]:
    """Return the facts that the embedded LMs were trained on, with the prompts of the set `demo`."""
    demo_set = json.loads(DEMO_SET.read_text(encoding="utf-8"))
    relations = {relation["name"]: relation for relation in demo_set["relations"]}
    return [
        _scored_relation(world.name, f"{DEMO_SET.stem}/{world.name}", relations[world.name], world.facts)
        for world in load_world()
        if world.name in relations
    ]


def _scored_relation(name: str, path: str, relation: Mapping[str, Any], facts: Collection[Entities]) -> ScoredRelation:
    seeds = [tuple(entities) for entities in relation["seed_tuples"]]
    prompts = relation["prompts"] or relation["initial_prompts"]
    scored = ScoredRelation(name, relation["initial_prompts"], prompts, seeds, list(dict.fromkeys(facts)), path)
    return scored.without(seeds)


def facts_of_content(content: bytes, source: str, by=None) -> list[ScoredRelation]:
    """Return the facts of a JSONL file with {"relation", "entities"} per line, for relations visible to `by`.

    Raises ImportRefused with every invalid line.
    """
    visible = Relation.objects.visible_to(by)

    @cache
    def find(name: str) -> Relation | str:
        try:
            return resolve_relation(name, among=visible)
        except DomainError as error:
            return f"names an unknown relation. {str(error).removesuffix('.')}"

    return scored_relations(_facts_by_relation(content, source, find))


def named_facts_of_content(content: bytes, source: str) -> dict[str, list[Entities]]:
    """Return the facts of a JSONL file by relation as named there. Raises ImportRefused with every invalid line."""
    return {named.name: facts for named, facts in _facts_by_relation(content, source, NamedRelation).items()}


def scored_relations(facts: Mapping[Relation, Sequence[Entities]]) -> list[ScoredRelation]:
    """Return the facts with the prompts and seed tuples of their relations."""
    names = shortest_names(relation.path for relation in facts)
    fields = ("initial_prompts", "prompts", "seed_tuples")
    stored = {relation: {field: getattr(relation, field) for field in fields} for relation in facts}
    return [_scored_relation(names[key.path], key.path, stored[key], tuples) for key, tuples in facts.items()]


def _facts_by_relation(content: bytes, source: str, find: Callable[[str], Any]) -> dict[Any, list[Entities]]:
    """Return the facts of a JSONL file. find: name -> relation, with arity and name, or the reason of a refusal."""
    facts: dict[Any, list[Entities]] = {}
    faults = Faults()
    for line in read_json_lines(lines_of(BytesIO(content), source)):
        fault = line if isinstance(line, BadEntry) else _add_fact(line, find, facts)
        if fault:
            faults.add(fault)
    if not faults.n and not facts:
        faults.add(BadEntry("the file", "has no facts"))
    if sum(map(len, facts.values())) > MOST_FACTS:
        faults.add(BadEntry("the file", f"has more than {MOST_FACTS:,} facts; draw a sample"))
    faults.refuse(source)
    return facts


def _add_fact(line: Line, find, facts: dict[Any, list[Entities]]) -> BadEntry | None:
    """Add the fact of a line to `facts`, or return its fault."""
    where = f"line {line.number}"
    if not isinstance(line.value, dict) or not isinstance(line.value.get("relation"), str):
        return BadEntry(where, SHAPE)
    if CONTROL.search(line.value["relation"]):
        return BadEntry(where, f"names a relation with a control character ({line.value['relation']!r})")
    relation = find(line.value["relation"])
    if isinstance(relation, str):
        return BadEntry(where, relation)
    try:
        facts.setdefault(relation, []).append(read_entities(line.value.get("entities"), relation.arity))
    except BadValue as fault:
        return BadEntry(where, f"{fault} (arity of {relation.name})")
    return None


def facts_to_json(relations: Sequence[ScoredRelation]) -> list[dict[str, Any]]:
    """Return JSON-serializable relations. Inverse of `facts_from_json`."""
    return json.loads(json.dumps([vars(relation) for relation in relations]))


def facts_from_json(relations: Sequence[Mapping[str, Any]]) -> list[ScoredRelation]:
    tuples = ("seed_tuples", "facts", "learned_from")
    return [
        ScoredRelation(**{**relation, **{name: [tuple(entities) for entities in relation[name]] for name in tuples}})
        for relation in relations
    ]
