"""Opening a round: sampling, statement text, frozen data, and errors."""

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


def test_draws_record_inclusion_probability():
    job = make_harvest(HUNDRED)

    open_round(spec(job, n=20))

    assert Draw.objects.count() == 20
    assert {draw.inclusion_probability for draw in Draw.objects.all()} == {0.2}


def test_inclusion_probability_is_relative_to_the_cut():
    job = make_harvest(HUNDRED)

    open_round({"name": "pilot", "cells": [{"job": job.pk, "n": 20, "cut": "top:40"}]})

    assert Draw.objects.first().inclusion_probability == 0.5
    assert max(draw.harvested_tuple.rank for draw in Draw.objects.all()) <= 40


def test_same_seed_draws_same_sample_in_same_order():
    job = make_harvest(HUNDRED)

    rounds = [open_round(spec(job, n=20, seed=7) | {"name": name}) for name in ("one", "two")]

    first, second = (list(round.tasks.order_by("position").values_list("statement", flat=True)) for round in rounds)
    assert first == second


def test_different_seed_draws_different_sample():
    job = make_harvest(HUNDRED)

    rounds = [open_round(spec(job, n=20, seed=seed) | {"name": f"seed-{seed}"}) for seed in (1, 2)]

    first, second = (set(round.tasks.values_list("statement", flat=True)) for round in rounds)
    assert first != second


def test_task_order_does_not_reveal_ranks():
    job = make_harvest(HUNDRED)

    round = open_round(spec(job))

    positions = dict(Draw.objects.values_list("harvested_tuple__rank", "task__position"))
    assert sorted(positions.values()) == list(range(round.n_tasks))
    assert [positions[rank] for rank in sorted(positions)] != sorted(positions.values())


def test_task_ids_do_not_reveal_cells_and_ranks():
    round = open_round(spec(make_harvest(HUNDRED), make_harvest(HUNDRED)))

    ids = list(round.tasks.order_by("position").values_list("pk", flat=True))

    assert ids == sorted(ids)


def test_tuple_shared_by_cells_is_one_task_with_several_draws():
    relation = make_relation()
    human = make_harvest([("Dog", "swim"), ("cat", "climb")], relation=relation, setting="human")
    multi = make_harvest([("dog", "swim"), ("fish", "swim")], relation=relation, setting="multi")

    round = open_round(spec(human, multi))

    assert round.n_tasks == round.tasks.count() == 3
    assert sorted(task.draws.count() for task in round.tasks.all()) == [1, 1, 2]


def test_statement_is_frozen_when_relation_changes():
    relation = make_relation(statement="A <ENT0> can <ENT1>.")
    round = open_round(spec(make_harvest([("Dog", "swim")], relation=relation)))

    relation.statement = "<ENT1> is what a <ENT0> does."
    relation.save()

    assert round.tasks.get().statement == "A Dog can swim."
    assert round.tasks.get().parts == [("A ", False), ("Dog", True), (" can ", False), ("swim", True), (".", False)]


def test_cell_can_be_given_by_relation_model_and_setting():
    relation = make_relation("capital_of")
    older = make_harvest([("Rome", "Italy")], relation=relation)
    newer = make_harvest([("Rome", "France")], relation=relation, language_model=older.language_model)
    named = {"relation": "capital_of", "model": older.language_model.name, "setting": "multi", "n": 1}

    open_round({"name": "pilot", "cells": [named]})

    assert Stratum.objects.get().job_id == newer.pk


def test_named_cell_uses_newest_non_empty_harvest():
    relation = make_relation("capital_of")
    older = make_harvest([("Rome", "Italy")], relation=relation)
    make_harvest([], relation=relation, language_model=older.language_model)

    assert harvest_id_for(relation, older.language_model.name) == older.pk


def strata_of(cell: dict) -> list[tuple]:
    round = open_round({"name": "pilot", "cells": [cell]})
    return list(round.strata.order_by("rank_from").values_list("rank_from", "rank_to", "population", "sample_size"))


def test_strata_begin_at_given_ranks():
    cell = {"job": make_harvest(HUNDRED).pk, "n": 30, "strata": [1, 11, 51]}

    assert strata_of(cell) == [(1, 10, 10, 10), (11, 50, 40, 10), (51, 100, 50, 10)]
    assert {draw.inclusion_probability for draw in Draw.objects.filter(stratum__rank_from=11)} == {0.25}


def test_strata_are_parts_of_equal_size():
    cell = {"job": make_harvest(HUNDRED).pk, "n": 9, "cut": "top:90", "strata": 3}

    assert strata_of(cell) == [(1, 30, 30, 3), (31, 60, 30, 3), (61, 90, 30, 3)]


def test_strata_beyond_the_cut_are_omitted():
    cell = {"job": make_harvest(HUNDRED).pk, "n": 10, "cut": "top:20", "strata": [1, 11, 51]}

    assert strata_of(cell) == [(1, 10, 10, 5), (11, 20, 10, 5)]


def test_sample_smaller_than_number_of_strata_is_rejected():
    with refused("NothingToSample", match="has 3 strata but n is 2"):
        open_round({"name": "pilot", "cells": [{"job": make_harvest(HUNDRED).pk, "n": 2, "strata": 3}]})


def test_hidden_and_sensitive_tuples_are_excluded_from_population():
    job = make_harvest(HUNDRED)
    KnowledgeTuple.objects.filter(key=tuple_key(HUNDRED[0])).update(curation="hidden")
    KnowledgeTuple.objects.filter(key=tuple_key(HUNDRED[1])).update(is_sensitive=True)

    strict = open_round(spec(job))
    lenient = open_round(spec(job) | {"name": "lenient", "include_sensitive": True})

    assert list(strict.strata.values_list("rank_from", "population")) == [(3, 98)]
    assert list(lenient.strata.values_list("rank_from", "population")) == [(2, 99)]


def test_third_only_if_split_starts_with_two_judgments():
    round = open_round(spec(make_harvest(HUNDRED), n=3, third_only_if_split=True))

    assert set(round.tasks.values_list("n_wanted", flat=True)) == {2}


def test_ambiguous_relation_name_error_lists_relation_sets():
    for name in ("mine", "yours"):
        make_relation("capital_of", relation_set=make_relation_set(name))
    named = {"relation": "capital_of", "model": "m", "setting": "multi", "n": 1}

    with refused("BadRoundSpec", match=r"^cells\[0\].relation: .* mine/capital_of, yours/capital_of"):
        open_round({"name": "pilot", "cells": [named]})


def harvest_of(relation, model: str):
    return make_harvest(HUNDRED, relation=relation, language_model=make_language_model(model))


def harvest_id_for(relation, model: str) -> int:
    named = {"relation": relation.path, "model": model, "setting": "multi", "n": 1}
    return open_round({"name": "pilot", "cells": [named]}).strata.get().job_id


def test_exact_lm_name_takes_precedence_over_short_name():
    relation = make_relation()
    older = harvest_of(relation, "roberta-large")
    harvest_of(relation, "FacebookAI/roberta-large")

    assert harvest_id_for(relation, "roberta-large") == older.pk


def test_lm_without_harvest_is_not_replaced_by_namesake():
    relation = make_relation()
    make_language_model("roberta-large")
    harvest_of(relation, "FacebookAI/roberta-large")

    with pytest.raises(NotFound, match=r"No finished harvest for cells\[0\]"):
        harvest_id_for(relation, "roberta-large")


def test_unique_short_lm_name_is_resolved():
    relation = make_relation()
    job = harvest_of(relation, "FacebookAI/roberta-large")

    assert harvest_id_for(relation, "roberta-large") == job.pk


def test_ambiguous_short_lm_name_error_lists_candidates():
    relation = make_relation()
    for model in ("FacebookAI/roberta-large", "lab/roberta-large"):
        harvest_of(relation, model)

    with refused("BadRoundSpec", match=r"^cells\[0\].model: .* FacebookAI/roberta-large, lab/roberta-large"):
        harvest_id_for(relation, "roberta-large")


def nothing_is_stored() -> bool:
    return not (Round.objects.exists() or Stratum.objects.exists() or JudgmentTask.objects.exists())


def test_round_on_empty_harvest_is_rejected():
    with refused("NothingToSample", match=r"cells\[0\] .* has no tuples in its harvest"):
        open_round(spec(make_harvest([])))
    assert nothing_is_stored()


def test_unfinished_harvest_is_rejected():
    job = make_harvest_job(Job.Status.QUEUED)

    with refused("NothingToSample", match=rf"Job {job.pk} of cells\[0\] is queued"):
        open_round(spec(job))


def test_sample_larger_than_cut_is_rejected_and_nothing_is_stored():
    full, short = make_harvest(HUNDRED), make_harvest(HUNDRED[:5])

    with refused("NothingToSample", match=r"has 5 tuples but n is 10"):
        open_round(spec(full, short, n=10))
    assert nothing_is_stored()


def test_duplicate_cell_is_rejected():
    job = make_harvest(HUNDRED)
    again = make_harvest(HUNDRED, relation=job.relation, language_model=job.language_model)

    with refused("BadRoundSpec", match=r"cells\[0\] and cells\[1\] are the same cell"):
        open_round(spec(job, again))
