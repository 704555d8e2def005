"""The judged KG as RDF: the vocabulary of docs/rdf.md, verdicts, and PROV for where each tuple comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from rdflib import PROV, RDF, RDFS, XSD, Literal, URIRef
from rdflib.namespace import NamespaceManager

from annotation.models import Round
from evaluation.judged_kg.rows import Counted, JudgedKG, Row, Source
from evaluation.judged_kg.tables import File, encoded
from kgharvest.knowledge.rdf import (
    BASE,
    KGH,
    PREFIXES,
    Triple,
    TupleTriples,
    about_harvest,
    about_relation,
    harvest_iri,
    ntriples,
    short_names,
    turtle,
    written,
    written_text,
)

ALL_PREFIXES = {**PREFIXES, "prov": PROV}


def as_ntriples(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    yield f"{kg.round.name}.nt", encoded(ntriples(_statements(kg, rows, None)))


def as_turtle(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    statements = _statements(kg, rows, short_names(ALL_PREFIXES))
    yield f"{kg.round.name}.ttl", encoded(turtle(statements, ALL_PREFIXES))


def round_iri(round: Round) -> URIRef:
    return URIRef(f"{BASE}round:{quote(round.path)}")


def _statements(kg: JudgedKG, rows: Iterable[Row], names: NamespaceManager | None) -> Iterator[list[Triple]]:
    """Yield the triples about the round, then of each source those about it and about its tuples."""
    yield written(_about_round(kg), names)
    source, triples_of = None, None
    for row in rows:
        if row.source is not source:  # comparing models takes longer
            source = row.source
            triples_of = _JudgedTriples(source, round_iri(kg.round), names)
            yield written(_about_source(source), names)
        yield triples_of(row)


def _about_round(kg: JudgedKG) -> Iterator[tuple[Any, Any, Any]]:
    judging = round_iri(kg.round)
    yield judging, RDF.type, KGH.Round
    yield judging, RDF.type, PROV.Activity
    yield judging, RDFS.label, Literal(kg.round.name)
    if kg.round.opened_at:
        yield judging, PROV.startedAtTime, Literal(kg.round.opened_at)
    if kg.round.closed_at:
        yield judging, PROV.endedAtTime, Literal(kg.round.closed_at)
    for source in kg.sources:
        if source.job:
            yield judging, PROV.used, harvest_iri(source.job)


def _about_source(source: Source) -> Iterator[tuple[Any, Any, Any]]:
    yield from about_relation(source.relation)
    if source.job:
        yield from about_harvest(source.job)
        harvest = harvest_iri(source.job)
        yield harvest, RDF.type, PROV.Activity
        yield harvest, PROV.wasAssociatedWith, _model_iri(source)
        if source.job.finished_at:
            yield harvest, PROV.endedAtTime, Literal(source.job.finished_at)
    if source.language_model:
        yield _model_iri(source), RDF.type, PROV.SoftwareAgent
        yield _model_iri(source), RDFS.label, Literal(source.model)


def _model_iri(source: Source) -> URIRef:
    return URIRef(f"{BASE}model:{quote(source.model, safe='')}")


class _JudgedTriples:
    """What is said of each tuple of a source."""

    def __init__(self, source: Source, judging: URIRef, names: NamespaceManager | None):
        self._is_harvest = source.job is not None
        subject = harvest_iri(source.job) if source.job else URIRef(f"{BASE}draws")
        self._tuples = TupleTriples(source.relation, subject, names)
        self._round = (KGH.judgedIn.n3(names), judging.n3())
        self._generated = (PROV.wasGeneratedBy.n3(names), subject.n3())
        self._verdict, self._probability = KGH.verdict.n3(names), KGH.inclusionProbability.n3(names)
        self._counts = [KGH[name].n3(names) for name in ("nTrue", "nFalse", "nUnjudgeable")]
        self._double, self._integer = XSD.double.n3(names), XSD.integer.n3(names)
        self._of_cell = [
            (predicate.n3(names), written_text(value))
            for predicate, value in ((KGH.model, source.model), (KGH.setting, source.setting))
            if value
        ]
        self._harvest = KGH.harvest.n3(names)

    def __call__(self, row: Row) -> list[Triple]:
        terms = {"entities": row.canonical, "ids": row.ids, "surface": row.entities}
        terms |= {"rank": row.rank, "score": row.score, "mtl": row.mtl}
        subject = self._tuples.iri_of({"rank": row.number})
        triples = self._tuples.about(subject, terms)
        if self._is_harvest:
            triples.append((subject, *self._generated))
        else:  # imported judgments have no harvest, but perhaps an LM and setting
            triples = [triple for triple in triples if triple[1] != self._harvest]
            triples += ((subject, *pair) for pair in self._of_cell)
        triples.append((subject, self._verdict, f'"{row.verdict}"'))
        if row.verdict != "not_judged":
            triples.append((subject, *self._round))
            for predicate, n in zip(self._counts, row.counts, strict=True):
                triples.append((subject, predicate, f'"{n}"^^{self._integer}'))
        if row.probability is not None:
            triples.append((subject, self._probability, f'"{row.probability!r}"^^{self._double}'))
        if row.verdict == "accepted" and self._tuples.is_binary:
            triples.append(self._tuples.plain(terms))
        return triples
