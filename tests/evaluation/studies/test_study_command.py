"""The command `study`: stages, continuing, changed files, and files of the report."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from importlib import import_module

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from annotation.models import Annotator, Draw, JudgeRun, JudgmentTask, Round
from evaluation.models import Report, Study
from evaluation.studies.files import read_study
from evaluation.studies.services import changes, import_study_relations, plan_of, relations_of, store_study
from evaluation.studies.steps import advance, open_study_round, queue_harvests, stages
from kgharvest.accounts.projects import default_project
from kgharvest.errors import DomainError
from kgharvest.harvests.launches import Plan, start_launch
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, Launch, Project, Relation, RelationSet
from kgharvest.pages.number_format import share
from tests.factories import (
    join_round,
    judge,
    judge_all,
    make_project,
    make_relation,
    make_relation_set,
    make_round,
    make_user,
    next_batch,
)
from tests.fake_chat_endpoint import completion, serving

pytestmark = pytest.mark.usefixtures("fake_harvests")


def counts() -> dict[str, int]:
    models = (Study, Relation, HarvestJob, Round, JudgmentTask, Draw, Annotator, Report)
    return {model.__name__: model.objects.count() for model in models}


def refusal(call, *arguments) -> str:
    """Return the code of the error."""
    with pytest.raises((DomainError, CommandError)) as refused:
        call(*arguments)
    return getattr(refused.value.__cause__ or refused.value, "code", "")


def test_run_prints_warnings_of_harvests_once(run):
    run()
    job = HarvestJob.objects.latest("pk")
    job.summary["warning"] = "Few of the harvested tuples may be true."
    job.save()

    assert run().count(job.summary["warning"]) == 1


def states(study: Study) -> dict[str, str]:
    study.refresh_from_db()
    return {stage.name: stage.state for stage in stages(study)}


def test_one_command_leads_to_the_join_link(run):
    out = run()

    round = Round.objects.get()
    assert f"/join/{round.join_token}/" in out
    assert (round.name, round.status, round.source) == ("capitals", "open", "people")
    assert [stratum.sample_size for stratum in round.strata.all()] == [4, 4, 4]
    assert round.takes_guests
    assert Relation.objects.get(name="currency_of").path == "capitals/currency_of"


def test_second_run_changes_nothing(run):
    run()
    before = counts()

    run()

    assert counts() == before


def test_complete_round_gets_report_and_files(run, study):
    run()
    judge_all(Round.objects.get(), ["true"] * 9 + ["false"] * 3)

    out = run()

    report, folder = Report.objects.get(), study.parent / "capitals-results"
    assert Study.objects.get().report == report
    assert f"/reports/{report.pk}/" in out
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json"]
    assert json.loads((folder / "report.json").read_text())["n_complete"] == 12
    written = (folder / "report.html").stat().st_mtime_ns
    assert "up to date" in run()
    assert (folder / "report.html").stat().st_mtime_ns == written
    assert Report.objects.count() == 1


def test_package_is_written_if_its_app_is_installed(run, study, settings):
    run()
    judge_all(Round.objects.get(), ["true"] * 12)
    study.write_text(study.read_text() + '[report]\noutputs = ["report.csv", "pack.zip"]\n')

    if "publishing" in settings.CONTRIB_APPS:
        run("run", "--yes")
        assert zipfile.is_zipfile(study.parent / "capitals-results" / "pack.zip")
    settings.REPORT_OUTPUTS = {"pack.zip": "evaluation.studies.outputs.refuse_pack"}
    (study.parent / "capitals-results" / "pack.zip").unlink(missing_ok=True)
    assert refusal(run, "run", "--yes") == "AppNotInstalled"
    assert (study.parent / "capitals-results" / "report.csv").exists()


PUBLISHED = '[published]\nsource = "{}"\nrows = [{{ setting = "human", accepted = 0.6, rejected = 0.2 }}]\n'
JUDGE = '[[judges]]\nname = "{}"\nkind = "score"\nmodel = "embedded-small"\nthreshold = -7.0\n'


@pytest.mark.parametrize(
    ("added", "is_new"),
    [
        ("[report]\nequivalence_margin = 7\n", True),
        (PUBLISHED.format("Table 3"), True),
        (JUDGE.format("one"), True),
        ('[report]\noutputs = ["report.json", "report.md"]\n', False),
    ],
)
def test_changed_report_options_give_a_new_report(run, study, added, is_new):
    run()
    judge_all(Round.objects.get(), ["true"] * 12)
    run()
    study.write_text(study.read_text() + added)

    run("run", "--yes")

    folder, report = study.parent / "capitals-results", Study.objects.get().report
    assert Report.objects.count() == 1 + is_new
    assert report == Report.objects.order_by("pk").last()
    assert json.loads((folder / "report.json").read_text())["created_at"] == report.document["created_at"]
    if "margin" in added:
        assert report.document["equivalence_margin"] == 0.07
    run()
    assert Report.objects.count() == 1 + is_new


def test_raised_limit_of_a_judge_keeps_the_report(run, study):
    text = study.read_text() + JUDGE.format("one")
    study.write_text(text)
    run()
    judge_all(Round.objects.get(), ["true"] * 12)
    run()
    study.write_text(f"{text}max_tokens_total = 9_000_000\n")

    run("run", "--yes")

    assert JudgeRun.objects.get().max_tokens_total == 9_000_000
    assert Report.objects.get() == Study.objects.get().report


def test_outdated_published_numbers_are_written_again(run, study):
    study.write_text(study.read_text() + PUBLISHED.format("Table 3"))
    run()
    judge_all(Round.objects.get(), ["true"] * 12)
    run()
    path = study.parent / "capitals-results" / "published.md"
    right = path.read_text()
    path.write_text(right.replace("Table 3", "Table 4"))

    assert "published.md" in run().splitlines()[-1]

    assert path.read_text() == right
    assert "up to date" in run()


def test_missing_file_is_written_again(run, study):
    run()
    judge_all(Round.objects.get(), ["true"] * 12)
    run()
    path = study.parent / "capitals-results" / "report.json"
    path.unlink()

    run()

    assert path.exists()


def test_report_of_an_incomplete_round_says_so_and_is_not_final(run):
    run()
    annotator = join_round(Round.objects.get(), make_user())
    for task in next_batch(annotator, timezone.now())[:5]:
        judge(annotator, task)

    out = run("report")

    assert "5 of 12" in out
    assert Study.objects.get().report is None


def test_status_lists_the_stages(run, study):
    assert refusal(run, "status") == "NotFound"
    stored = store_study(read_study(study))
    assert set(states(stored).values()) == {"not started", "done"}
    advance(stored)
    assert states(stored)["Harvests"] == "under way"

    run()

    assert states(stored) == {
        "Relations": "done",
        "Harvests": "done",
        "Round": "done",
        "LM judges": "done",
        "Judgments": "waiting",
        "Report": "not started",
    }
    assert re.findall(r"^(\w+)", run("status"), re.MULTILINE)[0] == "Relations"


def test_status_and_report_do_not_read_the_files_of_data(run, study):
    run()
    study.write_text(study.read_text() + '[[relations]]\nfile = "deleted.json"\n')

    assert "Round      done" in run("status")
    assert "0 of 12" in run("report")


def test_report_without_judgments_is_only_stored_with_store(run, study):
    run()

    run("report")
    assert not Report.objects.exists()
    assert (study.parent / "capitals-results" / "report.json").exists()
    run("report", "--store")
    assert Report.objects.get().document["n_judgments"] == 0


def test_check_and_plan_store_nothing(run):
    before = counts() | {"Project": Project.objects.count()}

    checked, planned = run("check"), run("plan")

    assert "3 relations, 3 harvests" in checked
    assert "statements: at most 12 (3 cells)" in planned
    assert "judgments: at most 12" in planned
    assert counts() | {"Project": Project.objects.count()} == before


def test_plan_after_the_harvests_gives_margins_of_each_cell(run, study):
    stored = store_study(read_study(study))
    for job in queue_harvests(stored):
        ledger.run_job(job.pk)

    out = run("plan")

    assert "statements: 12 (12 drawn, 0 of them shared between cells)" in out
    assert "4 of 8, +- " in out
    assert not Round.objects.exists()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('"prevent"', '"prevents"', "UnresolvedName"),
        ('models = ["embedded"]', 'models = ["./nothing"]', "NotFound"),
        ('settings = ["human"]', 'settings = ["human"]\nrelations = ["eats"]', "BadStudy"),
        ("n = 4", 'n = 4\ncells = [{ relation = "eats", model = "embedded", setting = "human" }]', "BadStudy"),
        ("n = 4", 'n = 4\nrelation_instructions = { eats = "Judge." }', "BadStudy"),
        ("n = 4", 'n = 4\nrelation_instructions = { prevent = "Judge." }', ""),
        ("n = 4", 'n = 4\ncloses_when = "date"\ncloses_at = 2020-01-02T03:04:05Z', "BadStudy"),
        ("n = 4", 'n = 4\nname = "taken"', "NameTaken"),
        ("[round]", '[report]\noutputs = ["pack.zip"]\n[round]', "AppNotInstalled"),
        ("[round]", "[small]\nround = { n = 0 }\n[round]", "ImportRefused"),
        ("[round]", '[small]\nrelations = [{ set = "demo", names = ["nothing"] }]\n[round]', "UnresolvedName"),
        ("[round]", "[small]\nround = { n = 1 }\n[round]", ""),
        ("[round]", "[simulation]\n[round]", ""),
    ],
)
def test_check_finds_errors_that_need_the_database(run, study, settings, old, new, code):
    make_round(name="taken")
    settings.REPORT_OUTPUTS = {"pack.zip": "evaluation.studies.outputs.refuse_pack"}
    study.write_text(study.read_text().replace(old, new))
    before = counts()

    if code:
        assert refusal(run, "check") == code
    else:
        assert "no errors" in run("check")  # currency_of is in the embedded LM's world
    assert counts() == before


@pytest.mark.parametrize(
    ("added", "code"),
    [
        ('[report]\noutputs = ["pack.zip"]\n', "AppNotInstalled"),
        ('[[scores]]\nharvested = ["top1"]\n', "BadStudy"),  # no harvest has this setting
    ],
)
def test_run_finds_errors_of_later_steps_before_the_harvests(run, study, settings, added, code):
    settings.REPORT_OUTPUTS = {"pack.zip": "evaluation.studies.outputs.refuse_pack"}
    study.write_text(study.read_text() + added)

    assert refusal(run) == code

    assert not HarvestJob.objects.exists()


def test_changed_file_is_shown_and_applied_with_yes(run, study, capsys):
    stored = store_study(read_study(study))
    advance(stored)
    study.write_text(study.read_text().replace("max_tuples = 8", "max_tuples = 9"))
    capsys.readouterr()

    assert refusal(run) == "StudyChanged"
    assert "harvests[0].max_tuples: 8 -> 9" in capsys.readouterr().out
    assert Study.objects.get().document["harvests"][0]["max_tuples"] == 8

    run("run", "--yes")

    assert sorted({stratum.population for stratum in Round.objects.get().strata.all()}) == [9]


@pytest.mark.parametrize(
    ("old", "new", "is_frozen"),
    [
        ("n = 4", "n = 5", True),
        ("max_tuples = 8", "max_tuples = 9", True),
        ('"prevent"', '"eats"', True),
        ("[round]", "[simulation]\n[round]", True),
        ("[round]", 'description = "x"\n[round]', False),
        ("takes_guests = true", 'takes_guests = true\n[report]\noutputs = ["report.md"]', False),
    ],
)
def test_frozen_parts_of_a_study_cannot_change(run, study, old, new, is_frozen):
    run()
    text = study.read_text().replace(old, new)
    if "description" in new:
        text = 'description = "x"\n' + study.read_text()
    study.write_text(text)

    if is_frozen:
        assert refusal(run, "run", "--yes") == "StudyFrozen"
    else:
        run("run", "--yes")
        assert Study.objects.get().document == tomllib.loads(text)


def test_judges_can_be_added_but_not_changed(run, study):
    judge = '[[judges]]\nname = "{}"\nkind = "score"\nmodel = "embedded-small"\nthreshold = {}\n'
    text = study.read_text()
    study.write_text(text + judge.format("one", -7.0))
    assert refusal(run, "run", "--queue") == "StudyWaits"  # for the harvests
    for job in HarvestJob.objects.all():
        ledger.run_job(job.pk)
    assert refusal(run, "run", "--queue") == "StudyWaits"  # for the judge
    assert [judged.name for judged in JudgeRun.objects.all()] == ["one"]

    study.write_text(text + judge.format("one", -8.0) + judge.format("two", -7.0))
    assert refusal(run, "run", "--queue", "--yes") == "StudyFrozen"
    study.write_text(text + judge.format("one", -7.0) + judge.format("two", -7.0))
    assert refusal(run, "run", "--queue", "--yes") == "StudyWaits"

    assert {judged.name for judged in JudgeRun.objects.all()} == {"one", "two"}


CHAT_JUDGE = """\
[[judges]]
name = "chat"
kind = "chat"
model = "gpt-x"
base_url = "{}"
prompt_price = {}
max_tokens_total = {}
"""


def test_judge_that_stopped_at_its_budget_continues_with_the_one_in_the_file(run, study):
    text = study.read_text()
    with serving(lambda body: completion("True")) as endpoint:
        study.write_text(text + CHAT_JUDGE.format(endpoint.url, 0, 700))
        assert refusal(run) == "JobFailed"
        stopped = JudgeRun.objects.get()
        assert stopped.is_out_of_budget

        study.write_text(text + CHAT_JUDGE.format(endpoint.url, 0, 1))
        assert refusal(run, "run", "--yes") == "BudgetTooSmall"
        study.write_text(text + CHAT_JUDGE.format(endpoint.url, 2, 1))
        assert refusal(run, "run", "--yes") == "StudyFrozen"
        assert refusal(run, "check") == "StudyFrozen"
        study.write_text(text + CHAT_JUDGE.format(endpoint.url, 0, 1_000_000))
        run("run", "--yes")

    continued = JudgeRun.objects.get()
    assert (continued.pk, continued.status, continued.max_tokens_total) == (stopped.pk, "succeeded", 1_000_000)
    assert continued.answers.count() == endpoint.n_answered


def test_limit_that_was_raised_on_the_page_is_kept(run, study):
    text = study.read_text()
    with serving(lambda body: completion("True")) as endpoint:
        study.write_text(text + CHAT_JUDGE.format(endpoint.url, 0, 700))
        assert refusal(run) == "JobFailed"
        JudgeRun.objects.update(max_tokens_total=1_000_000)

        run()

    assert (JudgeRun.objects.get().status, JudgeRun.objects.get().max_tokens_total) == ("succeeded", 1_000_000)


def test_changes_name_paths_and_values():
    old = {"a": [{"b": 1}, {"b": 2}], "c": "x"}
    new = {"a": [{"b": 1}, {"b": 3}], "d": [1]}

    assert list(map(str, changes(old, new))) == ["a[1].b: 2 -> 3", "c: x -> nothing", "d: nothing -> [1]"]


def test_failed_harvest_stops_the_run_and_runs_again(run, settings):
    runners = settings.JOB_RUNNERS
    settings.JOB_RUNNERS = runners | {"harvest": "tests.evaluation.studies.test_study_command.fail"}
    assert refusal(run) == "JobFailed"
    (failed,) = HarvestJob.objects.filter(status=Job.Status.FAILED)
    assert states(Study.objects.get())["Harvests"] == "failed"
    stage = stages(Study.objects.get())[1]
    assert "The LM is broken." in stage.text
    assert stage.links == [(str(failed), failed.get_absolute_url())]
    with pytest.raises(DomainError) as missing:
        open_study_round(Study.objects.get())
    assert missing.value.code == "HarvestMissing"

    settings.JOB_RUNNERS = runners
    out = run()

    assert "The LM is broken." in out
    assert Round.objects.get().status == "open"
    assert HarvestJob.objects.filter(status=Job.Status.FAILED).count() == 1


def fail(job, heartbeat):
    raise DomainError("Broken", "The LM is broken.")


def test_queue_leaves_the_harvests_to_workers(run, enqueued):
    assert refusal(run, "run", "--queue") == "StudyWaits"

    jobs = HarvestJob.objects.all()
    assert [job.status for job in jobs] == ["queued"] * 3
    assert sorted(enqueued) == sorted(job.pk for job in jobs)


def test_harvests_that_another_launch_has_just_queued_are_awaited(study, monkeypatch):
    def plan_before_another_launch(current: Study, by=None) -> Plan:
        plan = plan_of(current, by)
        start_launch(plan, by)
        return plan

    stored = store_study(read_study(study))
    monkeypatch.setattr("evaluation.studies.plan.plan_of", plan_before_another_launch)

    jobs = queue_harvests(stored)

    assert [job.unique_key for job in jobs] == stored.harvest_keys
    assert HarvestJob.objects.count() == len(jobs) == 3
    assert Launch.objects.count() == 1


def test_study_uses_finished_harvests_of_its_project(run, study):
    run()
    study.write_text(study.read_text().replace('"capitals"', '"capitals-2"').replace("n = 4", "n = 2"))

    run()

    # The relation that is written in the file belongs to another set, so it is harvested again.
    assert HarvestJob.objects.count() == 4


def test_relations_of_another_project_are_not_overwritten(run, study):
    run()
    study.write_text('project = "Other"\n' + study.read_text().replace("the currency", "a currency"))

    run()

    statements = {relation.path: relation.statement for relation in Relation.objects.filter(name="currency_of")}
    assert statements["capitals/currency_of"] == "<ENT0> is the currency of <ENT1>."
    assert statements["other-capitals/currency_of"] == "<ENT0> is a currency of <ENT1>."


def test_relations_made_by_hand_are_not_overwritten(run, study):
    by_hand = make_relation("currency_of", relation_set=make_relation_set("capitals", project=default_project()))

    run()
    study.write_text(study.read_text().replace("n = 4", "n = 3"))
    assert refusal(run, "run", "--yes") == "StudyFrozen"

    statements = {relation.path: relation.statement for relation in Relation.objects.filter(name="currency_of")}
    assert statements == {
        "capitals/currency_of": by_hand.statement,
        "default-capitals/currency_of": "<ENT0> is the currency of <ENT1>.",
    }


def test_changed_lists_show_the_items_that_differ():
    [change] = changes({"relations": [{"name": "a" * 80}]}, {"relations": [{"name": "a" * 80}, {"name": "b"}]})

    assert str(change) == "relations: [] -> [{'name': 'b'}]"


def test_complete_round_closes_before_the_report(run, study):
    study.write_text(study.read_text().replace("n = 4", 'n = 4\ncloses_when = "complete"'))
    run()
    judge_all(Round.objects.get(), ["true"] * 12)

    run()

    assert Round.objects.get().status == Round.Status.CLOSED
    assert Study.objects.get().report


@pytest.mark.parametrize(
    ("old", "new", "meant"), [('"demo"', '"demos"', "demo"), ('"embedded"', '"embeded"', "embedded")]
)
def test_check_suggests_the_name_of_a_set_or_lm_that_was_meant(run, study, old, new, meant):
    study.write_text(study.read_text().replace(old, new))

    with pytest.raises(CommandError) as refused:
        run("check")

    assert new.strip('"') in str(refused.value)
    assert meant in str(refused.value).replace(new.strip('"'), "")


def test_study_changes_the_relations_of_its_own_set(study):
    stored = store_study(read_study(study))
    import_study_relations(stored)
    RelationSet.objects.filter(name="capitals").update(name="renamed")
    study.write_text(study.read_text().replace("the currency", "a currency"))

    stored = store_study(read_study(study))
    import_study_relations(stored)

    assert [relation.path for relation in relations_of(stored)][-1] == "renamed/currency_of"
    assert Relation.objects.get(name="currency_of").statement == "<ENT0> is a currency of <ENT1>."


def test_study_without_a_free_set_name_is_refused(run):
    for name in ("capitals", "default-capitals"):
        make_relation_set(name, project=default_project())

    assert refusal(run, "check") == refusal(run) == "SetNameTaken"


def test_migration_links_studies_to_their_sets(study):
    document = read_study(study)
    demo_only = {"name": "demo-only", "project": "default", "relations": document["relations"][:1]}
    documents = (document, document | {"project": "Other"}, document | demo_only)
    studies = [store_study(document) for document in documents]
    names = ("capitals", "other-capitals", "demo-only")
    sets = [make_relation_set(name, project=of.project) for name, of in zip(names, studies, strict=True)]

    import_module("evaluation.migrations.0017_study_relation_set").link_sets(apps, None)

    assert [Study.objects.get(pk=of.pk).relation_set for of in studies] == [*sets[:2], None]


def test_simulated_study_ends_without_people(run, study):
    text = study.read_text().replace("judgments_per_task = 1", "judgments_per_task = 3")
    study.write_text(f"{text}[simulation]\nseed = 5\n")

    run()

    report = Report.objects.get()
    assert report.document["source"] == "simulated"
    assert report.document["n_judgments"] == 36


def test_studies_with_the_same_simulation_seed_can_share_an_installation(run, study):
    study.write_text(study.read_text() + "[simulation]\nseed = 5\n")
    run()
    study.write_text(study.read_text().replace('"capitals"', '"capitals-2"'))

    run()

    assert Report.objects.count() == 2


def test_published_numbers_are_printed_beside_those_of_the_study(run, study):
    human, multi = (f'{{ setting = "{name}", accepted = 0.6, rejected = 0.27 }}' for name in ("human", "multi"))
    study.write_text(f'{study.read_text()}[published]\nsource = "Table 3"\nrows = [{human}, {multi}]\n')
    run()
    judge_all(Round.objects.get(), (["true"] * 3 + ["false"]) * 3)

    out = run()

    human, multi = (line.split() for line in out.splitlines() if line.startswith(("human", "multi")))
    total = Report.objects.get().document["totals"][0]
    ours = f"{share(total['macro_accuracy'])} / {share(total['macro_rejection'])}"
    assert human[human.index("embedded*") + 1 :][:6] == f".60 / .27 {ours}".split()
    assert multi[-1] == "–"  # not harvested
    assert ".60 / .27" in (study.parent / "capitals-results" / "published.md").read_text()


def test_init_writes_a_study_that_runs(tmp_path, capsys):
    path = tmp_path / "first.toml"
    call_command("study", "init", str(path))

    document = read_study(path)

    assert document["name"] == "first"
    schema = json.loads((tmp_path / re.match(r"#:schema \./(.*)", path.read_text())[1]).read_text())
    assert schema["properties"]["round"]["properties"]["n"]["minimum"] == 1
    assert refusal(call_command, "study", "init", str(path)) == "FileExists"
    assert refusal(call_command, "study", "init", str(tmp_path / "two words.toml")) == "BadStudyFile"
    call_command("study", "check", str(path))


def test_viewer_cannot_start_a_study(study):
    assert refusal(store_study, read_study(study) | {"project": make_project().slug}, make_user()) in (
        "NotAllowed",
        "NameTaken",
    )


def test_study_without_project_is_found_when_there_are_more_projects(run, study):
    run()
    make_project("Other")
    before = counts()

    run()

    assert counts() == before
    study.write_text(study.read_text().replace('"capitals"', '"capitals-2"'))
    with pytest.raises(CommandError, match='Add `project = "default"`') as refused:
        run()
    assert refused.value.__cause__.code == "ProjectNotNamed"


def test_two_studies_of_one_name_need_the_project(run, study):
    text = study.read_text()
    store_study(read_study(study))
    study.write_text(f'project = "Other"\n{text}')
    store_study(read_study(study))

    study.write_text(text)

    assert refusal(run) == refusal(run, "status") == refusal(run, "check") == "ProjectNotNamed"
    study.write_text(f'project = "other"\n{text}')
    assert "Study capitals in project Other" in run("run", "--yes")


def test_round_is_not_opened_without_a_queued_harvest(study):
    stored = store_study(read_study(study))
    assert refusal(open_study_round, stored) == "HarvestMissing"
    *_, last = queue_harvests(stored)
    for job in HarvestJob.objects.exclude(pk=last.pk):
        ledger.run_job(job.pk)

    assert refusal(open_study_round, stored) == "HarvestMissing"
    assert not Round.objects.exists()


@pytest.fixture
def pauses(monkeypatch) -> list:
    """Functions to call instead of sleeping, one per pause. Their durations are appended to `pauses.seconds`."""

    class Pauses(list):
        def sleep(self, seconds: float) -> None:
            self.seconds.append(seconds)
            self.pop(0)()

    pauses = Pauses()
    pauses.seconds = []
    monkeypatch.setattr("evaluation.management.commands.study.time", pauses)
    return pauses


def test_waiting_for_people_ends_with_the_report(run, pauses):
    pauses += [lambda: None, lambda: judge_all(Round.objects.get(), ["true"] * 12)]

    out = run("run", "--wait")

    assert pauses.seconds == [5, 5]
    assert f"/reports/{Report.objects.get().pk}/" in out


@pytest.mark.parametrize("delete", [lambda: Study.objects.update(round=None), lambda: Study.objects.all().delete()])
def test_waiting_ends_if_the_round_or_the_study_is_deleted(delete, run, pauses):
    pauses.append(delete)

    assert refusal(run, "run", "--wait") == "NotFound"


def test_plan_is_printed_after_its_transaction(study):
    class Output:
        def write(self, text: str) -> None:
            depths.append(len(connection.savepoint_ids))

    depths, outside = [], len(connection.savepoint_ids)

    call_command("study", "plan", str(study), stdout=Output())

    assert set(depths) == {outside}


def test_opened_round_of_the_small_version_does_not_refuse_changes(run, study):
    text = study.read_text() + "[small]\nround = { n = 2 }\n"
    study.write_text(text)
    run("run", "--small")
    study.write_text(text.replace("max_tuples = 8", "max_tuples = 9"))

    assert "no errors" in run("check")
    assert refusal(run, "check", "--small") == "StudyFrozen"
