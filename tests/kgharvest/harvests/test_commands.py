"""Commands to harvest, import, and export."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from dataclasses import replace

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line
from django.utils import timezone

from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, KnowledgeTuple, Relation
from tests import factories
from tests.kgharvest.jobs import slow_runner

pytestmark = pytest.mark.django_db


@pytest.fixture
def quick_harvest(settings, monkeypatch) -> None:
    """Harvest three fixed tuples without an LM."""
    settings.JOB_RUNNERS = {"harvest": "tests.kgharvest.jobs.slow_runner.run"}

    def run(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
        return lambda: slow_runner.runner.store_result(job.harvestjob, slow_runner.three_tuples(), None)

    monkeypatch.setattr(slow_runner, "run", run)


def test_harvest_queues_and_prints_the_numbers(capsys, enqueued):
    factories.make_relation("prevent")

    call_command("harvest", relation=["prevent"], model=["embedded"], setting=["human"])

    job = HarvestJob.objects.get()
    assert capsys.readouterr().out == f"{job.pk}\tprevent × embedded × human\n"
    assert enqueued == [job.pk]


def test_harvest_includes_all_relations_of_a_set(enqueued):
    relation_set = factories.make_relation_set("demo")
    for _ in range(3):
        factories.make_relation(relation_set=relation_set)

    call_command("harvest", set_name="demo")

    assert HarvestJob.objects.count() == len(enqueued) == 3


def test_harvest_waits_and_writes_the_tuples(quick_harvest, tmp_path, capsys):
    factories.make_relation("prevent")

    call_command("harvest", relation=["prevent"], wait=True, output=tmp_path / "out.jsonl")

    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["entities"] for row in rows] == [["dog", "swim"], ["bird", "fly"], ["cat", "climb"]]
    assert list(rows[0]) == ["relation", "model", "setting", "rank", "entities", "surface", "score", "mtl", "job"]
    out = capsys.readouterr().out
    assert "3 tuples of prevent × embedded × multi" in out
    assert "out.jsonl: 3 tuples." in out


def test_harvest_reports_excluded_tuples(quick_harvest, tmp_path, capsys):
    factories.make_relation("prevent")
    call_command("harvest", relation=["prevent"], wait=True)
    KnowledgeTuple.objects.filter(key__contains="bird").update(curation=KnowledgeTuple.Curation.HIDDEN)
    capsys.readouterr()

    call_command("harvest", relation=["prevent"], wait=True, output=tmp_path / "out.jsonl")

    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    assert "out.jsonl: 2 tuples; 1 hidden or sensitive tuple excluded" in capsys.readouterr().out


def test_repeated_harvest_writes_identical_bytes(quick_harvest, tmp_path):
    factories.make_relation("prevent")

    for name in ("first", "second"):
        call_command("harvest", relation=["prevent"], wait=True, again=True, output=tmp_path / name)

    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_failed_harvest_keeps_the_old_file(tmp_path, settings, monkeypatch):
    settings.JOB_RUNNERS = {"harvest": "tests.kgharvest.jobs.slow_runner.run"}

    def refuse(job, heartbeat):
        raise DomainError("RelationNotReady", "The LM is not at home; come back later.")

    monkeypatch.setattr(slow_runner, "run", refuse)
    factories.make_relation("prevent")
    (tmp_path / "out.jsonl").write_text("old")

    with pytest.raises(CommandError, match="failed: The LM is not at home; come back later"):
        call_command("harvest", relation=["prevent"], wait=True, output=tmp_path / "out.jsonl")

    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    assert (tmp_path / "out.jsonl").read_text() == "old"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "No relation selected. Use --relation"),
        ({"relation": ["nope"]}, "There is no relation 'nope'"),
        ({"set_name": "nope"}, "There is no relation set 'nope'. Existing sets: demo"),
        ({"relation": ["prevent"], "model": ["./nowhere/model"]}, "Model folder ./nowhere/model not found"),
        ({"relation": ["prevent"], "output": "x.jsonl"}, "--output needs --wait"),
        ({"relation": ["prevent"], "paraphraser": "chat"}, "chat paraphraser needs a model. Use --paraphraser-model"),
        (
            {"relation": ["prevent"], "paraphraser": "chat", "paraphraser_model": "m"},
            "needs a URL. Use --paraphraser-url",
        ),
        ({"relation": ["prevent"], "prompt": ["<ENT0> only"]}, "has 1 slots but the seed tuples have 2"),
        ({"relation": ["prevent"], "prompt": ["<ENT0> <ENT1> <ENT1>"]}, "the slot <ENT1> twice"),
    ],
)
def test_invalid_harvest_options_are_rejected_with_a_message(options, sentence, enqueued):
    factories.make_relation("prevent", relation_set=factories.make_relation_set("demo"))

    with pytest.raises(CommandError, match=sentence):
        call_command("harvest", **options)

    assert not HarvestJob.objects.exists()


@pytest.mark.parametrize("number", ["0", "1e3", "2147483648", "9" * 5000])
def test_a_huge_number_of_tuples_is_rejected_immediately(number):
    with pytest.raises(CommandError, match="is not an integer from 1 to 2,147,483,647"):
        call_command("harvest", "--relation=prevent", f"--max-tuples={number}")


def test_notices_of_a_harvest_name_its_job(quick_harvest, monkeypatch, capsys):
    result = replace(slow_runner.three_tuples(), notice="The list is short.", warning="Few may be true.")
    monkeypatch.setattr(slow_runner, "three_tuples", lambda: result)
    factories.make_relation("prevent")

    call_command("harvest", relation=["prevent"], wait=True)
    first = capsys.readouterr()
    call_command("harvest", relation=["prevent"], wait=True)
    repeated = capsys.readouterr()

    number = HarvestJob.objects.get().pk
    assert f"Job {number}: The list is short.\nJob {number}: Few may be true.\n" in first.err
    assert f"Job {number}: The list is short.\nJob {number}: Few may be true.\n" in repeated.err


def test_unknown_devices_and_dtypes_are_rejected():
    with pytest.raises(CommandError, match=r"Unknown device 'tpu'. Choose one of cpu, cuda, cuda:N, mps, or auto"):
        call_command("harvest", "--relation=prevent", "--device=tpu")
    with pytest.raises(CommandError, match="argument --dtype: invalid choice: 'int4'"):
        call_command("harvest", "--relation=prevent", "--dtype=int4")


def test_exported_tuples_can_be_imported(tmp_path, capsys):
    job = factories.make_harvest([["Dam", "flood"], ["mud", "fire"]])
    call_command("export_tuples", job=str(job.pk), cut="top:1")
    (tmp_path / "tuples.jsonl").write_text(capsys.readouterr().out)

    call_command(
        "import_tuples", tmp_path / "tuples.jsonl", relation=job.relation.path, model="elsewhere", setting="multi"
    )

    assert "1 tuple of" in capsys.readouterr().out
    assert HarvestJob.objects.get(origin="imported").tuples.get().surface == ["Dam", "flood"]


def test_a_malformed_tuple_file_names_the_line(tmp_path):
    relation = factories.make_relation()
    (tmp_path / "bad.jsonl").write_text('{"entities": ["a", "b"], "score": -1}\n{"entities": ["a"], "score": -1}\n')

    with pytest.raises(CommandError, match=r"bad\.jsonl: rejected because of an error in line 2: has no list of 2"):
        call_command("import_tuples", tmp_path / "bad.jsonl", relation=relation.path, model="x", setting="multi")


def test_import_relations_prints_the_contents_of_the_set(tmp_path, capsys):
    lines = '{"relation": "P36", "template": "The capital of [X] is [Y] ."}\n'
    (tmp_path / "capitals.jsonl").write_text(lines)

    call_command("import_relations", tmp_path / "capitals.jsonl")

    assert capsys.readouterr().out == "The set capitals has 1 relation.\n"


def test_exported_relations_can_be_imported(tmp_path, capsys):
    factories.make_relation("prevent", relation_set=factories.make_relation_set("mine"), explanation="Why.")

    call_command("export_relations", "mine", output=tmp_path / "mine.json")
    call_command("export_relations", "mine")

    assert capsys.readouterr().out == (tmp_path / "mine.json").read_text(encoding="utf-8")
    call_command("import_relations", tmp_path / "mine.json", set_name="again")
    assert Relation.objects.get(relation_set__name="again").explanation == "Why."
    with pytest.raises(CommandError, match=r"There is no relation set 'none'\. Existing sets: again, mine"):
        call_command("export_relations", "none")


def test_a_dry_run_prints_the_plan(capsys, enqueued):
    factories.make_relation("prevent")
    call_command("harvest", relation=["prevent"], setting=["human"])
    job = HarvestJob.objects.get()
    capsys.readouterr()

    call_command("harvest", relation=["prevent"], setting=["human", "multi"], dry_run=True)

    printed = capsys.readouterr()
    assert printed.out == (
        f"-\tprevent × embedded × multi\twould be harvested\n{job.pk}\tprevent × embedded × human\tqueued\n"
    )
    assert "1 of 2 cells to harvest, duration unknown" in printed.err
    assert HarvestJob.objects.count() == 1


def test_finished_harvests_are_repeated_only_on_request(quick_harvest, tmp_path, capsys):
    factories.make_relation("prevent")
    call_command("harvest", relation=["prevent"], wait=True)

    call_command("harvest", relation=["prevent"], wait=True, output=tmp_path / "out.jsonl")
    assert "harvested before. Use --again" in capsys.readouterr().out
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    assert HarvestJob.objects.count() == 1

    call_command("harvest", relation=["prevent"], wait=True, again=True)
    assert HarvestJob.objects.count() == 2


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("import_relations", tmp_path / "none.json")


def test_doctor_gives_advice_without_workers(capsys):
    with pytest.raises(CommandError, match="worker"):
        call_command("doctor")

    output = capsys.readouterr().out
    assert "ok  database" in output
    assert "BAD worker: no active worker, 0 unfinished jobs; start a worker with ./run worker" in output


def test_a_closed_pipe_is_not_an_error(tmp_path):
    job = factories.make_harvest([["a", "b"]])

    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError

    with (tmp_path / "stdout").open("w") as stdout, redirect_stdout(stdout):
        call_command("export_tuples", job=str(job.pk), stdout=Closed())

    assert (tmp_path / "stdout").read_text() == ""


def test_several_harvests_are_queued_atomically(enqueued):
    factories.make_relation("prevent")
    factories.make_relation("seedless", seed_tuples=[])

    with pytest.raises(CommandError, match="has 0 seed tuples"):
        call_command("harvest", relation=["prevent", "seedless"])

    assert not HarvestJob.objects.exists()


@pytest.mark.parametrize("model", ["x" * 300, "~nosuchuser/model"])
def test_an_unreadable_model_name_is_rejected_with_a_message(model):
    factories.make_relation("prevent")

    with pytest.raises(CommandError, match="Cannot read the model"):
        call_command("harvest", relation=["prevent"], model=[model])


def test_a_tuple_file_with_an_open_quote_names_the_line(tmp_path):
    factories.make_relation("prevent")
    path = tmp_path / "tuples.csv"
    path.write_text('entities,score\n"' + "x" * 200_000)

    with pytest.raises(CommandError, match=r"line \d+: is not CSV"):
        call_command("import_tuples", path, relation="prevent", model="m", setting="multi")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["harvest", "--setting", "blah"], "argument --setting: invalid choice: 'blah'"),
        (["harvest", "--max-tuples", "0"], "argument --max-tuples"),
        (["report", "--round", "r", "--format", "xyz"], "argument --format: invalid choice"),
        (["audit", "verify", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["study", "run"], "required: STUDY"),
    ],
)
def test_invalid_options_are_rejected_with_a_message(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as exited:
        execute_from_command_line(["manage.py", *arguments])

    message = capsys.readouterr().err.strip()
    assert exited.value.code == 1
    assert sentence in message
    assert message.endswith(f"see python manage.py {arguments[0]} --help")
    assert "\n" not in message


def test_wait_runs_a_queued_harvest_and_rejects_a_running_one(quick_harvest, enqueued, capsys):
    factories.make_relation("prevent")
    call_command("harvest", relation=["prevent"])
    job = HarvestJob.objects.get()

    call_command("harvest", relation=["prevent"], wait=True)
    job.refresh_from_db()
    assert (job.status, HarvestJob.objects.count()) == ("succeeded", 1)

    call_command("harvest", relation=["prevent"], again=True)
    running = HarvestJob.objects.latest("pk")
    ledger.claim(running.pk, timezone.now())
    with pytest.raises(CommandError, match=f"Job {running.pk} .*has the same parameters and is running"):
        call_command("harvest", relation=["prevent"], wait=True, again=True)
