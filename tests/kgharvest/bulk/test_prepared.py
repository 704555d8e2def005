"""Prepared statements are equivalent to their QuerySets."""

from datetime import timedelta
from threading import Thread
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from annotation.models import Assignment, Judgment, JudgmentTask
from kgharvest.bulk.prepared import Parameter, PreparedInsert, PreparedSelect, PreparedUpdate
from tests.factories import make_annotators, make_round

pytestmark = pytest.mark.django_db


@pytest.fixture
def tasks():
    return list(make_round(4).tasks.order_by("position"))


@pytest.fixture
def leases(tasks):
    annotators = make_annotators(tasks[0].round, 2)
    until = timezone.now() + timedelta(hours=1)
    return [
        Assignment.objects.create(task=task, annotator=annotator, expires_at=until)
        for annotator, task in ((annotators[0], tasks[0]), (annotators[0], tasks[1]), (annotators[1], tasks[0]))
    ]


def test_a_prepared_select_returns_rows_with_joins_and_annotations(leases):
    select = PreparedSelect(
        lambda: (
            Assignment.objects.filter(annotator=Parameter(Assignment, "annotator"))
            .select_related("task__round")
            .annotate(is_shared=Exists(Assignment.objects.filter(task=OuterRef("task")).exclude(pk=OuterRef("pk"))))
            .only("expires_at", "task__spans", "task__round__name")
            .order_by("pk")
        )
    )

    mine = select(annotator=leases[0].annotator_id)

    assert mine == leases[:2]
    assert select(annotator=leases[2].annotator_id) == leases[2:]
    assert [lease.is_shared for lease in mine] == [True, False]
    assert mine[0].expires_at == leases[0].expires_at
    assert mine[0].task.spans == leases[0].task.spans
    assert mine[0].task.round.name == leases[0].task.round.name
    assert mine[0].get_deferred_fields() == {"status", "annotator_id"}


def test_a_prepared_update_sets_parameters_and_constants(leases):
    update = PreparedUpdate(
        lambda: Assignment.objects.filter(annotator=Parameter(Assignment, "annotator")), "expires_at", status="expired"
    )
    now = timezone.now()

    assert update(annotator=leases[0].annotator_id, expires_at=now) == 2
    assert update(annotator=0, expires_at=now) == 0

    stored = list(Assignment.objects.order_by("pk").values_list("status", "expires_at"))
    assert stored == [("expired", now), ("expired", now), ("leased", leases[2].expires_at)]


def test_a_prepared_insert_stores_the_same_as_save(leases):
    fields = {"annotator": leases[0].annotator, "label": "true", "judged_at": timezone.now(), "seconds": 1.5}
    inserted, saved = (Judgment(pk=uuid4(), task=lease.task, **fields) for lease in leases[:2])

    PreparedInsert(Judgment)(inserted)
    saved.save(force_insert=True)

    rows = {row.pop("client_uuid"): row for row in Judgment.objects.values()}
    assert rows[inserted.pk] | {"task_id": saved.task_id} == rows[saved.pk]
    assert not inserted._state.adding


def test_a_statement_is_compiled_once(leases, django_assert_num_queries):
    calls = []

    def rows():
        calls.append(1)
        return JudgmentTask.objects.filter(pk=Parameter(JudgmentTask, "id"))

    select = PreparedSelect(rows)

    with django_assert_num_queries(3):
        assert [select(id=lease.task_id) for lease in leases] == [[lease.task] for lease in leases]
    assert calls == [1]


@pytest.mark.django_db(transaction=True)
def test_statement_compiled_in_another_thread_uses_current_connection(tasks):
    select = PreparedSelect(lambda: JudgmentTask.objects.filter(pk=Parameter(JudgmentTask, "id")))
    found = []

    def query():
        try:
            found.extend(select(id=tasks[0].pk))
        finally:
            connection.close()

    other = Thread(target=query)
    other.start()
    other.join()

    assert found == [tasks[0]] == select(id=tasks[0].pk)


@pytest.mark.django_db(transaction=True)
def test_locking_outside_a_transaction_is_rejected(tasks, monkeypatch):
    monkeypatch.setattr(connection.features, "has_select_for_update", True)
    select = PreparedSelect(lambda: JudgmentTask.objects.filter(pk=Parameter(JudgmentTask, "id")).select_for_update())
    with transaction.atomic():
        select._bound({"id": tasks[0].pk})  # compile the statement as an earlier call would

    with pytest.raises(transaction.TransactionManagementError):
        select(id=tasks[0].pk)
