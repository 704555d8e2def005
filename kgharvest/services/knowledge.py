"""Store what jobs found, so that lists sort and search it at a cost that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple

from django.db import connection

from kgharvest.models import HarvestJob, KnowledgeTuple, Relation, tuple_key
from kgharvest.services.sensitive_words import sensitivity_test

ROWS_AT_ONCE = 2000

# Written as SQL because it is what an import of a million tuples spends its time on: Django's bulk_create takes three
# times as long, and can set columns of known rows anew but not add to them.
REMEMBER = """
INSERT INTO kgharvest_knowledgetuple (relation_id, entities, key, n_harvests, best_score, is_sensitive)
VALUES {rows}
ON CONFLICT (relation_id, key) DO UPDATE SET
    n_harvests = kgharvest_knowledgetuple.n_harvests + 1,
    best_score = CASE WHEN kgharvest_knowledgetuple.best_score >= excluded.best_score
                      THEN kgharvest_knowledgetuple.best_score ELSE excluded.best_score END,
    is_sensitive = excluded.is_sensitive
RETURNING id, key, n_harvests
"""
INDEX_ENTITIES = """
INSERT INTO kgharvest_entityoccurrence (entity, knowledge_tuple_id, relation_id, slot)
VALUES {rows}
ON CONFLICT (knowledge_tuple_id, slot) DO NOTHING
"""
STORE = """
INSERT INTO kgharvest_harvestedtuple (job_id, knowledge_tuple_id, rank, score, mtl, surface)
VALUES {rows}
"""


class TupleRow(NamedTuple):
    """A tuple of a job: case-folded `entities`, `surface` as written, `score` and `mtl` in nats (None if unknown)."""

    entities: tuple[str, ...]
    surface: tuple[str, ...]
    score: float
    mtl: float | None


def store_tuples(job: HarvestJob, rows: Iterable[TupleRow]) -> None:
    """Write the tuples of a job, different ones, best first. Call it inside the transaction that ends the job."""
    # Two jobs that update the same tuples in different orders would wait for each other for ever.
    Relation.objects.lock(job.relation_id)
    is_sensitive = sensitivity_test()
    with connection.cursor() as cursor:
        ranked = enumerate(rows, start=1)
        while chunk := list(islice(ranked, ROWS_AT_ONCE)):
            ids = _remember(cursor, job.relation_id, [row for _, row in chunk], is_sensitive)
            found = (
                (job.pk, ids[tuple_key(row.entities)], rank, row.score, row.mtl, _json(row.surface))
                for rank, row in chunk
            )
            _insert(cursor, STORE, found)


def _remember(
    cursor, relation_id: int, rows: Sequence[TupleRow], is_sensitive: Callable[[str], bool]
) -> dict[str, int]:
    """Note that one more job found `rows`; return the ids of their knowledge tuples by key."""
    by_key = {tuple_key(row.entities): row for row in rows}
    claims = ((relation_id, _json(row.entities), key, 1, row.score, is_sensitive(key)) for key, row in by_key.items())
    _insert(cursor, REMEMBER, claims)
    known = cursor.fetchall()
    for slot in range(len(rows[0].entities)):
        new = ((by_key[key].entities[slot], pk, relation_id, slot) for pk, key, n_harvests in known if n_harvests == 1)
        _insert(cursor, INDEX_ENTITIES, new)
    return {key: pk for pk, key, _ in known}


def _insert(cursor, statement: str, rows: Iterable[tuple]) -> None:
    params = list(rows)
    if params:
        row = f"({', '.join(['%s'] * len(params[0]))})"
        cursor.execute(statement.format(rows=", ".join([row] * len(params))), list(chain.from_iterable(params)))


def _json(entities: Sequence[str]):
    return KnowledgeTuple._meta.get_field("entities").get_db_prep_save(entities, connection)
