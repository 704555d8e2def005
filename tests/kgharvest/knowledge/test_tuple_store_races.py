"""Concurrent jobs that store or flag the same tuples."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection, transaction

from kgharvest.knowledge import sensitive_words
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import EntityOccurrence, KnowledgeTuple, SensitiveWord
from tests import factories

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]

N = 60


def row(number: int, score: float) -> TupleRow:
    entities = (f"head {number}", "nazi")
    return TupleRow(entities, entities, score, None)


def test_concurrent_jobs_store_the_same_tuples_in_any_order(monkeypatch):
    monkeypatch.setattr(sensitive_words, "ROWS_AT_ONCE", 5)
    SensitiveWord.objects.get_or_create(word="nazi")
    relation = factories.make_relation()
    jobs = [factories.make_harvest_job("succeeded", relation=relation, n_tuples=N) for _ in range(4)]
    orders = [range(N), range(N - 1, -1, -1)] * 2
    barrier = Barrier(len(jobs) + 1)

    def store(job, order) -> None:
        barrier.wait()
        with transaction.atomic():
            store_tuples(job, [row(number, -float(number + 1)) for number in order])
        connection.close()

    def mark() -> None:
        barrier.wait()
        for _ in sensitive_words._mark_relation(relation.pk):
            pass
        connection.close()

    with ThreadPoolExecutor(len(jobs) + 1) as pool:
        work = [pool.submit(store, job, order) for job, order in zip(jobs, orders, strict=True)] + [pool.submit(mark)]
        for future in work:
            future.result()

    stored = KnowledgeTuple.objects.values_list("n_harvests", "best_score", "is_sensitive")
    assert sorted(stored) == sorted((4, -float(number + 1), True) for number in range(N))
    assert EntityOccurrence.objects.count() == 2 * N
