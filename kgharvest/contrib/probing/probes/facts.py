"""Facts and prompts of a probe by relation, from the embedded LMs' world or from files in LAMA's format."""

import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, BytesIO
from itertools import count
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, BinaryIO, NamedTuple

from kgharvest.bulk.file_reading import MOST_LINES, lines_of, opened, read_bytes, read_json_objects
from kgharvest.bulk.file_values import BadValue, read_entities
from kgharvest.embedded_lm.world import load_world
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused
from kgharvest.models import Relation
from kgharvest.relations.checks import one_line
from kgharvest.relations.files import with_slots
from kgharvest.relations.prompt_files import ORIGINS, prompts_with_origins, template_error

PARTS = ("train", "dev", "test")
# Raised by zipfile; ValueError: negative offsets, RuntimeError: encrypted files.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, struct.error)
ARCHIVE_START = b"PK"
LARGEST_ARCHIVE = 200 << 20  # bytes, unpacked
FACT_KEYS = (("sub_label", "sub"), ("obj_label", "obj"))  # LAMA's key, and the key in our files and in ConceptNet
RELATION_KEYS = ("relation", "predicate_id")
RELATION_TYPES = ("1-1", "N-1", "N-M")  # as in LAMA
MANY = 1.5  # minimum average that counts as "many" (Bordes et al. 2013, section 4.2)
NO_RELATION = 'has no relation; add "relation"'
MOST_COMMON = 10  # masked sentences of a relation that occur more often are prompts (Qin & Eisner 2021, section 4.4)
N_ORDERS = 100  # orders of objects tried by the split without common objects
SPLITS = {
    "random": "80 % train, 10 % dev, and 10 % test, as for Google-RE and ConceptNet",
    "original": "80 % train and 20 % dev of the facts that are not in the part test, as for T-REx original",
    "extended": "60 % train, 20 % dev, and 20 % test, as for T-REx extended",
    "distinct-objects": "about 80 % train, 10 % dev, and 10 % test, with no object in two parts",
}
SHARES = {"random": (0.8, 0.1, 0.1), "original": (0.8, 0.2, 0.0), "extended": (0.6, 0.2, 0.2)}

Pairs = tuple[tuple[str, str], ...]
FactsByPart = Mapping[str, Pairs]


class NotProbed(DomainError):
    """Facts or prompts are unusable, or the LM cannot be probed."""


@dataclass(frozen=True)
class ProbeRelation:
    """A binary relation with facts in three parts.

    prompts: manual prompt first. type: relation type, as in LAMA. origins: mined, paraphrased, and manual prompts, if
    their origin is known.
    """

    name: str
    prompts: tuple[str, ...]
    facts: FactsByPart
    type: str = ""
    origins: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Document(NamedTuple):
    """A file of JSON lines. relation, part, origin (of prompts): stated by its name and folder, or None."""

    source: str
    open_file: Callable[[], AbstractContextManager[BinaryIO]]
    relation: str | None = None
    part: str | None = None
    origin: str | None = None


def documents_in(path: Path) -> list[Document]:
    """Return documents from a folder or ZIP file of RELATION/PART.jsonl or RELATION.jsonl, or from one JSON lines file.

    Raises NoSuchFile, NotProbed, or ImportRefused.
    """
    if path.is_dir():
        files = sorted([*path.glob("*.jsonl"), *path.glob("*/*.jsonl")])
        return [
            _document(file.relative_to(path).as_posix(), partial(opened, file), ORIGINS.get(file.parent.name))
            for file in files
        ]
    with opened(path) as file:
        is_archive = file.read(2) == ARCHIVE_START
    return documents_of(path.name, read_bytes(path)) if is_archive else [Document(path.name, partial(opened, path))]


def documents_of(name: str, content: bytes) -> list[Document]:
    """Return documents from the content of a ZIP file or JSON lines file."""
    if not content.startswith(ARCHIVE_START):
        return [Document(name, partial(BytesIO, content))]
    with _unpacking(name):
        archive = zipfile.ZipFile(BytesIO(content))
    paths = [(PurePosixPath(member.filename), member) for member in archive.infolist()]
    # macOS adds metadata files whose names begin with a dot.
    members = [entry for entry in paths if entry[0].suffix == ".jsonl" and not entry[0].name.startswith(".")]
    if sum(member.file_size for _, member in members) > LARGEST_ARCHIVE:
        raise NotProbed(f"{name} unpacks to more than {LARGEST_ARCHIVE >> 20} MB. Use fewer facts.")
    return [
        _document(member.filename, partial(_unpacked, archive, member, name), ORIGINS.get(path.parent.name))
        for path, member in members
    ]


@contextmanager
def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Iterator[BinaryIO]:
    """Open a file in a ZIP file for reading without loading it into memory."""
    with _unpacking(name), archive.open(member) as file:
        yield BufferedReader(file)


@contextmanager
def _unpacking(name: str) -> Iterator[None]:
    try:
        yield
    except ZIP_ERRORS as error:
        raise NotProbed(f"{name} cannot be unpacked ({error}). Create the ZIP file again.") from error


def _document(name: str, open_file: Callable[[], AbstractContextManager[BinaryIO]], origin: str | None) -> Document:
    """Derive the relation and the part from a path RELATION/PART.jsonl or RELATION.jsonl."""
    path = PurePosixPath(name)
    if path.stem in PARTS and path.parent.name:
        return Document(name, open_file, path.parent.name, path.stem)
    return Document(name, open_file, path.stem, origin=origin)


LineReader = Callable[[dict[str, Any], Document], str | None]  # returns a description of the line's problem, or None


def read_documents(documents: Iterable[Document], read_line: LineReader) -> None:
    """Call `read_line` for each line. Raises NotProbed, or ImportRefused for invalid lines or more than MOST_LINES."""
    documents = list(documents)
    source = documents[0].source if len(documents) == 1 else "the files"
    faults, numbers = Faults(), count(1)

    def limited(lines: Iterable[str]) -> Iterator[str]:
        for line, number in zip(lines, numbers, strict=False):
            if number > MOST_LINES:
                raise ImportRefused(source, [BadEntry("all", f"more than {MOST_LINES:,} lines in total; use a sample")])
            yield line

    for document in documents:
        prefix = f"{document.source}, " if len(documents) > 1 else ""
        with document.open_file() as file:
            for line in read_json_objects(limited(lines_of(file, document.source))):
                if isinstance(line, BadEntry):
                    faults.add(BadEntry(f"{prefix}{line.where}", line.reason))
                elif reason := read_line(line.value, document):
                    faults.add(BadEntry(f"{prefix}line {line.number}", reason))
    faults.refuse(source)


def _first(line: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((line[key] for key in keys if key in line), None)


def _relation_of(line: Mapping[str, Any], document: Document, relations: Collection[str]) -> str | None:
    """Return the relation from the folder, the line, or the file name. Default: the only one of `relations`."""
    predicate = str(line.get("pred") or "").rpartition("/")[2]  # Google-RE: /people/person/place_of_birth
    name = document.relation if document.part else _first(line, RELATION_KEYS) or predicate or document.relation
    if name is None and len(relations) == 1:
        name = next(iter(relations))
    return name if isinstance(name, str) else None


def split_world() -> dict[str, FactsByPart]:
    """Return the facts of the embedded LMs' world by relation, randomly split 2:1:2 into train, dev, and test."""
    facts_by_relation = {}
    for relation in load_world():
        facts = list(relation.facts)
        Random(0).shuffle(facts)
        first, second = 2 * len(facts) // 5, 3 * len(facts) // 5
        parts = facts[:first], facts[first:second], facts[second:]
        facts_by_relation[relation.name] = dict(zip(PARTS, map(tuple, parts), strict=True))
    return facts_by_relation


def read_facts(
    documents: Sequence[Document],
    relations: Collection[str],
    fact_of_line: Callable[[Mapping[str, Any], tuple[str, str]], Any] = lambda line, pair: pair,
    split: str = "",
) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return the facts in {"sub", "obj"} lines by relation and part, as stated in the line or by its folder.

    relations: names of the relations to probe; a single one is the default. fact_of_line: returns the fact for a line
    and its pair, or a description of the problem. split: if it is not empty, facts need no part. As in LAMA, facts of
    Google-RE are skipped if more raters reject than confirm them. Raises ImportRefused with all invalid lines.
    """
    facts: dict[str, dict[str, list[Any]]] = {}

    def read_line(line: dict[str, Any], document: Document) -> str | None:
        relation = _relation_of(line, document, relations)
        part = document.part or line.get("part", PARTS[0] if split else None)
        pair = [_first(line, keys) for keys in FACT_KEYS]
        if relation is None:
            return NO_RELATION
        if part not in PARTS:
            return f'has no part; add "part": {", ".join(PARTS[:-1])}, or {PARTS[-1]}'
        if any(not isinstance(entity, str) for entity in pair):
            return 'lacks the texts "sub" and "obj"'
        try:
            subject, object_ = read_entities(pair, 2)
        except BadValue as fault:
            return str(fault)
        ratings = line.get("judgments")
        ratings = ratings if isinstance(ratings, list) else ()
        verdicts = [rating.get("judgment") for rating in ratings if isinstance(rating, dict)]
        if verdicts.count("no") > verdicts.count("yes"):
            return None
        fact = fact_of_line(line, (subject, object_))
        if isinstance(fact, str):
            return fact
        facts.setdefault(relation, {part: [] for part in PARTS})[part].append(fact)
        return None

    read_documents(documents, read_line)
    return {name: {part: tuple(pairs) for part, pairs in parts.items()} for name, parts in facts.items()}


def split_facts(facts: FactsByPart, split: str, seed: int) -> FactsByPart:
    """Return the distinct facts of a relation, split at random. split: one of SPLITS."""
    rng = Random(seed)
    test = dict.fromkeys(facts.get("test", ())) if split == "original" else {}
    pairs = [pair for pair in dict.fromkeys(pair for part in facts.values() for pair in part) if pair not in test]
    if split == "distinct-objects":
        parts = _split_by_object(pairs, rng)
    else:
        rng.shuffle(pairs)
        train, dev, _ = SHARES[split]
        first, second = round(train * len(pairs)), round((train + dev) * len(pairs))
        parts = [pairs[:first], pairs[first:second], pairs[second:] or list(test)]
    return dict(zip(PARTS, map(tuple, parts), strict=True))


def _split_by_object(pairs: Sequence[tuple[str, str]], rng: Random) -> list[list[tuple[str, str]]]:
    """Split into three parts without common objects. Of several random orders, use the one closest to 80-10-10.

    In each order, the facts of the next object go to the part that lacks the most facts.
    """
    by_object: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        by_object.setdefault(pair[1], []).append(pair)
    targets = [share * len(pairs) for share in SHARES["random"]]
    splits = []
    for _ in range(N_ORDERS):
        parts: list[list[tuple[str, str]]] = [[] for _ in PARTS]
        for group in rng.sample(list(by_object.values()), len(by_object)):
            lacking = [target - len(part) for target, part in zip(targets, parts, strict=True)]
            parts[lacking.index(max(lacking))] += group
        splits.append((sum(abs(target - len(part)) for target, part in zip(targets, parts, strict=True)), parts))
    return min(splits, key=lambda entry: entry[0])[1]


@dataclass
class Prompts:
    """Content of a prompt file by relation: texts with slots, the texts by origin, and relation types, if stated."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def add(self, relation: str, text: str, origin: str | None) -> None:
        self.texts.setdefault(relation, []).append(text)
        if origin:
            self.origins.setdefault(relation, {}).setdefault(origin, []).append(text)


def read_prompts(documents: Sequence[Document], relations: Collection[str]) -> Prompts:
    """Return prompts from {"template": "[X] ... [Y]"} lines, optionally with "origin", or "type" as in LAMA's file.

    Lines with "masked_sentences", as in LAMA's ConceptNet, are examples. Without their entities, they are prompts if
    they occur more than MOST_COMMON times. Raises ImportRefused.
    """
    prompts, examples = Prompts(), Counter[tuple[str, str]]()

    def read_line(line: dict[str, Any], document: Document) -> str | None:
        relation = _relation_of(line, document, relations)
        template, type_name = line.get("template"), line.get("type")
        origin = line.get("origin", document.origin)
        if relation is None:
            return NO_RELATION
        if template is None and isinstance(line.get("masked_sentences"), list):
            examples.update((relation, text) for text in example_templates(line))
            return None
        if fault := template_error(template):
            return fault
        if type_name is not None and type_name not in RELATION_TYPES:
            return f"has the type {type_name!r}; use {', '.join(RELATION_TYPES)}, or omit it"
        if origin not in (None, *ORIGINS.values()):
            return f"has the origin {origin!r}; use {', '.join(dict.fromkeys(ORIGINS.values()))}, or omit it"
        prompts.add(relation, one_line(with_slots(template)), origin)
        if type_name:
            prompts.types[relation] = type_name
        return None

    read_documents(documents, read_line)
    for (relation, text), n in examples.most_common():
        if n > MOST_COMMON:
            prompts.add(relation, text, None)
    return prompts


def example_templates(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the masked sentences of a fact in which the subject occurs once, with slots in place of its entities."""
    subject = str(_first(line, FACT_KEYS[0]) or "")
    for sentence in line["masked_sentences"]:
        template = re.sub(rf"\b{re.escape(subject)}\b", "[X]", str(sentence), flags=re.IGNORECASE)
        template = template.replace("[MASK]", "[Y]")
        if subject and template_error(template) is None:
            yield one_line(with_slots(template))


def relations_from(
    relations: Sequence[Relation],
    facts: Sequence[Document] | None,
    prompts: Sequence[Document] | None,
    split: str,
    seed: int,
) -> list[ProbeRelation]:
    """Return the result of `probe_relations` for documents with facts and prompts (None: none given)."""
    names = [relation.name for relation in relations]
    facts_by_name = None if facts is None else read_facts(facts, names, split=split)
    return probe_relations(relations, facts_by_name, prompts and read_prompts(prompts, names), split, seed)


def read_words(name: str, content: bytes) -> list[str]:
    """Return the words of a file with one word per line. Raises ImportRefused or NotProbed."""
    words = [line.strip() for line in lines_of(BytesIO(content), name) if line.strip()]
    if not words:
        raise NotProbed(f"{name} contains no words. Add one word per line.")
    return words


def relation_type(pairs: Collection[tuple[str, str]]) -> str:
    """Return the relation type of at least one (subject, object) pair.

    N-M if a subject has at least 1.5 objects on average; otherwise N-1 if an object has that many subjects; otherwise
    1-1.
    """
    distinct = set(pairs)
    if len(distinct) / len({subject for subject, _ in distinct}) >= MANY:
        return "N-M"
    return "N-1" if len(distinct) / len({obj for _, obj in distinct}) >= MANY else "1-1"


def probe_relations(
    relations: Sequence[Relation],
    facts: Mapping[str, FactsByPart] | None = None,
    more: Prompts | None = None,
    split: str = "",
    seed: int = 0,
) -> list[ProbeRelation]:
    """Return the binary relations with facts in `facts` (by relation name; default: the embedded LMs' world).

    more: additional prompts. Prompts of the origin "manual" precede those of the relation. split: one of SPLITS, or
    empty for the parts of `facts`. Raises NotProbed.
    """
    names = [relation.name for relation in relations]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise NotProbed(f"Two relations have the name {min(repeated)}. Probe them separately.")
    facts_by_name = split_world() if facts is None else facts
    more = more or Prompts()
    probed = []
    for relation in relations:
        if relation.arity == 2 and relation.name in facts_by_name:
            parts = facts_by_name[relation.name]
            if split:
                parts = split_facts(parts, split, seed)
            if missing := [part for part in PARTS if not parts.get(part)]:
                raise NotProbed(
                    f"{relation.name} has no {' and no '.join(missing)} facts. Add at least one each of "
                    f"{', '.join(PARTS)}."
                )
            origins = dict(more.origins.get(relation.name, {}))
            for text, origin in prompts_with_origins(relation):
                if origin in ORIGINS.values():
                    origins[origin] = [*origins.get(origin, ()), text]
            manual = more.origins.get(relation.name, {}).get("manual", ())
            texts = [*manual, *relation.initial_prompts, *relation.prompts]
            texts += more.texts.get(relation.name, ())
            type_name = more.types.get(relation.name) or relation_type([pair for part in PARTS for pair in parts[part]])
            origins = {origin: tuple(dict.fromkeys(prompts)) for origin, prompts in origins.items()}
            probed.append(ProbeRelation(relation.name, tuple(dict.fromkeys(texts)), parts, type_name, origins))
    if not probed:
        source = "The embedded LMs' world" if facts is None else "The file"
        raise NotProbed(f"{source} has no facts for these relations. Add facts with two entities and a relation name.")
    return probed
