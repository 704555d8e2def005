"""The judged KG as RDF: the vocabulary of docs/rdf.md, verdicts, and the origin of each tuple in PROV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from urllib.parse import quote

from annotation.models import Round
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import NOT_JUDGED, JudgedKG, Row, Source
from kgharvest.knowledge.rdf import (
    BASE,
    Name,
    Triple,
    TupleTriples,
    about_harvest,
    about_relation,
    as_rdf,
    harvest_iri,
    literal,
)


def judged_kg_as_rdf(file_format: str, kg: JudgedKG, rows: Iterable[Row]) -> Iterator[str]:
    """Yield the text of a file in N-Triples ("nt") or Turtle ("ttl")."""

    def statements(name: Name) -> Iterator[list[Triple]]:
        yield list(_about_round(kg, name))
        source, triples_of = None, None
        for row in rows:
            if row.source is not source:  # comparing models takes longer
                source = row.source
                triples_of = _JudgedTriples(source, _round_iri(kg.round), name)
                yield list(_about_source(source, name))
            yield triples_of(row)

    return as_rdf(file_format, statements)


def _round_iri(round: Round) -> str:
    return f"<{BASE}round:{quote(round.path)}>"


def _time(at: datetime, name: Name) -> str:
    return f'"{at.isoformat()}"^^{name("xsd:dateTime")}'


def _about_round(kg: JudgedKG, name: Name) -> Iterator[Triple]:
    judging = _round_iri(kg.round)
    yield judging, name("rdf:type"), name("kgh:Round")
    yield judging, name("rdf:type"), name("prov:Activity")
    yield judging, name("rdfs:label"), literal(kg.round.name)
    if kg.round.opened_at:
        yield judging, name("prov:startedAtTime"), _time(kg.round.opened_at, name)
    if kg.round.closed_at:
        yield judging, name("prov:endedAtTime"), _time(kg.round.closed_at, name)
    for source in kg.sources:
        if source.job:
            yield judging, name("prov:used"), harvest_iri(source.job)


def _about_source(source: Source, name: Name) -> Iterator[Triple]:
    model = f"<{BASE}model:{quote(source.model, safe='')}>"
    yield from about_relation(source.relation, name)
    if source.job:
        yield from about_harvest(source.job, name)
        harvest = harvest_iri(source.job)
        yield harvest, name("rdf:type"), name("prov:Activity")
        yield harvest, name("prov:wasAssociatedWith"), model
        if source.job.finished_at:
            yield harvest, name("prov:endedAtTime"), _time(source.job.finished_at, name)
    if source.language_model:
        yield model, name("rdf:type"), name("prov:SoftwareAgent")
        yield model, name("rdfs:label"), literal(source.model)


class _JudgedTriples:
    """Triples about the tuples of one source."""

    def __init__(self, source: Source, judging: str, name: Name):
        self._is_harvest = source.job is not None
        subject = harvest_iri(source.job) if source.job else f"<{BASE}draws>"
        self._tuples = TupleTriples(source.relation, subject, name)
        self._round = (name("kgh:judgedIn"), judging)
        self._generated = (name("prov:wasGeneratedBy"), subject)
        self._verdict, self._probability = name("kgh:verdict"), name("kgh:inclusionProbability")
        self._counts = [name(f"kgh:{count}") for count in ("nTrue", "nFalse", "nUnjudgeable")]
        self._double, self._integer = name("xsd:double"), name("xsd:integer")
        cell = (("kgh:model", source.model), ("kgh:setting", source.setting))
        self._of_cell = [(name(predicate), literal(value)) for predicate, value in cell if value]
        self._harvest = name("kgh:harvest")

    def __call__(self, row: Row) -> list[Triple]:
        terms = {"entities": row.canonical, "ids": row.ids, "surface": row.entities}
        terms |= {"rank": row.rank, "score": row.score, "mtl": row.mtl}
        subject = self._tuples.iri_of(row.number)
        triples = self._tuples.about(subject, terms)
        if self._is_harvest:
            triples.append((subject, *self._generated))
        else:  # imported judgments have no harvest, but perhaps an LM and setting
            triples = [triple for triple in triples if triple[1] != self._harvest]
            triples += ((subject, *pair) for pair in self._of_cell)
        triples.append((subject, self._verdict, f'"{row.verdict}"'))
        if row.verdict != NOT_JUDGED:
            triples.append((subject, *self._round))
            for predicate, n in zip(self._counts, row.counts, strict=True):
                triples.append((subject, predicate, f'"{n}"^^{self._integer}'))
        if row.probability is not None:
            triples.append((subject, self._probability, f'"{row.probability!r}"^^{self._double}'))
        if row.verdict == "accepted" and self._tuples.is_binary:
            triples.append(self._tuples.plain(terms))
        return triples
