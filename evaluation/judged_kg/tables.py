"""The judged KG as tables: a Hugging Face data set and PyKEEN triples, both streamed.

Text that looks like a formula is not escaped: these files are not for spreadsheets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.judged_kg.rows import Counted, JudgedKG, Row
from kgharvest.bulk.file_writing import StreamedFile, in_chunks

ROWS_IN_A_GROUP = 20_000  # of a Parquet file; what one takes in memory
File = tuple[str, Iterable[bytes]]  # its name and content; to be read before the next file is asked for

COLUMNS = {
    "relation": (pa.string(), "the relation, as set/name"),
    "statement": (pa.string(), "its sentence with a slot for each entity"),
    "entities": (pa.list_(pa.string()), "the entities, by slot"),
    "ids": (pa.list_(pa.string()), "their ids by the set's table of labels; empty where it has none"),
    "model": (pa.string(), "the LM or system that the tuple came from"),
    "setting": (pa.string(), "how it was asked"),
    "job": (pa.string(), "fingerprint of the harvest"),
    "rank": (pa.int64(), "1 is best"),
    "score": (pa.float64(), "higher is better; empty where the harvest has no scores"),
    "verdict": (pa.string(), "accepted, rejected, undecided, incomplete, or not_judged"),
    "n_true": (pa.int32(), "judgments that it is true"),
    "n_false": (pa.int32(), "judgments that it is false"),
    "n_unjudgeable": (pa.int32(), "judgments that nobody can tell"),
    "inclusion_probability": (pa.float64(), "with which the tuple was drawn; one over it is its weight in rates"),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])


def values_of(row: Row) -> tuple[object, ...]:
    """Return a row's values by COLUMNS."""
    source = row.source
    relation = source.relation
    cell = (relation.path, relation.statement, row.entities, row.ids or None, source.model, source.setting)
    job = source.job.fingerprint if source.job else None
    return *cell, job, row.rank, row.score, row.verdict, *row.counts, row.probability


# -- Hugging Face ------------------------------------------------------------------------------------------------------


def as_hugging_face(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    """Yield a Parquet file and its card, which has the counts and therefore comes last."""
    yield "data/train-00000-of-00001.parquet", _parquet(rows)
    yield "README.md", [_card(kg, rows).encode()]


def _parquet(rows: Iterable[Row]) -> Iterator[bytes]:
    file = StreamedFile()
    with pq.ParquetWriter(file, SCHEMA) as writer:
        values = map(values_of, rows)
        while group := list(islice(values, ROWS_IN_A_GROUP)):
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*group, strict=True), SCHEMA, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), ROWS_IN_A_GROUP)
            yield file.take()
    yield file.take()


SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def _card(kg: JudgedKG, rows: Counted) -> str:
    n_rows = sum(rows.by_verdict.values())
    size = next((name for most, name in SIZES if n_rows < most), "1M<n<10M")
    counts = "\n".join(f"| {verdict} | {n} |" for verdict, n in rows.by_verdict.items())
    columns = "\n".join(f"| `{name}` | {meaning} |" for name, (_, meaning) in COLUMNS.items())
    return f"""---
pretty_name: {json.dumps(f"Judged tuples of the round {kg.round.name}")}
task_categories:
- text-classification
tags:
- knowledge-graph
size_categories:
- {size}
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
---

# Judged tuples of the round {kg.round.name}

Tuples that language models or other systems gave, with what people decided about them. A tuple that several harvests
have is there once for each of them; its verdict counts for the harvests that it was drawn from.

| verdict | tuples |
|---|---|
{counts}

Only tuples that were drawn at random for the round were judged. A rate over the file weighs each judged row with
`1 / inclusion_probability`.

| column | meaning |
|---|---|
{columns}
"""


# -- PyKEEN ------------------------------------------------------------------------------------------------------------


def as_pykeen(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    """Yield head, relation and tail of tuples with two slots; what has more is counted as left out."""
    binary = rows.only(is_binary)
    yield f"{kg.round.name}.tsv", encoded(map(_pykeen_line, binary))


def _pykeen_line(row: Row) -> str:
    """Return a line, whose cells cannot be quoted: an entity of several lines is written in one."""
    head, tail = (" ".join(re.split(r"[\t\r\n]+", entity)) for entity in row.entities)
    return f"{head}\t{row.source.relation.path}\t{tail}\n"


def is_binary(row: Row) -> bool:
    return len(row.entities) == 2


def encoded(lines: Iterable[str]) -> Iterator[bytes]:
    """Yield lines as the bytes of a file, in large pieces."""
    return (piece.encode() for piece in in_chunks(lines))
