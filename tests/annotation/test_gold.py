"""Gold: mixed in unseen, counted nowhere."""

import pytest
from django.utils import timezone

from annotation.models import Annotator, Assignment, Judgment, JudgmentTask
from annotation.sampling import gold_places
from annotation.services.assignment import LEASE, next_batch, release_expired
from kgharvest.models import KnowledgeTuple, tuple_key
from tests.factories import judge, make_annotators, make_round

pytestmark = pytest.mark.django_db


def add_gold(round, n: int) -> None:
    """Add `n` gold tasks, spread evenly among the round's positions."""
    relation = round.strata.first().relation
    n_tasks = round.n_tasks
    for number in range(n):
        entities = [f"gold {number}", "thing"]
        claim = KnowledgeTuple.objects.create(relation=relation, entities=entities, key=tuple_key(entities))
        JudgmentTask.objects.create(
            round=round,
            knowledge_tuple=claim,
            statement=f"gold {number}",
            entities=entities,
            spans=[],
            is_gold=True,
            gold_label="true",
            position=n_tasks + number,
            n_wanted=0,
        )
    round.n_tasks += n
    round.save()


@pytest.mark.parametrize("gold_share", [0.05, 0.1, 1 / 3, 0.3, 0.5])
def test_each_stretch_of_an_annotators_statements_has_one_gold_one(gold_share):
    places = gold_places(7, "a-1", gold_share, 0, 3000)

    stretches = [int(place * gold_share + 1e-9) for place in places]
    assert stretches == list(range(len(places)))
    assert len(places) == pytest.approx(3000 * gold_share, abs=1)


def test_the_places_do_not_depend_on_how_the_statements_are_handed_out():
    at_once = gold_places(7, "a-1", 0.15, 0, 100)

    in_batches = [first + place for first in range(0, 100, 4) for place in gold_places(7, "a-1", 0.15, first, 4)]

    assert at_once == in_batches


def test_annotators_have_gold_at_places_of_their_own():
    assert gold_places(7, "a-1", 0.1, 0, 100) != gold_places(7, "a-2", 0.1, 0, 100)


@pytest.mark.parametrize("batch_size", [1, 10])
def test_everybody_sees_all_gold_once_and_every_task_is_still_judged_k_times(batch_size):
    round = make_round(40, judgments_per_task=2, gold_share=0.2, batch_size=batch_size)
    add_gold(round, 5)

    annotators = make_annotators(round, 2)
    for annotator in annotators:
        while batch := next_batch(annotator, timezone.now()):
            judge(annotator, batch[0])

    assert Judgment.objects.filter(task__is_gold=True).count() == 2 * 5
    assert not Judgment.objects.counted().filter(task__is_gold=True).exists()
    assert round.tasks.without_gold().filter(verdict="accepted").count() == 40
    assert set(round.tasks.gold().values_list("n_judgments", "n_leased", "verdict")) == {(0, 0, "")}
    assert round.tasks.tally()["n_judgments"] == round.tasks.tally()["n_wanted"] == 80
    assert set(Annotator.objects.values_list("n_judged", "n_handed_out")) == {(45, 45)}


def test_gold_alone_is_never_handed_out():
    round = make_round(1, judgments_per_task=1, gold_share=0.5)
    add_gold(round, 5)
    first, second = make_annotators(round, 2)
    while batch := next_batch(first, timezone.now()):
        judge(first, batch[0])

    assert next_batch(second, timezone.now()) == []


def test_a_lease_on_gold_expires_without_touching_the_task():
    round = make_round(4, gold_share=0.5, batch_size=4)
    add_gold(round, 4)
    [annotator] = make_annotators(round, 1)
    next_batch(annotator, timezone.now())

    release_expired(timezone.now() + LEASE * 2)

    assert not Assignment.objects.filter(status=Assignment.Status.LEASED).exists()
    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}
