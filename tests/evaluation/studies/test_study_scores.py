"""Studies with the section `scores`: evaluations, their files, and published orders."""

from __future__ import annotations

import json
import tomllib

import pytest
from django.core.management import call_command

from annotation.models import Round
from evaluation.models import ScoreEvaluation, Study
from evaluation.scores.facts import built_in_facts
from evaluation.studies.export import file_of_study, study_of_round
from evaluation.studies.files import read_study, toml_of
from evaluation.studies.plan import planned_study
from evaluation.studies.schema import faults_of
from evaluation.studies.scores import SECTION, _comparison
from evaluation.studies.services import store_study
from evaluation.studies.steps import advance, stages
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, Relation
from tests.evaluation.studies.conftest import STUDY
from tests.evaluation.studies.test_study_command import JUDGE, refusal, states
from tests.factories import judge_all

pytestmark = pytest.mark.usefixtures("fake_harvests")

SCORES = """\
name = "curves"
[[relations]]
set = "demo"
names = ["capital_of", "prevent"]
[[scores]]
settings = ["human", "multi"]
facts = "facts.jsonl"
outputs = ["svg", "md", "json", "jsonl"]
[published]
source = "Figure 4"
scores = [{ better = "human", worse = "multi" }, { better = "human", worse = "COMET" }]
"""
FACTS = {"capital_of": [("oslo", "norway"), ("lima", "peru")], "demo/prevent": [("lock", "theft"), ("roof", "rain")]}


def lines(facts=FACTS) -> str:
    rows = [{"relation": name, "entities": entities} for name, tuples in facts.items() for entities in tuples]
    return "\n".join(map(json.dumps, rows))


@pytest.fixture
def scores(study):
    """A study that evaluates scores, and its facts."""
    study.write_text(SCORES)
    study.with_name("facts.jsonl").write_text(lines())
    return study


def evaluation_of(text: str, added: str = "") -> dict:
    """Return a valid document with a section of scores in place of the round."""
    return tomllib.loads(text.partition("[round]")[0] + "[[scores]]\n" + added)


def test_study_of_scores_needs_no_harvests_and_no_round(run, scores):
    out = run()

    evaluation, folder = ScoreEvaluation.objects.get(), scores.parent / "curves-results"
    assert not Round.objects.exists()
    assert not HarvestJob.objects.exists()
    assert evaluation.document["n_positive"] == 4
    assert [entry["scorer"] for entry in evaluation.document["scorers"]] == ["human", "multi"]
    assert {path.name for path in folder.iterdir()} == {
        *("scores.svg", "scores.md", "scores.json", "scores.jsonl", "published.md")
    }
    assert json.loads((folder / "scores.json").read_text()) == evaluation.document
    assert "Scores: 1 of 1 evaluation finished" in out
    assert states(Study.objects.get()) == {"Relations": "done", "Scores": "done"}


def test_published_orders_stand_beside_the_scores(run, scores):
    out = run()

    entries = {entry["scorer"]: entry for entry in ScoreEvaluation.objects.get().document["scorers"]}
    human, comet = (line.split() for line in out.splitlines() if line.startswith("human"))
    expected = [f"{entries[name]['average_precision']:.4f}".lstrip("0") for name in ("human", "multi")]
    assert human[:5] == ["human", "multi", "scores", *expected]
    assert comet[:2] == ["human", "COMET"]
    assert comet[-2:] == ["not", "evaluated"]
    assert "Figure 4" in (scores.parent / "curves-results" / "published.md").read_text()


def test_order_is_that_of_the_interval():
    entry = {"a": "x", "b": "y", "difference": 0.2, "low": 0.1, "high": 0.3, "p_holm": 0.01}
    x, y = ({"scorer": name, "average_precision": 0.5} for name in "xy")

    assert _comparison({"comparisons": [entry]}, x, y) == (0.5, 0.5, 0.2, 0.1, 0.3, 0.01, "same")
    assert _comparison({"comparisons": [entry]}, y, x) == (0.5, 0.5, -0.2, -0.3, -0.1, 0.01, "reversed")
    assert _comparison({"comparisons": [entry | {"low": -0.1}]}, x, y)[-1] == "undecided"
    assert _comparison({"comparisons": []}, x, y)[2:] == (None, None, None, None, "undecided")


def test_finished_evaluation_is_not_repeated_until_its_section_changes(run, scores):
    run()
    assert "up to date" in run()
    scores.write_text(SCORES.replace('"svg", ', ""))
    assert "up to date" in run("run", "--yes")
    assert ScoreEvaluation.objects.count() == 1

    scores.write_text(SCORES.replace("facts =", "seed = 1\nfacts ="))

    assert refusal(run) == "StudyChanged"
    assert "scores.json" in run("run", "--yes")
    assert [evaluation.payload["seed"] for evaluation in ScoreEvaluation.objects.order_by("pk")] == [0, 1]
    scores.write_text(SCORES)
    run("run", "--yes")
    written = json.loads((scores.parent / "curves-results" / "scores.json").read_text())
    assert written == ScoreEvaluation.objects.order_by("pk").first().document
    assert ScoreEvaluation.objects.count() == 2


def test_training_facts_and_prompts_are_part_of_the_study(run, scores):
    scores.write_text(SCORES.replace("facts =", 'more = ["lpaqa-tail"]\ntrain = "train.jsonl"\nfacts ='))
    rows = [{"relation": "capital_of", "entities": ["rome", "italy"]}]
    rows += [{"relation": "demo/capital_of", "template": "[X] heads [Y] ."}]
    scores.with_name("train.jsonl").write_text("\n".join(map(json.dumps, rows)))

    run()

    stored = toml_of(Study.objects.get().document)
    assert tomllib.loads(stored)["scores"][0]["train"] == {
        "capital_of": [["rome", "italy"]],
        "demo/capital_of": ["<ENT0> heads <ENT1> ."],
    }
    scores.write_text(stored)
    assert "up to date" in run()
    capital = ScoreEvaluation.objects.get().payload["relations"][0]
    assert (capital["train"], capital["train_prompts"]) == ([["rome", "italy"]], ["<ENT0> heads <ENT1> ."])
    scores.write_text(SCORES.replace("facts =", "train = { nowhere = [] }\nfacts ="))
    assert refusal(run, "run", "--yes") == "BadStudy"


def test_changed_file_of_facts_is_a_changed_study(run, scores):
    run()
    scores.with_name("facts.jsonl").write_text(lines(FACTS | {"capital_of": [("oslo", "norway"), ("rome", "italy")]}))

    assert refusal(run) == "StudyChanged"
    run("run", "--yes")

    newest = ScoreEvaluation.objects.order_by("-pk").first()
    assert ["rome", "italy"] in newest.payload["relations"][0]["facts"]


def test_stored_study_contains_the_facts_and_can_be_written_and_read(run, scores, tmp_path):
    scores.write_text(SCORES.replace("facts =", 'systems = ["comet.csv"]\nfacts ='))
    scores.with_name("comet.csv").write_text("relation,head,tail,score\ncapital_of,Oslo,Norway,0.5\n")
    run()
    document = Study.objects.get().document
    path = tmp_path / "copy.toml"
    path.write_text(toml_of(document))

    assert document["scores"][0]["facts"]["demo/prevent"] == [["lock", "theft"], ["roof", "rain"]]
    assert document["scores"][0]["systems"] == {"comet": {"capital_of": [[["oslo", "norway"], 0.5]]}}
    assert read_study(path) == document
    assert ScoreEvaluation.objects.get().payload["scorers"] == ["human", "multi", "comet"]


def test_order_of_relations_is_that_of_the_study(run, scores):
    """False tuples depend on the order, and databases do not keep the order of keys."""
    scores.with_name("facts.jsonl").write_text(lines(dict(reversed(FACTS.items()))))

    run()

    scored = ScoreEvaluation.objects.get().payload["relations"]
    assert [relation["name"] for relation in scored] == ["capital_of", "prevent"]


def test_invalid_line_of_facts_is_named(run, scores):
    scores.with_name("facts.jsonl").write_text(lines() + '\n{"relation": "prevent", "entities": ["lock"]}')

    assert refusal(run) == "ImportRefused"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('"facts.jsonl"', '"none.jsonl"', "NoSuchFile"),
        ('"facts.jsonl"', '{ eats = [["cat", "mouse"]] }', "BadStudy"),
        ('"facts.jsonl"', '{ prevent = [["a", "b", "c"]] }', "BadStudy"),
        ('settings = ["human", "multi"]', 'harvested = ["human"]', "BadStudy"),
        ('settings = ["human", "multi"]', 'model = "./nothing"', "NotFound"),
    ],
)
def test_check_finds_errors_of_scores(run, scores, old, new, code):
    scores.write_text(SCORES.replace(old, new))

    assert refusal(run, "check") == code


def test_relations_without_facts_are_refused():
    document = evaluation_of(STUDY.replace('set = "demo"', 'name = "flies"\nstatement = "<ENT0> flies <ENT1>."'))
    document["relations"] = [
        {"name": "flies", "statement": "<ENT0> flies <ENT1>.", "seed_tuples": [["a", "b"], ["c", "d"]]}
    ]

    with pytest.raises(DomainError) as refused, planned_study(document):
        pass
    assert (refused.value.code, str(refused.value).split(":")[0]) == ("BadStudy", "scores[0].facts")


def test_built_in_facts_are_those_of_the_study_in_its_order():
    stored = store_study(evaluation_of(STUDY.replace('"capital_of", "prevent"', '"prevent", "capital_of"')))
    for job in advance(stored):
        ledger.run_job(job.pk)
    [evaluation] = advance(stored)

    facts = {relation.name: relation.facts for relation in built_in_facts()}
    scored = evaluation.payload["relations"]
    assert [relation["name"] for relation in scored] == ["prevent", "capital_of"]
    assert [tuple(entities) for entities in scored[0]["facts"]] == list(facts["prevent"])


def test_harvested_prompts_are_those_of_the_study(run, study):
    text = STUDY.replace("[round]", '[[scores]]\nharvested = ["human"]\n[round]')
    study.write_text(text)
    run()
    newer = text.replace("max_tuples = 8", "max_tuples = 9").replace('"capitals"', '"capitals-2"')
    study.write_text(newer)
    run()
    study.write_text(text.replace("harvested =", "seed = 3\nharvested ="))
    run("run", "--yes")

    first = Study.objects.get(name="capitals")
    evaluation = ScoreEvaluation.objects.order_by("pk").last()
    ids = evaluation.payload["harvests"]["human"].values()
    assert set(ids) <= set(first.round.strata.values_list("job", flat=True))
    assert evaluation.payload["settings"] == []


def test_scores_do_not_wait_for_people(run, study):
    study.write_text(STUDY + '[[scores]]\nsettings = ["human"]\n')

    out = run()

    assert "Join link" in out
    assert (study.parent / "capitals-results" / "scores.svg").exists()
    assert states(Study.objects.get())["Judgments"] == "waiting"
    judge_all(Round.objects.get(), ["true"] * 12)
    run()
    assert set(states(Study.objects.get()).values()) == {"done"}
    [section] = study_of_round(Round.objects.get()).document["scores"]
    assert (section["settings"], section["facts"].keys()) == (["human"], {"capital_of", "prevent"})


def test_failed_evaluation_runs_again(run, scores, settings):
    runners = settings.JOB_RUNNERS
    settings.JOB_RUNNERS = runners | {"evaluate_scores": "tests.evaluation.studies.test_study_command.fail"}
    assert refusal(run) == "JobFailed"
    assert states(Study.objects.get())["Scores"] == "failed"
    assert "The LM is broken." in stages(Study.objects.get())[-1].text

    settings.JOB_RUNNERS = runners
    run()

    assert ScoreEvaluation.objects.get().status == Job.Status.SUCCEEDED


def test_queue_leaves_the_evaluation_to_workers(run, scores, enqueued):
    assert refusal(run, "run", "--queue") == "StudyWaits"
    assert refusal(run, "run", "--queue") == "StudyWaits"

    assert [job.pk for job in ScoreEvaluation.objects.all()] == enqueued


def test_report_writes_the_files_of_a_study_without_round(run, scores):
    run()
    (scores.parent / "curves-results" / "scores.md").unlink()

    assert "scores.md" in run("report").splitlines()[-1]


def test_plan_counts_scores_and_facts(run, scores):
    assert "scores scores: 2 scores of 4 facts" in run("plan")
    assert not ScoreEvaluation.objects.exists()


def test_pages_of_a_study_without_round(run, scores, researcher_client):
    run()
    stored = Study.objects.get()

    page = researcher_client.get(stored.get_absolute_url()).text

    assert ScoreEvaluation.objects.get().get_absolute_url() in page
    assert "study run" not in page
    assert stored.get_absolute_url() in researcher_client.get("/studies/").text


def test_changed_prompts_of_a_stored_relation_are_evaluated_again(run, scores):
    run()
    relation = Relation.objects.get(name="prevent")
    relation.prompts = relation.initial_prompts = ["<ENT0> averts <ENT1> ."]
    relation.save()

    run()

    newest = ScoreEvaluation.objects.order_by("pk").last()
    assert newest.payload["relations"][1]["prompts"] == relation.prompts
    assert ScoreEvaluation.objects.count() == 2
    assert "up to date" in run()


def test_written_default_and_added_judge_repeat_no_evaluation(run, study):
    study.write_text(f'{STUDY}[[scores]]\nsettings = ["human"]\n')
    run()

    study.write_text(f'{STUDY}[[scores]]\nsettings = ["human"]\nseed = 0\n{JUDGE.format("lm")}')
    run("run", "--yes")

    assert ScoreEvaluation.objects.count() == 1
    assert states(Study.objects.get())["Scores"] == "done"


def harvested_study(sections: str, scores: str = 'harvested = ["human", "multi"]') -> str:
    harvests = f"[[harvests]]{STUDY.partition('[[harvests]]')[2]}"
    return STUDY.replace(harvests, f"{sections}[[scores]]\n{scores}\n")


HARVEST = """[[harvests]]
models = ["embedded"]
settings = ["{}"]
relations = ["{}"]
max_tuples = 4
"""


def test_harvested_prompts_include_those_of_harvests_outside_the_sample(run, study):
    harvests = HARVEST.format("human", "capital_of") + HARVEST.format("multi", "capital_of")
    cell = '[round]\ncells = [{ relation = "capital_of", model = "embedded", setting = "human", n = 2 }]\n'
    study.write_text(harvested_study(harvests + cell))

    run()

    assert ScoreEvaluation.objects.get().payload["harvests"].keys() == {"human", "multi"}
    assert run("check")


def test_relations_must_be_harvested_in_all_settings(run, study):
    study.write_text(harvested_study(HARVEST.format("human", "capital_of") + HARVEST.format("multi", "prevent")))

    assert refusal(run, "check") == "BadStudy"


@pytest.mark.parametrize(
    ("name", "outputs", "path"),
    [
        ("report", "json", ("scores", 0, "name")),
        ("published", "md", ("scores", 0, "name")),
        ("report", "svg", None),
    ],
)
def test_names_of_other_files_are_refused(name, outputs, path):
    document = tomllib.loads(f'{STUDY}[[scores]]\nsettings = ["human"]\nname = "{name}"\noutputs = ["{outputs}"]\n')

    assert [fault.path for fault in faults_of(document)] == ([path] if path else [])


@pytest.mark.parametrize("score", ["nan", "inf", '"0.5"', "true", "1" + "0" * 400])
def test_scores_in_the_file_must_be_finite_numbers(score):
    added = f'systems = {{ comet = {{ capital_of = [[["oslo", "norway"], {score}]] }} }}\n'

    assert [fault.path for fault in faults_of(evaluation_of(STUDY, added))] == [("scores", 0, "systems")]


def test_scores_in_the_file_are_case_folded(run, scores):
    systems = 'systems = { comet = { capital_of = [[["Oslo", "NORWAY"], 1]] } }\nfacts ='
    scores.write_text(SCORES.replace("facts =", systems))

    run()

    assert ScoreEvaluation.objects.get().payload["systems"] == {"comet": {"capital_of": [[["oslo", "norway"], 1.0]]}}


def test_pages_read_all_evaluations_at_once_without_their_tuples(run, scores, django_assert_num_queries):
    scores.write_text(SCORES.replace("[published]", '[[scores]]\nname = "more"\nseed = 1\n[published]'))
    run()
    stored = Study.objects.get()

    with django_assert_num_queries(1) as captured:
        assert len(SECTION.existing_jobs(stored)) == 2
    assert "samples" not in captured[0]["sql"]


def test_tuples_of_older_evaluations_are_no_empty_file(run, scores):
    run()
    ScoreEvaluation.objects.update(samples=[])
    (scores.parent / "curves-results" / "scores.jsonl").unlink()

    run("report")

    assert not (scores.parent / "curves-results" / "scores.jsonl").exists()


@pytest.fixture
def exported_and_run(run, study, tmp_path):
    """Function that evaluates scores here and with the exported file, which contains the set; returns the payloads."""

    def exported_and_run(scores: str) -> list[dict]:
        study.write_text(harvested_study(HARVEST.format("human", "capital_of"), scores))
        run()
        path = tmp_path / "elsewhere.toml"
        path.write_text(toml_of(file_of_study(Study.objects.get()).document | {"name": "elsewhere"}))
        call_command("study", "run", str(path))
        return [evaluation.payload for evaluation in ScoreEvaluation.objects.order_by("pk")]

    return exported_and_run


def scored_facts(payload: dict) -> list[tuple]:
    return [(relation["name"], relation["facts"]) for relation in payload["relations"]]


def test_exported_scores_name_the_written_relations(exported_and_run):
    """The set is written out, because the texts of its relations are not the packaged ones."""
    here, elsewhere = exported_and_run(
        'settings = ["human"]\n'
        'facts = { "demo/prevent" = [["lock", "theft"]], prevent = [["roof", "rain"]] }\n'
        'systems = { comet = { "demo/prevent" = [[["lock", "theft"], 1]], prevent = [[["lock", "theft"], 2]] } }\n'
    )

    assert scored_facts(here) == scored_facts(elsewhere) == [("prevent", [["lock", "theft"], ["roof", "rain"]])]
    assert elsewhere["relations"][0]["path"] == "elsewhere/prevent"
    assert elsewhere["systems"] == {"comet": {"prevent": [[["lock", "theft"], 1]]}}  # set/name takes precedence


def test_exported_scores_contain_the_built_in_facts_of_written_relations(exported_and_run):
    here, elsewhere = exported_and_run('settings = ["human"]\n')

    assert [name for name, _ in scored_facts(here)] == ["capital_of", "prevent"]
    assert scored_facts(here) == scored_facts(elsewhere)
