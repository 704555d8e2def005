"""What opening a round draws, words and freezes, and when it cannot."""

import pytest

from annotation.models import Draw, JudgmentTask, Round, Stratum
from annotation.rounds.services import (
    open_round,
)
from kgharvest.errors import NotFound
from kgharvest.models import Job, KnowledgeTuple, tuple_key
from tests.factories import (
    make_harvest,
    make_harvest_job,
    make_language_model,
    make_relation,
    make_relation_set,
)
from tests.refusals import refused

pytestmark = pytest.mark.django_db

HUNDRED = [(f"head {n}", f"tail {n}") for n in range(100)]


def spec(*jobs, n=None, **fields):
    return {"name": "pilot", "cells": [{"job": job.pk, "n": n} for job in jobs], **fields}


def test_a_sample_records_how_likely_each_tuple_was_to_be_drawn():
    job = make_harvest(HUNDRED)

    open_round(spec(job, n=20))

    assert Draw.objects.count() == 20
    assert {draw.inclusion_probability for draw in Draw.objects.all()} == {0.2}


def test_the_inclusion_probability_is_that_within_the_cut():
    job = make_harvest(HUNDRED)

    open_round({"name": "pilot", "cells": [{"job": job.pk, "n": 20, "cut": "top:40"}]})

    assert Draw.objects.first().inclusion_probability == 0.5
    assert max(draw.harvested_tuple.rank for draw in Draw.objects.all()) <= 40


def test_the_same_seed_draws_the_same_sample_in_the_same_order():
    job = make_harvest(HUNDRED)

    rounds = [open_round(spec(job, n=20, seed=7) | {"name": name}) for name in ("one", "two")]

    first, second = (list(round.tasks.order_by("position").values_list("statement", flat=True)) for round in rounds)
    assert first == second


def test_another_seed_draws_another_sample():
    job = make_harvest(HUNDRED)

    rounds = [open_round(spec(job, n=20, seed=seed) | {"name": f"seed-{seed}"}) for seed in (1, 2)]

    first, second = (set(round.tasks.values_list("statement", flat=True)) for round in rounds)
    assert first != second


def test_the_order_of_tasks_tells_nothing_about_ranks():
    job = make_harvest(HUNDRED)

    round = open_round(spec(job))

    positions = dict(Draw.objects.values_list("harvested_tuple__rank", "task__position"))
    assert sorted(positions.values()) == list(range(round.n_tasks))
    assert [positions[rank] for rank in sorted(positions)] != sorted(positions.values())


def test_the_ids_of_tasks_tell_nothing_about_cells_and_ranks():
    round = open_round(spec(make_harvest(HUNDRED), make_harvest(HUNDRED)))

    ids = list(round.tasks.order_by("position").values_list("pk", flat=True))

    assert ids == sorted(ids)


def test_a_tuple_of_several_cells_is_one_task_with_several_draws():
    relation = make_relation()
    human = make_harvest([("Dog", "swim"), ("cat", "climb")], relation=relation, setting="human")
    multi = make_harvest([("dog", "swim"), ("fish", "swim")], relation=relation, setting="multi")

    round = open_round(spec(human, multi))

    assert round.n_tasks == round.tasks.count() == 3
    assert sorted(task.draws.count() for task in round.tasks.all()) == [1, 1, 2]


def test_the_statement_stays_as_it_was_when_the_relation_changes():
    relation = make_relation(statement="A <ENT0> can <ENT1>.")
    round = open_round(spec(make_harvest([("Dog", "swim")], relation=relation)))

    relation.statement = "<ENT1> is what a <ENT0> does."
    relation.save()

    assert round.tasks.get().statement == "A Dog can swim."
    assert round.tasks.get().parts == [("A ", False), ("Dog", True), (" can ", False), ("swim", True), (".", False)]


def test_a_cell_can_be_named():
    relation = make_relation("capital_of")
    older = make_harvest([("Rome", "Italy")], relation=relation)
    newer = make_harvest([("Rome", "France")], relation=relation, language_model=older.language_model)
    named = {"relation": "capital_of", "model": older.language_model.name, "setting": "multi", "n": 1}

    open_round({"name": "pilot", "cells": [named]})

    assert Stratum.objects.get().job_id == newer.pk


def test_a_cell_that_is_named_takes_the_newest_harvest_that_has_tuples():
    relation = make_relation("capital_of")
    older = make_harvest([("Rome", "Italy")], relation=relation)
    make_harvest([], relation=relation, language_model=older.language_model)

    assert harvest_taken_for(relation, older.language_model.name) == older.pk


def strata_of(cell: dict) -> list[tuple]:
    round = open_round({"name": "pilot", "cells": [cell]})
    return list(round.strata.order_by("rank_from").values_list("rank_from", "rank_to", "population", "sample_size"))


def test_strata_begin_at_the_ranks_that_are_named():
    cell = {"job": make_harvest(HUNDRED).pk, "n": 30, "strata": [1, 11, 51]}

    assert strata_of(cell) == [(1, 10, 10, 10), (11, 50, 40, 10), (51, 100, 50, 10)]
    assert {draw.inclusion_probability for draw in Draw.objects.filter(stratum__rank_from=11)} == {0.25}


def test_strata_are_parts_of_equal_size():
    cell = {"job": make_harvest(HUNDRED).pk, "n": 9, "cut": "top:90", "strata": 3}

    assert strata_of(cell) == [(1, 30, 30, 3), (31, 60, 30, 3), (61, 90, 30, 3)]


def test_strata_beyond_the_end_of_the_cut_are_left_out():
    cell = {"job": make_harvest(HUNDRED).pk, "n": 10, "cut": "top:20", "strata": [1, 11, 51]}

    assert strata_of(cell) == [(1, 10, 10, 5), (11, 20, 10, 5)]


def test_a_sample_smaller_than_its_strata_are_many_is_refused():
    with refused("NothingToSample", match="has 3 strata but n is 2"):
        open_round({"name": "pilot", "cells": [{"job": make_harvest(HUNDRED).pk, "n": 2, "strata": 3}]})


def test_hidden_and_sensitive_tuples_are_not_of_the_population():
    job = make_harvest(HUNDRED)
    KnowledgeTuple.objects.filter(key=tuple_key(HUNDRED[0])).update(curation="hidden")
    KnowledgeTuple.objects.filter(key=tuple_key(HUNDRED[1])).update(is_sensitive=True)

    strict = open_round(spec(job))
    lenient = open_round(spec(job) | {"name": "lenient", "include_sensitive": True})

    assert list(strict.strata.values_list("rank_from", "population")) == [(3, 98)]
    assert list(lenient.strata.values_list("rank_from", "population")) == [(2, 99)]


def test_two_people_are_asked_first_where_only_a_split_needs_a_third():
    round = open_round(spec(make_harvest(HUNDRED), n=3, third_only_if_split=True))

    assert set(round.tasks.values_list("n_wanted", flat=True)) == {2}


def test_a_name_that_several_sets_have_is_answered_with_the_sets():
    for name in ("mine", "yours"):
        make_relation("capital_of", relation_set=make_relation_set(name))
    named = {"relation": "capital_of", "model": "m", "setting": "multi", "n": 1}

    with refused("BadRoundSpec", match=r"^cells\[0\].relation: .* mine/capital_of, yours/capital_of"):
        open_round({"name": "pilot", "cells": [named]})


def harvest_of(relation, model: str):
    return make_harvest(HUNDRED, relation=relation, language_model=make_language_model(model))


def harvest_taken_for(relation, model: str) -> int:
    named = {"relation": relation.path, "model": model, "setting": "multi", "n": 1}
    return open_round({"name": "pilot", "cells": [named]}).strata.get().job_id


def test_a_full_name_of_an_lm_is_not_taken_for_the_short_name_of_another():
    relation = make_relation()
    older = harvest_of(relation, "roberta-large")
    harvest_of(relation, "FacebookAI/roberta-large")

    assert harvest_taken_for(relation, "roberta-large") == older.pk


def test_an_lm_without_a_harvest_is_not_replaced_by_one_that_its_name_ends():
    relation = make_relation()
    make_language_model("roberta-large")
    harvest_of(relation, "FacebookAI/roberta-large")

    with pytest.raises(NotFound, match=r"No finished harvest for cells\[0\]"):
        harvest_taken_for(relation, "roberta-large")


def test_a_short_name_of_an_lm_means_the_only_one_that_bears_it():
    relation = make_relation()
    job = harvest_of(relation, "FacebookAI/roberta-large")

    assert harvest_taken_for(relation, "roberta-large") == job.pk


def test_a_short_name_of_several_lms_is_answered_with_all_of_them():
    relation = make_relation()
    for model in ("FacebookAI/roberta-large", "lab/roberta-large"):
        harvest_of(relation, model)

    with refused("BadRoundSpec", match=r"^cells\[0\].model: .* FacebookAI/roberta-large, lab/roberta-large"):
        harvest_taken_for(relation, "roberta-large")


def nothing_is_stored() -> bool:
    return not (Round.objects.exists() or Stratum.objects.exists() or JudgmentTask.objects.exists())


def test_a_round_on_an_empty_harvest_is_refused():
    with refused("NothingToSample", match=r"cells\[0\] .* has no tuples in its harvest"):
        open_round(spec(make_harvest([])))
    assert nothing_is_stored()


def test_a_harvest_that_is_not_finished_is_refused():
    job = make_harvest_job(Job.Status.QUEUED)

    with refused("NothingToSample", match=rf"Job {job.pk} of cells\[0\] is queued"):
        open_round(spec(job))


def test_a_sample_larger_than_the_cut_is_refused_and_nothing_stays():
    full, short = make_harvest(HUNDRED), make_harvest(HUNDRED[:5])

    with refused("NothingToSample", match=r"has 5 tuples but n is 10"):
        open_round(spec(full, short, n=10))
    assert nothing_is_stored()


def test_a_cell_cannot_be_taken_twice():
    job = make_harvest(HUNDRED)
    again = make_harvest(HUNDRED, relation=job.relation, language_model=job.language_model)

    with refused("BadRoundSpec", match=r"cells\[0\] and cells\[1\] are both"):
        open_round(spec(job, again))
