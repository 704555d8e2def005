"""Verify a pack: recompute every number of its report from its raw rows, without a database or other files."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.evidence.tables import TABLES, Rows, n_rows
from evaluation.paper import round_facts
from evaluation.paper.row_files import BadPack, parquet_differences, read_rows, recompute
from kgharvest.bulk.file_reading import parse_json
from kgharvest.contrib.publishing.packs import audit_chain
from kgharvest.contrib.publishing.packs.archive import checksum_differences, read_pack
from kgharvest.contrib.publishing.packs.companions import rendered_tables
from kgharvest.pages.number_format import counted

# Libraries of linear algebra add in different orders on different machines.
RELATIVE, ABSOLUTE = 1e-9, 1e-12


class _Missing:
    """What a document lacks: equal to no value of JSON, a text that says "missing" among them."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


class Difference(NamedTuple):
    """path: in the document, such as cells[3].accuracy."""

    path: str
    packed: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.path}: packed {_shown(self.packed)}, recomputed {_shown(self.recomputed)}"


def _shown(value: Any) -> str:
    return f"{value!r:.80}"


class DocumentComparison:
    """differences; n_numbers: numbers compared and recomputed; n_repeated: numbers under `repeated` paths."""

    def __init__(self, packed: Any, recomputed: Any, repeated: Collection[str] = ()) -> None:
        self.differences: list[Difference] = []
        self.n_numbers = self.n_repeated = 0
        self._repeated = frozenset(repeated)
        self._compare("", packed, recomputed, is_repeated=False)

    def _compare(self, path: str, packed: Any, recomputed: Any, is_repeated: bool) -> None:
        is_repeated = is_repeated or path in self._repeated
        if isinstance(packed, Mapping) and isinstance(recomputed, Mapping):
            for key in dict.fromkeys((*packed, *recomputed)):
                values = packed.get(key, MISSING), recomputed.get(key, MISSING)
                self._compare(f"{path}.{key}" if path else str(key), *values, is_repeated)
        elif isinstance(packed, list) and isinstance(recomputed, list):
            if len(packed) != len(recomputed):
                self.differences.append(Difference(f"{path} (entries)", len(packed), len(recomputed)))
            for number, values in enumerate(zip(packed, recomputed, strict=False)):
                self._compare(f"{path}[{number}]", *values, is_repeated)
        else:
            self._compare_values(path, packed, recomputed, is_repeated)

    def _compare_values(self, path: str, packed: Any, recomputed: Any, is_repeated: bool) -> None:
        if not _are_equal(packed, recomputed):
            self.differences.append(Difference(path, packed, recomputed))
        if _is_number(packed) or _is_number(recomputed):
            self.n_repeated += is_repeated
            self.n_numbers += not is_repeated


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_equal(packed: Any, recomputed: Any) -> bool:
    """Compare two values of JSON. A float equals each number that is close to it."""
    if float in (type(packed), type(recomputed)) and _is_number(packed) and _is_number(recomputed):
        try:
            return isclose(packed, recomputed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        except OverflowError:  # an integer that is larger than any float
            return False
    return type(packed) is type(recomputed) and bool(packed == recomputed)


REPORT = "report.json"
STAMP = ("created_at", "code_version", "method", "audit")  # of a report; the audit trail is compared apart
SHOWN = 20


class Verification(NamedTuple):
    """problems: sentences, none if all is as it should be. n_numbers: numbers that were made again and compared.

    n_repeated: numbers that are only repeated from what the installation said. notes: what else was not made again.
    """

    problems: Sequence[str]
    n_numbers: int = 0
    n_repeated: int = 0
    notes: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """Yield what a reader is told."""
        yield from self.problems[:SHOWN]
        if (left := len(self.problems) - SHOWN) > 0:
            yield f"and {left:,} more"
        if not self.problems:
            yield f"Verified: {counted(self.n_numbers, 'number')} recomputed from the raw rows, all as in the report."
            yield from self.notes


def verify_pack(path: Path) -> Verification:
    """Raises BadPack for what is no pack."""
    contents = read_pack(path)
    altered = list(checksum_differences(contents))
    try:
        verification = verify_contents(contents)
    except BadPack as reason:
        if not altered:
            raise
        return Verification([*altered, str(reason)])
    return verification._replace(problems=[*altered, *verification.problems])


def verify_contents(contents: Mapping[str, bytes]) -> Verification:
    """Verify the files of a pack by their contents, whatever their checksums. Raises BadPack."""
    try:
        return _verify(contents)
    except RecursionError:
        raise BadPack("The JSON of this pack is nested too deeply; was it altered?") from None


def _verify(contents: Mapping[str, bytes]) -> Verification:
    document, facts = (_object(contents, path) for path in (REPORT, round_facts.PATH))
    rows = read_rows(contents)
    document_of_rows, verdicts = recompute(rows, facts)
    recomputed = json.loads(json.dumps(document_of_rows))
    packed = {name: value for name, value in document.items() if name not in STAMP}
    recomputed["novelty"] = packed.get("novelty")  # its reference is not in the pack
    compared = DocumentComparison(packed, recomputed, round_facts.repeated_paths())
    chain = audit_chain.Chain(contents.get(audit_chain.PATH, b""), _head(document))
    problems = [
        *map(str, compared.differences),
        *(str(Difference(*found)) for found in verdicts),
        *map(str, _probabilities(rows)),
        *(line for table in TABLES for line in _parquet(table, rows, contents)),
        *_tables(document, contents),
        *_preregistration(facts, contents),
        *chain.problems,
    ]
    return Verification(problems, compared.n_numbers, compared.n_repeated, list(_notes(document, compared, chain)))


def _object(contents: Mapping[str, bytes], path: str) -> dict[str, Any]:
    if path not in contents:
        raise BadPack(f"{path} is missing: this is no pack of a report, or not all of it.")
    try:
        value = parse_json(contents[path].decode())
    except ValueError:
        raise BadPack(f"{path} is not JSON in UTF-8.") from None
    if not isinstance(value, dict):
        raise BadPack(f"{path} is no JSON object.")
    return value


def _head(document: Mapping[str, Any]) -> Mapping[str, Any]:
    head = document.get("audit")
    if not isinstance(head, dict) or not isinstance(head.get("number"), int) or not isinstance(head.get("hash"), str):
        raise BadPack(f"{REPORT} does not name the head of an audit trail.")
    return head


def _notes(document: Mapping[str, Any], compared: DocumentComparison, chain: audit_chain.Chain) -> Iterator[str]:
    """Yield what was not made again, a sentence each."""
    yield (
        f"Repeated from {round_facts.PATH}, as no row tells them: {counted(compared.n_repeated, 'number')} on the "
        "rules, dates and log of the round."
    )
    if document.get("novelty"):
        yield "Not recomputed: novelty, as the reference KG is not in the pack."
    if not document["audit"]["number"]:
        return
    entries = counted(chain.n_recomputed, "entry", "entries")
    of_head = "" if chain.is_head_recomputed else "; the head is there by its hash alone"
    yield f"Audit trail: ends in the head that the report names; {entries} hashed again{of_head}."


# -- rows --------------------------------------------------------------------------------------------------------------


def _probabilities(rows: Rows) -> Iterator[Difference]:
    """Yield the draws whose inclusion probability is not how many were drawn of how many."""
    draws, population = rows["draws"], rows["strata"]["population"]
    n_drawn = Counter(draws["stratum"])
    columns = zip(draws["stratum"], draws["inclusion_probability"], strict=True)
    for number, (stratum, probability) in enumerate(columns, start=1):
        if probability is not None and population[stratum - 1]:
            expected = n_drawn[stratum] / population[stratum - 1]
            if abs(probability - expected) > 1e-9:
                yield Difference(f"rows/draws.jsonl, line {number}, inclusion_probability", probability, expected)


def _parquet(table: Any, rows: Rows, contents: Mapping[str, bytes]) -> Iterator[str]:
    if table.parquet in contents:
        for place, own, other in parquet_differences(table, rows[table.name], contents):
            yield f"{table.parquet}, {place}: {other!r:.80}, in {table.jsonl} {own!r:.80}"
    elif n_rows(rows[table.name]):
        yield f"{table.parquet}: missing"


# -- preregistration ---------------------------------------------------------------------------------------------------


def _preregistration(facts: Mapping[str, Any], contents: Mapping[str, bytes]) -> Iterator[str]:
    """Yield that the file is another than the document whose hash the report names."""
    frozen = {file.path: file.content for file in round_facts.preregistration_files(facts)}
    path = round_facts.PREREGISTRATION
    if contents.get(path) != frozen.get(path):
        yield f"{path}: is not what was frozen, whose hash {REPORT} names"


# -- tables ------------------------------------------------------------------------------------------------------------


def _tables(document: Mapping[str, Any], contents: Mapping[str, bytes]) -> Iterator[str]:
    """Yield where the files of tables differ from those that the report gives."""
    try:
        files = {file.path: file.content for file in rendered_tables(document)}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        yield f"{REPORT}: gives no tables ({type(error).__name__}: {error!s:.100})"
        return
    for path, content in files.items():
        if path not in contents:
            yield f"{path}: missing"
        elif contents[path] != content:
            yield from _line_differences(path, contents[path], content)


def _line_differences(path: str, packed: bytes, rendered: bytes) -> Iterator[str]:
    texts = (content.decode("utf-8", "replace") for content in (packed, rendered))
    lines = (csv.reader(io.StringIO(text)) if path.endswith(".csv") else iter(text.splitlines()) for text in texts)
    try:
        for number, (line, wanted) in enumerate(zip_longest(*lines), start=1):
            if line != wanted:
                yield f"{path}, line {number}: {_cells(line, wanted)}"
    except csv.Error as error:
        yield f"{path}: cannot be read as CSV ({error!s:.60})"


def _cells(line: Any, wanted: Any) -> str:
    """Return in what two lines differ: of a table as CSV in which values."""
    if isinstance(line, list) and isinstance(wanted, list) and len(line) == len(wanted):
        pairs = [(value, other) for value, other in zip(line, wanted, strict=True) if value != other]
        return "; ".join(f"packed {value!r:.60}, by the report {other!r:.60}" for value, other in pairs)
    return f"packed {line!r:.80}, by the report {wanted!r:.80}"
