"""Opening a round: what is drawn, what is frozen, what is refused."""

import pytest

from annotation.models import Draw, JudgmentTask, Round, Stratum, Study, StudyMember
from annotation.round_specs import BadRoundSpec
from annotation.services.rounds import (
    NameTaken,
    NothingToSample,
    NotInStudy,
    WrongStatus,
    close_round,
    open_round,
    pause_round,
    reopen_round,
)
from annotation.statements import freeze_statement
from kgharvest.errors import DomainError
from kgharvest.models import Job, KnowledgeTuple
from tests.factories import make_harvest, make_harvest_job, make_relation, make_researcher, make_round

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

    one, two = (list(round.tasks.order_by("position").values_list("statement", flat=True)) for round in rounds)
    assert one == two


def test_another_seed_draws_another_sample():
    job = make_harvest(HUNDRED)

    rounds = [open_round(spec(job, n=20, seed=seed) | {"name": f"seed-{seed}"}) for seed in (1, 2)]

    one, two = (set(round.tasks.values_list("statement", flat=True)) for round in rounds)
    assert one != two


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


def test_a_statement_in_the_manner_of_prompts_loses_the_space_before_its_full_stop():
    statement = freeze_statement(" <ENT0> prevents <ENT1> .", ["mask", "St. Vitus ' dance"])

    assert statement.text == "mask prevents St. Vitus ' dance."
    assert [statement.text[start:end] for start, end in statement.spans] == ["mask", "St. Vitus ' dance"]


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


def test_the_one_who_names_a_new_study_owns_it():
    researcher = make_researcher()

    round = make_round(study="Animals", by=researcher)

    assert list(Round.objects.managed_by(researcher)) == [round]


def test_a_study_of_others_is_closed():
    make_round(study="Animals", by=make_researcher())
    stranger = make_researcher()

    with pytest.raises(NotInStudy, match="'Animals'"):
        make_round(study="Animals", by=stranger)
    assert not Round.objects.visible_to(stranger)


def test_a_viewer_sees_rounds_but_does_not_manage_them():
    round = make_round(study="Animals", by=make_researcher())
    viewer = make_researcher()
    StudyMember.objects.create(study=round.study, user=viewer, role=StudyMember.Role.VIEWER)

    assert list(Round.objects.visible_to(viewer)) == [round]
    assert not Round.objects.managed_by(viewer)


# -- what is refused ---------------------------------------------------------------------------------------------------


def nothing_is_stored() -> bool:
    return not (Round.objects.exists() or Stratum.objects.exists() or JudgmentTask.objects.exists())


def test_a_round_on_an_empty_harvest_is_refused():
    with pytest.raises(NothingToSample, match=r"There is no tuple in its harvest for cell 1"):
        open_round(spec(make_harvest([])))
    assert nothing_is_stored()
    assert not Study.objects.exists()


def test_a_harvest_that_is_not_finished_is_refused():
    job = make_harvest_job(Job.Status.QUEUED)

    with pytest.raises(NothingToSample, match=f"Job {job.pk} of cell 1 is queued"):
        open_round(spec(job))


def test_a_sample_larger_than_the_cut_is_refused_and_nothing_stays():
    full, short = make_harvest(HUNDRED), make_harvest(HUNDRED[:5])

    with pytest.raises(NothingToSample, match=r"has 5 tuples to draw from but n is 10"):
        open_round(spec(full, short, n=10))
    assert nothing_is_stored()


def test_a_cell_cannot_be_taken_twice():
    job = make_harvest(HUNDRED)
    again = make_harvest(HUNDRED, relation=job.relation, language_model=job.language_model)

    with pytest.raises(BadRoundSpec, match="Cells 1 and 2 are both"):
        open_round(spec(job, again))


def test_a_name_is_used_once():
    make_round(name="pilot")

    with pytest.raises(NameTaken, match="'pilot'"):
        make_round(name="pilot")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must be a JSON object"),
        ({"cells": []}, "'name' is missing in the round"),
        ({"name": "a b", "cells": [{"job": 1, "n": 1}]}, "'a b' is no name for a round"),
        ({"name": "a", "cells": []}, "at least one cell"),
        ({"name": "a", "cells": [{"job": 1, "n": 1}], "judgement": 3}, "'judgement' in the round is unknown"),
        ({"name": "a", "cells": [{"job": 1, "n": 1}], "judgments_per_task": 0}, "from 1 to 99"),
        ({"name": "a", "cells": [{"job": 1, "n": 1}], "judgments_per_task": True}, "from 1 to 99"),
        ({"name": "a", "cells": [{"job": 1, "n": 1}], "seed": -1}, "'seed' of the round is -1"),
        ({"name": "a", "cells": [{"job": 1, "n": 1}], "source": "guessed"}, "'source' of the round"),
        ({"name": "a", "cells": [{"job": 1}]}, "'n' is missing in cell 1"),
        ({"name": "a", "cells": [{"job": 1, "n": 0}]}, "'n' of cell 1 is 0"),
        ({"name": "a", "cells": [{"job": "1", "n": 1}]}, "'job' of cell 1 is '1'"),
        ({"name": "a", "cells": [{"relation": "r", "n": 1}]}, "all of 'relation', 'model' and 'setting'"),
        ({"name": "a", "cells": [{"job": 1, "relation": "r", "n": 1}]}, "either 'job' or all of"),
        ({"name": "a", "cells": [{"job": 99, "n": 1}]}, r"no finished harvest for cell 1 \(job 99\)"),
        (
            {"name": "a", "cells": [{"relation": "r", "model": "m", "setting": "s", "n": 1}]},
            "There is no relation 'r'",
        ),
    ],
)
def test_a_bad_description_is_refused_in_one_sentence(document, message):
    with pytest.raises(DomainError, match=message):
        open_round(document)
    assert nothing_is_stored()


# -- a round's life ----------------------------------------------------------------------------------------------------


def test_a_round_is_paused_reopened_and_closed():
    round = make_round()

    pause_round(round)
    reopen_round(round)
    close_round(round)

    assert (round.status, round.closed_at is not None) == (Round.Status.CLOSED, True)


def test_a_closed_round_cannot_be_paused():
    round = make_round()
    close_round(round)

    with pytest.raises(WrongStatus, match=f"{round.name} is closed; it cannot become paused"):
        pause_round(round)


def test_hidden_and_sensitive_tuples_are_not_drawn():
    job = make_harvest([["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]])
    KnowledgeTuple.objects.filter(key__startswith="a").update(curation="hidden")
    KnowledgeTuple.objects.filter(key__startswith="c").update(is_sensitive=True)

    round = open_round({"name": "clean", "cells": [{"job": job.pk, "n": None, "cut": "top:3"}]})
    bold = open_round({"name": "bold", "include_sensitive": True, "cells": [{"job": job.pk, "n": 3}]})

    stratum = round.strata.get()
    assert (stratum.rank_to, stratum.population, stratum.sample_size) == (3, 1, 1)
    assert [draw.inclusion_probability for draw in stratum.draws.all()] == [1.0]
    assert set(round.tasks.values_list("entities__0", flat=True)) == {"e"}
    assert set(bold.tasks.values_list("entities__0", flat=True)) == {"c", "e", "g"}
