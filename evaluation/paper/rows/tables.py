"""The tables of raw rows in a pack: their columns, and how they become JSONL and Parquet and are read again.

In memory a table is its columns, a list of values each: None where nothing is known, times as `datetime` in UTC.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.paper.files import PackColumn, PackFile
from kgharvest.bulk.file_reading import parse_json
from kgharvest.engine.language_models.networks.placement import DEVICE_HELP
from kgharvest.errors import DomainError

FOLDER = "rows"
LARGEST_NUMBER = 2**63 - 1  # of a column of Parquet
ROWS_AT_ONCE = 20_000
SMALL = 1_000_000  # bytes, which any Parquet file may unpack to

Columns = Mapping[str, Sequence[Any]]
PackRows = Mapping[str, Columns]  # by the table's name


class BadPack(DomainError):
    """A pack that cannot be read, or whose rows make no report."""


class RowTable(NamedTuple):
    name: str
    description: str
    columns: tuple[PackColumn, ...]

    @property
    def jsonl(self) -> str:
        return f"{FOLDER}/{self.name}.jsonl"

    @property
    def parquet(self) -> str:
        return f"{FOLDER}/{self.name}.parquet"


STATEMENT = PackColumn("statement", "integer", "Number of the statement in this pack, from 1.")
ANNOTATOR = PackColumn("annotator", "string", "Pseudonym, the same in all files of the pack.")
HARVEST = PackColumn("harvest", "integer", "Number of the harvest in this pack, from 1.")
TUPLE = PackColumn("tuple", "integer", "Number of the knowledge tuple in this pack, from 1.")
RELATION = PackColumn("relation", "string", "Relation, named as in the report.")
MODEL = PackColumn("model", "string", "LM; empty where imported judgments name none.")
SETTING = PackColumn("setting", "string", "How prompts were obtained; empty where imported judgments name none.")
RUN = PackColumn("run", "integer", "Number of the judge run in this pack; 1 is the one that the report used.")

TABLES = (
    RowTable("statements", "The statements that people judged, and those with known answers (gold).", (
        STATEMENT,
        TUPLE,
        PackColumn("is_gold", "boolean", "Whether the answer was known; gold is in no rate."),
        PackColumn("gold_label", "string", "The known answer of gold: true or false."),
        RELATION,
        PackColumn("entities", "string", "JSON list of the entities, by slot; empty where curation hides the tuple."),
        PackColumn("text", "string", "The statement as people saw it; empty where curation hides the tuple."),
        PackColumn("n_wanted", "integer", "How many judgments decide it."),
        PackColumn("verdict", "string", "accepted, rejected, undecided, or empty while judgments are missing."),
        PackColumn("adjudication", "string", "The label that an expert gave, beside the verdict."),
    )),
    RowTable("judgments", "Every judgment that was given, those that do not count among them.", (
        STATEMENT,
        ANNOTATOR,
        PackColumn("label", "string", "true, false or unjudgeable."),
        PackColumn("seconds", "number", "Active time spent; empty where nobody measured."),
        PackColumn("judged_at", "datetime", "When it was given."),
        PackColumn("status", "string", "counted, superseded (taken back by the annotator), excluded (with its "
                   "annotator), late (after the statement had gone to somebody else), or gold."),
    )),
    RowTable("annotators", "Who joined the round, under pseudonyms.", (
        ANNOTATOR,
        PackColumn("status", "string", "active, paused or excluded."),
        PackColumn("is_trained", "boolean", "Whether they finished the training."),
        PackColumn("n_judged", "integer", "How many statements they judged, gold among them."),
    )),
    RowTable("strata", "Parts of harvests from which simple random samples were drawn.", (
        PackColumn("stratum", "integer", "Number of the stratum in this pack, from 1."),
        RELATION,
        MODEL,
        SETTING,
        HARVEST._replace(description="Harvest that was drawn from; empty of imported judgments."),
        PackColumn("rank_from", "integer", "First rank of the harvest in it."),
        PackColumn("rank_to", "integer", "Last rank of the harvest in it."),
        PackColumn("population", "integer", "How many tuples were drawn from; empty where nobody knows."),
        PackColumn("judge_label", "string", "What a judge said of all its tuples, where strata are of its labels."),
        PackColumn("ranks", "string", "JSON list of its ranks, where they lie among those of others."),
    )),
    RowTable("draws", "Which statement was drawn for which stratum. One statement may be drawn for several.", (
        PackColumn("stratum", "integer", "Number of the stratum."),
        STATEMENT,
        PackColumn("rank", "integer", "Rank of the tuple in the harvest; 1 is best."),
        PackColumn("score", "number", "Its score there; empty where the harvest has none."),
        PackColumn("inclusion_probability", "number", "With which it was drawn."),
    )),
    RowTable("harvests", "The harvests that were drawn from, and how they were made.", (
        HARVEST,
        PackColumn("fingerprint", "string", "Equal for harvests with the same parameters and LM revision."),
        RELATION,
        MODEL,
        SETTING,
        PackColumn("origin", "string", "harvested or imported."),
        PackColumn("revision", "string", "Revision of the LM's weights."),
        PackColumn("dtype", "string", "Number format of the LM's weights."),
        PackColumn("device", "string", f"Where the LM's weights were: {DEVICE_HELP}. Empty where there was no LM."),
        PackColumn("harvested_at", "string", "When it ended, ISO 8601."),
        PackColumn("code_version", "string", "Version of kgharvest that made it."),
        PackColumn("n_tuples", "integer", "How many tuples it has."),
        PackColumn("score_scale", "string", "What scores are: nats, log_share, own, or order where it has none."),
        PackColumn("cut", "string", "Which part was drawn from; empty for all of it."),
        PackColumn("last_rank", "integer", "Last rank that was drawn from."),
        PackColumn("parameters", "string", "JSON of its parameters."),
    )),
    RowTable("prompts", "The prompts of the harvests with their weights.", (
        HARVEST,
        PackColumn("text", "string", "The prompt; <ENT0> and so on are its slots."),
        PackColumn("origin", "string", "How it came to be, e.g. initial, created."),
        PackColumn("weight", "number", "Its weight; those of a harvest add up to 1."),
        PackColumn("compatibility", "number", "In nats."),
    )),
    RowTable("harvested", "Ranks and scores of the tuples that were drawn from.", (
        HARVEST,
        PackColumn("rank", "integer", "1 is best."),
        TUPLE,
        PackColumn("score", "number", "On the scale of the harvest; empty where that has none."),
        PackColumn("left_out", "string", "hidden or sensitive, where curation leaves it out of samples."),
    )),
    RowTable("judge_runs", "The LM judge that the report used, and the other runs that it is compared with.", (
        RUN,
        PackColumn("name", "string", "Name of the run."),
        MODEL._replace(description="LM that judged."),
        PackColumn("revision", "string", "Of an LM that ran here."),
        PackColumn("kind", "string", "chat, causal, score or file."),
        PackColumn("prompt", "string", "Template of what it was asked."),
        PackColumn("prompt_sha256", "string", "SHA-256 of the whole prompt with what it says of each relation."),
        PackColumn("temperature", "number", "Of sampling its answers."),
        PackColumn("seed", "integer", "Sent with each request."),
        PackColumn("repeats", "integer", "How often each tuple was asked."),
        PackColumn("threshold", "number", "Of a score judge, in nats."),
        PackColumn("panel", "string", "Runs with the same panel judge together."),
        PackColumn("differs", "string", "JSON list: in what it differs from run 1."),
    )),
    RowTable("judge_answers", "What the judges answered, each time that they were asked.", (
        RUN,
        TUPLE,
        PackColumn("repeat", "integer", "From 0."),
        PackColumn("label", "string", "true, false, unjudgeable, or empty where the answer could not be read."),
        PackColumn("score", "number", "Of a score judge its score, of a causal LM its probability of true."),
    )),
)  # fmt: skip
TABLE_NAMED = {table.name: table for table in TABLES}


# -- values ------------------------------------------------------------------------------------------------------------


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


# -- writing -----------------------------------------------------------------------------------------------------------


def row_files(rows: PackRows) -> Iterator[PackFile]:
    """Yield both files of each table that has rows."""
    for table in TABLES:
        columns = rows[table.name]
        if n_rows(columns):
            for path, media_type, write in (
                (table.jsonl, "application/jsonl", _jsonl),
                (table.parquet, "application/vnd.apache.parquet", _parquet),
            ):
                yield PackFile(path, write(table, columns), media_type, table.description, table.columns)


def n_rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))


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


# -- reading -----------------------------------------------------------------------------------------------------------


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


def _checked(value: Any, column: PackColumn, where: str) -> Any:
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
