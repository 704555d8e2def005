"""Import relations from files and find them by name."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from django.db import transaction

from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt
from kgharvest.errors import BadEntry, DomainError, ImportRefused, NotFound
from kgharvest.models import Relation, RelationSet
from kgharvest.services.reading import Line, fault_of_entities, read_json, read_json_lines, read_text

logger = logging.getLogger(__name__)

SHIPPED = Path(__file__).resolve().parent.parent / "relation_sets"
DEMO_SET = "demo"  # what the embedded LM, the default model, was trained on
SET_NAME = re.compile(r"[-\w]{1,100}", re.ASCII)
RELATION_NAME = re.compile(r"[^\s/]{1,100}")
SHAPES = (
    'expected {"name": ..., "relations": [...]}, the reference form {relation: {"init_prompts": ...}}, '
    'or JSON lines of {"relation": ..., "template": "[X] ... [Y]"}'
)


class AmbiguousRelation(DomainError):
    """A bare name that several sets use."""


class SetIsShipped(DomainError):
    """Importing into a set that comes with the project."""


@dataclass
class RelationEntry:
    """A relation as a file gives it, not yet checked. `where` is the place in the file, for people."""

    where: str
    name: Any
    initial_prompts: Any
    seed_tuples: Any
    prompts: Any = field(default_factory=list)
    statement: Any = None
    explanation: Any = ""
    needs_seeds: bool = True


@dataclass
class RelationFile:
    name: str
    description: str
    entries: list[RelationEntry]


# -- import ------------------------------------------------------------------------------------------------------------


def import_relations(path: Path, set_name: str | None = None) -> RelationSet:
    """Import a file of relations into the set `set_name`, by default the file's own; update those that exist.

    Reads this project's JSON, the reference code's `relation_info`, and LAMA's relation lines. Relations of the set
    that the file does not name stay. Raises ImportRefused with all that is wrong; then nothing is stored.
    """
    file = read_relation_file(path)
    faults = [fault for entry in file.entries for fault in faults_of(entry)] + list(repeated_names(file.entries))
    name = set_name or file.name
    if not SET_NAME.fullmatch(name):
        faults.append(BadEntry("set", f"{name!r} is no set name; use letters, digits, - and _, or give --set"))
    if not file.entries:
        faults.append(BadEntry("file", "has no relation"))
    if faults:
        raise ImportRefused(path.name, faults)
    return _store(path, name, file)


@transaction.atomic
def _store(path: Path, name: str, file: RelationFile) -> RelationSet:
    is_shipped = path.resolve().parent == SHIPPED
    relation_set, _ = RelationSet.objects.get_or_create(name=name, defaults={"is_shipped": is_shipped})
    if relation_set.is_shipped and not is_shipped:
        raise SetIsShipped(
            f"The set {name!r} comes with the project; import {path.name} under another name with --set."
        )
    relation_set.description = file.description or relation_set.description
    relation_set.save()
    clashes = [clash for entry in file.entries if (clash := _clash(relation_set, entry))]
    if clashes:
        raise ImportRefused(path.name, clashes)
    for entry in file.entries:
        Relation.objects.update_or_create(relation_set=relation_set, name=entry.name, defaults=_fields(entry))
    return relation_set


def _clash(relation_set: RelationSet, entry: RelationEntry) -> BadEntry | None:
    arity = _fields(entry)["arity"]
    used = relation_set.relations.filter(name=entry.name, jobs__isnull=False).exclude(arity=arity)
    if not used.exists():
        return None
    return BadEntry(entry.where, f"has {arity} slots, but its harvests have another number; give it a new name")


def _fields(entry: RelationEntry) -> dict[str, Any]:
    return {
        "statement": entry.statement or entry.initial_prompts[0],
        "explanation": entry.explanation,
        "arity": PromptTemplate.parse(entry.initial_prompts[0]).arity,
        "initial_prompts": entry.initial_prompts,
        "prompts": entry.prompts,
        "seed_tuples": entry.seed_tuples,
    }


# -- formats -----------------------------------------------------------------------------------------------------------


def read_relation_file(path: Path) -> RelationFile:
    """Return what the file says, whatever its format. Raises ImportRefused if it has none of the known shapes."""
    text = read_text(path)
    if path.suffix == ".jsonl":
        return RelationFile(path.stem, "", list(_lama_entries(text, path)))
    document = read_json(text, path.name)
    if isinstance(document, dict) and isinstance(document.get("relations"), list):
        name, description = str(document.get("name") or path.stem), str(document.get("description") or "")
        entries = [_own_entry(number, fields) for number, fields in enumerate(document["relations"], start=1)]
        return RelationFile(name, description, entries)
    if isinstance(document, dict) and all(_is_reference_entry(fields) for fields in document.values()):
        return RelationFile(path.stem, "", [_reference_entry(name, fields) for name, fields in document.items()])
    raise ImportRefused(path.name, [BadEntry("file", f"is no file of relations: {SHAPES}")])


def _own_entry(number: int, fields: Any) -> RelationEntry:
    if not isinstance(fields, dict):
        fields = {}
    name = fields.get("name")
    return RelationEntry(
        where=f"relation {number} ({name!r})",
        name=name,
        initial_prompts=fields.get("initial_prompts"),
        seed_tuples=fields.get("seed_tuples"),
        prompts=fields.get("prompts", []),
        statement=fields.get("statement"),
        explanation=fields.get("explanation", ""),
    )


def _is_reference_entry(fields: Any) -> bool:
    return isinstance(fields, dict) and "init_prompts" in fields


def _reference_entry(name: str, fields: dict[str, Any]) -> RelationEntry:
    return RelationEntry(
        where=f"relation {name!r}",
        name=name,
        initial_prompts=fields["init_prompts"],
        seed_tuples=fields.get("seed_ent_tuples"),
        prompts=fields.get("prompts", []),
        explanation=fields.get("explanation", ""),
    )


def _lama_entries(text: str, path: Path) -> Iterator[RelationEntry]:
    """Yield one relation per name; several lines of one name are several initial prompts. LAMA gives no seeds here."""
    entries: dict[str, RelationEntry] = {}
    faults = []
    for line in read_json_lines(text):
        if isinstance(line, BadEntry):
            faults.append(line)
        elif not isinstance(line.value, dict) or not isinstance(line.value.get("template"), str):
            faults.append(BadEntry(f"line {line.number}", 'has no "template"'))
        else:
            _add_lama_line(entries, line, path.stem)
    if faults:
        raise ImportRefused(path.name, faults)
    yield from entries.values()


def _add_lama_line(entries: dict[str, RelationEntry], line: Line, default_name: str) -> None:
    name = line.value.get("relation") or default_name
    entry = entries.get(name)
    if entry is None:
        entry = entries[name] = RelationEntry(f"line {line.number}", name, [], [], needs_seeds=False)
        entry.explanation = line.value.get("description") or ""
    entry.initial_prompts.append(line.value["template"].replace("[X]", "<ENT0>").replace("[Y]", "<ENT1>"))


# -- checks ------------------------------------------------------------------------------------------------------------


def faults_of(entry: RelationEntry) -> Iterator[BadEntry]:
    """Yield all that is wrong with one relation."""
    if not isinstance(entry.name, str) or not RELATION_NAME.fullmatch(entry.name):
        yield BadEntry(entry.where, f"{entry.name!r} is no relation name; use up to 100 characters without space and /")
    if not _are_texts(entry.initial_prompts) or not entry.initial_prompts:
        yield BadEntry(entry.where, "has no list of initial prompts")
        return
    if not _are_texts(entry.prompts):
        yield BadEntry(entry.where, "has prompts that are no list of texts")
        return
    if not isinstance(entry.explanation, str) or not isinstance(entry.statement, str | None):
        yield BadEntry(entry.where, "has a statement or explanation that is no text")
        return
    yield from _faults_of_prompts(entry)


def _faults_of_prompts(entry: RelationEntry) -> Iterator[BadEntry]:
    arities = {}
    for text in [*entry.initial_prompts, entry.statement or entry.initial_prompts[0], *entry.prompts]:
        try:
            arities[text] = PromptTemplate.parse(text).arity
        except BadPrompt as error:
            yield BadEntry(entry.where, str(error).rstrip("."))
    arity = arities.get(entry.initial_prompts[0])
    if arity is None:
        return
    if arity < 2:
        yield BadEntry(entry.where, "its first prompt has one slot; a relation has at least <ENT0> and <ENT1>")
    for text, slots in arities.items():
        if slots != arity:
            yield BadEntry(entry.where, f"{text!r} has {slots} slots but its first prompt {arity}")
    yield from _faults_of_seeds(entry, arity)


def _faults_of_seeds(entry: RelationEntry, arity: int) -> Iterator[BadEntry]:
    if not isinstance(entry.seed_tuples, list) or (entry.needs_seeds and len(entry.seed_tuples) < 2):
        yield BadEntry(entry.where, "needs at least two seed tuples")
        return
    for number, entities in enumerate(entry.seed_tuples, start=1):
        if fault := fault_of_entities(entities, arity):
            yield BadEntry(f"{entry.where}, seed tuple {number}", fault)


def _are_texts(texts: Any) -> bool:
    return isinstance(texts, list) and all(isinstance(text, str) and text.strip() for text in texts)


def repeated_names(entries: Sequence[RelationEntry]) -> Iterator[BadEntry]:
    seen = set()
    for entry in entries:
        if isinstance(entry.name, str) and entry.name in seen:
            yield BadEntry(entry.where, "occurs twice; give each relation its own name")
        seen.add(entry.name if isinstance(entry.name, str) else None)


# -- finding -----------------------------------------------------------------------------------------------------------


def resolve_relation(name: str, set_name: str | None = None) -> Relation:
    """Return the relation that `name` or "set/name" means: the user's own, else the demo's, else another shipped one.

    Logs which set was taken if others have the name too; a command's log is on standard error. Raises NotFound, or
    AmbiguousRelation if several sets of the same rank have it.
    """
    if set_name is None and "/" in name:
        set_name, _, name = name.partition("/")
    found = list(Relation.objects.filter(name=name).select_related("relation_set"))
    if set_name is not None:
        found = [relation for relation in found if relation.relation_set.name == set_name]
    if not found:
        raise NotFound(f"There is no relation {_named(name, set_name)}; {_known_relations(name, set_name)}")
    first = _of_first_rank(found)
    if len(first) > 1:
        raise AmbiguousRelation(f"Several sets have a relation {name!r} ({_paths(first)}); choose one with --set.")
    if others := [relation for relation in found if relation not in first]:
        logger.warning("%r is taken to mean %s, not %s; name the set for another.", name, _paths(first), _paths(others))
    return first[0]


def _of_first_rank(found: Sequence[Relation]) -> Sequence[Relation]:
    own = [relation for relation in found if not relation.relation_set.is_shipped]
    return own or [relation for relation in found if relation.relation_set.name == DEMO_SET] or found


def _paths(relations: Sequence[Relation]) -> str:
    return ", ".join(relation.path for relation in relations)


def relations_of_set(name: str) -> list[Relation]:
    """Return the relations of a set. Raises NotFound if there is no such set or it is empty."""
    relations = list(Relation.objects.filter(relation_set__name=name).select_related("relation_set"))
    if not relations:
        names = ", ".join(RelationSet.objects.values_list("name", flat=True)) or "none yet"
        raise NotFound(f"There is no set of relations {name!r}; the sets are: {names}.")
    return relations


def _named(name: str, set_name: str | None) -> str:
    return f"{name!r} in the set {set_name!r}" if set_name else repr(name)


def _known_relations(name: str, set_name: str | None) -> str:
    relations = Relation.objects.filter(relation_set__name=set_name) if set_name else Relation.objects.all()
    names = sorted(set(relations.values_list("name", flat=True)))
    if not names:
        return "import some with import_relations first."
    shown = get_close_matches(name, names, n=5) or names[:10]
    return f"choose one of {', '.join(shown)}{' and others' if len(names) > len(shown) else ''}."
