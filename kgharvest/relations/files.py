"""Files of relations: three formats to read, one to write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kgharvest.bulk.file_reading import Line, Member, decode_utf8, members_of, read_json, read_json_lines
from kgharvest.errors import BadEntry, ImportRefused
from kgharvest.models import RelationSet
from kgharvest.relations.checks import RelationEntry

SHAPES = (
    'expected {"name": ..., "relations": [...]}, the reference form {relation: {"init_prompts": ...}}, '
    'or JSON lines of {"relation": ..., "template": "[X] ... [Y]"}'
)
EXPORTED = ("name", "statement", "explanation", "initial_prompts", "prompts", "seed_tuples")


@dataclass
class RelationFile:
    """What a file says. source: the file's name; name: of the set."""

    source: str
    name: str
    description: str
    entries: list[RelationEntry]


# -- reading -----------------------------------------------------------------------------------------------------------


def read_relation_file(source: str, content: bytes) -> RelationFile:
    """Return what the file says, whatever its format. Raises ImportRefused if it has none of the known shapes."""
    text = decode_utf8(content, source)
    stem, _, ending = source.rpartition(".")
    stem = stem or source
    if ending == "jsonl":
        return RelationFile(source, stem, "", list(_lama_entries(text, source, stem)))
    document = read_json(text, source)
    if isinstance(document, dict) and isinstance(document.get("relations"), list):
        name, description = str(document.get("name") or stem), str(document.get("description") or "")
        offsets = {member.name: member.offset for member in members_of(text)}
        entries = _own_entries(list(members_of(text, offsets["relations"])), source)
        return RelationFile(source, name, description, entries)
    if isinstance(document, dict) and all(_is_reference_entry(fields) for fields in document.values()):
        return RelationFile(source, stem, "", [_reference_entry(member) for member in members_of(text)])
    raise ImportRefused(source, [BadEntry("file", f"is no file of relations: {SHAPES}")])


def _own_entries(relations: Sequence[Member], source: str) -> list[RelationEntry]:
    offsets = [
        (f"line {member.line}, relation {number}", member.value) for number, member in enumerate(relations, start=1)
    ]
    reason = 'is no relation; write {"name": ..., "initial_prompts": [...], "seed_tuples": [...]}'
    if faults := [BadEntry(where, reason) for where, fields in offsets if not isinstance(fields, dict)]:
        raise ImportRefused(source, faults)
    return [_own_entry(where, fields) for where, fields in offsets]


def _own_entry(where: str, fields: dict[str, Any]) -> RelationEntry:
    name = fields.get("name")
    return RelationEntry(
        where=f"{where} ({name!r:.100})" if name else where,
        name=name,
        initial_prompts=fields.get("initial_prompts"),
        seed_tuples=fields.get("seed_tuples"),
        prompts=fields.get("prompts", []),
        statement=fields.get("statement"),
        explanation=fields.get("explanation", ""),
    )


def _is_reference_entry(fields: Any) -> bool:
    return isinstance(fields, dict) and "init_prompts" in fields


def _reference_entry(member: Member) -> RelationEntry:
    fields = member.value
    return RelationEntry(
        where=f"line {member.line}, relation {member.name!r:.100}",
        name=member.name,
        initial_prompts=fields["init_prompts"],
        seed_tuples=fields.get("seed_ent_tuples"),
        prompts=fields.get("prompts", []),
        explanation=fields.get("explanation", ""),
    )


def _lama_entries(text: str, source: str, default_name: str) -> Iterator[RelationEntry]:
    """Yield one relation per name; several lines of one name are several initial prompts. LAMA gives no seeds here."""
    entries: dict[str, RelationEntry] = {}
    faults = []
    for line in read_json_lines(text.split("\n")):
        if isinstance(line, BadEntry):
            faults.append(line)
        elif not isinstance(line.value, dict) or not isinstance(line.value.get("template"), str):
            faults.append(BadEntry(f"line {line.number}", 'has no "template"'))
        else:
            _add_lama_line(entries, line, default_name)
    if faults:
        raise ImportRefused(source, faults)
    yield from entries.values()


def _add_lama_line(entries: dict[str, RelationEntry], line: Line, default_name: str) -> None:
    name = line.value.get("relation") or default_name
    entry = entries.get(str(name))
    if entry is None:
        entry = entries[str(name)] = RelationEntry(f"line {line.number}", name, [], [], needs_seeds=False)
        entry.explanation = line.value.get("description") or ""
    entry.initial_prompts.append(line.value["template"].replace("[X]", "<ENT0>").replace("[Y]", "<ENT1>"))


# -- writing -----------------------------------------------------------------------------------------------------------


def export_relations(relation_set: RelationSet) -> str:
    """Return the set as this project's JSON: importing it under another name makes an equal set."""
    relations = relation_set.relations.order_by("name")
    document = {
        "name": relation_set.name,
        "description": relation_set.description,
        "relations": [{column: getattr(relation, column) for column in EXPORTED} for relation in relations],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
