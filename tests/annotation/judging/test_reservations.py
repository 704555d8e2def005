"""Reservations: who receives reserved statements, and what they cost. tests/annotation/judging/test_races.py: races."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from annotation.invites.erasure import erase_annotator
from annotation.judging.assignment import LEASE, fill_batch, next_batch
from annotation.judging.judgments import n_skipped, reassign_skipped, skip_task
from annotation.judging.reservations import release_reservation, reserve_statements
from annotation.models import Annotator, Judgment, Reservation, Round
from annotation.quality.exclusion import exclude_annotator
from annotation.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds.services import close_round, pause_round
from tests import factories
from tests.api import client_of
from tests.refusals import refused

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def reserved_round(n: int = 6, n_reserved: int = 3, n_experts: int = 2, **spec):
    """Return a round, its reservation of `n_reserved` statements, the experts, and another annotator."""
    round = factories.make_round(n, **{"batch_size": n} | spec)
    *experts, other = factories.make_annotators(round, n_experts + 1)
    ids = list(round.tasks.values_list("pk", flat=True)[:n_reserved])
    reservation = reserve_statements(round, [expert.code for expert in experts], pk__in=ids)
    return round, reservation, experts, other


def pks(tasks) -> set[int]:
    return {task.pk for task in tasks}


# Assignment


@pytest.mark.parametrize("is_reserved", [True, False])
@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("is_leased", [True, False])
def test_who_receives_a_statement(is_reserved, is_member, is_leased):
    round = factories.make_round(2, batch_size=2)
    member, other = factories.make_annotators(round, 2)
    person = member if is_member else other
    first, second = round.tasks.order_by("position")
    if is_leased:
        assert first in next_batch(person, NOW)
    reserve_statements(round, [member.code], pk__in=[(first if is_reserved else second).pk])

    assert (first in next_batch(person, NOW)) == (is_leased or is_member or not is_reserved)
    bystander, expired = factories.make_annotators(round, 1)[0], NOW + LEASE + timedelta(seconds=1)
    assert (first in next_batch(bystander, expired)) == (not is_reserved)  # releases the lease
    assert (first in next_batch(person, expired)) == (is_member or not is_reserved)


def test_reserved_statements_come_first():
    _round, reservation, experts, _ = reserved_round(n=8, n_reserved=3, batch_size=3)

    for expert in experts:
        assert pks(next_batch(expert, NOW)) == set(reservation.tasks.values_list("pk", flat=True))


def test_batch_mixes_reserved_and_pooled_statements():
    _round, reservation, [expert, _], other = reserved_round(n=6, n_reserved=3, batch_size=5)

    batch = next_batch(expert, NOW)

    assert [task.pk in set(reservation.tasks.values_list("pk", flat=True)) for task in batch] == [True] * 3 + [
        False
    ] * 2
    assert len(next_batch(other, NOW)) == 3


def test_annotator_can_have_several_reservations():
    round, _, [expert, _], other = reserved_round(n=6, n_reserved=2, batch_size=4)
    reserve_statements(round, [expert.code], pk__in=[round.tasks.filter(reservation=None).first().pk])

    assert len([task for task in next_batch(expert, NOW) if round.tasks.get(pk=task.pk).reservation_id]) == 3
    assert len(next_batch(other, NOW)) == 3


def test_outdated_flag_of_the_round_does_not_assign_reserved_statements():
    round = factories.make_round(4, batch_size=4)
    expert, other = factories.make_annotators(round, 2)
    loaded = Annotator.objects.select_related("round").get(pk=other.pk)  # as if it waited for the lock
    reservation = reserve_statements(round, [expert.code], pk__in=[task.pk for task in round.tasks.all()[:2]])

    batch = fill_batch(loaded, NOW)

    assert len(batch) == 2
    assert not pks(batch) & set(reservation.tasks.values_list("pk", flat=True))


def test_release_returns_statements_to_the_pool():
    _round, reservation, [_expert, _], other = reserved_round(n=3, n_reserved=3)
    assert next_batch(other, NOW) == []

    assert release_reservation(reservation) == 3

    assert len(next_batch(other, NOW)) == 3
    assert release_reservation(reservation) == 0  # idempotent


def test_k_judgments_are_required_and_never_more():
    round, _reservation, experts, _other = reserved_round(n=2, n_reserved=2, n_experts=3, judgments_per_task=2)
    for expert in experts:
        for task in next_batch(expert, NOW):
            factories.judge(expert, task)

    assert set(round.tasks.values_list("n_judgments", "verdict")) == {(2, "accepted")}
    assert Judgment.objects.count() == 4


def test_third_judgment_is_given_by_the_group():
    round, _, experts, other = reserved_round(n=1, n_reserved=1, n_experts=3, third_only_if_split=True)
    task = round.tasks.get()
    for expert, label in zip(experts[:2], ["true", "false"], strict=True):
        next_batch(expert, NOW)
        factories.judge(expert, task, label)

    assert next_batch(other, NOW) == []
    assert next_batch(experts[2], NOW) == [task]


def test_quota_limits_reserved_statements():
    _round, _, [expert, _], _ = reserved_round(n=5, n_reserved=5, max_per_annotator=2)

    assert len(next_batch(expert, NOW)) == 2


def test_skipped_statement_is_not_offered_after_its_reservation_for_others():
    round = factories.make_round(1)
    expert, other = factories.make_annotators(round, 2)
    [task] = next_batch(other, NOW)
    skip_task(other, task.pk)
    assert n_skipped(other) == 1

    reserve_statements(round, [expert.code], pk__in=[task.pk])

    assert n_skipped(Annotator.objects.get(pk=other.pk)) == 0
    reassign_skipped(other)
    assert next_batch(other, NOW) == []


def test_reused_gold_is_never_reserved_and_keeps_its_order():
    def gold_places(reserves: bool) -> list[bool]:
        round = factories.make_round(12, name=f"gold-{reserves}", batch_size=10, gold_reuse=True)
        factories.make_gold(round, list(round.tasks.filter(position__lt=3)), "true")
        Round.objects.filter(pk=round.pk).update(gold_share=0.2, seed=5)
        [expert] = factories.make_annotators(round, 1)
        Annotator.objects.filter(pk=expert.pk).update(code="expert", next_position=0)
        relation = round.tasks.first().knowledge_tuple.relation_id
        if reserves:
            assert reserve_statements(round, ["expert"], knowledge_tuple__relation=relation).n_reserved == 9
            assert not round.tasks.gold().exclude(reservation=None).exists()
        gold = set(round.tasks.gold().values_list("pk", flat=True))
        return [task.pk in gold for task in next_batch(expert, NOW)]

    assert gold_places(True) == gold_places(False)


@pytest.mark.parametrize("by_relation", [True, False])
def test_gold_is_reserved_in_the_same_share(by_relation):
    round = factories.make_round(12)
    factories.make_gold(round, list(round.tasks.filter(position__in=[0, 4, 8])), "true")
    round.refresh_from_db()
    [expert] = factories.make_annotators(round, 1)
    ids = list(round.tasks.without_gold().values_list("pk", flat=True)[:3])
    relation = round.tasks.first().knowledge_tuple.relation_id
    lookup = {"knowledge_tuple__relation": relation} if by_relation else {"pk__in": ids}

    reservation = reserve_statements(round, [expert.code], **lookup)

    assert reservation.n_reserved == reservation.statements_left.count() == (9 if by_relation else 3)
    assert reservation.tasks.gold().count() == (3 if by_relation else 1)


# Services


def test_complete_and_reserved_statements_are_not_reserved():
    round = factories.make_round(3, judgments_per_task=1, batch_size=1)
    first, second = factories.make_annotators(round, 2)
    [task] = next_batch(first, NOW)
    factories.judge(first, task)
    other_task = round.tasks.exclude(pk=task.pk).first()
    reserve_statements(round, [second.code], pk__in=[other_task.pk])

    reservation = reserve_statements(round, [first.code], knowledge_tuple__relation=task.knowledge_tuple.relation_id)

    assert reservation.n_reserved == reservation.statements_left.count() == 1
    with refused("NothingToReserve"):
        reserve_statements(round, [first.code], knowledge_tuple__relation=task.knowledge_tuple.relation_id)


def test_invalid_reservations_are_rejected():
    round = factories.make_round(3)
    [annotator] = factories.make_annotators(round, 1)
    [stranger] = factories.make_annotators(factories.make_round(1), 1)
    ids = [round.tasks.first().pk]

    with refused("NotFound"):
        reserve_statements(round, ["nobody"], pk__in=ids)
    with refused("NotFound"):
        reserve_statements(round, [stranger.code], pk__in=ids)
    with refused("NotFound"):
        reserve_statements(round, [annotator.code], pk__in=[*ids, 10**9])
    pause_round(round)
    reserve_statements(round, [annotator.code], pk__in=ids)
    close_round(round)
    with refused("WrongStatus"):
        reserve_statements(round, [annotator.code], pk__in=ids)
    assert Reservation.objects.count() == 1


@pytest.mark.parametrize("leave", [lambda it: exclude_annotator(it, "Too fast."), withdraw_annotator, erase_annotator])
def test_statements_that_the_group_cannot_complete_are_counted(leave):
    _round, reservation, experts, _ = reserved_round(n=3, n_reserved=2, n_experts=2, judgments_per_task=2)
    assert Reservation.objects.get(pk=reservation.pk).n_stuck == 0
    factories.judge(experts[0], next_batch(experts[0], NOW)[0])
    assert Reservation.objects.get(pk=reservation.pk).n_stuck == 0

    leave(experts[1])

    assert Reservation.objects.get(pk=reservation.pk).n_stuck == 2


def test_group_smaller_than_the_required_judgments_is_stuck():
    assert reserved_round(n_reserved=3, n_experts=2, judgments_per_task=3)[1].n_stuck == 3


# Cost


def test_rounds_without_reservations_do_not_query_reservations():
    round = factories.make_round(12, batch_size=3)
    [annotator] = factories.make_annotators(round, 1)
    with CaptureQueriesContext(connection) as queries:
        [task, *_] = next_batch(annotator, NOW)
        factories.judge(annotator, task)
        next_batch(annotator, NOW)

    assert not [query["sql"] for query in queries if "annotation_reservation" in query["sql"]]
    assert not [query["sql"] for query in queries if '"reservation_id" I' in query["sql"]]


@pytest.mark.parametrize("analyzed", [False, True])
def test_assignment_uses_partial_indexes(analyzed):
    _round, _reservation, [expert, _], other = reserved_round(n=400, n_reserved=100, batch_size=5)
    # With few rows, SQLite sorts the tasks of all rounds instead of using an index.
    Round.objects.bulk_create(Round(project=other.round.project, name=f"other-{n}") for n in range(50))
    if analyzed:
        connection.cursor().execute("ANALYZE")
    plans = [plan_of(annotator) for annotator in (expert, other)]

    assert any("judgment_task_reserved" in line for line in plans[0])
    assert any("judgment_task_open" in line for line in plans[1])
    for line in (line for plan in plans for line in plan):
        assert not line.startswith(("SCAN", "USE TEMP B-TREE")), plans


def plan_of(annotator: Annotator) -> list[str]:
    """Return the query plans of the SELECTs on tasks of the next batch."""
    with CaptureQueriesContext(connection) as queries:
        next_batch(annotator, NOW)
    selects = [query["sql"] for query in queries if query["sql"].startswith("SELECT")]
    with connection.cursor() as cursor:
        lines = []
        for sql in selects:
            if "judgmenttask" in sql and "position" in sql:
                lines += [row[-1] for row in cursor.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()]
    return lines


# API and page


def test_reservations_are_created_listed_and_released_through_the_api():
    round = factories.make_round(3, name="pilot")
    [annotator] = factories.make_annotators(round, 1)
    api = client_of(factories.make_user(is_superuser=True))
    address = f"/api/v1/rounds/{round.pk}/reservations/"
    relation = round.tasks.first().knowledge_tuple.relation_id

    created = api.post(address, {"relation": relation, "annotators": [annotator.code]}, "application/json")

    assert created.status_code == 201, created.json()
    [row] = api.get(address).json()["results"]
    assert (row["annotators"], row["n_reserved"], row["n_left"], row["n_stuck"]) == ([annotator.code], 3, 3, 3)
    assert api.delete(f"{address}{row['id']}/").status_code == 204
    assert api.get(address).json()["results"] == []
    assert api.post(address, {"annotators": [annotator.code]}, "application/json").status_code == 400
    assert [event.kind for event in round.events[:2]] == ["reservation_released", "reserved"]


def test_page_reserves_and_releases_statements(client):
    round = factories.make_round(3, name="pilot")
    annotators = factories.make_annotators(round, 2)
    client.force_login(factories.make_user(is_superuser=True))
    url = f"{round.get_absolute_url()}reservations/"
    assert url in client.get(round.get_absolute_url()).content.decode()
    relation = round.tasks.first().knowledge_tuple.relation_id

    client.post(url, {"relation": relation, "annotators": [annotator.code for annotator in annotators]})
    page = client.get(url)

    assert [(row.n_reserved, row.n_stuck) for row in page.context["reservations"]] == [(3, 3)]
    assert "callout warning" in page.content.decode()
    client.post(f"{url}{page.context['reservations'][0].pk}/release/")
    assert not client.get(url).context["reservations"]
    assert not round.tasks.exclude(reservation=None).exists()
