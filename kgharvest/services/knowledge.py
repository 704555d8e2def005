"""Store what jobs found, so that lists sort and search it at a cost that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from django.db import connection

from kgharvest.models import EntityOccurrence, HarvestedTuple, HarvestJob, KnowledgeTuple, Relation, tuple_key
from kgharvest.services.sensitive_words import sensitivity_test

ROWS_AT_ONCE = 2000

# One statement for new and known tuples: Django's bulk_create can set columns anew but not add to them.
UPSERT = """
INSERT INTO kgharvest_knowledgetuple (relation_id, entities, key, n_harvests, best_score, is_sensitive)
VALUES {rows}
ON CONFLICT (relation_id, key) DO UPDATE SET
    n_harvests = kgharvest_knowledgetuple.n_harvests + 1,
    best_score = CASE WHEN kgharvest_knowledgetuple.best_score >= excluded.best_score
                      THEN kgharvest_knowledgetuple.best_score ELSE excluded.best_score END,
    is_sensitive = excluded.is_sensitive
RETURNING id, key, n_harvests
"""
ROW = "(%s, %s, %s, 1, %s, %s)"


class TupleRow(NamedTuple):
    """A tuple of a job: case-folded `entities`, `surface` as written, `score` and `mtl` in nats (None if unknown)."""

    entities: tuple[str, ...]
    surface: tuple[str, ...]
    score: float
    mtl: float | None


def store_tuples(job: HarvestJob, rows: Sequence[TupleRow]) -> None:
    """Write the tuples of a job, different ones, best first. Call it inside the transaction that ends the job."""
    # Two jobs that update the same tuples in different orders would wait for each other for ever.
    Relation.objects.lock(job.relation_id)
    is_sensitive = sensitivity_test()
    for start in range(0, len(rows), ROWS_AT_ONCE):
        chunk = rows[start : start + ROWS_AT_ONCE]
        ids = _remember(job.relation_id, chunk, is_sensitive)
        HarvestedTuple.objects.bulk_create(
            HarvestedTuple(
                job_id=job.pk,
                knowledge_tuple_id=ids[tuple_key(row.entities)],
                rank=rank,
                score=row.score,
                mtl=row.mtl,
                surface=row.surface,
            )
            for rank, row in enumerate(chunk, start=start + 1)
        )


def _remember(relation_id: int, rows: Sequence[TupleRow], is_sensitive: Callable[[str], bool]) -> dict[str, int]:
    """Note that one more job found `rows`; return the ids of their knowledge tuples by key."""
    entities = {tuple_key(row.entities): row.entities for row in rows}
    known = _upsert(relation_id, rows, is_sensitive)
    new = ((pk, entities[key]) for pk, key, n_harvests in known if n_harvests == 1)
    EntityOccurrence.objects.bulk_create(
        (
            EntityOccurrence(entity=entity, knowledge_tuple_id=pk, relation_id=relation_id, slot=slot)
            for pk, folded in new
            for slot, entity in enumerate(folded)
        ),
        ignore_conflicts=True,
    )
    return {key: pk for pk, key, _ in known}


def _upsert(
    relation_id: int, rows: Sequence[TupleRow], is_sensitive: Callable[[str], bool]
) -> Iterable[tuple[int, str, int]]:
    """Return id, key and number of harvests of each row's knowledge tuple."""
    as_json = KnowledgeTuple._meta.get_field("entities").get_db_prep_save
    params: list = []
    for row in rows:
        key = tuple_key(row.entities)
        params += (relation_id, as_json(row.entities, connection), key, row.score, is_sensitive(key))
    with connection.cursor() as cursor:
        cursor.execute(UPSERT.format(rows=", ".join([ROW] * len(rows))), params)
        return cursor.fetchall()
