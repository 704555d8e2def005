"""Harvested tuples as RDF in the vocabulary of docs/rdf.md, a few triples at a time: no graph is ever held."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from rdflib import RDF, RDFS, XSD, Graph, Literal, Namespace, URIRef
from rdflib.namespace import NamespaceManager
from rdflib.term import Identifier

from kgharvest.models import HarvestJob, Relation

BASE = "urn:kgharvest:"
KGH = Namespace(f"{BASE}vocabulary:")
PREFIXES = {"kgh": KGH, "rdf": RDF, "rdfs": RDFS, "xsd": XSD}
CACHED_ENTITIES = 4096

Triple = tuple[str, str, str]  # as written
# N-Triples and Turtle escape text as JSON does. rdflib writes lines' ends as they are, which N-Triples does not know.
written_text = json.JSONEncoder(ensure_ascii=False).encode


def as_ntriples(job: HarvestJob, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of N-Triples about `job` and its tuples, `rows` of an export, those of one tuple together."""
    return ntriples(_statements(job, rows, None))


def as_turtle(job: HarvestJob, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the same triples as Turtle, a block for each subject."""
    names = short_names(PREFIXES)
    return turtle(_statements(job, rows, names), PREFIXES)


def ntriples(statements: Iterable[Iterable[Triple]]) -> Iterator[str]:
    """Yield the lines of N-Triples that say `statements`, whose terms are written in full."""
    for triples in statements:
        yield "".join([f"{subject} {predicate} {value} .\n" for subject, predicate, value in triples])


def turtle(statements: Iterable[Iterable[Triple]], prefixes: Mapping[str, Any]) -> Iterator[str]:
    """Yield Turtle that says `statements`, whose terms are written with `short_names(prefixes)`."""
    for prefix, namespace in prefixes.items():
        yield f"@prefix {prefix}: {URIRef(namespace).n3()} .\n"
    for triples in statements:
        for subject, about_it in groupby(triples, key=itemgetter(0)):
            written_values = " ;\n    ".join([f"{predicate} {value}" for _, predicate, value in about_it])
            yield f"\n{subject} {written_values} .\n"


def short_names(prefixes: Mapping[str, Any]) -> NamespaceManager:
    names = NamespaceManager(Graph(), bind_namespaces="none")
    for prefix, namespace in prefixes.items():
        names.bind(prefix, namespace)
    return names


def _statements(
    job: HarvestJob, rows: Iterable[Mapping[str, Any]], names: NamespaceManager | None
) -> Iterator[list[Triple]]:
    """Yield the triples about relation and harvest, then those of each tuple.

    names: short names for the terms of the vocabulary; None leaves them as they are.
    """
    yield [*written(about_relation(job.relation), names), *written(about_harvest(job), names)]
    tuple_triples = TupleTriples(job.relation, harvest_iri(job), names)
    for row in rows:
        triples = tuple_triples.about(tuple_triples.iri_of(row), row)
        if tuple_triples.is_binary:
            triples.append(tuple_triples.plain(row))
        yield triples


def harvest_iri(job: HarvestJob) -> URIRef:
    return URIRef(f"{BASE}harvest:{job.fingerprint}-{job.pk}")


def relation_iri(relation: Relation) -> URIRef:
    return URIRef(f"{BASE}relation:{quote(relation.path)}")


def about_relation(relation: Relation) -> Iterator[tuple[Identifier, Identifier, Identifier]]:
    iri = relation_iri(relation)
    yield iri, RDF.type, KGH.Relation
    if relation.arity == 2:
        yield iri, RDF.type, RDF.Property
    yield iri, RDFS.label, Literal(relation.name)
    yield iri, KGH.statement, Literal(relation.statement)
    yield iri, KGH.arity, Literal(relation.arity)


def about_harvest(job: HarvestJob) -> Iterator[tuple[Identifier, Identifier, Identifier]]:
    harvest = harvest_iri(job)
    yield harvest, RDF.type, KGH.Harvest
    yield harvest, KGH.relation, relation_iri(job.relation)
    yield harvest, KGH.model, Literal(job.language_model.name)
    if job.language_model.revision:
        yield harvest, KGH.modelRevision, Literal(job.language_model.revision)
    yield harvest, KGH.setting, Literal(job.setting)
    yield harvest, KGH.scoreScale, Literal(job.score_scale)
    yield harvest, KGH.job, Literal(job.fingerprint)


def written(
    triples: Iterable[tuple[Identifier, Identifier, Identifier]], names: NamespaceManager | None
) -> list[Triple]:
    """Return triples as they are written, with short names if there are any."""
    return [tuple(_written(term, names) for term in triple) for triple in triples]


def _written(term: Identifier, names: NamespaceManager | None) -> str:
    is_plain_text = isinstance(term, Literal) and term.datatype is None
    return written_text(str(term)) if is_plain_text else term.n3(names)


class TupleTriples:
    """What is said of each tuple of a harvest. A million tuples are written by this, so that it makes no terms."""

    def __init__(self, relation: Relation, harvest: URIRef, names: NamespaceManager | None):
        self._start = harvest.n3()[:-1]
        self._relation = relation_iri(relation).n3()
        self.is_binary = relation.arity == 2
        self._slots = [
            tuple(KGH[f"{what}{slot}"].n3(names) for what in ("entity", "surface", "original"))
            for slot in range(relation.arity)
        ]
        self._constant = [
            (RDF.type.n3(names), KGH.HarvestedTuple.n3(names)),
            (KGH.harvest.n3(names), harvest.n3()),
            (KGH.relation.n3(names), self._relation),
        ]
        self._rank, self._score, self._mtl = (KGH[name].n3(names) for name in ("rank", "score", "mtl"))
        self._label, self._identifier = RDFS.label.n3(names), KGH.identifier.n3(names)
        self._double, self._integer = XSD.double.n3(names), XSD.integer.n3(names)

    def iri_of(self, row: Mapping[str, Any]) -> str:
        return f"{self._start}/{row['rank']}>"

    def about(self, harvested_tuple: str, row: Mapping[str, Any]) -> list[Triple]:
        """Return what is said of a row of an export under the IRI `harvested_tuple`, as written."""
        entities = [_entity(entity) for entity in row["entities"]]
        triples = [(harvested_tuple, predicate, value) for predicate, value in self._constant]
        for (entity, surface, _), (iri, _), as_written in zip(self._slots, entities, row["surface"], strict=True):
            triples += ((harvested_tuple, entity, iri), (harvested_tuple, surface, written_text(as_written)))
        for (_, _, original), as_written in zip(self._slots, row.get("original", ()), strict=False):
            triples.append((harvested_tuple, original, written_text(as_written)))
        if row["rank"] is not None:
            triples.append((harvested_tuple, self._rank, f'"{row["rank"]}"^^{self._integer}'))
        for predicate, number in ((self._score, row["score"]), (self._mtl, row["mtl"])):
            if number is not None:
                triples.append((harvested_tuple, predicate, f'"{number!r}"^^{self._double}'))
        triples += ((iri, self._label, label) for iri, label in entities)
        for (iri, _), identifier in zip(entities, row.get("ids", ()), strict=False):
            if identifier is not None:
                triples.append((iri, self._identifier, written_text(identifier)))
        return triples

    def plain(self, row: Mapping[str, Any]) -> Triple:
        """Return the triple that a tuple with two slots is."""
        head, tail = row["entities"]
        return _entity(head)[0], self._relation, _entity(tail)[0]


@lru_cache(CACHED_ENTITIES)
def _entity(entity: str) -> tuple[str, str]:
    """Return the IRI and the label of a case-folded entity, as written."""
    return f"<{BASE}entity:{quote(entity, safe='')}>", written_text(entity)
