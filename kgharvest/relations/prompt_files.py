"""Prompt import from LPAQA files: one JSON Lines file per relation, with {"template": "[X] ... [Y]", "weight"}."""

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
from kgharvest.relations.services import check_can_edit, record_relations

# Origins of prompts by the folder names in LPAQA's release and similar collections.
ORIGINS = {
    "mine": "mined",
    "mined": "mined",
    "paraphrase": "paraphrased",
    "paraphrased": "paraphrased",
    "manual": "manual",
}
IMPORTED = "imported"  # origin of prompts in files in any other folder
ORIGIN_CHOICES = list(dict.fromkeys([*ORIGINS.values(), IMPORTED]))
MOST_ENTRIES = 10_000  # maximum number of files and folders in an imported folder; LPAQA's release has a few hundred


class PromptFile(NamedTuple):
    """A file of prompts. name: file name, whose stem is the relation's name unless a line contains another name.

    origin: origin of the prompts.
    """

    name: str
    origin: str
    content: bytes


class FilePrompt(NamedTuple):
    relation: str
    text: str
    origin: str
    weight: float | None


class AddedPrompts(NamedTuple):
    """Number of added prompts, duplicates, and prompts below the minimum weight."""

    relation: Relation
    n_added: int
    n_duplicate: int
    n_light: int

    def __str__(self) -> str:
        return str(ImportedPrompts([self], []))


class ImportedPrompts(NamedTuple):
    """Result of an import. unknown: names of relations in the files that are missing from the set or not binary."""

    relations: list[AddedPrompts]
    unknown: list[str]

    def __str__(self) -> str:
        n_added, n_duplicate, n_light = map(sum, zip(*(added[1:] for added in self.relations), strict=True))
        n_relations = len(self.relations)
        name = self.relations[0].relation.name if n_relations == 1 else f"{n_relations} relations"
        skipped = [counted(n_duplicate, "duplicate")] if n_duplicate else []
        skipped += [f"{n_light} below the minimum weight"] if n_light else []
        rest = f" (skipped: {', '.join(skipped)})" if skipped else ""
        return f"{name}: {counted(n_added, 'prompt')} added{rest}"


def import_prompts(
    files: Sequence[PromptFile], relation_set: RelationSet, min_weight: float | None = None, by=None
) -> ImportedPrompts:
    """Add the prompts in `files` to the predefined prompts of a set's binary relations, without duplicates.

    If a relation has no predefined prompts, its initial prompts are added first. Raises ImportRefused with all invalid
    lines, NotFound if the set has none of the relations, SetIsShipped, or NotAllowed. Nothing is stored in these cases.
    """
    check_can_edit(relation_set, by)
    prompts = read_prompts(files)
    by_relation: dict[str, list[FilePrompt]] = {}
    for prompt in prompts:
        by_relation.setdefault(prompt.relation, []).append(prompt)
    with transaction.atomic():
        relations = relation_set.relations.select_for_update().filter(arity=2, name__in=by_relation)
        added = [_add_prompts(relation, by_relation[relation.name], min_weight) for relation in relations]
        record_relations(relation_set, [addition.relation for addition in added], by)
    unknown = sorted(set(by_relation) - {added_prompts.relation.name for added_prompts in added})
    if not added:
        names = ", ".join(unknown[:5]) or "empty file"
        raise NotFound(
            f"The set {relation_set.name} has none of the relations of these prompts ({names}). Choose another set."
        )
    return ImportedPrompts(added, unknown)


def prompt_files_at(path: Path, origin: str | None = None) -> list[PromptFile]:
    """Return the file RELATION.jsonl, or all such files in a folder and its subfolders.

    origin: None to derive it from the folder names. Raises NoSuchFile if the file does not exist or the folder has more
    than MOST_ENTRIES entries, and ImportRefused if a file is not UTF-8.
    """
    paths, n_entries = [] if path.is_dir() else [path], 0
    for parent, folders, names in os.walk(path):  # if the path is a file, this yields nothing
        n_entries += len(folders) + len(names)
        if n_entries > MOST_ENTRIES:
            raise DomainError(
                "NoSuchFile", f"{path} has more than {MOST_ENTRIES:,} entries. Choose the folder with the prompts."
            )
        paths += [Path(parent, name) for name in names if name.endswith(".jsonl")]
    if not paths:
        raise DomainError("NoSuchFile", f"{path} contains no RELATION.jsonl file. Choose another folder.")
    return [
        PromptFile(
            file.name if file == path else file.relative_to(path).as_posix(),
            origin or ORIGINS.get(file.parent.name, IMPORTED),
            read_bytes(file),
        )
        for file in sorted(paths)
    ]


def read_prompts(files: Sequence[PromptFile]) -> list[FilePrompt]:
    """Return the prompts of all files. Raises ImportRefused with all invalid lines."""
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
            raise ImportRefused(file.name, [BadEntry("file", f"has more than {MOST_LINES:,} prompts; import fewer")])
    faults.refuse("the files" if len(files) > 1 else files[0].name)
    return prompts


def _prompt_of(value: Mapping[str, Any], relation: str, origin: str) -> FilePrompt | str:
    """Return the prompt in a line, or an error message."""
    template, weight = value.get("template"), value.get("weight")
    if reason := template_error(template):
        return reason
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        return f"the weight {weight!r} is not a number"
    relation = value.get("relation", relation)
    if not isinstance(relation, str):
        return f"the relation {relation!r} is not a text"
    return FilePrompt(relation, one_line(with_slots(template)), origin, weight)


def template_error(template: Any) -> str | None:
    """Return an error message if `template` is not a valid template with [X] and [Y]."""
    if not isinstance(template, str):
        return '"template" is missing or not a text'
    for slot in LAMA_SLOTS:
        if (n_slots := template.count(slot)) != 1:
            return f"{slot} occurs {n_slots} times in {template!r:.200}; use it once"
    if reason := sentence_error(template):
        return reason
    try:
        PromptTemplate.parse(one_line(with_slots(template)))
    except BadPrompt as error:
        return str(error).rstrip(".")
    return None


def _add_prompts(relation: Relation, prompts: Sequence[FilePrompt], min_weight: float | None) -> AddedPrompts:
    heavy = [prompt for prompt in prompts if min_weight is None or prompt.weight is None or prompt.weight >= min_weight]
    texts = relation.prompts or list(relation.initial_prompts)
    # Ignore a space before the full stop, because LPAQA contains many prompts both with and without this space.
    existing_keys = {SPACE_BEFORE_END.sub("", text) for text in [*texts, *relation.initial_prompts]}
    new: dict[str, FilePrompt] = {}
    for prompt in heavy:
        if (key := SPACE_BEFORE_END.sub("", prompt.text)) not in existing_keys:
            new.setdefault(key, prompt)
    relation.prompts = [*texts, *(prompt.text for prompt in new.values())]
    relation.save(update_fields=["prompts"])
    Prompt.objects.bulk_create(
        [Prompt(relation=relation, text=prompt.text, origin=prompt.origin) for prompt in new.values()],
        ignore_conflicts=True,
    )
    return AddedPrompts(relation, len(new), len(heavy) - len(new), len(prompts) - len(heavy))


def prompts_with_origins(relation: Relation) -> list[tuple[str, str]]:
    """Return the predefined prompts with their origins. The origin of a prompt that was not imported is ""."""
    origins = dict(relation.known_prompts.filter(origin__in=ORIGIN_CHOICES).values_list("text", "origin"))
    return [(text, origins.get(text, "")) for text in relation.prompts]
