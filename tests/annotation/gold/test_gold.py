"""Gold statements: hidden among other statements and excluded from all counts."""

import pytest
from django.db.models import Count, ProtectedError
from django.utils import timezone

from annotation.gold.candidates import decide_on_gold, gold_candidates, withdraw_gold
from annotation.judging.assignment import LEASE, gold_positions, next_batch, release_expired
from annotation.judging.judgments import skip_task
from annotation.models import Annotator, Assignment, Draw, GoldDecision, Judgment
from annotation.quality.exclusion import exclude_annotator, reinstate_annotator
from annotation.rounds.services import open_round
from kgharvest.models import KnowledgeTuple, tuple_key
from tests.factories import judge, make_annotators, make_harvest, make_relation
from tests.refusals import refused

pytestmark = pytest.mark.django_db


SEEDS = [[f"head {n}", f"tail {n}"] for n in range(8)]


def confirm(relation, n: int, by=None) -> list[GoldDecision]:
    """Confirm `n` corrupted seeds as false."""
    decide_on_gold(relation, {candidate.code: True for candidate in gold_candidates(relation)[:n]}, by)
    return list(relation.gold_decisions.order_by("pk"))


def gold_round(n_tasks: int, n_gold: int, **spec):
    """Open a round with up to `n_gold` gold statements, depending on its gold_share."""
    relation = make_relation(seed_tuples=SEEDS)
    confirm(relation, n_gold // 2 + 1)
    harvest = make_harvest([(f"found {n}", f"thing {n}") for n in range(n_tasks)], relation=relation)
    return open_round({"name": "pilot", "cells": [{"job": harvest.pk, "n": None}], **spec})


# Positions


@pytest.mark.parametrize("gold_share", [0.05, 0.1, 1 / 3, 0.3, 0.5])
def test_gold_positions_are_one_per_interval(gold_share):
    places = gold_positions(7, "a-1", gold_share, 0, 3000)

    stretches = [int(position * gold_share + 1e-9) for position in places]
    assert stretches == list(range(len(places)))
    assert len(places) == pytest.approx(3000 * gold_share, abs=1)


def test_gold_positions_do_not_depend_on_batch_size():
    at_once = gold_positions(7, "a-1", 0.15, 0, 100)

    in_batches = [
        first + position for first in range(0, 100, 4) for position in gold_positions(7, "a-1", 0.15, first, 4)
    ]

    assert at_once == in_batches


def test_gold_positions_differ_between_annotators():
    assert gold_positions(7, "a-1", 0.1, 0, 100) != gold_positions(7, "a-2", 0.1, 0, 100)


# Judging


@pytest.mark.parametrize("gold_reuse", [True, False])
@pytest.mark.parametrize("batch_size", [1, 10])
def test_annotators_see_gold_once_and_tasks_get_k_judgments(batch_size, gold_reuse):
    round = gold_round(40, 6, judgments_per_task=2, gold_share=0.2, batch_size=batch_size, gold_reuse=gold_reuse)

    annotators = make_annotators(round, 2)
    for annotator in annotators:
        while batch := next_batch(annotator, timezone.now()):
            judge(annotator, batch[0])

    seen = [Judgment.objects.filter(task__is_gold=True, annotator=annotator).count() for annotator in annotators]
    assert set(seen) <= ({5, 6} if gold_reuse else {6})  # the last position of reused gold may be after the end
    assert not Judgment.objects.counted().filter(task__is_gold=True).exists()
    assert round.tasks.without_gold().filter(verdict="accepted").count() == 40
    counters = (0, 0, 0, "") if gold_reuse else (2, 2, 0, "")
    assert set(round.tasks.gold().values_list("n_wanted", "n_judgments", "n_leased", "verdict")) == {counters}
    assert set(round.tasks.without_gold().values_list("n_judgments", "n_wanted")) == {(2, 2)}
    n_met = [(40 + n, 40 + n) for n in seen]
    assert list(Annotator.objects.order_by("pk").values_list("n_judged", "n_handed_out")) == n_met


def test_reused_gold_is_not_assigned_without_other_statements():
    round = gold_round(1, 4, judgments_per_task=1, gold_share=0.5, gold_reuse=True)
    first, second = make_annotators(round, 2)
    while batch := next_batch(first, timezone.now()):
        judge(first, batch[0])

    assert next_batch(second, timezone.now()) == []


def test_gold_is_assigned_to_k_annotators():
    round = gold_round(4, 4, judgments_per_task=2, gold_share=0.5)

    for annotator in make_annotators(round, 4):
        while batch := next_batch(annotator, timezone.now()):
            judge(annotator, batch[0])

    assert set(round.tasks.annotate(n=Count("judgments")).values_list("n", flat=True)) == {2}


def test_gold_is_evenly_distributed_over_the_order():
    round = gold_round(36, 4, gold_share=0.1)

    positions = round.tasks.gold().order_by("position").values_list("position", flat=True)
    assert [position // 10 for position in positions] == [0, 1, 2, 3]


def test_gold_gets_a_third_judgment_if_split():
    round = gold_round(1, 4, third_only_if_split=True, gold_share=0.5)
    pk = round.tasks.gold().first().pk

    for annotator, label in zip(make_annotators(round, 2), ("true", "false"), strict=True):
        judge(annotator, *(task for task in next_batch(annotator, timezone.now()) if task.pk == pk), label)
    assert round.tasks.get(pk=pk).n_wanted == 3
    judge(annotator, round.tasks.get(pk=pk), "true")

    task = round.tasks.get(pk=pk)
    assert (task.n_wanted, task.n_true, task.n_false, task.verdict) == (2, 2, 0, "")


def test_late_answer_fills_free_slot_of_gold():
    round = gold_round(2, 4, judgments_per_task=1, gold_share=0.5)
    slow, quick = make_annotators(round, 2)
    first, second = [task for task in next_batch(slow, timezone.now()) if task.is_gold]
    release_expired(timezone.now() + LEASE * 2)
    judge(slow, first)
    for task in next_batch(quick, timezone.now()):
        judge(quick, task)
    judge(slow, second)
    for task in (first, second):
        judge(slow, task, "false")

    assert list(slow.judgments.current().order_by("task").values_list("fills_gold_slot", "is_late")) == [
        (True, True),
        (False, True),
    ]
    assert list(round.tasks.gold().order_by("pk").values_list("n_true", "n_false", "n_judgments")) == [
        (0, 1, 1),
        (1, 0, 1),
    ]


def test_exclusion_releases_gold_and_reinstatement_counts_it_again():
    round = gold_round(2, 4, judgments_per_task=2, gold_share=0.5)
    [annotator] = make_annotators(round, 1)
    while batch := next_batch(annotator, timezone.now()):
        judge(annotator, batch[0])
    before = list(round.tasks.values())

    exclusion = exclude_annotator(annotator, "guesses")
    assert exclusion.n_judgments == 2
    assert set(round.tasks.values_list("n_judgments", flat=True)) == {0}

    reinstated = reinstate_annotator(annotator)
    assert (reinstated.n_counted_again, reinstated.n_left_out) == (2, 0)
    assert list(round.tasks.values()) == before
    assert annotator.judgments.filter(fills_gold_slot=True).count() == 2


def test_expired_gold_lease_does_not_change_task_counters():
    round = gold_round(4, 4, gold_share=0.5, batch_size=4)
    [annotator] = make_annotators(round, 1)
    next_batch(annotator, timezone.now())

    release_expired(timezone.now() + LEASE * 2)

    assert not Assignment.objects.filter(status=Assignment.Status.LEASED).exists()
    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}


def test_gold_can_be_skipped():
    round = gold_round(4, 4, gold_share=0.5, batch_size=8)
    [annotator] = make_annotators(round, 1)

    for task in next_batch(annotator, timezone.now()):
        skip_task(annotator, task.pk)

    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}


# Selection


def test_candidate_replaces_one_entity_of_a_seed():
    relation = make_relation(arity=3, seed_tuples=[["a", "b", "c"], ["d", "e", "f"]])

    for candidate in gold_candidates(relation):
        changed = [slot for slot in range(3) if candidate.entities[slot] != candidate.seed[slot]]
        assert changed == [candidate.slot]
        assert candidate.entities[candidate.slot] in {seed[candidate.slot] for seed in relation.seed_tuples}


def test_candidates_exclude_harvested_tuples_and_seeds():
    relation = make_relation(seed_tuples=[["Rome", "Italy"], ["Paris", "France"], ["Rome", "France"]])
    make_harvest([("paris", "italy"), ("Oslo", "Norway")], relation=relation)

    keys = {candidate.key for candidate in gold_candidates(relation)}

    assert keys == {
        tuple_key(entities)
        for entities in (["Oslo", "Italy"], ["Oslo", "France"], ["Rome", "Norway"], ["Paris", "Norway"])
    }


def test_only_confirmed_candidates_become_gold():
    relation = make_relation(seed_tuples=SEEDS)
    confirmed = confirm(relation, 3)
    rejected = gold_candidates(relation)[0]
    decide_on_gold(relation, {rejected.code: False})
    harvest = make_harvest([(f"found {n}", "thing") for n in range(10)], relation=relation)

    round = open_round({"name": "pilot", "cells": [{"job": harvest.pk, "n": None}], "gold_share": 0.5})

    false = set(round.tasks.filter(gold_label="false").values_list("knowledge_tuple__key", flat=True))
    true = set(round.tasks.filter(gold_label="true").values_list("knowledge_tuple__key", flat=True))
    assert false == {decision.key for decision in confirmed[1:]}  # the first one is the example in the instructions
    assert len(true) == len(false)
    assert true < {tuple_key(seed) for seed in SEEDS[1:]}


def test_false_gold_excludes_seeds_added_later():
    relation = make_relation(seed_tuples=SEEDS)
    decisions = confirm(relation, 4)
    relation.seed_tuples = [*SEEDS, decisions[2].entities]
    relation.save()
    harvest = make_harvest([(f"found {n}", "thing") for n in range(10)], relation=relation)

    round = open_round({"name": "pilot", "cells": [{"job": harvest.pk, "n": None}], "gold_share": 0.5})

    false = set(round.tasks.filter(gold_label="false").values_list("knowledge_tuple__key", flat=True))
    assert false == {decisions[1].key, decisions[3].key}


def test_gold_and_drawn_tuples_are_disjoint():
    relation = make_relation(seed_tuples=SEEDS)
    confirm(relation, 3)
    harvest = make_harvest([tuple(seed) for seed in SEEDS[:5]] + [("new", "thing")], relation=relation)

    round = open_round({"name": "pilot", "cells": [{"job": harvest.pk, "n": None}], "gold_share": 0.5})

    gold = set(round.tasks.gold().values_list("knowledge_tuple", flat=True))
    assert gold
    assert not gold & set(round.tasks.without_gold().values_list("knowledge_tuple", flat=True))
    assert not Draw.objects.filter(task__is_gold=True).exists()


def test_gold_ids_and_positions_are_mixed_with_other_tasks():
    round = gold_round(30, 6, gold_share=0.2)

    tasks = list(round.tasks.order_by("pk"))
    gold = [position for position, task in enumerate(tasks) if task.is_gold]
    assert [task.position for task in tasks] == list(range(36)) == sorted(task.position for task in tasks)
    assert len(gold) == 6
    assert gold[-1] - gold[0] > 6


def test_gold_share_limits_number_of_gold_statements():
    assert gold_round(36, 14, gold_share=0.1).tasks.gold().count() == 4


def test_gold_tuples_are_excluded_from_harvested_tuples():
    gold_round(4, 4, gold_share=0.5)

    assert KnowledgeTuple.objects.count() == 4 + 4
    assert KnowledgeTuple.objects.harvested().count() == 4


def test_round_with_gold_share_requires_enough_gold():
    with refused("NotEnoughGold", match=r"require 1 true and 1 false .* there are 0"):
        gold_round(4, 0, gold_share=0.5)


def test_decision_is_stored_once_and_can_be_withdrawn():
    relation = make_relation(seed_tuples=SEEDS)
    code = gold_candidates(relation)[0].code

    assert decide_on_gold(relation, {code: True}) == 1
    assert decide_on_gold(relation, {code: False, "no such code": True}) == 0
    withdraw_gold(relation.gold_decisions.get(), "unsure")

    assert code in {candidate.code for candidate in gold_candidates(relation)}
    assert decide_on_gold(relation, {code: False}) == 1
    assert sorted(relation.gold_decisions.values_list("is_confirmed", "reason")) == [(False, ""), (True, "unsure")]


def test_withdrawn_gold_is_unused_and_protects_its_relation():
    round = gold_round(8, 4, gold_share=0.2)
    relation = GoldDecision.objects.first().relation
    for decision in GoldDecision.objects.all():
        withdraw_gold(decision, "all of it is doubtful")

    assert round.tasks.gold().count() == 2
    with refused("NotEnoughGold"):
        open_round({"name": "next", "cells": [{"job": relation.jobs.get().pk, "n": None}], "gold_share": 0.2})
    with pytest.raises(ProtectedError):
        relation.delete()


def test_training_gold_and_examples_are_disjoint():
    round = gold_round(20, 10, gold_share=0.2, training_size=5)

    training = set(round.training_statements.values_list("statement", flat=True))
    gold = set(round.tasks.gold().values_list("statement", flat=True))
    [guide] = round.relation_instructions.values()
    assert len(training) == 5
    assert len(gold) == 5
    assert not training & gold
    assert not any(statement.rstrip(".") in guide.replace("\\", "") for statement in training | gold)
