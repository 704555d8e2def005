"""Opening a round: what is drawn, what is frozen, what is refused."""

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.models import Draw, JudgmentTask, Round, Stratum, Study, StudyMember
from annotation.quality.limits import set_limits
from annotation.rounds.builder import NothingToSample
from annotation.rounds.instructions import freeze_statement
from annotation.rounds.models import RoundNotOpen
from annotation.rounds.sampling import allocate, draw_ranks, rank_strata
from annotation.rounds.serializers import BadRoundSpec, RoundSerializer, read_round_spec, round_from_spec
from annotation.rounds.services import (
    NameTaken,
    NotInStudy,
    WrongStatus,
    clone_round,
    close_due_rounds,
    close_round,
    create_draft,
    delete_draft,
    edit_draft,
    open_draft,
    open_round,
    pause_round,
    reopen_round,
)
from kgharvest.errors import DomainError, NotFound
from kgharvest.models import Job, KnowledgeTuple, tuple_key
from tests.factories import (
    judge_all,
    make_annotators,
    make_harvest,
    make_harvest_job,
    make_language_model,
    make_relation,
    make_relation_set,
    make_researcher,
    make_round,
)

pytestmark = pytest.mark.django_db

CELL = {"job": 1, "n": 1}
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


# -- strata ------------------------------------------------------------------------------------------------------------


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
    with pytest.raises(NothingToSample, match="has 3 strata but n is 2"):
        open_round({"name": "pilot", "cells": [{"job": make_harvest(HUNDRED).pk, "n": 2, "strata": 3}]})


@pytest.mark.parametrize(
    ("n", "sizes", "allocation", "shares"),
    [
        (10, [50, 50, 50], "equal", [4, 3, 3]),
        (30, [4, 50, 50], "equal", [4, 13, 13]),  # the first has only four
        (10, [10, 20, 70], "proportional", [1, 2, 7]),
        (5, [1, 1, 1000], "proportional", [1, 1, 3]),  # everybody at least one
        (14, [6, 47, 16, 36], "proportional", [1, 6, 2, 5]),  # quotas 0.8, 6.3, 2.1, 4.8: Webster rounds the last up
        (6, [1, 2, 3], "proportional", [1, 2, 3]),
    ],
)
def test_a_sample_is_shared_among_strata(n, sizes, allocation, shares):
    assert allocate(n, sizes, allocation) == shares


def test_simulated_draws_have_the_inclusion_probabilities_that_are_recorded():
    """Of 2000 samples, each rank's share is within 4.5 standard errors of what its stratum says."""
    ranks = list(range(1, 61))
    strata = rank_strata(ranks, [1, 11, 31])
    shares = allocate(12, [len(part) for part in strata], "equal")
    rng = np.random.default_rng(1)

    times = Counter(
        rank for _ in range(2000) for part, n in zip(strata, shares, strict=True) for rank in draw_ranks(part, n, rng)
    )

    for part, n in zip(strata, shares, strict=True):
        probability = n / len(part)
        error = (probability * (1 - probability) / 2000) ** 0.5
        assert all(abs(times[rank] / 2000 - probability) < 4.5 * error for rank in part)


def test_hidden_and_sensitive_tuples_are_not_of_the_population():
    job = make_harvest(HUNDRED)
    KnowledgeTuple.objects.filter(key=tuple_key(HUNDRED[0])).update(curation="hidden")
    KnowledgeTuple.objects.filter(key=tuple_key(HUNDRED[1])).update(is_sensitive=True)

    strict = open_round(spec(job))
    lenient = open_round(spec(job) | {"name": "lenient", "include_sensitive": True})

    assert list(strict.strata.values_list("rank_from", "population")) == [(3, 98)]
    assert list(lenient.strata.values_list("rank_from", "population")) == [(2, 99)]


# -- drafts ------------------------------------------------------------------------------------------------------------


def test_a_draft_draws_nothing_until_it_is_opened():
    job = make_harvest(HUNDRED)
    draft = create_draft(spec(job, n=20, seed=3))
    assert not Stratum.objects.exists()

    opened = open_draft(draft)

    at_once = open_round(spec(job, n=20, seed=3) | {"name": "at-once"})
    one, two = (list(round.tasks.values_list("statement", "position")) for round in (opened, at_once))
    assert opened.is_open
    assert one == two


def test_a_draft_is_edited_and_deleted_but_an_open_round_is_not():
    job = make_harvest(HUNDRED)
    draft = edit_draft(create_draft(spec(job, n=20)), spec(job, n=5, judgments_per_task=2) | {"name": "other"})
    assert (draft.name, draft.judgments_per_task) == ("other", 2)

    round = open_draft(draft)

    assert round.n_tasks == 5
    for change in (delete_draft, open_draft, lambda round: edit_draft(round, round.spec)):
        with pytest.raises(WrongStatus, match="no draft any more"):
            change(round)


def test_a_description_reads_as_what_it_was_written_from():
    job = make_harvest(HUNDRED)
    cell = {"job": job.pk, "n": None, "strata": [1, 10], "allocation": "proportional"}
    document = {
        "name": "pilot",
        "cells": [cell],
        "gold_share": 0.1,
        "closes_when": "date",
        "closes_at": "2030-01-31T18:00",
    }

    assert round_from_spec(document).spec == document


def test_a_description_sets_the_limits_of_its_round():
    round = open_round(spec(make_harvest(HUNDRED), n=1, limits={"longest_run": 40}))

    assert (round.limits.longest_run, round.limits.n_gold, round.limits.gold_accuracy) == (40, 10, None)
    assert round.events.filter(kind="limits_set").count() == 1


def test_a_clone_has_the_limits_in_force():
    round = open_round(spec(make_harvest(HUNDRED), n=1, limits={"longest_run": 40}))
    set_limits(round, longest_run=None, median_seconds=1.5)

    assert clone_round(round).spec["limits"] == {"median_seconds": 1.5, "n_gold": 10}
    assert clone_round(clone_round(round)).spec["limits"] == {"median_seconds": 1.5, "n_gold": 10}


def test_a_clone_is_a_draft_of_the_same_description_with_another_name_and_seed():
    round = make_round(4, name="pilot", judgments_per_task=2, seed=5)

    clones = [clone_round(round), clone_round(round)]

    assert [(clone.name, clone.status, clone.seed, clone.judgments_per_task) for clone in clones] == [
        ("pilot-2", "draft", 6, 2),
        ("pilot-3", "draft", 6, 2),
    ]
    one, two = (list(open_draft(clone).tasks.values_list("statement", flat=True)) for clone in clones)
    assert one == two


def test_a_draft_whose_closing_time_is_over_is_not_opened():
    job = make_harvest(HUNDRED)
    draft = create_draft(spec(job, n=1, closes_when="date", closes_at="2001-01-31T18:00"))

    with pytest.raises(BadRoundSpec, match="would close at 2001-01-31 18:00"):
        open_draft(draft)


def test_two_people_are_asked_first_where_only_a_split_needs_a_third():
    round = open_round(spec(make_harvest(HUNDRED), n=3, third_only_if_split=True))

    assert set(round.tasks.values_list("n_wanted", flat=True)) == {2}


def test_a_name_that_several_sets_have_is_answered_with_the_sets():
    for name in ("mine", "yours"):
        make_relation("capital_of", relation_set=make_relation_set(name))
    named = {"relation": "capital_of", "model": "m", "setting": "multi", "n": 1}

    with pytest.raises(BadRoundSpec, match=r"^cells\[0\].relation: .* mine/capital_of, yours/capital_of"):
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

    with pytest.raises(NotFound, match=r"no finished harvest for cells\[0\]"):
        harvest_taken_for(relation, "roberta-large")


def test_a_short_name_of_an_lm_means_the_only_one_that_bears_it():
    relation = make_relation()
    job = harvest_of(relation, "FacebookAI/roberta-large")

    assert harvest_taken_for(relation, "roberta-large") == job.pk


def test_a_short_name_of_several_lms_is_answered_with_all_of_them():
    relation = make_relation()
    for model in ("FacebookAI/roberta-large", "lab/roberta-large"):
        harvest_of(relation, model)

    with pytest.raises(BadRoundSpec, match=r"^cells\[0\].model: .* FacebookAI/roberta-large, lab/roberta-large"):
        harvest_taken_for(relation, "roberta-large")


def test_a_broken_file_is_refused_with_line_and_column(tmp_path):
    path = tmp_path / "pilot.json"
    path.write_text('{"name": "pilot",\n "cells": [}')

    with pytest.raises(BadRoundSpec, match=r"^pilot.json, line 2, column 12: the description is not JSON"):
        read_round_spec(path)


# -- what is refused ---------------------------------------------------------------------------------------------------


def nothing_is_stored() -> bool:
    return not (Round.objects.exists() or Stratum.objects.exists() or JudgmentTask.objects.exists())


def test_a_round_on_an_empty_harvest_is_refused():
    with pytest.raises(NothingToSample, match=r"There is no tuple in its harvest for cells\[0\]"):
        open_round(spec(make_harvest([])))
    assert nothing_is_stored()
    assert not Study.objects.exists()


def test_a_harvest_that_is_not_finished_is_refused():
    job = make_harvest_job(Job.Status.QUEUED)

    with pytest.raises(NothingToSample, match=rf"Job {job.pk} of cells\[0\] is queued"):
        open_round(spec(job))


def test_a_sample_larger_than_the_cut_is_refused_and_nothing_stays():
    full, short = make_harvest(HUNDRED), make_harvest(HUNDRED[:5])

    with pytest.raises(NothingToSample, match=r"has 5 tuples to draw from but n is 10"):
        open_round(spec(full, short, n=10))
    assert nothing_is_stored()


def test_a_cell_cannot_be_taken_twice():
    job = make_harvest(HUNDRED)
    again = make_harvest(HUNDRED, relation=job.relation, language_model=job.language_model)

    with pytest.raises(BadRoundSpec, match=r"cells\[0\] and cells\[1\] are both"):
        open_round(spec(job, again))


def test_a_name_is_used_once():
    make_round(name="pilot")

    with pytest.raises(NameTaken, match="'pilot'"):
        make_round(name="pilot")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"^The description is \[\]; give a JSON object with name, cells"),
        ({"cells": [CELL]}, "^name is missing"),
        ({"name": "a b", "cells": [CELL]}, "^name is 'a b'; give a name of up to 100 letters"),
        ({"name": "new", "cells": [CELL]}, "^name is 'new'"),
        ({"name": "a", "cells": []}, "at least one cell"),
        ({"name": "a", "cells": [CELL], "judgement": 3}, "^judgement is unknown"),
        ({"name": "a", "cells": [CELL], "judgments_per_task": 0}, "^judgments_per_task is 0; .* from 1 to 99"),
        ({"name": "a", "cells": [CELL], "judgments_per_task": True}, "^judgments_per_task is True"),
        (
            {"name": "a", "cells": [CELL], "third_only_if_split": True, "judgments_per_task": 2},
            "^third_only_if_split: .* give 3",
        ),
        ({"name": "a", "cells": [CELL], "limits": 3}, "^limits is 3; give a JSON object with gold_accuracy, n_gold"),
        ({"name": "a", "cells": [CELL], "limits": {"run": 3}}, "^limits.run is unknown; use gold_accuracy"),
        ({"name": "a", "cells": [CELL], "limits": {"gold_accuracy": 70}}, "^limits.gold_accuracy is 70; give a number"),
        ({"name": "a", "cells": [CELL], "gold_share": 0.6}, "^gold_share is 0.6; give a number from 0 to 0.5"),
        ({"name": "a", "cells": [CELL], "dominance_cap": 0}, "^dominance_cap is 0; .* or null"),
        ({"name": "a", "cells": [CELL], "closes_when": "date"}, "^closes_at: Give a date and time"),
        ({"name": "a", "cells": [CELL], "closes_when": "date", "closes_at": "soon"}, "^closes_at is 'soon'"),
        ({"name": "a", "cells": [CELL], "seed": -1}, "^seed is -1"),
        ({"name": "a", "cells": [CELL], "seed": "3"}, "^seed is '3'; give a whole number"),
        ({"name": "a", "cells": [CELL], "takes_guests": 1}, "^takes_guests is 1; give true or false"),
        ({"name": "a", "cells": [CELL], "gold_share": float("nan")}, "^gold_share is nan; give a number"),
        ({"name": "a", "cells": [CELL], "consent": 5}, "^consent is 5; give a text"),
        ({"name": "a", "cells": {"job": 1}}, "^cells is .*; give a list of at least one cell"),
        ({"name": "a", "cells": [3]}, r"^cells\[0\] is 3; give a JSON object with job"),
        ({"name": "a", "cells": [CELL], "source": "guessed"}, "^source is 'guessed'; give one of people"),
        (
            {"name": "a", "cells": [CELL], "relation_instructions": {"r": 1}},
            "^relation_instructions.r is 1; give a text",
        ),
        ({"name": "a", "cells": [CELL], "relation_instructions": {"r\x00": ""}}, "^relation_instructions is"),
        ({"name": "a", "cells": [CELL], "instructions": "a\x00b"}, "^instructions is .* without NUL"),
        ({"name": "a", "cells": [CELL], "consent": "a\ud800b"}, "^consent is .* halves of surrogate pairs"),
        ({"name": "a", "cells": [{"job": 1}]}, r"^cells\[0\].n is missing"),
        ({"name": "a", "cells": [CELL, {"job": 1, "n": 0}]}, r"^cells\[1\].n is 0"),
        ({"name": "a", "cells": [{"job": "1", "n": 1}]}, r"^cells\[0\].job is '1'"),
        ({"name": "a", "cells": [CELL | {"strata": [1, 10, 10]}]}, r"^cells\[0\].strata is \[1, 10, 10\]"),
        ({"name": "a", "cells": [CELL | {"strata": [2, 10]}]}, r"^cells\[0\].strata is"),
        ({"name": "a", "cells": [CELL | {"allocation": "fair"}]}, r"^cells\[0\].allocation is 'fair'"),
        ({"name": "a", "cells": [{"relation": "r", "n": 1}]}, "all of 'relation', 'model' and 'setting'"),
        ({"name": "a", "cells": [{"job": 1, "relation": "r", "n": 1}]}, "either 'job' or all of"),
        ({"name": "a", "cells": [{"job": 99, "n": 1}]}, r"no finished harvest for cells\[0\] \(job 99\)"),
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


def test_a_round_closes_when_its_date_has_come_or_all_is_judged():
    now = timezone.now()
    dated = make_round(closes_when="date", closes_at=(now + timedelta(hours=1)).isoformat())
    complete, half = (make_round(2, closes_when="complete", judgments_per_task=1) for _ in range(2))
    judge_all(complete, ["true", "true"])
    manual = make_round(1, judgments_per_task=1)
    judge_all(manual, ["true"])

    close_due_rounds(now)
    assert statuses(dated, complete, half, manual) == ["open", "closed", "open", "open"]

    close_due_rounds(now + timedelta(hours=2))
    assert statuses(dated, half) == ["closed", "open"]


def statuses(*rounds) -> list[str]:
    return [Round.objects.get(pk=round.pk).status for round in rounds]


def test_nobody_judges_after_the_closing_time():
    round = make_round(closes_when="date", closes_at=(timezone.now() + timedelta(hours=1)).isoformat())
    [annotator] = make_annotators(round, 1)
    Round.objects.update(closes_at=timezone.now())

    with pytest.raises(RoundNotOpen, match="is over"):
        next_batch(annotator, timezone.now())


def test_a_round_that_was_reopened_is_closed_by_people():
    round = make_round(1, closes_when="complete", judgments_per_task=1)
    judge_all(round, ["true"])
    close_due_rounds(timezone.now())

    round.refresh_from_db()
    reopen_round(round)
    close_due_rounds(timezone.now())

    assert statuses(round) == ["open"]


def test_the_documented_description_can_be_read():
    text = (Path(__file__).parents[3] / "docs" / "rounds.md").read_text()
    example = json.loads(text.split("```json\n")[1].split("```")[0])

    round = round_from_spec(example)

    assert round.spec.keys() <= example.keys() == RoundSerializer().fields.keys()
