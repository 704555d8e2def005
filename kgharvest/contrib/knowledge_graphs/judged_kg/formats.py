"""Streamed export formats of the judged KG: Hugging Face data set, PyKEEN triples, N-Triples, and Turtle."""

import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from annotation.models import Round
from kgharvest.bulk.file_writing import StreamedFile, check_writable, in_chunks, write_atomically
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import NOT_JUDGED, Counted, JudgedKG, Row, Selection, Source
from kgharvest.errors import DomainError
from kgharvest.knowledge import rdf
from kgharvest.tables.formats import csv_value, parquet_of

File = tuple[str, Iterable[bytes]]  # name and content. The content must be read before the next file is requested


def rdf_file(file_format: str, kg: JudgedKG, rows: Counted) -> Iterator[File]:
    """Yield a file in N-Triples ("nt") or Turtle ("ttl")."""

    def statements(name: rdf.Name) -> Iterator[list[rdf.Triple]]:
        yield list(_about_round(kg, name))
        source, triples_of = None, None
        for row in rows:
            if row.source is not source:  # an identity check is faster than comparing models
                source = row.source
                triples_of = _judged_triples(source, _round_iri(kg.round), name)
                yield list(_about_source(source, name))
            yield triples_of(row)

    yield f"{kg.round.name}.{file_format}", _encoded(rdf.as_rdf(file_format, statements))


def _round_iri(round: Round) -> str:
    return f"<{rdf.BASE}round:{quote(round.path)}>"


def _time(at: datetime, name: rdf.Name) -> str:
    return f'"{at.isoformat()}"^^{name("xsd:dateTime")}'


def _about_round(kg: JudgedKG, name: rdf.Name) -> Iterator[rdf.Triple]:
    judging = _round_iri(kg.round)
    yield judging, name("rdf:type"), name("kgh:Round")
    yield judging, name("rdf:type"), name("prov:Activity")
    yield judging, name("rdfs:label"), rdf.literal(kg.round.name)
    if kg.round.opened_at:
        yield judging, name("prov:startedAtTime"), _time(kg.round.opened_at, name)
    if kg.round.closed_at:
        yield judging, name("prov:endedAtTime"), _time(kg.round.closed_at, name)
    for source in kg.sources:
        if source.job:
            yield judging, name("prov:used"), rdf.harvest_iri(source.job)


def _about_source(source: Source, name: rdf.Name) -> Iterator[rdf.Triple]:
    model = f"<{rdf.BASE}model:{quote(source.model, safe='')}>"
    yield from rdf.about_relation(source.relation, name)
    if source.job:
        yield from rdf.about_harvest(source.job, name)
        harvest = rdf.harvest_iri(source.job)
        yield harvest, name("rdf:type"), name("prov:Activity")
        yield harvest, name("prov:wasAssociatedWith"), model
        if source.job.finished_at:
            yield harvest, name("prov:endedAtTime"), _time(source.job.finished_at, name)
    if source.language_model:
        yield model, name("rdf:type"), name("prov:SoftwareAgent")
        yield model, name("rdfs:label"), rdf.literal(source.model)


def _judged_triples(source: Source, judging: str, name: rdf.Name) -> Callable[[Row], list[rdf.Triple]]:
    """Return a function that takes a row of the source and returns the triples about its tuple."""
    subject = rdf.harvest_iri(source.job) if source.job else f"<{rdf.BASE}draws>"
    tuples = rdf.TupleTriples(source.relation, subject, name)
    verdict, probability, judged_in = map(name, ("kgh:verdict", "kgh:inclusionProbability", "kgh:judgedIn"))
    counts = [name(f"kgh:{count}") for count in ("nTrue", "nFalse", "nUnjudgeable")]
    harvest, double, integer = map(name, ("kgh:harvest", "xsd:double", "xsd:integer"))
    cell = (("kgh:model", source.model), ("kgh:setting", source.setting))
    origin = [(name(predicate), rdf.literal(value)) for predicate, value in cell if value]
    if source.job:
        origin = [(name("prov:wasGeneratedBy"), subject)]

    def triples_of(row: Row) -> list[rdf.Triple]:
        terms = {"entities": row.canonical, "ids": row.ids, "surface": row.entities}
        terms |= {"rank": row.rank, "score": row.score, "mtl": row.mtl}
        iri = tuples.iri_of(row.number)
        triples = tuples.about(iri, terms)
        if not source.job:  # imported judgments have no harvest, but can have an LM and setting
            triples = [triple for triple in triples if triple[1] != harvest]
        triples += ((iri, *pair) for pair in origin)
        triples.append((iri, verdict, f'"{row.verdict}"'))
        if row.verdict != NOT_JUDGED:
            triples.append((iri, judged_in, judging))
            for predicate, n in zip(counts, row.counts, strict=True):
                triples.append((iri, predicate, f'"{n}"^^{integer}'))
        if row.probability is not None:
            triples.append((iri, probability, f'"{row.probability!r}"^^{double}'))
        if row.verdict == "accepted" and tuples.is_binary:
            triples.append(tuples.plain(terms))
        return triples

    return triples_of


COLUMNS = {
    "relation": ("string", "relation, as set/name"),
    "statement": ("string", "sentence with a slot for each entity"),
    "entities": ("list", "entities, by slot"),
    "ids": ("list", "entity ids from the set's entity table; empty if the set has no table"),
    "model": ("string", "LM or system that produced the tuple"),
    "setting": ("string", "prompt setting"),
    "job": ("string", "fingerprint of the harvest"),
    "rank": ("int64", "rank, 1 is best"),
    "score": ("float64", "score; higher is better; empty if the harvest has no scores"),
    "verdict": ("string", "accepted, rejected, undecided, incomplete, or not_judged"),
    "n_true": ("int32", "number of “true” judgments"),
    "n_false": ("int32", "number of “false” judgments"),
    "n_unjudgeable": ("int32", "number of “unjudgeable” judgments"),
    "inclusion_probability": ("float64", "probability of being drawn; its inverse is the row's weight in rates"),
}
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def arrow_schema() -> Any:
    """Return the PyArrow schema of COLUMNS."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    return pa.schema([(name, texts if kind == "list" else getattr(pa, kind)()) for name, (kind, _) in COLUMNS.items()])


def values_of(row: Row) -> tuple[object, ...]:
    """Return a row's values in the order of COLUMNS."""
    source, relation = row.source, row.source.relation
    cell = (relation.path, relation.statement, row.entities, row.ids or None, source.model, source.setting)
    job = source.job.fingerprint if source.job else None
    return *cell, job, row.rank, row.score, row.verdict, *row.counts, row.probability


def as_hugging_face(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    """Yield a Parquet file and its data set card.

    The card comes last, because it contains the counts of written rows.
    """
    yield "data/train-00000-of-00001.parquet", parquet_of(arrow_schema(), map(values_of, rows))
    yield "README.md", [_card(kg, rows).encode()]


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

Tuples produced by language models or other systems, with verdicts of human annotators. A tuple found by several
harvests has one row for each harvest. A verdict applies only to the harvests for which the tuple was drawn.

| verdict | tuples |
|---|---|
{counts}

Only tuples drawn at random for the round were judged. To estimate a rate, weight each judged row by
`1 / inclusion_probability`.

| column | meaning |
|---|---|
{columns}
"""


def as_pykeen(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    """Yield head, relation, and tail of binary tuples. Tuples with more slots are counted in `rows.n_left_out`."""
    # The format has no quoting, so tabs and line breaks are replaced by spaces. Formulas are escaped as in CSV files.
    binary = rows.only(lambda row: len(row.entities) == 2)
    cells = ((row.entities[0], row.source.relation.path, row.entities[1]) for row in binary)
    lines = ("\t".join(csv_value(" ".join(re.split(r"[\t\r\n]+", cell))) for cell in line) + "\n" for line in cells)
    yield f"{kg.round.name}.tsv", _encoded(lines)


def _encoded(lines: Iterable[str]) -> Iterator[bytes]:
    return (piece.encode() for piece in in_chunks(lines))


class Format(NamedTuple):
    """Export format. is_folder: True if an export has several files, which are downloaded as a ZIP archive."""

    label: str
    content_type: str
    suffix: str
    write: Callable[[JudgedKG, Counted], Iterator[File]]
    selection: Selection = Selection.ALL  # default
    is_folder: bool = False


FORMATS = {
    "hf": Format("Hugging Face data set", "application/zip", "hf.zip", as_hugging_face, is_folder=True),
    "pykeen": Format(
        "PyKEEN triples", "text/tab-separated-values; charset=utf-8", "pykeen.tsv", as_pykeen, Selection.ACCEPTED
    ),
    "nt": Format("N-Triples", "application/n-triples", "nt", partial(rdf_file, "nt")),
    "ttl": Format("Turtle", "text/turtle; charset=utf-8", "ttl", partial(rdf_file, "ttl")),
}


class Export:
    """Export of a judged KG. rows: rows and their counts. The counts are complete once the files are written."""

    def __init__(self, kg: JudgedKG, file_format: str, selection: str | None = None):
        self.format = FORMATS[file_format]
        selection = Selection(selection or self.format.selection)
        self.file_name = f"{kg.round.name}-{selection}.{self.format.suffix}"
        self.rows = Counted(kg.rows(selection))
        self.files = self.format.write(kg, self.rows)

    def download(self) -> Iterator[bytes]:
        """Stream the file, or the archive with the files."""
        if self.format.is_folder:
            yield from _zipped(self.files)
        else:
            for _, pieces in self.files:
                yield from pieces

    def write_to(self, path: Path) -> None:
        """Write the file, or the folder with the files. Raises NotWritable."""
        if not self.format.is_folder:
            write_atomically(path, self.download())
            return
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DomainError("NotWritable", f"{path} already exists. Choose a new folder.")
        check_writable(path.parent / "new")
        for name, pieces in self.files:
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, pieces)


def _zipped(files: Iterable[File]) -> Iterator[bytes]:
    stream = StreamedFile()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, pieces in files:
            with archive.open(name, "w", force_zip64=True) as member:
                for piece in pieces:
                    member.write(piece)
                    yield stream.take()
    yield stream.take()
