"""Prompts of relations in LPAQA's files: JSON lines of {"template": "[X] ... [Y]", "weight"}, a file per relation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from django.db import transaction

from kgharvest.bulk.file_reading import MOST_LINES, lines_of, read_bytes, read_json_objects
from kgharvest.engine.prompts.template import SPACE_BEFORE_END, PromptTemplate
from kgharvest.engine.types import BadPrompt
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused, NotFound
from kgharvest.models import Prompt, Relation, RelationSet
from kgharvest.pages.number_format import counted
from kgharvest.relations.checks import one_line, sentence_error
from kgharvest.relations.files import LAMA_SLOTS, with_slots
from kgharvest.relations.services import check_is_own

# By the folder that a file lies in, in LPAQA's release and in others.
ORIGINS = {
    "mine": "mined",
    "mined": "mined",
    "paraphrase": "paraphrased",
    "paraphrased": "paraphrased",
    "manual": "manual",
}
IMPORTED = "imported"  # from no such folder
MOST_ENTRIES = 10_000  # files and folders below one that is imported; LPAQA's release has a few hundred


class PromptFile(NamedTuple):
    """name: of which the stem is the relation's name, unless a line names another. origin: of its prompts."""

    name: str
    origin: str
    content: bytes


class FilePrompt(NamedTuple):
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

    def __str__(self) -> str:
        return f"{self.relation.name}: {_counts(self.n_added, self.n_known, self.n_light)}"


class ImportedPrompts(NamedTuple):
    """unknown: relations of the files that the set does not have."""

    relations: list[AddedPrompts]
    unknown: list[str]

    def __str__(self) -> str:
        if len(self.relations) == 1:
            return str(self.relations[0])
        columns = ("n_added", "n_known", "n_light")
        totals = (sum(getattr(added, column) for added in self.relations) for column in columns)
        return f"{len(self.relations)} relations: {_counts(*totals)}"


def _counts(n_added: int, n_known: int, n_light: int) -> str:
    left_out = [f"{n_known} known already"] if n_known else []
    left_out += [f"{n_light} of a smaller weight"] if n_light else []
    rest = f" ({', '.join(left_out)})" if left_out else ""
    return f"{counted(n_added, 'prompt')} added{rest}"


def import_prompts(
    files: Sequence[PromptFile], relation_set: RelationSet, least_weight: float | None = None, by=None
) -> ImportedPrompts:
    """Add the prompts of `files` to the ready prompts of a set's binary relations, each once.

    A relation without ready prompts gets its initial ones first. least_weight: of the prompts that are added. Raises
    ImportRefused with every bad line, NotFound if the set has none of the relations, SetIsShipped or NotAllowed; then
    nothing is stored.
    """
    check_is_own(relation_set, by)
    return _store(relation_set, read_prompts(files), least_weight)


# -- reading -----------------------------------------------------------------------------------------------------------


def prompt_files_at(path: Path, origin: str | None = None) -> list[PromptFile]:
    """Return RELATION.jsonl, or all such files in a folder and those in it, whose names say the origin if it is None.

    Raises NoSuchFile, also for a folder with far more in it than prompts, or ImportRefused for what is not UTF-8.
    """
    paths = _prompt_files_below(path) if path.is_dir() else [path]
    if not paths:
        raise DomainError("NoSuchFile", f"{path} has no file RELATION.jsonl; name another folder.")
    return [
        PromptFile(
            file.name if file == path else file.relative_to(path).as_posix(),
            origin or ORIGINS.get(file.parent.name, IMPORTED),
            read_bytes(file),
        )
        for file in paths
    ]


def _prompt_files_below(folder: Path) -> list[Path]:
    paths, n_seen = [], 0
    for place, folders, files in os.walk(folder):
        n_seen += len(folders) + len(files)
        if n_seen > MOST_ENTRIES:
            raise DomainError(
                "NoSuchFile", f"{folder} has more than {MOST_ENTRIES:,} files below it; name the folder of the prompts."
            )
        paths += [Path(place, name) for name in files if name.endswith(".jsonl")]
    return sorted(paths)


def read_prompts(files: Sequence[PromptFile]) -> list[FilePrompt]:
    """Return the prompts of all files. Raises ImportRefused with every bad line."""
    prompts: list[FilePrompt] = []
    faults = Faults()
    for file in files:
        file_name = f"{file.name}, " if len(files) > 1 else ""
        for line in read_json_objects(lines_of(BytesIO(file.content), file.name)):
            if isinstance(line, BadEntry):
                faults.add(BadEntry(f"{file_name}{line.where}", line.reason))
                continue
            prompt = _prompt_of(line.value, PurePath(file.name).stem, file.origin)
            if isinstance(prompt, str):
                faults.add(BadEntry(f"{file_name}line {line.number}", prompt))
            else:
                prompts.append(prompt)
        if len(prompts) > MOST_LINES:
            raise ImportRefused(file.name, [BadEntry("file", "has too many prompts; leave some out")])
    faults.refuse("the files" if len(files) > 1 else files[0].name)
    return prompts


def _prompt_of(value: Mapping[str, Any], relation: str, origin: str) -> FilePrompt | str:
    """Return the prompt of a line, or what is wrong with it."""
    template, weight = value.get("template"), value.get("weight")
    if reason := template_error(template):
        return reason
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        return f"has the weight {weight!r}, which is no number"
    named = value.get("relation", relation)
    if not isinstance(named, str):
        return f"has the relation {named!r}, which is no text"
    return FilePrompt(named, one_line(with_slots(template)), origin, weight)


def template_error(template: Any) -> str | None:
    """Return why a template with [X] and [Y] is none, or None."""
    if not isinstance(template, str):
        return 'has no text "template"'
    for slot in LAMA_SLOTS:
        if template.count(slot) != 1:
            times = "twice or more" if slot in template else "nowhere"
            return f"has {slot} {times} in {template!r:.200}; write it once"
    if reason := sentence_error(template):
        return reason
    try:
        PromptTemplate.parse(one_line(with_slots(template)))
    except BadPrompt as error:
        return str(error).rstrip(".")
    return None


# -- storing -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def _store(relation_set: RelationSet, prompts: Sequence[FilePrompt], least_weight: float | None) -> ImportedPrompts:
    by_relation: dict[str, list[FilePrompt]] = {}
    for prompt in prompts:
        by_relation.setdefault(prompt.relation, []).append(prompt)
    relations = relation_set.relations.select_for_update().filter(arity=2, name__in=by_relation)
    added = [_add_prompts(relation, by_relation[relation.name], least_weight) for relation in relations]
    unknown = sorted(set(by_relation) - {of_relation.relation.name for of_relation in added})
    if not added:
        shown = ", ".join(unknown[:5]) or "no lines"
        raise NotFound(f"The set {relation_set.name} has no relation of these prompts ({shown}); name another set.")
    return ImportedPrompts(added, unknown)


def _add_prompts(relation: Relation, prompts: Sequence[FilePrompt], least_weight: float | None) -> AddedPrompts:
    heavy = [
        prompt for prompt in prompts if least_weight is None or prompt.weight is None or prompt.weight >= least_weight
    ]
    texts = relation.prompts or list(relation.initial_prompts)
    known = {_as_read(text) for text in [*texts, *relation.initial_prompts]}
    new: dict[str, FilePrompt] = {}
    for prompt in heavy:
        if _as_read(prompt.text) not in known:
            new.setdefault(_as_read(prompt.text), prompt)
    relation.prompts = [*texts, *(prompt.text for prompt in new.values())]
    relation.save(update_fields=["prompts"])
    Prompt.objects.bulk_create(
        [Prompt(relation=relation, text=prompt.text, origin=prompt.origin) for prompt in new.values()],
        ignore_conflicts=True,
    )
    return AddedPrompts(relation, len(new), len(heavy) - len(new), len(prompts) - len(heavy))


def _as_read(text: str) -> str:
    """Return what makes prompts the same: LPAQA has many with and without a space before the full stop."""
    return SPACE_BEFORE_END.sub("", text)


def prompts_with_origins(relation: Relation) -> list[tuple[str, str]]:
    """Return the ready prompts, each with how it came to be where a file said so, else with ""."""
    imported = {*ORIGINS.values(), IMPORTED}
    origins = dict(relation.known_prompts.filter(origin__in=imported).values_list("text", "origin"))
    return [(text, origins.get(text, "")) for text in relation.prompts]
