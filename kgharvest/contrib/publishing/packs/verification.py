"""Verification of replication packages: recompute every number from the raw rows.

Requires no database or other files.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from itertools import compress, zip_longest
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.evidence.tables import TABLES, Rows, n_rows
from evaluation.rendering.documents import Document
from evaluation.reports.document import report_tables, tables_to_read
from kgharvest import code_version
from kgharvest.bulk.file_reading import parse_json
from kgharvest.contrib.publishing.packs import row_files
from kgharvest.contrib.publishing.packs.archive import BadPack, Pack, PackFile, checksum_differences
from kgharvest.contrib.publishing.packs.row_files import parquet_differences, read_rows, recompute
from kgharvest.pages.number_format import DECIMALS, counted
from kgharvest.statistics.rates import macro_interval, uses_thin_rule
from kgharvest.tables.formats import csv_text, markdown_of
from kgharvest.tables.latex import latex_of

REPORT = "report.json"
# Keys that are not compared here; the audit log is compared separately.
STAMP = ("created_at", "code_version", "method", "audit")
SHOWN = 20
NUMBER = re.compile(r"-?\d[\d.,e%-]*")
# Parts of the documents and tables of older versions that this version does not compute (docs/report-json.md).
MACE = "mace"
REMOVED_PATHS = re.compile(
    r"(?:.*\.)?(?:verdict_stability|mace|pooled|prediction_powered|more_true_(?:low|high))"
    r"|comparisons\[\d+\]\.equivalence\.p"
)
REMOVED_COLUMNS = re.compile(
    r"competence|verdict flip rate|would change|PPI\+\+.*|p \(at most .* points apart\)"
    r"|(?:change in True rate|more True): (?:low|high)"
)
REMOVED_ROWS = {
    "tables/agreement.csv": {"Fleiss' kappa", "verdict flip rate", "verdicts that a fresh panel would change"},
    "tables/annotator-models.csv": {"MACE"},
}
# Linear algebra libraries sum in different orders on different machines, which can change the last rounded decimal.
# Documents of older versions are not rounded.
RELATIVE, ABSOLUTE = 1e-9, 1.001 * 10**-DECIMALS


class _Missing:
    """Value that stands for an absent key. It differs from every JSON value, including the text "missing"."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


class Difference(NamedTuple):
    """A difference between a packed and a recomputed value. path: path of the value, for example cells[3].accuracy."""

    path: str
    packed: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.path}: packed {self.packed!r:.80}, recomputed {self.recomputed!r:.80}"


class DocumentComparison:
    """Comparison of the packed with the recomputed document. n_numbers: count of recomputed and compared numbers.

    n_repeated: count of numbers under `repeated` paths.

    same_wording: False to accept different sentences, new keys, and REMOVED_PATHS, if another version created the
    document. not_recomputed: names of the removed keys.
    """

    def __init__(
        self, packed: Any, recomputed: Any, repeated: Collection[str] = (), *, same_wording: bool = True
    ) -> None:
        self.differences: list[Difference] = []
        self.n_numbers = self.n_repeated = 0
        self.not_recomputed: set[str] = set()
        self._repeated, self._same_wording = frozenset(repeated), same_wording
        self._compare("", packed, recomputed, is_repeated=False)

    def _compare(self, path: str, packed: Any, recomputed: Any, is_repeated: bool) -> None:
        is_repeated = is_repeated or path in self._repeated
        if recomputed is MISSING and not self._same_wording and REMOVED_PATHS.fullmatch(path):
            self.not_recomputed.add(re.sub(r"\[\d+\]", "", path))
            return
        if isinstance(packed, Mapping) and isinstance(recomputed, Mapping):
            for key in dict.fromkeys((*packed, *(recomputed if self._same_wording else ()))):
                values = packed.get(key, MISSING), recomputed.get(key, MISSING)
                self._compare(f"{path}.{key}" if path else str(key), *values, is_repeated)
        elif isinstance(packed, list) and isinstance(recomputed, list):
            if len(packed) != len(recomputed):
                self.differences.append(Difference(f"{path} (entries)", len(packed), len(recomputed)))
            for number, values in enumerate(zip(packed, recomputed, strict=False)):
                self._compare(f"{path}[{number}]", *values, is_repeated)
        else:
            is_wording = not self._same_wording and all(
                isinstance(value, str) and " " in value and value.endswith(".") for value in (packed, recomputed)
            )
            if not is_wording and not _are_equal(packed, recomputed):
                self.differences.append(Difference(path, packed, recomputed))
            if {type(packed), type(recomputed)} & {int, float}:
                self.n_repeated += is_repeated
                self.n_numbers += not is_repeated


def _are_equal(packed: Any, recomputed: Any) -> bool:
    """Compare two JSON values; floats with a tolerance."""
    if {type(packed), type(recomputed)} in ({float}, {int, float}):
        try:
            return isclose(packed, recomputed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        except OverflowError:  # the integer is beyond the range of floats
            return False
    return type(packed) is type(recomputed) and bool(packed == recomputed)


class Verification(NamedTuple):
    """Result of a verification. problems: sentences; empty if the package is valid.

    n_numbers: count of recomputed and compared numbers.

    n_repeated: count of numbers that are only copied from the installation. notes: sentences about parts that were not
    recomputed.
    """

    problems: Sequence[str]
    n_numbers: int = 0
    n_repeated: int = 0
    notes: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """Yield the output lines."""
        yield from self.problems[:SHOWN]
        if (left := len(self.problems) - SHOWN) > 0:
            yield f"and {left:,} more"
        if not self.problems:
            yield f"Verified: {counted(self.n_numbers, 'number')} recomputed from the raw rows; all match the report."
            yield from self.notes


def verify_pack(path: Path) -> Verification:
    """Verify a folder or ZIP file. Raises BadPack if it is not a replication package."""
    contents = Pack(path)
    altered = list(checksum_differences(contents))
    try:
        verification = verify_contents(contents)
    except BadPack as reason:
        if not altered:
            raise
        return Verification([*altered, str(reason)])
    return verification._replace(problems=[*altered, *verification.problems])


def verify_contents(contents: Mapping[str, bytes]) -> Verification:
    """Verify the contents of the files, but not their checksums. Raises BadPack."""
    try:
        return _verify(contents)
    except RecursionError:
        raise BadPack("The JSON of this package is nested too deeply. It may be altered.") from None


def _verify(contents: Mapping[str, bytes]) -> Verification:
    document, facts = (_object(contents, path) for path in (REPORT, row_files.FACTS))
    rows = read_rows(contents)
    same_wording = document.get("code_version") in (None, code_version())
    compared, verdicts = _recomputed(document, rows, facts, same_wording)
    if compared.differences and not same_wording:
        older = copy_context()
        older.run(uses_thin_rule.set, False)  # older versions did not have the intervals of thin strata
        of_older = older.run(_recomputed, document, rows, facts, same_wording)
        if len(of_older[0].differences) < len(compared.differences):
            compared, verdicts = of_older
    head = document.get("audit")
    if not isinstance(head, dict) or not isinstance(head.get("number"), int) or not isinstance(head.get("hash"), str):
        raise BadPack(f"{REPORT} does not name the head of an audit log.")
    chain = row_files.Chain(contents.get(row_files.AUDIT, b""), head)
    problems = [
        *map(str, compared.differences),
        *(str(Difference(*verdict)) for verdict in verdicts),
        *map(str, _probabilities(rows)),
    ]
    for table in TABLES:
        if table.parquet in contents:
            for place, expected, other in parquet_differences(table, rows[table.name], contents):
                problems.append(f"{table.parquet}, {place}: {other!r:.80}, in {table.jsonl} {expected!r:.80}")
        elif n_rows(rows[table.name]):
            problems.append(f"{table.parquet}: missing")
    problems += _tables(document, contents, same_wording)
    frozen = {file.path: file.content for file in row_files.preregistration_files(facts)}
    path = row_files.PREREGISTRATION
    if contents.get(path) != frozen.get(path):
        problems.append(f"{path}: is not the frozen document whose hash {REPORT} contains")
    problems += chain.problems
    notes = list(_notes(document, compared, chain))
    if not same_wording:
        notes.append(
            f"Not compared: wording and new keys, because kgharvest {document['code_version']} created the package."
        )
    return Verification(problems, compared.n_numbers, compared.n_repeated, notes)


def _recomputed(
    document: Mapping[str, Any], rows: Rows, facts: row_files.Facts, same_wording: bool
) -> tuple[DocumentComparison, list[tuple[str, str, str]]]:
    """Return the comparison with the document of the rows, and the verdicts that do not match the judgments."""
    document_of_rows, verdicts = recompute(rows, facts)
    recomputed = json.loads(json.dumps(document_of_rows))
    packed = {name: value for name, value in document.items() if name not in STAMP}
    recomputed["novelty"] = packed.get("novelty")  # the reference KG is not in the package
    if has_students_intervals(packed):
        # The packed cells are compared with the recomputed ones, too. They are not rounded, and Student's interval
        # multiplies rounding errors.
        with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            recomputed = with_students_intervals(recomputed, packed["cells"])
    if not same_wording and isinstance(models := packed.get("annotator_models"), list):
        packed["annotator_models"] = [
            model for model in models if not (isinstance(model, dict) and model.get("model") == MACE)
        ]
    return DocumentComparison(packed, recomputed, row_files.REPEATED_PATHS, same_wording=same_wording), verdicts


def _object(contents: Mapping[str, bytes], path: str) -> dict[str, Any]:
    if path not in contents:
        raise BadPack(f"{path} is missing. This is not a complete replication package.")
    try:
        value = parse_json(contents[path].decode())
    except ValueError:
        raise BadPack(f"{path} is not JSON in UTF-8.") from None
    if not isinstance(value, dict):
        raise BadPack(f"{path} is not a JSON object.")
    return value


def _notes(document: Mapping[str, Any], compared: DocumentComparison, chain: row_files.Chain) -> Iterator[str]:
    """Yield sentences about parts that were not recomputed."""
    yield (
        f"Copied from {row_files.FACTS}, because no row contains them: {counted(compared.n_repeated, 'number')} on the "
        "rules, dates, and log of the round."
    )
    if document.get("novelty"):
        yield "Not recomputed: novelty, because the reference KG is not in the package."
    if compared.not_recomputed:
        names = ", ".join(sorted(compared.not_recomputed))
        yield f"Not recomputed, because this version does not compute them: {names}."
    if not document["audit"]["number"]:
        return
    entries = counted(chain.n_recomputed, "entry", "entries")
    of_head = "" if chain.is_head_recomputed else "; the head is included as a hash only"
    yield f"Audit log: ends with the head that the report names; {entries} hashed again{of_head}."


def _probabilities(rows: Rows) -> Iterator[Difference]:
    """Yield the draws whose inclusion probability differs from the number of draws divided by the population."""
    draws, population = rows["draws"], rows["strata"]["population"]
    n_drawn = Counter(draws["stratum"])
    columns = zip(draws["stratum"], draws["inclusion_probability"], strict=True)
    for number, (stratum, probability) in enumerate(columns, start=1):
        if probability is not None and population[stratum - 1]:
            expected = n_drawn[stratum] / population[stratum - 1]
            if abs(probability - expected) > 1e-9:
                yield Difference(f"rows/draws.jsonl, line {number}, inclusion_probability", probability, expected)


# Documents without `similar_relations` have Student's interval for similar relations at the key of the average, and
# in these tables.
TABLES_OF_AVERAGES = {f"tables/{name}.csv" for name in ("relations", "settings", "lms")}


def has_students_intervals(document: Document) -> bool:
    totals = document.get("totals")
    return isinstance(totals, list) and any(
        "similar_relations" not in total for total in totals if isinstance(total, dict)
    )


def with_students_intervals(
    document: Document, cells: Sequence[Mapping[str, Any]], keys: str = "macro_{}_{}"
) -> dict[str, Any]:
    """Return the document with Student's intervals of the averages of `cells`."""
    totals = []
    for total in document["totals"]:
        of_side = [cell for cell in cells if all(cell[key] == total[key] for key in ("model", "setting"))]
        intervals = {}
        for name in ("accuracy", "rejection"):
            low, high = macro_interval([cell[name] for cell in of_side if cell[name] is not None])
            intervals |= {keys.format(name, "low"): low, keys.format(name, "high"): high}
        totals.append({**total, **intervals})
    return {**document, "totals": totals}


def rendered_tables(document: Document) -> Iterator[PackFile]:
    for table in report_tables(document):
        yield PackFile(f"tables/{table.name}.csv", csv_text(table).encode(), "text/csv", table.caption)
    title, tables = document["round"], tables_to_read(document)
    yield PackFile("tables/tables.tex", latex_of(title, tables).encode(), "application/x-tex", "Tables for LaTeX.")
    yield PackFile("tables/tables.md", markdown_of(title, tables).encode(), "text/markdown", "Tables as text.")


def _tables(document: Mapping[str, Any], contents: Mapping[str, bytes], same_wording: bool) -> Iterator[str]:
    """Yield differences between table files and the report.

    If the wording can differ, compare only the numbers in CSV files.
    """
    try:
        files = {file.path: file.content for file in rendered_tables(document)}
        students_tables = {}
        if has_students_intervals(document):
            with_students = with_students_intervals(document, document["cells"], "macro_{}_these_{}")
            rendered = rendered_tables(with_students)
            students_tables = {file.path: file.content for file in rendered if file.path in TABLES_OF_AVERAGES}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        yield f"{REPORT}: its tables cannot be rendered ({type(error).__name__}: {error!s:.100})"
        return
    for path, content in files.items():
        if path not in contents:
            yield f"{path}: missing"
        elif contents[path] != content and (same_wording or path.endswith(".csv")):
            differences = list(_line_differences(path, contents[path], content, same_wording))
            if differences and path in students_tables:
                differences = list(_line_differences(path, contents[path], students_tables[path], same_wording))
            yield from differences


def _line_differences(path: str, packed: bytes, rendered: bytes, same_wording: bool) -> Iterator[str]:
    texts = (content.decode("utf-8", "replace") for content in (packed, rendered))
    lines = [csv.reader(io.StringIO(text)) if path.endswith(".csv") else iter(text.splitlines()) for text in texts]
    try:
        if not same_wording:
            lines = _without_removed(path, *map(list, lines))
        for number, (line, expected) in enumerate(zip_longest(*lines), start=1):
            if line != expected and (same_wording or _numbers(line) != _numbers(expected)):
                yield f"{path}, line {number}: {_cells(line, expected)}"
    except csv.Error as error:
        yield f"{path}: cannot be read as CSV ({error!s:.60})"


def _without_removed(path: str, packed: list[list[str]], rendered: list[list[str]]) -> list[Any]:
    """Return both tables, the packed one without rows and columns that this version does not compute."""
    names, titles = {cells[0] for cells in rendered if cells}, rendered[0] if rendered else []
    removed = REMOVED_ROWS.get(path, set()) - names
    keep = [not REMOVED_COLUMNS.fullmatch(title) or title in titles for title in (packed[0] if packed else [])]
    rows = (cells for cells in packed if not cells or cells[0] not in removed)
    return [[[*compress(cells, keep), *cells[len(keep) :]] for cells in rows], rendered]


def _numbers(cells: Any) -> list[str]:
    return [cell for cell in cells or () if NUMBER.fullmatch(cell)]


def _cells(line: Any, expected: Any) -> str:
    """Describe the difference between two lines: cell by cell for CSV."""
    if isinstance(line, list) and isinstance(expected, list) and len(line) == len(expected):
        pairs = [(value, other) for value, other in zip(line, expected, strict=True) if value != other]
        return "; ".join(f"packed {value!r:.60}, in the report {other!r:.60}" for value, other in pairs)
    return f"packed {line!r:.80}, in the report {expected!r:.80}"
