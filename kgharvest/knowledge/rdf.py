"""RDF export of harvested tuples in the vocabulary of docs/rdf.md. Triples are streamed without a graph in memory."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from kgharvest.models import HarvestJob, Relation

BASE = "urn:kgharvest:"
PREFIXES = {
    "kgh": f"{BASE}vocabulary:",
    "prov": "http://www.w3.org/ns/prov#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
CACHED_ENTITIES = 4096

Triple = tuple[str, str, str]  # subject, predicate, and object in the syntax of the file
Name = Callable[[str], str]  # function that serializes a prefixed name such as "kgh:rank"
literal = json.JSONEncoder(ensure_ascii=False).encode  # N-Triples and Turtle escape text in the same way as JSON does


def as_rdf(file_format: str, statements: Callable[[Name], Iterable[Iterable[Triple]]]) -> Iterator[str]:
    """Yield the text of a file in N-Triples ("nt") or Turtle ("ttl").

    statements: function that returns groups of triples. In a group, the triples of one subject are adjacent.
    """
    if file_format == "nt":

        def full_name(name: str) -> str:
            prefix, _, local = name.partition(":")
            return f"<{PREFIXES[prefix]}{local}>"

        for triples in statements(full_name):
            yield "".join([f"{subject} {predicate} {value} .\n" for subject, predicate, value in triples])
        return
    for prefix, namespace in PREFIXES.items():
        yield f"@prefix {prefix}: <{namespace}> .\n"
    for triples in statements(str):
        for subject, subject_triples in groupby(triples, key=itemgetter(0)):
            values = " ;\n    ".join([f"{predicate} {value}" for _, predicate, value in subject_triples])
            yield f"\n{subject} {values} .\n"


def harvest_as_rdf(file_format: str, job: HarvestJob, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the text of a file about `job` and its tuples. rows: the records of a tuple export."""

    def statements(name: Name) -> Iterator[list[Triple]]:
        yield [*about_relation(job.relation, name), *about_harvest(job, name)]
        tuple_triples = TupleTriples(job.relation, harvest_iri(job), name)
        for row in rows:
            triples = tuple_triples.about(tuple_triples.iri_of(row["rank"]), row)
            if tuple_triples.is_binary:
                triples.append(tuple_triples.plain(row))
            yield triples

    return as_rdf(file_format, statements)


def harvest_iri(job: HarvestJob) -> str:
    return f"<{BASE}harvest:{job.fingerprint}-{job.pk}>"


def _relation_iri(relation: Relation) -> str:
    return f"<{BASE}relation:{quote(relation.path)}>"


def about_relation(relation: Relation, name: Name) -> Iterator[Triple]:
    iri = _relation_iri(relation)
    yield iri, name("rdf:type"), name("kgh:Relation")
    if relation.arity == 2:
        yield iri, name("rdf:type"), name("rdf:Property")
    yield iri, name("rdfs:label"), literal(relation.name)
    yield iri, name("kgh:statement"), literal(relation.statement)
    yield iri, name("kgh:arity"), f'"{relation.arity}"^^{name("xsd:integer")}'


def about_harvest(job: HarvestJob, name: Name) -> Iterator[Triple]:
    iri = harvest_iri(job)
    yield iri, name("rdf:type"), name("kgh:Harvest")
    yield iri, name("kgh:relation"), _relation_iri(job.relation)
    yield iri, name("kgh:model"), literal(job.language_model.name)
    if job.language_model.revision:
        yield iri, name("kgh:modelRevision"), literal(job.language_model.revision)
    yield iri, name("kgh:setting"), literal(job.setting)
    yield iri, name("kgh:scoreScale"), literal(job.score_scale)
    yield iri, name("kgh:job"), literal(job.fingerprint)


class TupleTriples:
    """Triples about the tuples of one harvest.

    Names are serialized only once, because there can be millions of tuples.
    """

    def __init__(self, relation: Relation, harvest: str, name: Name):
        self._start = harvest[:-1]
        self._relation = _relation_iri(relation)
        self.is_binary = relation.arity == 2
        self._slots = [
            tuple(name(f"kgh:{field}{slot}") for field in ("entity", "surface", "original"))
            for slot in range(relation.arity)
        ]
        self._constant = [
            (name("rdf:type"), name("kgh:HarvestedTuple")),
            (name("kgh:harvest"), harvest),
            (name("kgh:relation"), self._relation),
        ]
        self._rank, self._score, self._mtl = map(name, ("kgh:rank", "kgh:score", "kgh:mtl"))
        self._label, self._identifier = name("rdfs:label"), name("kgh:identifier")
        self._double, self._integer = name("xsd:double"), name("xsd:integer")

    def iri_of(self, rank: int) -> str:
        return f"{self._start}/{rank}>"

    def about(self, harvested_tuple: str, row: Mapping[str, Any]) -> list[Triple]:
        """Return the triples for one record of a tuple export. harvested_tuple: IRI of the tuple."""
        entities = [_entity(entity) for entity in row["entities"]]
        triples = [(harvested_tuple, predicate, value) for predicate, value in self._constant]
        for (entity, surface, _), (iri, _), text in zip(self._slots, entities, row["surface"], strict=True):
            triples += ((harvested_tuple, entity, iri), (harvested_tuple, surface, literal(text)))
        for (_, _, original), text in zip(self._slots, row.get("original", ()), strict=False):
            triples.append((harvested_tuple, original, literal(text)))
        if row["rank"] is not None:
            triples.append((harvested_tuple, self._rank, f'"{row["rank"]}"^^{self._integer}'))
        for predicate, number in ((self._score, row["score"]), (self._mtl, row["mtl"])):
            if number is not None:
                triples.append((harvested_tuple, predicate, f'"{number!r}"^^{self._double}'))
        triples += ((iri, self._label, label) for iri, label in entities)
        for (iri, _), identifier in zip(entities, row.get("ids", ()), strict=False):
            if identifier is not None:
                triples.append((iri, self._identifier, literal(identifier)))
        return triples

    def plain(self, row: Mapping[str, Any]) -> Triple:
        """Return the triple (head, relation, tail) of a binary tuple."""
        head, tail = row["entities"]
        return _entity(head)[0], self._relation, _entity(tail)[0]


@lru_cache(CACHED_ENTITIES)
def _entity(entity: str) -> tuple[str, str]:
    """Return the IRI and the label of a case-folded entity in the syntax of the file."""
    return f"<{BASE}entity:{quote(entity, safe='')}>", literal(entity)
