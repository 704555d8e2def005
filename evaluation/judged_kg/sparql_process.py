"""The process in which a store is filled or one query runs: `python -m evaluation.judged_kg.sparql_process load|query`.

No Django is loaded here. What a query may take is bounded by the system, whatever it does: memory, CPU time, no file
and no connection that is not open before it starts. The process that started this one kills it when its time is over.

load FOLDER reads N-Triples from standard input. query FOLDER reads {"query", "rows", "bytes", "seconds"} and writes one
JSON object: {"error"}, or {"kind": "select", "variables", "rows"}, {"kind": "ask", "value"}, {"kind": "construct",
"rows"}, with "is_complete": false where a limit cut the rows short. A term is [kind, value, datatype or language].
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyoxigraph as ox

MOST_MEMORY = 2 << 30  # bytes of addresses
LINES_AT_ONCE = 100_000  # what one load takes grows with them
PREFIXES = {
    "kgh": "urn:kgharvest:vocabulary:",
    "prov": "http://www.w3.org/ns/prov#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}


def load(folder: str) -> None:
    store = ox.Store(folder)
    while lines := b"".join(islice(sys.stdin.buffer, LINES_AT_ONCE)):
        store.bulk_load(lines, ox.RdfFormat.N_TRIPLES)
    store.flush()


def query(folder: str, asked: dict[str, Any]) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    store = ox.Store.read_only(folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # all files of the store are open: no connection from here on
    try:
        return answer(store.query(asked["query"], prefixes=PREFIXES), asked["rows"], asked["bytes"])
    except (SyntaxError, ValueError, OSError) as error:
        return {"error": str(error)}


def answer(result: Any, most_rows: int, most_bytes: int) -> dict[str, Any]:
    if isinstance(result, ox.QueryBoolean):
        return {"kind": "ask", "value": bool(result), "is_complete": True}
    if isinstance(result, ox.QuerySolutions):
        variables = [variable.value for variable in result.variables]
        rows = ([solution[name] for name in variables] for solution in result)
        return {"kind": "select", "variables": variables, **bounded(rows, most_rows, most_bytes)}
    triples = ([triple.subject, triple.predicate, triple.object] for triple in result)
    return {"kind": "construct", **bounded(triples, most_rows, most_bytes)}


def bounded(rows: Iterable[list[Any]], most_rows: int, most_bytes: int) -> dict[str, Any]:
    """Return the first rows: as many as both limits allow."""
    kept: list[list[Any]] = []
    size = 0
    for row in terms_of(rows):
        size += sum(len(term[1]) + len(term[2] or "") for term in row if term) + 10 * len(row)
        if len(kept) == most_rows or size > most_bytes:
            return {"rows": kept, "is_complete": False}
        kept.append(row)
    return {"rows": kept, "is_complete": True}


def terms_of(rows: Iterable[list[Any]]) -> Iterator[list[Any]]:
    for row in rows:
        yield [None if term is None else term_of(term) for term in row]


def term_of(term: Any) -> list[str | None]:
    if isinstance(term, ox.NamedNode):
        return ["uri", term.value, None]
    if isinstance(term, ox.BlankNode):
        return ["bnode", term.value, None]
    if not isinstance(term, ox.Literal):
        return ["literal", str(term), None]
    if term.language:
        return ["literal", term.value, f"@{term.language}"]
    datatype = term.datatype.value
    return ["literal", term.value, None if datatype == f"{PREFIXES['xsd']}string" else datatype]


def main() -> None:
    task, folder = sys.argv[1:]
    if task == "load":
        load(folder)
    else:
        json.dump(query(folder, json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
