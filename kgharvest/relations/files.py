"""Relation files: four import formats and one export format."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO

from kgharvest.bulk.file_reading import (
    Line,
    Member,
    decode_utf8,
    lines_of,
    members_of,
    read_json,
    read_json_lines,
)
from kgharvest.errors import BadEntry, Faults, ImportRefused
from kgharvest.models import RelationSet
from kgharvest.relations.checks import RelationEntry
from kgharvest.relations.ekar import ekar_entries

SHAPES = (
    'expected {"name": ..., "relations": [...]}, the BertNet format {relation: {"init_prompts": ...}}, '
    'JSON Lines with {"relation": ..., "template": "[X] ... [Y]"}, or JSON Lines of E-KAR'
)
LAMA_SLOTS = {"[X]": "<ENT0>", "[Y]": "<ENT1>"}
LONGEST_EKAR_LINE = 100_000  # bytes of the first line; longer lines belong to other formats
MOST_RELATIONS = 10_000  # maximum number of relations per file
EXPORTED_COLUMNS = (
    *("name", "statement", "explanation", "initial_prompts", "prompts"),
    *("seed_tuples", "negative_seed_tuples"),
)


@dataclass
class RelationFile:
    """Content of a relation file. source: name of the file. name: name of the set."""

    source: str
    name: str
    description: str
    entries: list[RelationEntry]


def read_relation_file(source: str, content: bytes) -> RelationFile:
    """Detect the format and return the content. Raises ImportRefused if the format is unknown."""
    stem, _, ending = source.rpartition(".")
    stem = stem or source
    start = content[:LONGEST_EKAR_LINE].partition(b"\n")[0].decode("utf-8-sig", "replace")
    first = next(read_json_lines([start]), None)
    if isinstance(first, Line) and isinstance(first.value, dict) and {"question", "choices"} <= first.value.keys():
        entries, description = ekar_entries(lines_of(BytesIO(content), source), source)
        return RelationFile(source, stem, description, entries)  # published files are JSON lines named .json
    if ending == "jsonl":
        return RelationFile(source, stem, "", _lama_entries(content, source, stem))
    text = decode_utf8(content, source)
    document = read_json(text, source)
    if isinstance(document, dict) and isinstance(document.get("relations"), list):
        _check_number(len(document["relations"]), source)
        name, description = str(document.get("name") or stem), str(document.get("description") or "")
        del document  # free memory before members_of parses the same relations again
        offsets = {member.name: member.offset for member in members_of(text)}
        entries = _project_entries(members_of(text, offsets["relations"]), source)
        return RelationFile(source, name, description, entries)
    # `relation_info` JSON of the BertNet reference code
    if isinstance(document, dict) and all(
        isinstance(relation, dict) and "init_prompts" in relation for relation in document.values()
    ):
        _check_number(len(document), source)
        entries = [
            RelationEntry(
                where=f"line {member.line}, relation {member.name!r:.100}",
                name=member.name,
                initial_prompts=member.value["init_prompts"],
                seed_tuples=member.value.get("seed_ent_tuples"),
                prompts=member.value.get("prompts", []),
                explanation=member.value.get("explanation", ""),
            )
            for member in members_of(text)
        ]
        return RelationFile(source, stem, "", entries)
    raise ImportRefused(source, [BadEntry("file", f"is not a relation file: {SHAPES}")])


def _check_number(n_relations: int, source: str) -> None:
    if n_relations > MOST_RELATIONS:
        raise ImportRefused(source, [BadEntry("file", f"has more than {MOST_RELATIONS:,} relations; split the file")])


def _project_entries(members: Iterable[Member], source: str) -> list[RelationEntry]:
    """Return the entries of a kgharvest JSON file."""
    entries, faults = [], Faults()
    for number, member in enumerate(members, start=1):
        where = f"line {member.line}, relation {number}"
        if not isinstance(member.value, dict):
            reason = 'is not a relation; write {"name": ..., "initial_prompts": [...], "seed_tuples": [...]}'
            faults.add(BadEntry(where, reason))
            continue
        relation = member.value
        name, statement = relation.get("name"), relation.get("statement")
        entries.append(
            RelationEntry(
                where=f"{where} ({name!r:.100})" if name else where,
                name=name,
                initial_prompts=relation.get("initial_prompts", [statement] if statement else None),
                seed_tuples=relation.get("seed_tuples"),
                negative_seed_tuples=relation.get("negative_seed_tuples", []),
                prompts=relation.get("prompts", []),
                statement=statement,
                explanation=relation.get("explanation", ""),
            )
        )
    faults.refuse(source)
    return entries


def _lama_entries(content: bytes, source: str, default_name: str) -> list[RelationEntry]:
    """Return one relation per name. Its initial prompts are the templates of all lines with this name.

    It has no seed tuples.
    """
    entries: dict[str, RelationEntry] = {}
    faults = Faults()
    for line in read_json_lines(lines_of(BytesIO(content), source)):
        if isinstance(line, BadEntry):
            faults.add(line)
        elif not isinstance(line.value, dict) or not isinstance(line.value.get("template"), str):
            faults.add(BadEntry(f"line {line.number}", '"template" is missing'))
        else:
            name = line.value.get("relation") or default_name
            entry = entries.get(str(name))
            if entry is None:
                entry = entries[str(name)] = RelationEntry(f"line {line.number}", name, [], [], needs_seeds=False)
                entry.explanation = line.value.get("description") or ""
            entry.initial_prompts.append(with_slots(line.value["template"]))
    faults.refuse(source)
    _check_number(len(entries), source)
    return list(entries.values())


def with_slots(template: str) -> str:
    """Convert a LAMA or LPAQA template to a prompt: [X] and [Y] become <ENT0> and <ENT1>."""
    for slot, entity_slot in LAMA_SLOTS.items():
        template = template.replace(slot, entity_slot)
    return template


def export_relations(relation_set: RelationSet) -> str:
    """Return the set as kgharvest JSON. Importing it under another name creates an identical set."""
    relations = relation_set.relations.order_by("name")
    document = {
        "name": relation_set.name,
        "description": relation_set.description,
        "relations": [{column: getattr(relation, column) for column in EXPORTED_COLUMNS} for relation in relations],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
