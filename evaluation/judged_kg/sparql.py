"""SPARQL queries over the judged KG of a round: read-only, without network, bounded in time, memory and rows."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from evaluation.judged_kg.rows import JudgedKG
from evaluation.judged_kg.store import in_process, store_of
from kgharvest.bulk.file_writing import escape_formula
from kgharvest.errors import DomainError
from kgharvest.operations.child_processes import TookTooLong

LONGEST_QUERY = 10_000  # characters
MOST_ROWS = 10_000
MOST_BYTES = 5 << 20  # of terms in an answer
MOST_SECONDS = 10
MOST_AT_ONCE = 2  # queries from pages and API on this machine
# A service is what comes before the address, the name or the variable of another server.
SERVICE = re.compile(r"(?<![\w?$:%-])service(?=\s|#|<|\?|\$|:)", re.IGNORECASE)

EXAMPLES = {
    "Precision of each relation, LM and setting": """\
SELECT ?relation ?model ?setting (COUNT(?tuple) AS ?judged)
       (SUM(IF(?verdict = "accepted", 1 / ?p, 0)) / SUM(1 / ?p) AS ?precision)
WHERE {
  ?tuple kgh:judgedIn ?round ; kgh:verdict ?verdict ; kgh:inclusionProbability ?p ; kgh:harvest ?harvest .
  ?harvest kgh:relation/rdfs:label ?relation ; kgh:model ?model ; kgh:setting ?setting .
  FILTER(?verdict != "incomplete")
}
GROUP BY ?relation ?model ?setting
ORDER BY ?relation ?model ?setting""",
    "Accepted tuples, best first": """\
SELECT ?relation ?first ?second ?score ?true ?false
WHERE {
  ?tuple kgh:verdict "accepted" ; kgh:relation/rdfs:label ?relation ;
         kgh:surface0 ?first ; kgh:surface1 ?second ; kgh:nTrue ?true ; kgh:nFalse ?false .
  OPTIONAL { ?tuple kgh:score ?score }
}
ORDER BY ?relation DESC(?score)
LIMIT 100""",
    "Where the rejected tuples come from": """\
SELECT ?agent ?setting ?job (COUNT(?tuple) AS ?rejected)
WHERE {
  ?tuple kgh:verdict "rejected" ; prov:wasGeneratedBy ?harvest .
  ?harvest prov:wasAssociatedWith/rdfs:label ?agent ; kgh:setting ?setting ; kgh:job ?job .
}
GROUP BY ?agent ?setting ?job
ORDER BY DESC(?rejected)""",
}


class BadQuery(DomainError):
    """A query that cannot be answered as it is written."""


class QueryTooCostly(DomainError):
    """A query that took more time or memory than one may."""


class TooManyQueries(DomainError):
    """A query that would be one more than are answered at the same time."""


@dataclass(frozen=True)
class Answer:
    """kind: "select", "ask" or "construct". rows: of terms, each [kind, value, datatype or @language or None] or None.

    is_complete: whether these are all rows, and not the first only. value: of an ASK.
    """

    kind: str
    is_complete: bool
    variables: Sequence[str] = ()
    rows: Sequence[Sequence[Sequence[Any] | None]] = ()
    value: bool | None = None

    @property
    def columns(self) -> Sequence[str]:
        return {"ask": ["answer"], "construct": ["subject", "predicate", "object"]}.get(self.kind, self.variables)

    def texts(self) -> Iterator[list[str]]:
        """Yield rows as people read them."""
        if self.kind == "ask":
            yield ["true" if self.value else "false"]
        for row in self.rows:
            yield [term[1] if term else "" for term in row]


def ask(kg: JudgedKG, query: str, most_tuples: int | None = None, most_rows: int = MOST_ROWS) -> Answer:
    """Answer a query in a process of its own. most_tuples: as `store_of` takes it; a page or the API says it.

    Raises BadQuery, QueryTooCostly, TooManyQueries, StoreTooLarge.
    """
    check_query(query)
    with _slot() if most_tuples is not None else _no_slot():
        folder = store_of(kg, most_tuples)
        return Answer(**_answer(folder, {"query": query, "rows": most_rows, "bytes": MOST_BYTES}))


def check_query(query: str) -> None:
    """Raise BadQuery for what is not sent to a store at all."""
    if not query.strip():
        raise BadQuery("The query is empty; write a SELECT, ASK or CONSTRUCT query.")
    if len(query) > LONGEST_QUERY:
        raise BadQuery(f"The query has more than {LONGEST_QUERY:,} characters; shorten it.")
    if SERVICE.search(query):
        raise BadQuery("Queries ask this store alone; leave the word SERVICE out, in texts and comments as well.")


def _answer(folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    sent = json.dumps({**asked, "seconds": MOST_SECONDS}).encode()
    try:
        ended = in_process("query", folder, sent, MOST_SECONDS)
    except TookTooLong as late:
        raise QueryTooCostly(
            f"The query took longer than {MOST_SECONDS} seconds; ask for less, or join fewer patterns."
        ) from late
    if ended.status:
        raise QueryTooCostly("The query took more memory or time than one may; ask for less, or join fewer patterns.")
    answer: dict[str, Any] = json.loads(ended.output)
    if "error" in answer:
        raise BadQuery(f"The query cannot be answered: {answer['error']}.")
    return answer


@contextmanager
def _slot() -> Iterator[None]:
    """Hold one of the places of queries. Locks of files end with the process that holds them, however it ends."""
    folder = settings.DATA_DIR / "sparql"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(MOST_AT_ONCE):
        with (folder / f"slot-{number}").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield
            return
    raise TooManyQueries(f"{MOST_AT_ONCE} queries are being answered; ask again in a few seconds.")


@contextmanager
def _no_slot() -> Iterator[None]:
    yield


# -- answers as files --------------------------------------------------------------------------------------------------


def as_json(answer: Answer) -> dict[str, Any]:
    """Return SPARQL 1.1 query results; triples of a CONSTRUCT as rows of subject, predicate and object.

    `is_complete` is ours.
    """
    if answer.kind == "ask":
        return {"head": {}, "boolean": answer.value, "is_complete": True}
    bindings = [
        {name: _binding(term) for name, term in zip(answer.columns, row, strict=True) if term} for row in answer.rows
    ]
    return {
        "head": {"vars": list(answer.columns)},
        "results": {"bindings": bindings},
        "is_complete": answer.is_complete,
    }


def _binding(term: Sequence[Any]) -> dict[str, str]:
    kind, value, more = term
    if more is None:
        return {"type": kind, "value": value}
    return {"type": kind, "value": value, **({"xml:lang": more[1:]} if more.startswith("@") else {"datatype": more})}


def as_csv(answer: Answer) -> str:
    """Return a table; no text of it is a formula, but numbers stay numbers."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(answer.columns)
    if answer.kind == "ask":
        writer.writerows(answer.texts())
    for row in answer.rows:
        writer.writerow([_cell(*term) if term else "" for term in row])
    return buffer.getvalue()


def _cell(kind: str, value: str, more: str | None) -> str:
    """Return the text of a term. A query may name any datatype: only what is a number stays as it is."""
    try:
        float(value if more else "")
    except ValueError:
        return str(escape_formula(value))
    return value
