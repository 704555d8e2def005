"""Facts and prompts of a probe, by relation: from the embedded LMs' world, or from files in LAMA's format."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, BytesIO
from itertools import count
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, BinaryIO, NamedTuple

from kgharvest.bulk.file_reading import MOST_LINES, entities_error, lines_of, opened, read_bytes, read_json_objects
from kgharvest.embedded_lm.world import load_world
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused
from kgharvest.models import Relation
from kgharvest.relations.checks import one_line
from kgharvest.relations.files import with_slots
from kgharvest.relations.prompt_files import template_error

PARTS = ("train", "dev", "test")
# What zipfile raises: ValueError for places before the file, RuntimeError for encrypted files.
DAMAGED_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
    ValueError,
    struct.error,
)
ARCHIVE_START = b"PK"
LARGEST_ARCHIVE = 200 << 20  # bytes, unpacked
FACT_KEYS = {"sub": ("sub", "sub_label"), "obj": ("obj", "obj_label")}  # this project's, LAMA's
RELATION_KEYS = ("relation", "predicate_id")
RELATION_TYPES = ("1-1", "N-1", "N-M")  # as in LAMA
MANY = 1.5  # so many on average count as many (Bordes et al. 2013, section 4.2)
NO_RELATION = 'names no relation; add "relation"'

Pairs = tuple[tuple[str, str], ...]
FactsByPart = Mapping[str, Pairs]


class NotProbed(DomainError):
    """Facts or prompts that no probe can use, or an LM that cannot be probed."""


@dataclass(frozen=True)
class ProbeRelation:
    """A binary relation with facts in three parts. prompts: the one that people wrote first. type: as in LAMA."""

    name: str
    prompts: tuple[str, ...]
    facts: FactsByPart
    type: str = ""


# -- files -------------------------------------------------------------------------------------------------------------


class Document(NamedTuple):
    """A file of JSON lines, and which relation and part they are about where folder and name of the file say it."""

    source: str
    open_file: Callable[[], AbstractContextManager[BinaryIO]]
    relation: str | None = None
    part: str | None = None


def documents_in(path: Path) -> list[Document]:
    """Return the JSON lines of a folder of RELATION/PART.jsonl or RELATION.jsonl, of such a ZIP file, or of one file.

    Raises NoSuchFile, NotProbed or ImportRefused.
    """
    if path.is_dir():
        files = sorted([*path.glob("*.jsonl"), *path.glob("*/*.jsonl")])
        return [_document(file.relative_to(path).as_posix(), partial(opened, file)) for file in files]
    with opened(path) as file:
        is_archive = file.read(2) == ARCHIVE_START
    return documents_of(path.name, read_bytes(path)) if is_archive else [Document(path.name, partial(opened, path))]


def documents_of(name: str, content: bytes) -> list[Document]:
    """Return the JSON lines of a file that was handed in: a ZIP file, or else one of JSON lines."""
    if not content.startswith(ARCHIVE_START):
        return [Document(name, partial(BytesIO, content))]
    with _unpacking(name):
        archive = zipfile.ZipFile(BytesIO(content))
    paths = [(PurePosixPath(member.filename), member) for member in archive.infolist()]
    # Names that begin with a dot are notes of macOS.
    members = [member for path, member in paths if path.suffix == ".jsonl" and not path.name.startswith(".")]
    if sum(member.file_size for member in members) > LARGEST_ARCHIVE:
        raise NotProbed(f"{name} unpacks to more than {LARGEST_ARCHIVE >> 20} MB; give fewer facts.")
    return [_document(member.filename, partial(_unpacked, archive, member, name)) for member in members]


@contextmanager
def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Iterator[BinaryIO]:
    """Open a file in a ZIP file for reading; its lines never lie in memory together."""
    with _unpacking(name), archive.open(member) as file:
        yield BufferedReader(file)


@contextmanager
def _unpacking(name: str) -> Iterator[None]:
    try:
        yield
    except DAMAGED_ARCHIVE as error:
        raise NotProbed(f"{name} is no ZIP file that can be unpacked ({error}); make it anew.") from error


def _document(name: str, open_file: Callable[[], AbstractContextManager[BinaryIO]]) -> Document:
    """Say by RELATION/PART.jsonl or RELATION.jsonl what the lines are about."""
    path = PurePosixPath(name)
    if path.stem in PARTS and path.parent.name:
        return Document(name, open_file, path.parent.name, path.stem)
    return Document(name, open_file, path.stem)


LineReader = Callable[[dict[str, Any], Document], str | None]  # returns what is wrong with the line, if anything is


def read_documents(documents: Iterable[Document], read_line: LineReader) -> None:
    """Let `read_line` have each line. Raises NotProbed, or ImportRefused with lines at fault or beyond MOST_LINES."""
    documents = list(documents)
    source = documents[0].source if len(documents) == 1 else "the files"
    faults = Faults()
    numbers = count(1)
    for document in documents:
        with document.open_file() as file:
            lines = _limited(lines_of(file, document.source), numbers, source)
            for fault in _faults(document, lines, read_line, len(documents) > 1):
                faults.add(fault)
    faults.refuse(source)


def _limited(lines: Iterable[str], numbers: Iterator[int], source: str) -> Iterator[str]:
    for line, number in zip(lines, numbers, strict=False):
        if number > MOST_LINES:
            raise ImportRefused(source, [BadEntry("all", f"have more than {MOST_LINES:,} lines; draw a sample")])
        yield line


def _faults(
    document: Document, lines: Iterable[str], read_line: LineReader, is_one_of_many: bool
) -> Iterator[BadEntry]:
    source = f"{document.source}, " if is_one_of_many else ""
    for line in read_json_objects(lines):
        if isinstance(line, BadEntry):
            yield BadEntry(f"{source}{line.where}", line.reason)
        elif reason := read_line(line.value, document):
            yield BadEntry(f"{source}line {line.number}", reason)


def _first(line: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((line[key] for key in keys if key in line), None)


def _relation_of(line: Mapping[str, Any], document: Document, relations: Collection[str]) -> str | None:
    """Return the relation of the line's folder, of itself or of its file; of no place, the only one of `relations`."""
    named = document.relation if document.part else _first(line, RELATION_KEYS) or document.relation
    if named is None and len(relations) == 1:
        named = next(iter(relations))
    return named if isinstance(named, str) else None


# -- facts -------------------------------------------------------------------------------------------------------------


def split_world() -> dict[str, FactsByPart]:
    """Return the facts of the embedded LMs' world by relation: two fifths, one fifth and two fifths, at random."""
    worlds = {}
    for relation in load_world():
        facts = list(relation.facts)
        Random(0).shuffle(facts)
        first, second = 2 * len(facts) // 5, 3 * len(facts) // 5
        parts = facts[:first], facts[first:second], facts[second:]
        worlds[relation.name] = dict(zip(PARTS, map(tuple, parts), strict=True))
    return worlds


def read_facts(
    documents: Sequence[Document],
    relations: Collection[str],
    fact_of_line: Callable[[Mapping[str, Any], tuple[str, str]], Any] = lambda line, pair: pair,
) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return the facts in {"sub", "obj"} lines by relation and part; a line says itself what its folder does not.

    relations: the ones to be probed; the only one of them is meant where none is named. fact_of_line: makes a fact of a
    line and its pair, or says what is wrong with it. Raises ImportRefused with every line at fault.
    """
    facts: dict[str, dict[str, list[Any]]] = {}

    def read_line(line: dict[str, Any], document: Document) -> str | None:
        relation = _relation_of(line, document, relations)
        part = document.part or line.get("part")
        pair = [_first(line, keys) for keys in FACT_KEYS.values()]
        if relation is None:
            return NO_RELATION
        if part not in PARTS:
            return f'is in no part; add "part": {", ".join(PARTS[:-1])} or {PARTS[-1]}'
        if any(not isinstance(entity, str) for entity in pair):
            return 'has no texts "sub" and "obj"'
        if fault := entities_error(pair, 2):
            return fault
        fact = fact_of_line(line, (pair[0], pair[1]))
        if isinstance(fact, str):
            return fact
        facts.setdefault(relation, {part: [] for part in PARTS})[part].append(fact)
        return None

    read_documents(documents, read_line)
    return {name: {part: tuple(pairs) for part, pairs in parts.items()} for name, parts in facts.items()}


def check_parts(name: str, facts: FactsByPart) -> None:
    """Raises NotProbed unless there is a fact to learn from, one to choose by and one to ask."""
    n_facts = sum(map(len, facts.values()))
    if n_facts == 1:
        raise NotProbed(f"{name} has one fact; a probe needs at least one each of {', '.join(PARTS)}.")
    if lacking := [part for part in PARTS if not facts.get(part)]:
        raise NotProbed(
            f"{name} has no {' and no '.join(lacking)} facts; give at least one each of {', '.join(PARTS)}."
        )


# -- prompts and types -------------------------------------------------------------------------------------------------


@dataclass
class Prompts:
    """What a file of prompts says: texts with slots by relation, and types of relations where it has them."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


def read_prompts(documents: Sequence[Document], relations: Collection[str]) -> Prompts:
    """Return the prompts in {"template": "[X] ... [Y]"} lines; LAMA's file of relations has "type" as well.

    Raises ImportRefused.
    """
    prompts = Prompts()

    def read_line(line: dict[str, Any], document: Document) -> str | None:
        relation = _relation_of(line, document, relations)
        template, its_type = line.get("template"), line.get("type")
        if relation is None:
            return NO_RELATION
        if fault := template_error(template):
            return fault
        if its_type is not None and its_type not in RELATION_TYPES:
            return f"has the type {its_type!r}; write {', '.join(RELATION_TYPES)} or leave it out"
        prompts.texts.setdefault(relation, []).append(one_line(with_slots(template)))
        if its_type:
            prompts.types[relation] = its_type
        return None

    read_documents(documents, read_line)
    return prompts


def read_words(name: str, content: bytes) -> list[str]:
    """Return the words of a file with one a line. Raises ImportRefused or NotProbed."""
    words = [line.strip() for line in lines_of(BytesIO(content), name) if line.strip()]
    if not words:
        raise NotProbed(f"{name} has no words; give one a line.")
    return words


# -- relations ---------------------------------------------------------------------------------------------------------


def relation_type(pairs: Collection[tuple[str, str]]) -> str:
    """Return the type that `pairs` of subject and object, at least one, speak for.

    N-M if a subject has 1.5 objects or more on average, else N-1 if an object has as many subjects, else 1-1.
    """
    distinct = set(pairs)
    if len(distinct) / len({subject for subject, _ in distinct}) >= MANY:
        return "N-M"
    return "N-1" if len(distinct) / len({obj for _, obj in distinct}) >= MANY else "1-1"


def probe_relations(
    relations: Sequence[Relation], facts: Mapping[str, FactsByPart] | None = None, more: Prompts | None = None
) -> list[ProbeRelation]:
    """Return the binary ones of `relations` of which there are `facts`, by name, or facts in the embedded LMs' world.

    more: prompts besides the relations' own. Raises NotProbed.
    """
    names = [relation.name for relation in relations]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise NotProbed(f"Two of these relations are called {min(repeated)}; probe them apart.")
    known = split_world() if facts is None else facts
    probed = [
        _probe_relation(relation, known[relation.name], more or Prompts())
        for relation in relations
        if relation.arity == 2 and relation.name in known
    ]
    if not probed:
        lacking = "The embedded LMs' world has no facts" if facts is None else "The file has no facts"
        raise NotProbed(f"{lacking} of any of these relations; a fact has two entities and its relation's name.")
    return probed


def _probe_relation(relation: Relation, facts: FactsByPart, more: Prompts) -> ProbeRelation:
    check_parts(relation.name, facts)
    texts = [*relation.initial_prompts, *relation.prompts, *more.texts.get(relation.name, ())]
    its_type = more.types.get(relation.name) or relation_type([pair for part in PARTS for pair in facts[part]])
    return ProbeRelation(relation.name, tuple(dict.fromkeys(texts)), facts, its_type)
