"""The judged KG as CSV for `neo4j-admin database import`: relationships, and nodes kept once in a table on disk."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from evaluation.judged_kg.rows import Counted, JudgedKG, Row
from evaluation.judged_kg.tables import File, is_binary
from kgharvest.bulk.file_writing import CHUNK_SIZE
from kgharvest.knowledge.models import tuple_key

CACHE_KB = 8192
ENTITIES_AT_ONCE = 5000
ABOUT = (
    *("model", "setting", "job", "rank:long", "score:double", "verdict"),
    *("n_true:int", "n_false:int", "n_unjudgeable:int", "inclusion_probability:double"),
)
RELATIONSHIPS = (":START_ID", ":END_ID", ":TYPE", *ABOUT)
STATEMENTS = ("id:ID", ":LABEL", "relation", *ABOUT)
# One relation's set may have a table of labels, another's none.
ADD_ENTITY = (
    "INSERT INTO entity VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET identifier = excluded.identifier "
    "WHERE identifier IS NULL AND excluded.identifier IS NOT NULL"
)
ENTITIES = ("id:ID", ":LABEL", "name", "identifier")


def as_neo4j(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    """Yield relationships first: what they join is known after them. A tuple of more than two entities is a node."""
    # "" is SQLite's name for a database of this connection's own, on disk, which goes when it is closed.
    with closing(sqlite3.connect("", isolation_level=None)) as nodes:
        nodes.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        nodes.execute("PRAGMA journal_mode = OFF")
        nodes.execute("CREATE TABLE entity (id TEXT PRIMARY KEY, name TEXT, identifier TEXT) WITHOUT ROWID")
        nodes.execute("CREATE TABLE statement (line TEXT)")
        nodes.execute("BEGIN")
        yield "relationships.csv", _csv(RELATIONSHIPS, _relationships(rows, nodes))
        entities = nodes.execute("SELECT id, 'Entity', name, identifier FROM entity ORDER BY id")
        yield "entities.csv", _csv(ENTITIES, entities)
        lines = (line for (line,) in nodes.execute("SELECT line FROM statement ORDER BY rowid"))
        yield "statements.csv", (piece.encode() for piece in (_line(STATEMENTS), *lines))


def _relationships(rows: Iterable[Row], nodes: sqlite3.Connection) -> Iterator[Sequence[object]]:
    waiting: list[tuple[str, str, str | None]] = []
    for row in rows:
        nodes_of_row = [tuple_key([entity]) for entity in row.canonical]
        waiting += zip(nodes_of_row, row.entities, row.ids or [None] * len(row.entities), strict=True)
        if len(waiting) > ENTITIES_AT_ONCE:
            _add_entities(nodes, waiting)
            waiting.clear()
        relation = row.source.relation.path
        if is_binary(row):
            yield *nodes_of_row, relation, *_about(row)
        else:
            statement = f"statement:{row.name}"
            nodes.execute("INSERT INTO statement VALUES (?)", [_line((statement, "Statement", relation, *_about(row)))])
            nothing = [None] * len(ABOUT)
            yield from ((statement, entity, f"ENT{slot}", *nothing) for slot, entity in enumerate(nodes_of_row))
    _add_entities(nodes, waiting)


def _add_entities(nodes: sqlite3.Connection, entities: Iterable[tuple[str, str, str | None]]) -> None:
    nodes.executemany(ADD_ENTITY, entities)


def _about(row: Row) -> tuple[object, ...]:
    source = row.source
    job = source.job.fingerprint if source.job else None
    return source.model, source.setting, job, row.rank, row.score, row.verdict, *row.counts, row.probability


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[bytes]:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for row in rows:
        writer.writerow(row)
        if buffer.tell() > CHUNK_SIZE:
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode()


def _line(values: Sequence[object]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerow(values)
    return buffer.getvalue()
