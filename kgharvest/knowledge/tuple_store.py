"""Storage of harvested tuples, with the denormalized columns and the entity index that lists and search use."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from django.db import connection

from kgharvest.bulk.insert import fill_table
from kgharvest.knowledge.sensitive_words import current_words, matcher
from kgharvest.models import HarvestJob, KnowledgeTuple, Relation, tuple_key

# Rows are loaded into a temporary table and then stored by a few set-based statements, because most of the time of
# large imports is spent on storing.
CREATE_TABLE = """
CREATE TEMPORARY TABLE found_tuple (
    rank integer PRIMARY KEY, key text, score double precision, mtl double precision, is_sensitive boolean,
    entities {json}, surface {json}, reference_texts {json}, {slots}
)
"""
UPSERT_TUPLES = """
INSERT INTO kgharvest_knowledgetuple (relation_id, entities, key, n_harvests, best_score, is_sensitive)
SELECT %s, entities, key, 1, score, is_sensitive FROM found_tuple WHERE true ORDER BY rank
ON CONFLICT (relation_id, key) DO UPDATE SET
    n_harvests = kgharvest_knowledgetuple.n_harvests + 1,
    best_score = CASE WHEN kgharvest_knowledgetuple.best_score >= excluded.best_score
                      THEN kgharvest_knowledgetuple.best_score ELSE excluded.best_score END,
    is_sensitive = excluded.is_sensitive
"""
INSERT_OCCURRENCES = """
INSERT INTO kgharvest_entityoccurrence (entity, knowledge_tuple_id, relation_id, slot)
SELECT found.entity{slot}, stored.id, stored.relation_id, {slot}
FROM found_tuple found JOIN kgharvest_knowledgetuple stored ON stored.relation_id = %s AND stored.key = found.key
WHERE stored.n_harvests = 1
ON CONFLICT (knowledge_tuple_id, slot) DO NOTHING
"""
INSERT_HARVESTED_TUPLES = """
INSERT INTO kgharvest_harvestedtuple (job_id, knowledge_tuple_id, rank, score, mtl, surface, "references")
SELECT %s, stored.id, found.rank, found.score, found.mtl, found.surface, found.reference_texts
FROM found_tuple found JOIN kgharvest_knowledgetuple stored ON stored.relation_id = %s AND stored.key = found.key
ORDER BY found.rank
"""
JSON = KnowledgeTuple._meta.get_field("entities")


class TupleRow(NamedTuple):
    """A scored tuple. entities: case-folded entities. surface: entities as written.

    mtl: MTL in nats, None if unknown. references: links and short texts from an imported file.
    """

    entities: tuple[str, ...]
    surface: tuple[str, ...]
    score: float
    mtl: float | None
    references: tuple[str, ...] = ()


def store_tuples(job: HarvestJob, rows: Iterable[TupleRow]) -> None:
    """Store the distinct tuples of a job, best first. Call it in the transaction that ends the job."""
    Relation.objects.lock(job.relation_id)  # the lock prevents deadlocks between jobs that update the same tuples
    slots, is_sensitive = range(job.relation.arity), matcher(current_words())

    def temporary_rows() -> Iterator[Sequence[Any]]:
        for rank, row in enumerate(rows, start=1):
            key = tuple_key(row.entities)
            lists = (row.entities, row.surface, row.references or None)
            columns = [JSON.get_db_prep_save(texts, connection) for texts in lists]
            yield rank, key, row.score, row.mtl, is_sensitive(key), *columns, *row.entities

    with connection.cursor() as cursor:
        cursor.execute(
            CREATE_TABLE.format(json=JSON.db_type(connection), slots=", ".join(f"entity{slot} text" for slot in slots))
        )
        fill_table(connection, "found_tuple", temporary_rows())
        cursor.execute("ANALYZE found_tuple")
        cursor.execute(UPSERT_TUPLES, [job.relation_id])
        for slot in slots:
            cursor.execute(INSERT_OCCURRENCES.format(slot=slot), [job.relation_id])
        cursor.execute(INSERT_HARVESTED_TUPLES, [job.pk, job.relation_id])
        cursor.execute("DROP TABLE found_tuple")
