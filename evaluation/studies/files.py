"""Study files: TOML or JSON on disk, built-in studies, the line of each key, and writing TOML."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any

from evaluation.studies.schema import faults_of
from evaluation.studies.sections import Fault, KeyPath, sections_of
from kgharvest.bulk.file_reading import members_of, read_bytes, read_json, read_text
from kgharvest.errors import BadEntry, DomainError, ImportRefused
from kgharvest.harvests.heads import read_heads
from kgharvest.relations.checks import relation_errors
from kgharvest.relations.files import EXPORTED_COLUMNS, read_relation_file

BUILT_IN = Path(__file__).parent / "built_in"
SUFFIXES = (".toml", ".json")
SMALL = "small"
# Strings, comments, and characters that begin or end a statement of TOML
TOML_TOKEN = re.compile(
    r"""
    "{3} (?: \\. | [^\\] )*? "{3,5} | '{3} .*? '{3,5}  # strings of several lines can end with two more quotes
    | " (?: \\. | [^"\\] )* " | ' [^']* '
    | \# [^\n]*
    | [\[\]{}\n]
    """,
    re.VERBOSE | re.DOTALL,
)


def built_in_studies() -> dict[str, Path]:
    """Return the files of the built-in studies by name."""
    return {path.stem: path for path in sorted(BUILT_IN.glob("*.toml"))}


def study_path(study: str) -> Path:
    """Return the file of a study: a path if it has a suffix or a separator, otherwise a built-in study.

    Raises NoSuchStudy.
    """
    path = Path(study)
    if path.suffix or os.sep in study:
        return path
    if study not in (built_in := built_in_studies()):
        raise DomainError(
            "NoSuchStudy",
            f"There is no built-in study {study!r:.80}. Choose one of {', '.join(built_in)}, or give a file such as "
            f"{study[:40]}.toml.",
        )
    return built_in[study]


def folder_of(path: Path) -> Path:
    """Return the folder of the files that a study reads and writes: that of built-in studies is the current folder."""
    return Path() if path.parent == BUILT_IN else path.parent


def read_study(path: Path, small: bool = False) -> dict[str, Any]:
    """Return the valid document of a study file, with the contents of its relation files and other files.

    small: with the `small` sections. Raises NoSuchFile, or ImportRefused with the line of each error.
    """
    try:
        return _with_contents(path, written_study(path, small))
    except DomainError as refusal:
        if refusal.code != "NoSuchFile" or path.parent != BUILT_IN:
            raise
        advice = f"docs/studies.md explains where to get the files of {path.stem}; --small needs none."
        raise DomainError(refusal.code, f"{refusal} The folder is {Path.cwd()}. {advice}") from None


def _with_contents(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the contents of its files."""
    folder = folder_of(path)
    document["relations"] = list(_with_files_read(document["relations"], folder))
    names = [relation["name"] for relation in document["relations"] if "name" in relation]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        fault = Fault(("relations",), f"relations has {repeated[0]} more than once. Remove one of them")
        _refuse(path, _Lines(read_text(path), path), [fault])
    for harvests in document.get("harvests", []):
        if heads_file := harvests.pop("heads_file", ""):
            harvests["heads"] = [*harvests.get("heads", []), *read_heads(folder / heads_file)]
    for section in sections_of(document):
        document[section.key] = section.with_files_read(document[section.key], folder)
    return document


def written_study(path: Path, small: bool = False) -> dict[str, Any]:
    """Return the valid document of a study file as it is written. Raises as read_study."""
    text = read_text(path)
    document = _parse(text, path)
    lines = _Lines(text, path)
    sections = document.pop(SMALL, None) if isinstance(document, dict) else None
    if small:
        if not isinstance(sections, dict):
            raise DomainError(
                "NoSmallStudy", f"{path.name} has no small version. Omit --small, or add a table [{SMALL}]."
            )
        fixed = sections.keys() & {"name", SMALL}
        _refuse(path, lines, [Fault((SMALL, key), f"{SMALL}.{key} cannot be replaced. Remove it") for key in fixed])
        document |= sections | {"name": f"{document.get('name', '')}-{SMALL}"}
    faults = faults_of(document)
    if small:
        faults = [Fault((SMALL, *path) if path and path[0] in sections else path, reason) for path, reason in faults]
    _refuse(path, lines, faults)
    return document


def has_small_version(path: Path) -> bool:
    """Return whether the file has `small` sections. Raises as read_study."""
    document = _parse(read_text(path), path)
    return isinstance(document, dict) and SMALL in document


def _parse(text: str, path: Path) -> Any:
    if path.suffix == ".json":
        return read_json(text, path.name)
    if path.suffix != ".toml":
        raise DomainError("BadStudyFile", f"{path.name} is not a study file. Its name must end in .toml or .json.")
    try:
        return _with_times_as_text(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rpartition(" (at ")
        where = place.rstrip(")") if message else "end of the file"
        raise ImportRefused(path.name, [BadEntry(where, f"is not TOML ({message or place})")]) from None


def _with_times_as_text(value: Any) -> Any:
    """Return the value with dates and times as in JSON."""
    if isinstance(value, dict):
        return {key: _with_times_as_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_times_as_text(inner) for inner in value]
    return value.isoformat() if isinstance(value, date | time) else value


def _refuse(path: Path, lines: "_Lines", faults: list[Fault]) -> None:
    """Raise ImportRefused with the line of each fault, in the order of lines."""
    entries = sorted((lines.of(fault.path), fault.reason) for fault in faults)
    if entries:
        raise ImportRefused(path.name, [BadEntry(f"line {line}", reason) for line, reason in entries])


def _with_files_read(relations: list[dict[str, Any]], folder: Path) -> Iterator[dict[str, Any]]:
    for relation in relations:
        if not relation.get("file"):
            yield relation
            continue
        yield from relations_of_file(folder / relation["file"], relation.get("names", []))


def relations_of_file(source: Path, names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the relations of a relation file as sections of a study. names: default: all. Raises ImportRefused."""
    file = read_relation_file(source.name, read_bytes(source))
    entries = {entry.name: entry for entry in file.entries}
    bad = [BadEntry(entry.where, str(error)) for entry in file.entries for error in relation_errors(entry)]
    bad += [BadEntry("file", f"has no relation {name!r}") for name in names if name not in entries]
    if bad:
        raise ImportRefused(source.name, bad)
    for name in names or entries:
        yield relation_section({"name": name, **entries[name].columns()})


def relation_section(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a relation without empty keys."""
    return {column: columns[column] for column in EXPORTED_COLUMNS if columns[column]}


class _Lines:
    """Lines of the keys of a study file."""

    def __init__(self, text: str, path: Path) -> None:
        self._text, self._is_json = text, path.suffix == ".json"
        self._lines: dict[KeyPath, int] | None = None

    def of(self, path: KeyPath) -> int:
        """Return the line of the key, or of the innermost table or list that contains it, from 1."""
        if self._lines is None:  # only files with errors are scanned
            self._lines = lines_of_keys(self._text, self._is_json)
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


def lines_of_keys(text: str, is_json: bool = False) -> dict[KeyPath, int]:
    """Return the line of each key, table, and element of a valid text, from 1. A repeated table has its first line."""
    lines: dict[KeyPath, int] = {}
    for path, line in _json_lines(text) if is_json else _toml_lines(text):
        lines.setdefault(path, line)
    return lines


def _json_lines(text: str, offset: int = 0, path: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
    first = 1 + text.count("\n", 0, offset)
    for position, member in enumerate(members_of(text, offset)):
        inner = (*path, position if member.name is None else member.name)
        yield inner, member.line
        if isinstance(member.value, dict | list):
            yield from _json_lines(text, member.offset, inner)
    yield path, first


def _toml_lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield the line of each table and key of a valid TOML text."""
    table: KeyPath = ()
    n_elements: dict[KeyPath, int] = {}  # of arrays of tables
    for statement, start in _toml_statements(text):
        parsed = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = ()
            is_array = statement.lstrip().startswith("[[")
            keys = _innermost(parsed)
            for depth, key in enumerate(keys, start=1):
                table = (*table, key)
                if depth == len(keys) and is_array:
                    n_elements[table] = n_elements.get(table, -1) + 1
                if table in n_elements:
                    yield table, start
                    table = (*table, n_elements[table])
            yield table, start
        else:
            for path in _paths(parsed):
                yield (*table, *path), start


def _toml_statements(text: str) -> Iterator[tuple[str, int]]:
    """Yield each statement of a valid TOML text with its first line: table header, key with value, or empty line.

    A statement ends at the first line end outside of strings, arrays, and inline tables.
    """
    begin, line, n_lines, depth = 0, 1, 0, 0
    for token in TOML_TOKEN.finditer(text):
        n_lines += token[0].count("\n")
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
        if token[0] == "\n" and not depth:
            yield text[begin : token.end()], line
            begin, line = token.end(), n_lines + 1
    yield text[begin:], line


def _innermost(parsed: Mapping[str, Any]) -> list[str]:
    """Return the keys of a table header, parsed by itself."""
    keys: list[str] = []
    inner: Any = parsed
    while inner:
        if isinstance(inner, list):
            inner = inner[0]
            continue
        [(key, inner)] = inner.items()
        keys.append(key)
    return keys


def _paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        yield (*path, key)
        yield from _paths(inner, (*path, key))


# Writing


def toml_of(document: Mapping[str, Any], comment: str = "") -> str:
    """Return the document as TOML, without values that are None. comment: first lines of the file."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "\n".join(_toml_table(document, ()))


def _toml_table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    present = {key: value for key, value in table.items() if value is not None}
    tables = {key: value for key, value in present.items() if isinstance(value, dict) or _is_array_of_tables(value)}
    for key, value in present.items():
        if key not in tables:
            yield f"{_toml_key(key)} = {_toml_value(value)}"
    if path or present.keys() - tables.keys():
        yield ""
    for key, value in tables.items():
        name = (*path, key)
        header = ".".join(map(_toml_key, name))
        for inner in value if isinstance(value, list) else [value]:
            yield f"[[{header}]]" if isinstance(value, list) else f"[{header}]"
            yield from _toml_table(inner, name)


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(inner, dict) for inner in value)


def _toml_key(key: str) -> str:
    is_bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if is_bare else _toml_text(key)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # the only other escape of TOML


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_toml_key(key)} = {_toml_value(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list):
        inner = [_toml_value(element) for element in value]
        line = f"[{', '.join(inner)}]"
        return line if len(line) <= 100 else "[\n" + "".join(f"    {element},\n" for element in inner) + "]"
    return json.dumps(value)
