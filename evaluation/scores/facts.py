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
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt
from kgharvest.errors import BadEntry, DomainError, Faults
from kgharvest.models import Relation
from kgharvest.names import shortest_names
from kgharvest.relations.checks import one_line, sentence_error
from kgharvest.relations.files import with_slots
from kgharvest.relations.names import resolve_relation

DEMO_SET = Path(__file__).resolve().parents[2] / "kgharvest" / "relation_sets" / "demo.json"
BUILT_IN = "embedded LM's world"
MOST_FACTS = 50_000
# Training facts and prompts by relation, and a function that reads a row of a file and can raise BadValue.
TrainingRows = Mapping[str, Sequence[Entities | str]]
ReadRow = Callable[[Mapping[str, Any], Any], Any]
SHAPE = 'is not {"relation": "...", "entities": ["...", "..."]}'


@dataclass(frozen=True)
class ScoredRelation:
    """A relation with its prompts and the facts to score.

    path: set/name. seed_tuples: tuples used to weight or learn prompts. facts: facts without seed tuples. learned_from:
    all tuples that are excluded from the facts because they were used to weight or learn prompts. train, train_prompts:
    training facts and prompts of LPAQA.
    """

    name: str
    initial_prompts: Sequence[str]
    prompts: Sequence[str]
    seed_tuples: Sequence[Entities]
    facts: Sequence[Entities]
    path: str = ""
    learned_from: Sequence[Entities] = ()
    train: Sequence[Entities] = ()
    train_prompts: Sequence[str] = ()

    def without(self, learned_from: Sequence[Entities]) -> ScoredRelation:
        """Return the relation without the facts in `learned_from`, ignoring case."""
        excluded = {folded(entities) for entities in learned_from}
        facts = [entities for entities in self.facts if folded(entities) not in excluded]
        return replace(self, facts=facts, learned_from=[*self.learned_from, *learned_from])

    def trained_on(self, rows: Sequence[Entities | str]) -> ScoredRelation:
        """Return the relation with the training facts and prompts in `rows`, and without these facts."""
        facts = [row for row in rows if not isinstance(row, str)]
        prompts = [row for row in rows if isinstance(row, str)]
        return replace(self.without(facts), train=facts, train_prompts=prompts)


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
    return scored_relations(_rows_by_relation(content, source, _finder(by), _fact))


def training_of_content(content: bytes, source: str, by=None) -> TrainingRows:
    """Return training facts and prompts by set/name, for relations visible to `by`.

    Each line of the file is a fact, as in `facts_of_content`, or {"relation", "template"}. Raises ImportRefused.
    """
    rows = _rows_by_relation(content, source, _finder(by), _fact_or_prompt)
    return {relation.path: values for relation, values in rows.items()}


def _finder(by: Any) -> Callable[[str], Relation | str]:
    """Return a function that finds a relation visible to `by`, or returns the reason of a refusal."""
    visible = Relation.objects.visible_to(by)

    @cache
    def find(name: str) -> Relation | str:
        try:
            return resolve_relation(name, among=visible)
        except DomainError as error:
            return f"names an unknown relation. {str(error).removesuffix('.')}"

    return find


def named_rows_of_content(content: bytes, source: str, with_prompts: bool = False) -> dict[str, list[Entities | str]]:
    """Return the facts of a JSONL file, and prompts if requested, by relation as named there. Raises ImportRefused."""
    rows = _rows_by_relation(content, source, NamedRelation, _fact_or_prompt if with_prompts else _fact)
    return {named.name: values for named, values in rows.items()}


def scored_relations(facts: Mapping[Relation, Sequence[Entities]]) -> list[ScoredRelation]:
    """Return the facts with the prompts and seed tuples of their relations."""
    names = shortest_names(relation.path for relation in facts)
    fields = ("initial_prompts", "prompts", "seed_tuples")
    stored = {relation: {field: getattr(relation, field) for field in fields} for relation in facts}
    return [_scored_relation(names[key.path], key.path, stored[key], tuples) for key, tuples in facts.items()]


def _rows_by_relation(content: bytes, source: str, find: Callable[[str], Any], read: ReadRow) -> dict[Any, list[Any]]:
    """Return the rows of a JSONL file. find: name -> relation, with arity and name, or the reason of a refusal."""
    rows: dict[Any, list[Any]] = {}
    faults = Faults()
    for line in read_json_lines(lines_of(BytesIO(content), source)):
        fault = line if isinstance(line, BadEntry) else _add_row(line, find, read, rows)
        if fault:
            faults.add(fault)
    if not faults.n and not rows:
        faults.add(BadEntry("the file", "has no facts"))
    if sum(map(len, rows.values())) > MOST_FACTS:
        faults.add(BadEntry("the file", f"has more than {MOST_FACTS:,} facts; draw a sample"))
    faults.refuse(source)
    return rows


def _add_row(line: Line, find, read: ReadRow, rows: dict[Any, list[Any]]) -> BadEntry | None:
    """Add the row of a line to `rows`, or return its fault."""
    where = f"line {line.number}"
    if not isinstance(line.value, dict) or not isinstance(line.value.get("relation"), str):
        return BadEntry(where, SHAPE)
    if CONTROL.search(line.value["relation"]):
        return BadEntry(where, f"names a relation with a control character ({line.value['relation']!r})")
    relation = find(line.value["relation"])
    if isinstance(relation, str):
        return BadEntry(where, relation)
    try:
        rows.setdefault(relation, []).append(read(line.value, relation))
    except BadValue as fault:
        return BadEntry(where, str(fault))
    return None


def _fact(row: Mapping[str, Any], relation: Any) -> Entities:
    """Raises BadValue."""
    try:
        return read_entities(row.get("entities"), relation.arity)
    except BadValue as fault:
        raise BadValue(f"{fault} (arity of {relation.name})") from None


def _fact_or_prompt(row: Mapping[str, Any], relation: Any) -> Entities | str:
    """Raises BadValue."""
    return read_prompt(row["template"], relation.arity) if "template" in row else _fact(row, relation)


def read_prompt(template: Any, arity: int | None = None) -> str:
    """Return a template as a prompt with the slots <ENT0> and <ENT1>. Raises BadValue."""
    if not isinstance(template, str):
        raise BadValue("template is not a text")
    if reason := sentence_error(template):
        raise BadValue(reason)
    try:
        prompt = PromptTemplate.parse(one_line(with_slots(template)))
    except BadPrompt as error:
        raise BadValue(str(error).rstrip(".")) from None
    if arity not in (None, prompt.arity):
        raise BadValue(f"has {prompt.arity} instead of {arity} slots in {template!r:.200}")
    return prompt.text


def facts_to_json(relations: Sequence[ScoredRelation]) -> list[dict[str, Any]]:
    """Return JSON-serializable relations. Inverse of `facts_from_json`."""
    return json.loads(json.dumps([vars(relation) for relation in relations]))


def facts_from_json(relations: Sequence[Mapping[str, Any]]) -> list[ScoredRelation]:
    names = ("seed_tuples", "facts", "learned_from", "train")
    return [
        ScoredRelation(**relation | {name: list(map(tuple, relation.get(name, ()))) for name in names})
        for relation in relations
    ]
