"""Prompts of relations in LPAQA's files: JSON lines of {"template": "[X] ... [Y]", "weight"}, a file per relation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from kgharvest.engine.prompts.template import SPACE_BEFORE_END, PromptTemplate
from kgharvest.engine.types import BadPrompt
from kgharvest.errors import BadEntry, ImportRefused, NotFound
from kgharvest.models import Prompt, Relation, RelationSet
from kgharvest.services.reading import NoSuchFile, read_json_lines, read_lines
from kgharvest.services.relation_checks import fault_of_text, one_line
from kgharvest.services.relations import SetIsShipped, find_set

# By the folder that a file lies in, in LPAQA's release and in others.
ORIGINS = {
    "mine": "mined",
    "mined": "mined",
    "paraphrase": "paraphrased",
    "paraphrased": "paraphrased",
    "manual": "manual",
}
IMPORTED = "imported"  # from no such folder
SLOTS = {"[X]": "<ENT0>", "[Y]": "<ENT1>"}


class GivenPrompt(NamedTuple):
    """A prompt of a relation that a file has. weight: None where the file has none."""

    relation: str
    text: str
    origin: str
    weight: float | None


class AddedPrompts(NamedTuple):
    """How many prompts a relation got, had already, and was spared because of their small weight."""

    relation: Relation
    n_added: int
    n_known: int
    n_light: int


class ImportedPrompts(NamedTuple):
    """unknown: relations of the files that the set does not have."""

    relations: list[AddedPrompts]
    unknown: list[str]


def import_prompts(
    path: Path, set_name: str, origin: str | None = None, least_weight: float | None = None
) -> ImportedPrompts:
    """Add the prompts of a file or folder to the ready prompts of a set's binary relations, each once.

    A relation without ready prompts gets its initial ones first. origin: where the folder's name does not say it.
    Raises ImportRefused with every line at fault, NoSuchFile, NotFound, or SetIsShipped; then nothing is stored.
    """
    given = read_prompt_files(path, origin)
    relation_set = find_set(set_name)
    if relation_set.is_shipped:
        raise SetIsShipped(f"The set {set_name} comes with the project and stays as it is; duplicate it on its page.")
    return _store(relation_set, given, least_weight)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_prompt_files(path: Path, origin: str | None = None) -> list[GivenPrompt]:
    """Return the prompts of RELATION.jsonl, or of all such files in a folder and those in it.

    Raises NoSuchFile, or ImportRefused with every line at fault.
    """
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise NoSuchFile(f"{path} has no file RELATION.jsonl; name another folder.")
    found: list[GivenPrompt] = []
    faults: list[BadEntry] = []
    for file in files:
        place = "" if file == path else f"{file.relative_to(path)}, "
        for prompt in _prompts_in(file, origin or ORIGINS.get(file.parent.name, IMPORTED)):
            if isinstance(prompt, BadEntry):
                faults.append(BadEntry(f"{place}{prompt.where}", prompt.reason))
            else:
                found.append(prompt)
    if faults:
        raise ImportRefused(path.name, faults)
    return found


def _prompts_in(file: Path, origin: str) -> Iterator[GivenPrompt | BadEntry]:
    for line in read_json_lines(read_lines(file)):
        if isinstance(line, BadEntry):
            yield line
            continue
        given = _prompt_of(line.value, file.stem, origin)
        yield BadEntry(f"line {line.number}", given) if isinstance(given, str) else given


def _prompt_of(value: Any, relation: str, origin: str) -> GivenPrompt | str:
    """Return the prompt of a line, or what is wrong with it."""
    if not isinstance(value, dict):
        return "is no JSON object"
    template, weight = value.get("template"), value.get("weight")
    if fault := fault_of_template(template):
        return fault
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        return f"has the weight {weight!r}, which is no number"
    named = value.get("relation", relation)
    if not isinstance(named, str):
        return f"has the relation {named!r}, which is no text"
    return GivenPrompt(named, with_slots(template), origin, weight)


def fault_of_template(template: Any) -> str | None:
    """Return why a template with [X] and [Y] is none, or None."""
    if not isinstance(template, str):
        return 'has no text "template"'
    for slot in SLOTS:
        if template.count(slot) != 1:
            times = "twice or more" if slot in template else "nowhere"
            return f"has {slot} {times} in {template!r}; write it once"
    try:
        PromptTemplate.parse(with_slots(template))
    except BadPrompt as error:
        return str(error).rstrip(".")
    return fault_of_text(template)


def with_slots(template: str) -> str:
    for slot, entity in SLOTS.items():
        template = template.replace(slot, entity)
    return one_line(template)


# -- storing -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def _store(relation_set: RelationSet, given: Sequence[GivenPrompt], least_weight: float | None) -> ImportedPrompts:
    by_relation: dict[str, list[GivenPrompt]] = {}
    for prompt in given:
        by_relation.setdefault(prompt.relation, []).append(prompt)
    relations = relation_set.relations.select_for_update().filter(arity=2, name__in=by_relation)
    added = [_add(relation, by_relation[relation.name], least_weight) for relation in relations]
    unknown = sorted(set(by_relation) - {one.relation.name for one in added})
    if not added:
        shown = ", ".join(unknown[:5]) or "no lines"
        raise NotFound(f"The set {relation_set.name} has no relation of these prompts ({shown}); name another set.")
    return ImportedPrompts(added, unknown)


def _add(relation: Relation, given: Sequence[GivenPrompt], least_weight: float | None) -> AddedPrompts:
    heavy = [one for one in given if least_weight is None or one.weight is None or one.weight >= least_weight]
    texts = relation.prompts or list(relation.initial_prompts)
    known = {_as_read(text) for text in [*texts, *relation.initial_prompts]}
    new: dict[str, GivenPrompt] = {}
    for one in heavy:
        if _as_read(one.text) not in known:
            new.setdefault(_as_read(one.text), one)
    relation.prompts = [*texts, *(one.text for one in new.values())]
    relation.save(update_fields=["prompts"])
    Prompt.objects.bulk_create(
        [Prompt(relation=relation, text=one.text, origin=one.origin) for one in new.values()], ignore_conflicts=True
    )
    return AddedPrompts(relation, len(new), len(heavy) - len(new), len(given) - len(heavy))


def _as_read(text: str) -> str:
    """Return what makes prompts the same: LPAQA has many with and without a space before the full stop."""
    return SPACE_BEFORE_END.sub("", text)


def prompts_with_origins(relation: Relation) -> list[tuple[str, str]]:
    """Return the ready prompts, each with how it came to be where a file said so, else with ""."""
    imported = {*ORIGINS.values(), IMPORTED}
    origins = dict(relation.known_prompts.filter(origin__in=imported).values_list("text", "origin"))
    return [(text, origins.get(text, "")) for text in relation.prompts]
