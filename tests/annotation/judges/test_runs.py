"""Judge runs: specs, tuples to judge, prompts, and the judge_tuples command."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from annotation.gold.models import GoldDecision
from annotation.judges.runs import JudgeRun, create_run, tuples_to_judge
from annotation.judges.specs import run_from_spec, spec_of
from annotation.rounds.services import create_draft, edit_draft
from kgharvest.access import NotAllowed
from kgharvest.accounts.projects import default_project
from kgharvest.jobs import ledger
from kgharvest.management.command import Error
from kgharvest.models import KnowledgeTuple, Role, tuple_key
from tests.factories import (
    make_harvest,
    make_judge_run,
    make_language_model,
    make_member,
    make_project,
    make_relation,
    make_researcher,
    make_round,
    make_round_on,
)
from tests.fake_chat_endpoint import completion, serving
from tests.refusals import refused

pytestmark = pytest.mark.django_db

SPEC = {"name": "judge", "kind": "chat", "model": "gpt-x", "base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "oracle"}, "kind is 'oracle'. Expected one of chat, causal, score, file"),
        ({"model": ""}, "model is empty"),
        ({"base_url": ""}, "KGHARVEST_JUDGE_BASE_URL is not set"),
        ({"tempo": 1}, "Unknown key tempo"),
        ({"repeats": 0}, "repeats is 0. Expected a whole number from 1 to 99"),
        ({"repeats": "3"}, "repeats is '3'. Expected a whole number"),
        ({"temperature": 3}, "temperature is 3. Expected a number from 0"),
        ({"budget": 1}, "budget requires prompt_price or completion_price"),
        ({"budget": -1}, "budget is -1. Expected a number from 0"),
        ({"threshold": -3}, "threshold is only for kind score"),
        ({"kind": "score", "base_url": ""}, "threshold is missing"),
        ({"kind": "score", "threshold": -3}, "base_url is only for kind chat"),
        ({"kind": "causal", "base_url": "", "repeats": 3}, "repeats is 3"),
        ({"n_examples": 2, "prompt": "{statement}"}, r"the prompt has no {examples}"),
    ],
)
def test_invalid_spec_error_names_the_field(change, message):
    with refused("BadJudgeSpec", match=message):
        run_from_spec(SPEC | change)


@pytest.mark.parametrize(("prompt", "message"), [("Is it true?", "{statement}"), ("{statement} {entity}", "{entity}")])
def test_invalid_prompt_placeholder_is_rejected(prompt, message):
    with refused("BadPromptTemplate", match=message):
        run_from_spec(SPEC | {"prompt": prompt})


def test_spec_round_trips():
    document = {**SPEC, "repeats": 3, "budget": 2.5, "prompt_price": 0.15, "prompt": "{statement}?"}

    assert spec_of(run_from_spec(document)[0]) == document


def test_draft_run_judges_each_tuple_of_populations_once():
    relation = make_relation()
    one, two = (
        make_harvest(
            [(f"head {number}", "tail") for number in numbers], relation=relation, language_model=make_language_model()
        )
        for numbers in (range(6), range(3, 9))
    )
    cells = [{"job": one.pk, "n": 2}, {"job": two.pk, "n": 2, "cut": "top:4"}]
    draft = create_draft({"name": "pilot", "cells": cells}, None, default_project())

    run = create_run(draft, SPEC)

    judged = tuples_to_judge(run)
    assert sorted(each.entities[0] for each in judged) == [f"head {number}" for number in range(7)]
    assert judged[0].statement == f"{judged[0].entities[0]} goes with tail."


def test_open_round_run_judges_drawn_tuples_first_and_omits_hidden():
    round = make_round(6)
    job = round.strata.get().job
    KnowledgeTuple.objects.filter(key=tuple_key(["head 5", "tail 5"])).update(curation="hidden")
    drawn = make_round_of(job, 2)
    run = create_run(drawn, SPEC)

    judged = tuples_to_judge(run)

    statements = list(drawn.tasks.order_by("position").values_list("statement", flat=True))
    assert [each.statement for each in judged[:2]] == statements
    assert "head 5" not in {each.entities[0] for each in judged}
    assert len(judged) == 5
    run.limit = 2
    assert [each.statement for each in tuples_to_judge(run)] == statements


def make_round_of(job, n: int):
    from annotation.rounds.services import open_round

    return open_round({"name": "few", "cells": [{"job": job.pk, "n": n}]}, None, default_project())


def prompts_of(fake) -> str:
    return "\n====\n".join(fake.prompts)


def test_prompt_examples_are_gold_and_not_judged_tuples():
    relation = make_relation(seed_tuples=[["a", "b"], ["head 0", "tail 0"], ["c", "d"]])
    job = make_harvest([(f"head {number}", f"tail {number}") for number in range(3)], relation=relation)
    false = ["a", "d"]
    GoldDecision.objects.create(
        relation=relation, entities=false, key=tuple_key(false), seed=["a", "b"], slot=1, is_confirmed=True
    )
    round = make_round_of(job, 3)

    with serving(lambda body: completion("True")) as fake:
        run = create_run(round, SPEC | {"base_url": fake.url, "n_examples": 2})
        ledger.run_job(run.pk)

    text = run.relation_texts[str(relation.pk)]["examples"]
    assert text == "Statement: a goes with b.\nAnswer: True\n\nStatement: a goes with d.\nAnswer: False\n\n"
    assert all(text in prompt for prompt in fake.prompts)
    assert "Statement: head 0 goes with tail 0.\nAnswer: True" not in prompts_of(fake)

    orders = {
        create_run(round, SPEC | {"name": f"order-{order}", "n_examples": 2, "example_order": order}).relation_texts[
            str(relation.pk)
        ]["examples"]
        for order in range(1, 6)
    }
    assert orders == {text, "Statement: a goes with d.\nAnswer: False\n\nStatement: a goes with b.\nAnswer: True\n\n"}
    with refused("TooFewExamples", match="require 2 true and 2 false"):
        create_run(round, SPEC | {"name": "more", "n_examples": 4})


def test_run_names_are_unique_in_a_round():
    round = make_round(2)
    create_run(round, SPEC)

    with refused("NameOfRunTaken", match="'judge'"):
        create_run(round, SPEC)


def test_viewer_cannot_start_runs():
    with pytest.raises(NotAllowed):
        create_run(make_round(2), SPEC, make_member(Role.VIEWER))


# Command


def judge_tuples(tmp_path, document, *options: str) -> str:
    (tmp_path / "judge.json").write_text(document if isinstance(document, str) else json.dumps(document))
    out = StringIO()
    call_command("judge_tuples", "--judge", str(tmp_path / "judge.json"), *options, stdout=out)
    return out.getvalue()


def test_command_estimates_runs_and_prints_label_counts(tmp_path):
    make_round(4, name="pilot")

    with serving(lambda body: completion("True")) as fake:
        document = SPEC | {"base_url": fake.url, "prompt_price": 1}
        estimate = judge_tuples(tmp_path, document, "--round", "pilot", "--estimate")
        output = judge_tuples(tmp_path, document, "--round", "pilot", "--limit", "3", "--wait")

    assert estimate.startswith("4 answers, about ")
    assert "/judges/judge/" in output
    assert "3 answers, 156 tokens, cost 0.0002: 3 true" in output
    assert len(fake.requests) == 3


def test_command_without_wait_queues_the_run(tmp_path):
    make_round(2, name="pilot")

    judge_tuples(tmp_path, SPEC, "--round", "pilot")

    assert JudgeRun.objects.get().status == "queued"


def test_command_reads_answer_file_next_to_spec(tmp_path):
    round = make_round(1, name="pilot")
    relation = round.tasks.get().knowledge_tuple.relation
    line = {"relation": relation.path, "entities": ["head 0", "tail 0"], "label": "true"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(line))

    output = judge_tuples(tmp_path, {"name": "a", "kind": "file", "path": "answers.jsonl"}, "--round", "pilot")

    assert "1 answers, 0 tokens, cost 0.0000: 1 true" in output


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", r"judge\.json, line 1, column 2: the description is not JSON"),
        ("[]", "Expected a JSON object"),
        ({"name": "a", "kind": "file"}, "path is missing"),
        ({"name": "a", "kind": "file", "path": "nowhere"}, "nowhere cannot be read"),
        ({"name": "a", "kind": "score", "model": "embedded"}, "threshold is missing"),
        ({"name": "a", "kind": "score", "model": "./nowhere", "threshold": -3}, "Model folder"),
    ],
)
def test_command_reports_invalid_spec(tmp_path, document, message):
    make_round(2, name="pilot")

    with pytest.raises(Error, match=message):
        judge_tuples(tmp_path, document, "--round", "pilot", "--wait")


def test_run_instructions_omit_examples_of_judged_tuples():
    seeds = [["head 0", "tail 0"], ["a", "b"]]
    relation = make_relation(seed_tuples=seeds, explanation="Always.")
    tuples = [(f"head {number}", f"tail {number}") for number in range(3)]
    opened = make_round_on(relation, tuples)
    spec = {"name": "draft", "cells": [{"job": opened.strata.get().job_id, "n": 2}]}
    draft = create_draft(spec | {"instructions": "Be strict."}, None, default_project())
    annotator_instructions = opened.relation_instructions[str(relation.pk)]

    of_open, of_draft = (
        create_run(round, SPEC).relation_texts[str(relation.pk)]["instructions"] for round in (opened, draft)
    )

    assert "head 0 goes with tail 0" in annotator_instructions
    assert "head 0" not in of_open
    assert "Always." in of_open
    assert of_draft.startswith("Be strict.\n\nAlways.")
    assert "- **True**: a goes with b" in of_draft


def test_draft_with_judge_strata_can_start_that_run():
    job = make_harvest([(f"head {number}", "tail") for number in range(6)])
    spec = {"name": "draft", "cells": [{"job": job.pk, "n": 4, "allocation": "optimal"}], "judge": "judge"}

    run = create_run(create_draft(spec, None, default_project()), SPEC)

    assert len(tuples_to_judge(run)) == 6


def test_moving_a_draft_moves_its_runs_to_the_project():
    """Prevent members of the first project from reading, canceling, or continuing the runs."""
    job, other = make_harvest([("a", "b"), ("c", "d")]), make_project()
    spec = {"name": "moved", "cells": [{"job": job.pk, "n": 2}]}
    draft = create_draft(spec, None, default_project())
    run = make_judge_run(draft)

    edit_draft(draft, spec | {"project": other.slug})

    run.refresh_from_db()
    assert run.project == other
    assert not JudgeRun.objects.visible_to(make_researcher()).exists()
