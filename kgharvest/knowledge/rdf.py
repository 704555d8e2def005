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

from kgharvest.models import HarvestJob

BASE = "urn:kgharvest:"
KGH = Namespace(f"{BASE}vocabulary:")
PREFIXES = {"kgh": KGH, "rdf": RDF, "rdfs": RDFS, "xsd": XSD}
CACHED_ENTITIES = 4096

Triple = tuple[str, str, str]  # as written
# N-Triples and Turtle escape text as JSON does. rdflib writes lines' ends as they are, which N-Triples does not know.
written_text = json.JSONEncoder(ensure_ascii=False).encode


def as_ntriples(job: HarvestJob, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of N-Triples about `job` and its tuples, `rows` of an export, those of one tuple together."""
    for triples in _statements(job, rows, None):
        yield "".join([f"{subject} {predicate} {value} .\n" for subject, predicate, value in triples])


def as_turtle(job: HarvestJob, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the same triples as Turtle, a block for each subject."""
    names = NamespaceManager(Graph(), bind_namespaces="none")
    for prefix, namespace in PREFIXES.items():
        names.bind(prefix, namespace)
        yield f"@prefix {prefix}: {URIRef(namespace).n3()} .\n"
    for triples in _statements(job, rows, names):
        for subject, about_it in groupby(triples, key=itemgetter(0)):
            statements = " ;\n    ".join([f"{predicate} {value}" for _, predicate, value in about_it])
            yield f"\n{subject} {statements} .\n"


def _statements(
    job: HarvestJob, rows: Iterable[Mapping[str, Any]], names: NamespaceManager | None
) -> Iterator[list[Triple]]:
    """Yield the triples about relation and harvest, then those of each tuple.

    names: short names for the terms of the vocabulary; None leaves them as they are.
    """
    harvest = URIRef(f"{BASE}harvest:{job.fingerprint}-{job.pk}")
    relation = URIRef(f"{BASE}relation:{quote(job.relation.path)}")
    about = (*_about_relation(job, relation), *_about_harvest(job, harvest, relation))
    yield [tuple(_written(term, names) for term in triple) for triple in about]
    yield from map(_TupleTriples(job.relation.arity, harvest, relation, names), rows)


def _about_relation(job: HarvestJob, relation: URIRef) -> Iterator[tuple[Identifier, Identifier, Identifier]]:
    yield relation, RDF.type, KGH.Relation
    if job.relation.arity == 2:
        yield relation, RDF.type, RDF.Property
    yield relation, RDFS.label, Literal(job.relation.name)
    yield relation, KGH.statement, Literal(job.relation.statement)
    yield relation, KGH.arity, Literal(job.relation.arity)


def _about_harvest(
    job: HarvestJob, harvest: URIRef, relation: URIRef
) -> Iterator[tuple[Identifier, Identifier, Identifier]]:
    yield harvest, RDF.type, KGH.Harvest
    yield harvest, KGH.relation, relation
    yield harvest, KGH.model, Literal(job.language_model.name)
    if job.language_model.revision:
        yield harvest, KGH.modelRevision, Literal(job.language_model.revision)
    yield harvest, KGH.setting, Literal(job.setting)
    yield harvest, KGH.scoreScale, Literal(job.score_scale)
    yield harvest, KGH.job, Literal(job.fingerprint)


def _written(term: Identifier, names: NamespaceManager | None) -> str:
    is_plain_text = isinstance(term, Literal) and term.datatype is None
    return written_text(str(term)) if is_plain_text else term.n3(names)


class _TupleTriples:
    """What is said of each tuple of a harvest. A million tuples are written by this, so that it makes no terms."""

    def __init__(self, arity: int, harvest: URIRef, relation: URIRef, names: NamespaceManager | None):
        self._start = harvest.n3()[:-1]
        self._relation = relation.n3()
        self._is_binary = arity == 2
        self._slots = [
            tuple(KGH[f"{what}{slot}"].n3(names) for what in ("entity", "surface", "original")) for slot in range(arity)
        ]
        self._constant = [
            (RDF.type.n3(names), KGH.HarvestedTuple.n3(names)),
            (KGH.harvest.n3(names), harvest.n3()),
            (KGH.relation.n3(names), relation.n3()),
        ]
        self._rank, self._score, self._mtl = (KGH[name].n3(names) for name in ("rank", "score", "mtl"))
        self._label = RDFS.label.n3(names)
        self._double, self._integer = XSD.double.n3(names), XSD.integer.n3(names)

    def __call__(self, row: Mapping[str, Any]) -> list[Triple]:
        harvested_tuple = f"{self._start}/{row['rank']}>"
        entities = [_entity(entity) for entity in row["entities"]]
        triples = [(harvested_tuple, predicate, value) for predicate, value in self._constant]
        for (entity, surface, _), (iri, _), written in zip(self._slots, entities, row["surface"], strict=True):
            triples += ((harvested_tuple, entity, iri), (harvested_tuple, surface, written_text(written)))
        for (_, _, original), written in zip(self._slots, row.get("original", ()), strict=False):
            triples.append((harvested_tuple, original, written_text(written)))
        triples.append((harvested_tuple, self._rank, f'"{row["rank"]}"^^{self._integer}'))
        triples.append((harvested_tuple, self._score, f'"{row["score"]!r}"^^{self._double}'))
        if row["mtl"] is not None:
            triples.append((harvested_tuple, self._mtl, f'"{row["mtl"]!r}"^^{self._double}'))
        triples += ((iri, self._label, label) for iri, label in entities)
        if self._is_binary:
            triples.append((entities[0][0], self._relation, entities[1][0]))
        return triples


@lru_cache(CACHED_ENTITIES)
def _entity(entity: str) -> tuple[str, str]:
    """Return the IRI and the label of a case-folded entity, as written."""
    return f"<{BASE}entity:{quote(entity, safe='')}>", written_text(entity)
