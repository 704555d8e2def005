"""Rows of a package as JSONL and Parquet files, written without ids and hidden texts, and the report of such files.

Annotators appear under the round's pseudonyms. Files contain no comments, names, invites, database ids, panel ids or
texts of tuples that curation hides. docs/paper-pack.md describes each table, and lists omissions with the reasons.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite, log
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from annotation.judging.verdicts import task_verdict
from evaluation.evidence.evidence import BASES
from evaluation.evidence.rows import FLOAT, LOGARITHMS, WHOLE, coded
from evaluation.evidence.tables import (
    COUNTED,
    HIDDEN,
    SENSITIVE,
    TABLES,
    Columns,
    RowColumn,
    Rows,
    RowTable,
    n_rows,
)
from evaluation.paper.files import PackFile
from evaluation.reports.document import document_of_rows
from kgharvest.bulk.file_reading import parse_json
from kgharvest.errors import DomainError
from kgharvest.statistics.arrays import LABELS

LARGEST_NUMBER = 2**63 - 1  # of a column of Parquet
ROWS_AT_ONCE = 20_000
SMALL = 1_000_000  # bytes, which any Parquet file may unpack to

Facts = Mapping[str, Any]


class BadPack(DomainError):
    """A package that cannot be read, or whose rows make no report."""


# Values


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _time(text: Any) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time.astimezone(UTC)


class _Type(NamedTuple):
    """is_valid: of a value in JSON, None apart."""

    arrow: pa.DataType
    is_valid: Callable[[Any], bool]


TYPES = {
    "string": _Type(pa.string(), lambda value: isinstance(value, str)),
    "integer": _Type(pa.int64(), _is_integer),
    "number": _Type(pa.float64(), _is_number),
    "boolean": _Type(pa.bool_(), lambda value: isinstance(value, bool)),
    "datetime": _Type(pa.timestamp("us", "UTC"), lambda value: isinstance(value, str)),
}


# Writing


def values_of_files(rows: Rows) -> dict[str, Columns]:
    """Return the values of each table as files contain them, None if empty.

    Harvests and tuples are numbered in the order in which they first appear; annotators have their pseudonyms.
    """
    with_tuples = (rows[name] for name in ("statements", "harvested", "judge_answers"))
    tuples = np.concatenate([columns["tuple"] for columns in with_tuples if columns])
    ids, first = np.unique(tuples, return_index=True)
    in_order = ids[np.argsort(first)].tolist()
    names_of = {
        "tuple": {pk: number for number, pk in enumerate(in_order, start=1)},
        "harvest": {pk: number for number, pk in enumerate(rows["harvests"]["harvest"], start=1)},
        "annotator": dict(enumerate(rows["annotators"]["annotator"])),
    }
    names_in = {"annotators": {}}  # whose pseudonyms are values already
    return {
        table.name: {
            column.name: _values(
                column, rows[table.name].get(column.name, ()), names_in.get(table.name, names_of).get(column.name)
            )
            for column in table.columns
        }
        for table in TABLES
    }


def _values(column: RowColumn, values: Sequence[Any], names: Mapping[Any, Any] | None) -> list[Any]:
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if names is not None:
        return [names.get(value) for value in values]
    if column.values:
        words = (*column.values, None)
        return [words[code] for code in values]
    if column.type == "number":
        return [None if value != value else value for value in values]
    return [value or None for value in values] if column.name == "rank" else values


def row_files(rows: Rows) -> Iterator[PackFile]:
    """Yield both files of each table that has rows."""
    for table in TABLES:
        columns = rows[table.name]
        if n_rows(columns):
            for path, media_type, write in (
                (table.jsonl, "application/jsonl", _jsonl),
                (table.parquet, "application/vnd.apache.parquet", _parquet),
            ):
                yield PackFile(path, write(table, columns), media_type, table.description, table.columns)


def _jsonl(table: RowTable, columns: Columns) -> bytes:
    names = [column.name for column in table.columns]
    buffer = io.BytesIO()
    for values in zip(*(columns[name] for name in names), strict=True):
        row = {name: _in_json(value) for name, value in zip(names, values, strict=True)}
        buffer.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return buffer.getvalue()


def _in_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _parquet(table: RowTable, columns: Columns) -> bytes:
    schema = pa.schema([(column.name, TYPES[column.type].arrow) for column in table.columns])
    buffer = io.BytesIO()
    pq.write_table(pa.table({column.name: columns[column.name] for column in table.columns}, schema), buffer)
    return buffer.getvalue()


# Reading


def read_rows(contents: Mapping[str, bytes]) -> dict[str, Columns]:
    """Return the rows of the JSONL files of a pack; a table without a file is empty. Raises BadPack."""
    return {table.name: _columns_of(table, contents.get(table.jsonl, b"")) for table in TABLES}


def _columns_of(table: RowTable, content: bytes) -> dict[str, list[Any]]:
    names = {column.name for column in table.columns}
    columns: dict[str, list[Any]] = {column.name: [] for column in table.columns}
    for number, line in enumerate(io.BytesIO(content), start=1):
        try:
            row = parse_json(line.decode())
        except ValueError:
            raise BadPack(f"{table.jsonl}, line {number} is not JSON in UTF-8.") from None
        if not isinstance(row, dict) or row.keys() != names:
            raise BadPack(f"{table.jsonl}, line {number} does not have the columns {', '.join(columns)}.")
        for column in table.columns:
            columns[column.name].append(_checked(row[column.name], column, f"{table.jsonl}, line {number}"))
    return columns


def _checked(value: Any, column: RowColumn, where: str) -> Any:
    if value is None:
        return None
    try:
        if TYPES[column.type].is_valid(value):
            return _time(value) if column.type == "datetime" else value
    except (OverflowError, ValueError):  # larger than any float, or a time before the first year
        pass
    raise BadPack(f"{where}: {column.name} is {value!r:.40}, which is no {column.type}.")


def parquet_differences(
    table: RowTable, columns: Columns, contents: Mapping[str, bytes]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield where the Parquet file differs from the columns, which are JSONL's: place, JSONL's value, Parquet's.

    Raises BadPack, also for a file that unpacks to more than its rows can be.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(contents[table.parquet]))
        names = [column.name for column in table.columns]
        if file.schema_arrow.names != names:
            yield "columns", ", ".join(names), ", ".join(file.schema_arrow.names)
            return
        types = [TYPES[column.type].arrow for column in table.columns]
        if file.schema_arrow.types != types:
            yield "types", ", ".join(map(str, types)), ", ".join(map(str, file.schema_arrow.types))
            return
        if file.metadata.num_rows != n_rows(columns):
            yield "number of rows", n_rows(columns), file.metadata.num_rows
            return
        _check_size(table, file, len(contents.get(table.jsonl, b"")))
        start = 0
        for batch in file.iter_batches(ROWS_AT_ONCE):
            for name in names:
                own = columns[name][start : start + batch.num_rows]
                for place, (value, other) in enumerate(zip(own, batch.column(name).to_pylist(), strict=False), start):
                    if value != other:
                        yield f"line {place + 1}, {name}", value, other
            start += batch.num_rows
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise BadPack(f"{table.parquet} cannot be read as Parquet ({str(error).splitlines()[0]:.100}).") from None


def _check_size(table: RowTable, file: pq.ParquetFile, n_bytes_of_jsonl: int) -> None:
    """Raise BadPack for a file that unpacks to more than the same rows take as JSON."""
    n_bytes = sum(file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
    if n_bytes > SMALL + n_bytes_of_jsonl:
        raise BadPack(f"{table.parquet} unpacks to {n_bytes:,} bytes, more than the same rows take as JSON.")


# The report of the files


LARGE = ("statements", "judgments", "draws", "harvested", "judge_answers")  # tables whose integers are arrays
MOST_WANTED = 10_000  # judgments of a statement
MOST_TUPLES = 100_000_000  # of a harvest

# Table and column, the least number that may stand there, and of what there are no more: rows of a table, or the above.
RANGES = (
    ("judgments", "statement", 1, "statements"),
    ("draws", "statement", 1, "statements"),
    ("draws", "stratum", 1, "strata"),
    ("strata", "harvest", 1, "harvests"),
    ("prompts", "harvest", 1, "harvests"),
    ("harvested", "harvest", 1, "harvests"),
    ("judge_answers", "run", 1, "judge_runs"),
    ("statements", "n_wanted", 0, "judgments"),
    ("strata", "rank_from", 1, "tuples"),
    ("strata", "rank_to", 0, "tuples"),
    ("strata", "population", 0, "tuples"),
    ("harvests", "n_tuples", 0, "tuples"),
    ("harvests", "last_rank", 0, "tuples"),
    ("draws", "rank", 1, "tuples"),
    ("harvested", "rank", 1, "tuples"),
)


def recompute(values: Rows, facts: Facts) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    """Return the document of the report that the rows give, and the verdicts that are not those of the judgments.

    facts: of `round_facts`. Each verdict: its place, the one in the file, and the one of the judgments. Raises BadPack.
    """
    try:
        rows = rows_of_values(values, facts["quorum"])
        return _document(rows, facts), list(_verdict_differences(values, rows))
    except BadPack:
        raise
    except (DomainError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadPack(f"The rows of this pack make no report ({reason:.150}); were they altered?") from error


def _document(rows: Rows, facts: Facts) -> dict[str, Any]:
    times, conduct = rows["judgments"]["judged_at"], facts["conduct"]
    ends = (end(times).isoformat(timespec="seconds") if times else None for end in (min, max))
    dates = conduct["dates"] | dict(zip(("first_judgment_at", "last_judgment_at"), ends, strict=True))
    return document_of_rows(rows, {**facts, "conduct": {**conduct, "dates": dates}}, section_facts=facts)


def _verdict_differences(values: Rows, rows: Rows) -> Iterator[tuple[str, str, str]]:
    verdict = next(column for column in TABLES[0].columns if column.name == "verdict")
    written = (value or "" for value in values["statements"]["verdict"])
    counted = (value or "" for value in _values(verdict, rows["statements"]["verdict"], None))
    is_gold = values["statements"]["is_gold"]
    for number, (of_file, own, gold) in enumerate(zip(written, counted, is_gold, strict=True), start=1):
        if of_file != own and not gold:
            yield f"rows/statements.jsonl, line {number}, verdict", of_file, own


def rows_of_values(values: Rows, quorum: int) -> dict[str, Columns]:
    """Return the columns of evaluation.evidence.tables; verdicts are those that the counted judgments give.

    values: of `read_rows`. Raises BadPack.
    """
    _check_references(values)
    rows: dict[str, dict[str, Any]] = {
        table.name: {column.name: _column(table, column, values[table.name][column.name]) for column in table.columns}
        for table in TABLES
    }
    statements, judgments = rows["statements"], rows["judgments"]
    if (np.diff(statements["is_gold"].astype(np.int8)) < 0).any():
        raise BadPack("rows/statements.jsonl: gold does not come last.")
    number = {code: position for position, code in enumerate(values["annotators"]["annotator"])}
    judgments["annotator"] = np.array([number[code] for code in values["judgments"]["annotator"]], WHOLE)
    is_counted = judgments["status"] == COUNTED
    place = (judgments["statement"][is_counted] - 1) * len(LABELS) + judgments["label"][is_counted]
    counts = np.bincount(place, minlength=n_rows(statements) * len(LABELS)).reshape(-1, len(LABELS)).tolist()
    verdicts = (task_verdict(*row, n, quorum) for row, n in zip(counts, statements["n_wanted"].tolist(), strict=True))
    words = next(column.values for column in TABLES[0].columns if column.name == "verdict")
    statements["verdict"] = np.where(
        statements["is_gold"], coded([None] * len(counts), ()), coded(list(verdicts), words)
    )
    if not n_rows(rows["judge_runs"]):
        rows["judge_runs"] = rows["judge_answers"] = {}
    _derive_from_harvested(rows)
    return rows


def _column(table: RowTable, column: RowColumn, values: Sequence[Any]) -> Any:
    if column.values:
        try:
            return coded(values, column.values)
        except KeyError as unknown:
            raise BadPack(f"{table.jsonl}: {unknown.args[0]!r:.40} is not a value of {column.name}.") from None
    if table.name not in LARGE or column.type in ("string", "datetime"):
        return values
    if column.type == "number":
        return np.array(values, FLOAT)
    if column.type == "boolean":
        return np.array(values, dtype=np.bool_)
    is_rank = (table.name, column.name) == ("draws", "rank")
    return np.array([value or 0 for value in values] if is_rank else values, WHOLE)


def _derive_from_harvested(rows: dict[str, dict[str, Any]]) -> None:
    """Add the columns of harvests that the database counts: the cuts base:k, and ranks that curation excludes."""
    harvests, harvested = rows["harvests"], rows["harvested"]
    number, rank = harvested["harvest"], harvested["rank"]
    if (np.diff(number) < 0).any() or (np.diff(rank)[np.diff(number) == 0] <= 0).any():
        raise BadPack("rows/harvested.jsonl is not in the order of harvests and ranks.")
    harvests |= {"kept_by_base": [], "hidden": [], "sensitive": []}
    for harvest, scale in zip(harvests["harvest"], harvests["score_scale"], strict=True):
        place = slice(*np.searchsorted(number, [harvest, harvest + 1]).tolist())
        ranks, score, left_out = (harvested[name][place] for name in ("rank", "score", "left_out"))
        kth = {base: score[ranks == base] for base in BASES if scale in LOGARITHMS}
        kept = {k: int(np.count_nonzero(score >= own[0] + log(0.1))) for k, own in kth.items() if len(own)}
        harvests["kept_by_base"].append(kept)
        harvests["hidden"].append(ranks[left_out == HIDDEN].tolist())
        harvests["sensitive"].append(ranks[left_out == SENSITIVE].tolist())


def _check_references(rows: Rows) -> None:
    """Refuse numbers that point at no row, or that nothing can be counted with."""
    n = {name: n_rows(rows[name]) for name in ("statements", "strata", "harvests", "judge_runs")}
    n_max = {**n, "judgments": MOST_WANTED, "tuples": MOST_TUPLES}
    for table, column, least, most in RANGES:
        for number, value in enumerate(rows[table][column], start=1):
            if value is not None and not least <= value <= n_max[most]:
                raise BadPack(f"rows/{table}.jsonl, line {number}: {column} is {value}, which there is not.")
    for table, column in (("statements", "statement"), ("harvests", "harvest"), ("strata", "stratum")):
        if list(rows[table][column]) != list(range(1, n_rows(rows[table]) + 1)):
            raise BadPack(f"rows/{table}.jsonl: {column} does not count from 1.")
