"""Lookup scores: scores of other systems, judge runs, and entity frequency, compared with LM scores."""

from __future__ import annotations

import io
import json
from math import log

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command

from evaluation.models import ScoreEvaluation
from evaluation.scores.facts import ScoredRelation
from evaluation.scores.lookups import frequency_scorer, judge_scores, lookup_scorer, scores_of_content
from evaluation.scores.score_jobs import ScoreRequest, evaluate_now, scores_document
from evaluation.scores.scorers import document_of, score_samples
from evaluation.scores.tables import scorer_table
from evaluation.scores.views import sample_lines
from kgharvest.accounts.projects import default_project
from kgharvest.engine.types import HarvestParams, ignore
from kgharvest.errors import ImportRefused
from kgharvest.harvests.language_models import get_language_model
from kgharvest.harvests.runner import HarvestRequest, create_harvest_job
from kgharvest.jobs import ledger
from kgharvest.models import Relation
from tests import factories
from tests.postgres import as_jsonb
from tests.refusals import refused

FACTS = [("Berlin", "Germany"), ("Paris", "France"), ("Rome", "Italy"), ("Oslo", "Norway")]
CAPITAL = ScoredRelation("capital_of", (), (), (), FACTS, "geo/capital_of")

# Score files


@pytest.mark.parametrize(
    "content",
    [
        '{"relation": "capital_of", "entities": ["Berlin", "Germany"], "score": -1.5}\n',
        'relation,entities,score\ncapital_of,"[""berlin"", ""GERMANY""]",-1.5\n',
        "\ufeffrelation\thead\ttail\tscore\ncapital_of\tBerlin\tGermany\t-1.5\n",
    ],
    ids=["JSON lines", "CSV", "TSV"],
)
def test_score_files_are_read_in_three_formats(content):
    assert scores_of_content(content.encode(), "comet.txt") == {
        "comet": {"capital_of": [(("berlin", "germany"), -1.5)]}
    }


def test_score_file_can_contain_several_systems_and_harvests():
    rows = [
        {"relation": "r", "entities": ["a", "b"], "score": 1, "system": "COMET"},
        {"relation": "r", "entities": ["a", "b"], "score": 2, "model": "bert", "setting": "multi"},
    ]

    table = scores_of_content("\n".join(map(json.dumps, rows)).encode(), "f.jsonl")

    assert {system: by_relation["r"] for system, by_relation in table.items()} == {
        "COMET": [(("a", "b"), 1.0)],
        "bert × multi": [(("a", "b"), 2.0)],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file has no scores"),
        ("relation,score\nr,1\n", "line 1 must have the columns relation, score, and either entities or head and tail"),
        ("relation,head,tail,score\nr,a,b,high\n", "line 2 must have a number as score"),
        ('{"relation": "r", "entities": ["a"], "score": 1}', "line 1 has no list of 2 entities"),
        ('{"relation": "r", "entities": ["a", "b"], "score": null}', "line 1 has score None"),
        ('{"relation": "r", "entities": ["a", "b"], "score": 1e999}', "line 1 has score inf"),
        ('{"relation": "r", "entities": ["a", "b"], "score": 1' + "0" * 400 + "}", "line 1 has score 1000"),
        ('["r"]', "line 1 must have the columns"),
    ],
)
def test_invalid_score_file_is_rejected_with_line(content, message):
    with pytest.raises(ImportRefused) as refusal:
        scores_of_content(content.encode(), "f.jsonl")

    [entry] = refusal.value.entries
    assert f"{entry.where} {entry.reason}".startswith(message)


# Ranking


def test_unscored_tuples_rank_last_and_are_counted():
    table = {"geo/capital_of": [(("berlin", "germany"), -9.0), (("paris", "france"), -8.0)]}

    scored = score_samples([CAPITAL], {"half": lookup_scorer(table)}, 0)
    document = document_of(scored, 0)

    [half] = document["scorers"]
    assert (document["n_positive"], document["n_negative"], half["n_unscored"]) == (4, 4, 6)
    # Two facts come first, then two facts and four false tuples in random order.
    places = [(j, (2 + 1 + (j - 1) / 5) / (2 + j)) for j in range(1, 7)]
    expected = (2 + sum(precision for _, precision in places) * 2 / 6) / 4
    assert half["average_precision"] == pytest.approx(expected)
    [note] = [note for note in scorer_table(document).notes if "half" in note]
    assert note == "half has no score for 6 tuples; missing scores rank last."


def test_samples_contain_score_of_each_scorer():
    table = {"capital_of": [(("berlin", "germany"), -9.0)]}

    rows = score_samples([CAPITAL], {"one": lookup_scorer(table)}, 0).rows()

    assert rows[0] == {
        "relation": "capital_of", "entities": ("Berlin", "Germany"), "replaced": None, "scores": {"one": -9.0}
    }  # fmt: skip
    assert {row["scores"]["one"] for row in rows[1:]} == {None}


# Judge runs and entity frequency


@pytest.mark.django_db
def test_judge_score_is_probability_or_share_of_true():
    round = factories.make_round([("Berlin", "Germany"), ("Paris", "Italy"), ("Rome", "Italy")])
    tuples = [task.knowledge_tuple for task in round.tasks.order_by("position")]
    by_label, by_score = factories.make_judge_run(round, repeats=2), factories.make_judge_run(round)
    for repeat, labels in enumerate([("true", "true", "false"), ("true", "", "false")]):
        for knowledge_tuple, label in zip(tuples, labels, strict=True):
            factories.make_judge_answer(by_label, knowledge_tuple, label, repeat=repeat)
    factories.make_judge_answer(by_score, tuples[0], "true", score=0.9)

    path = tuples[0].relation.path
    scores = dict(judge_scores(by_label)[path])

    assert [scores[tuple(knowledge_tuple.entities)] for knowledge_tuple in tuples] == [1.0, 0.75, 0.0]
    assert judge_scores(by_score) == {path: [(tuple(tuples[0].entities), 0.9)]}


@pytest.mark.django_db
def test_frequency_counts_tuples_with_the_entity():
    factories.make_harvest([("Berlin", "Germany"), ("Bonn", "Germany")])
    factories.make_harvest([("Berlin", "Germany")])  # the same tuple in another relation

    foreign = factories.make_researcher(project=factories.make_project())
    for user, expected in ((None, [log(3) + log(4), log(2) + log(1)]), (foreign, [0, 0])):
        scores = frequency_scorer(user)(CAPITAL, [("berlin", "GERMANY"), ("Bonn", "Peru")], lambda: ignore(None))
        assert scores == pytest.approx(expected)


# Complete evaluations


@pytest.fixture
def request_of(db):
    relation = factories.make_relation(
        "capital",
        initial_prompts=["<ENT0> is the capital of <ENT1> ."],
        prompts=["<ENT0> is the capital of <ENT1> ."],
        seed_tuples=[["berlin", "germany"], ["paris", "france"]],
    )
    facts = [("rome", "italy"), ("madrid", "spain"), ("vienna", "austria"), ("athens", "greece"), ("lima", "peru")]
    prompts_and_seeds = (relation.initial_prompts, relation.prompts, relation.seed_tuples)
    scored = ScoredRelation("capital", *prompts_and_seeds, facts, relation.path)

    def make(**fields) -> ScoreRequest:
        lm = get_language_model("embedded-small")
        return ScoreRequest(lm, **{"settings": ["human"], "facts": "mine", "relations": [scored], **fields})

    return make


def names_of(evaluation: ScoreEvaluation) -> list[str]:
    return [scorer["scorer"] for scorer in evaluation.document["scorers"]]


def test_samples_can_be_rescored_by_another_system(request_of):
    first = evaluate_now(request_of(more=["corrected", "prior", "frequency"]))
    rows = [{**row, "score": float(row["replaced"] is None)} for row in first.samples]
    oracle = scores_of_content("\n".join(map(json.dumps, rows)).encode(), "oracle.jsonl")

    second = evaluate_now(request_of(systems=oracle))

    assert names_of(first) == ["human", "human (corrected)", "entity prior", "entity frequency"]
    assert names_of(second) == ["human", "oracle"]
    assert [row["entities"] for row in first.samples] == [row["entities"] for row in second.samples]
    assert second.document["scorers"][1]["average_precision"] == 1
    assert "samples" not in first.document


def test_evaluation_uses_requested_dtype(request_of):
    evaluations = {dtype: evaluate_now(request_of(dtype=dtype)) for dtype in ("float32", "bfloat16")}

    assert {dtype: evaluation.document["dtype"] for dtype, evaluation in evaluations.items()} == {
        "float32": "float32",
        "bfloat16": "bfloat16",
    }
    exact, coarse = ([row["scores"]["human"] for row in evaluation.samples] for evaluation in evaluations.values())
    assert coarse != exact
    assert coarse == pytest.approx(exact, abs=0.3)


def test_scorer_order_does_not_depend_on_database(request_of):
    for setting in ("multi", "top1"):
        params = HarvestParams(candidates=5, max_tuples=5)
        harvest = HarvestRequest(Relation.objects.get(), get_language_model("embedded-small"), setting, params)
        ledger.run_job(create_harvest_job(harvest).pk)
    lines = [
        {"system": system, "relation": "capital", "entities": ["rome", "italy"], "score": score}
        for score, system in enumerate(["zz", "a much longer name"])
    ]
    systems = scores_of_content("\n".join(map(json.dumps, lines)).encode(), "others.jsonl")

    evaluation = evaluate_now(request_of(settings=[], harvested=["multi", "top1"], systems=systems))

    names = ["top1 (as harvested)", "multi (as harvested)", "a much longer name", "zz"]
    document = scores_document(evaluation.language_model, as_jsonb(evaluation.payload), ignore)
    assert [scorer["scorer"] for scorer in document["scorers"]] == names_of(evaluation) == names
    reloaded = ScoreEvaluation(document=as_jsonb(evaluation.document), samples=as_jsonb(evaluation.samples))
    assert list(sample_lines(reloaded)) == list(sample_lines(evaluation))
    first = json.loads(next(sample_lines(reloaded)))
    assert first["score"] == first["scores"]["top1 (as harvested)"]


def test_system_without_matching_scores_is_rejected(request_of):
    table = scores_of_content(b'{"relation": "capital", "entities": ["x", "y"], "score": 1}', "comet.jsonl")

    with refused("NoScorer", match="comet has no score for any of the 10 facts and false tuples"):
        evaluate_now(request_of(systems=table))


def test_judge_run_of_another_project_is_rejected(request_of):
    other = factories.make_project()
    run = factories.make_judge_run(factories.make_round(project=other, by=factories.make_researcher(project=other)))

    with refused("NothingHarvested", match="another project"):
        evaluate_now(request_of(judge_runs=[run]), project=default_project())


def test_command_reads_score_files_and_writes_samples(tmp_path, request_of):
    relation = "capital"
    facts = [("rome", "italy"), ("madrid", "spain"), ("vienna", "austria")]
    known = tmp_path / "facts.jsonl"
    known.write_text("\n".join(json.dumps({"relation": relation, "entities": fact}) for fact in facts))
    scores = tmp_path / "comet.tsv"
    scores.write_text("relation\thead\ttail\tscore\n" + "".join(f"{relation}\t{a}\t{b}\t1\n" for a, b in facts))
    out = io.StringIO()

    call_command(
        "evaluate_scores", "--model", "embedded-small", "--setting", "human", "--more", "corrected",
        "--facts", str(known), "--scores", str(scores), "--samples", str(tmp_path / "samples.jsonl"),
        stdout=out, stderr=io.StringIO(),
    )  # fmt: skip

    document = json.loads(out.getvalue())
    assert [scorer["scorer"] for scorer in document["scorers"]] == ["human", "human (corrected)", "comet"]
    assert document["scorers"][2]["n_unscored"] == 3
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [row["is_fact"] for row in rows].count(True) == 3
    assert {"relation", "entities", "is_fact", "replaced", "score", "scores"} == set(rows[0])


def test_command_reports_unknown_judge_run(request_of):
    with pytest.raises(CommandError, match="There is no round"):
        call_command("evaluate_scores", "--judge-run", "nowhere/j")


@pytest.mark.usefixtures("installation_owner")
def test_page_accepts_scores_and_judge_runs_and_lists_invalid_lines(researcher_client, request_of, enqueued):
    run = factories.make_judge_run(factories.make_round())
    lm = get_language_model("embedded-small")

    def post_systems(content: bytes):
        file = SimpleUploadedFile("comet.jsonl", content)
        form = {"model": lm.pk, "settings": ["human"], "more": ["prior"], "judge_runs": [run.pk], "systems": file}
        return researcher_client.post("/reports/scores/new/", form)

    refused = post_systems(b'{"relation": "capital"}')
    post_systems(b'{"relation": "capital", "entities": ["rome", "italy"], "score": 1}')

    assert "Import failed: comet.jsonl" in refused.text
    payload = ScoreEvaluation.objects.get().payload
    assert (payload["more"], payload["judge_runs"]) == (["prior"], [run.pk])
    assert payload["systems"] == {"comet": {"capital": [[["rome", "italy"], 1.0]]}}


@pytest.mark.usefixtures("installation_owner")
def test_scored_samples_can_be_downloaded(researcher_client, request_of):
    evaluation = evaluate_now(request_of())

    page = researcher_client.get(evaluation.get_absolute_url()).text
    file = researcher_client.get(f"/reports/scores/{evaluation.pk}/scores.jsonl")

    assert f"/reports/scores/{evaluation.pk}/scores.jsonl" in page
    assert len(file.content.splitlines()) == 10
