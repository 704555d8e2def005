"""File formats by suffix, each with its title, content type, and writer."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from kgharvest.bulk.file_writing import CHUNK_SIZE, FORMULA_STARTS, StreamedFile
from kgharvest.entry_points import EXPORTS, Registry, entry_points
from kgharvest.tables.latex import latex_of
from kgharvest.tables.table import Kind, Marked, Table, split_rates
from kgharvest.tables.xlsx import xlsx_of

Content = str | bytes | Iterable[str | bytes]

ROWS_IN_A_GROUP = 20_000  # number of rows in a group of a Parquet file; one group at a time is in memory

# CSV


def csv_text(table: Table) -> str:
    return "".join(csv_lines(table))


def csv_lines(table: Table) -> Iterator[str]:
    """Yield a table as CSV, in chunks of many lines, headings first. Numbers are not rounded.

    Undefined values are empty.

    Texts that look like formulas are written with a leading apostrophe, which prevents spreadsheets from evaluating
    them.
    """
    table = split_rates(table)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([csv_value(column.heading) for column in table.columns])
    for row in table.rows:
        writer.writerow([csv_value(value) for value in row.values])
        if buffer.tell() > CHUNK_SIZE:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA_STARTS) else value
    if isinstance(value, Marked):
        return value.value
    if isinstance(value, (list, tuple)):
        return to_json(value)
    return value.isoformat() if isinstance(value, datetime) else value


# JSON

to_json = json.JSONEncoder(ensure_ascii=False, default=datetime.isoformat).encode


def json_lines(table: Table) -> Iterator[str]:
    return (to_json(record) + "\n" for record in table.records())


def json_text(document: Any) -> str:
    """Return indented JSON. Keys are sorted, because PostgreSQL's jsonb returns keys in its own order."""
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


# Parquet


def parquet_pieces(table: Table) -> Iterator[bytes]:
    import pyarrow as pa  # local import, because only this format needs pyarrow

    types = {
        Kind.TEXT: pa.string(),
        Kind.LIST: pa.list_(pa.string()),
        Kind.BOOLEAN: pa.bool_(),
        Kind.TIME: pa.timestamp("us", "UTC"),
        Kind.COUNT: pa.int64(),
    }
    schema = pa.schema([(column.title, types.get(column.kind, pa.float64())) for column in table.columns])
    return parquet_of(schema, (row.values for row in table.rows))


def parquet_of(schema: Any, rows: Iterator[Sequence[Any]]) -> Iterator[bytes]:
    """Yield a Parquet file, one group of rows at a time. schema: a PyArrow schema."""
    import pyarrow as pa  # local import, because only this format needs pyarrow
    import pyarrow.parquet as pq

    file = StreamedFile()
    with pq.ParquetWriter(file, schema) as writer:
        while group := list(islice(rows, ROWS_IN_A_GROUP)):
            columns = zip(zip(*group, strict=True), schema.types, strict=True)
            arrays = [pa.array(values, value_type) for values, value_type in columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema), ROWS_IN_A_GROUP)
            yield file.take()
    yield file.take()


# Markdown


def markdown_of(title: str, tables: Iterable[Table]) -> str:
    lines = [f"# {markdown_text(title)}", ""]
    for table in tables:
        titles = [column.whole_title for column in table.columns]
        rules = ["---" if column.kind is Kind.TEXT else "---:" for column in table.columns]
        body = [_markdown_row(texts) for _, texts in table.texts()]
        lines += [f"## {markdown_text(table.caption)}", "", _markdown_row(titles), _markdown_row(rules), *body, ""]
        lines += [f"{number}. {markdown_text(note)}" for number, note in enumerate(table.notes, start=1)]
        lines += [""] if table.notes else []
    return "\n".join(lines)


def _markdown_row(values: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, values))} |"


def markdown_text(text: str) -> str:
    """Return `text` on one line with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(text.split()))


# Terminals


def terminal_text(table: Table) -> str:
    """Return the table as text. Columns are as wide as their longest value, and numbers are right-aligned."""
    texts = ([text.replace("\n", " ") for text in row] for _, row in table.texts())
    lines = [[column.title for column in table.columns], *texts]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_text = [column.kind is Kind.TEXT for column in table.columns]
    return "".join(
        "  ".join(
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )


# Registry


class Format(NamedTuple):
    """A file format. title: label on pages. write: writer, None if tables are not written in this format.

    For CSV, JSONL, Parquet, and added formats, write(table) yields pieces. For XLSX, LaTeX, and Markdown, write(title,
    tables) returns the file.
    """

    title: str
    content_type: str
    write: Callable[..., Content] | None = None


FORMATS = Registry(EXPORTS, {
    "csv": Format("CSV", "text/csv; charset=utf-8", csv_lines),
    "jsonl": Format("JSONL", "application/jsonl; charset=utf-8", json_lines),
    "parquet": Format("Parquet", "application/vnd.apache.parquet", parquet_pieces),
    "xlsx": Format("XLSX", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", xlsx_of),
    "tex": Format("LaTeX", "application/x-tex; charset=utf-8", latex_of),
    "md": Format("Markdown", "text/markdown; charset=utf-8", markdown_of),
    "html": Format("HTML", "text/html; charset=utf-8"),
    "json": Format("JSON", "application/json"),
    "nt": Format("N-Triples", "application/n-triples"),
    "ttl": Format("Turtle", "text/turtle; charset=utf-8"),
    "svg": Format("SVG", "image/svg+xml"),
    "pdf": Format("PDF", "application/pdf"),
})  # fmt: skip


def added_formats() -> tuple[str, ...]:
    """Return the formats that installed distributions add to exports of rows (docs/extending.md)."""
    return tuple(entry_points(EXPORTS))


NDJSON = "application/x-ndjson"  # content type of JSON Lines in some parts of the API
