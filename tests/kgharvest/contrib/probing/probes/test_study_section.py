"""Section `probes` of study files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from evaluation.models import Study
from evaluation.studies.export import file_of_study
from evaluation.studies.files import read_study
from evaluation.studies.outputs import published_tables
from evaluation.studies.schema import faults_of, json_schema
from evaluation.studies.services import store_study
from evaluation.studies.steps import advance, stages
from kgharvest.contrib.probing.models import Probe, ProbeRecord
from kgharvest.contrib.probing.probes.facts import split_facts, split_world
from kgharvest.contrib.probing.probes.services import document_of
from kgharvest.contrib.probing.probes.study_section import SECTION
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.models import Job, Relation
from tests.evaluation.studies.lama_files import FACTS
from tests.factories import make_relation, make_relation_set
from tests.kgharvest.contrib.probing.probes.probe_factories import make_record

pytestmark = pytest.mark.django_db

STUDY = """\
name = "known"
[[relations]]
set = "known"

[[probes]]
model = "embedded-small"
methods = ["majority", "manual"]
with_control = false

[published]
source = "The paper"
probes = [
    { method = "manual", model = "bert-base-cased", p1 = 0.25, source = "Table 1" },
    { method = "soft", p1 = 0.5 },
]
"""


@pytest.fixture
def study(tmp_path, enqueued) -> Path:
    """A study file with a probe of one relation."""
    prompt = "<ENT0> is the capital of <ENT1> ."
    make_relation(name="capital_of", relation_set=make_relation_set("known"), initial_prompts=[prompt])
    path = tmp_path / "known.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def run(study, capsys) -> Callable[..., str]:
    """Function that runs a verb of the command on the study and returns its output."""

    def run(verb: str = "run", *options: str) -> str:
        capsys.readouterr()
        call_command("study", verb, str(study), *options)
        return capsys.readouterr().out

    return run


def measure_half(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Store a P@1 of .5 for each method that has no record."""
    probe = job.probe
    for relation in probe.relations.all():
        for method in probe.methods:
            if not relation.records.filter(method=method).exists():
                make_record(relation, method, is_control=False)
    document = document_of(probe)
    return lambda: Probe.objects.filter(pk=probe.pk).update(document=document)


def fail(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    raise DomainError("Broken", "The LM is broken.")


@pytest.fixture
def fake_probes(settings) -> None:
    settings.JOB_RUNNERS = settings.JOB_RUNNERS | {"probe": f"{__name__}.measure_half"}


def refusal(call: Callable, *arguments: str) -> DomainError:
    with pytest.raises((DomainError, CommandError)) as refused:
        call(*arguments)
    return refused.value.__cause__ or refused.value


def test_study_prints_the_published_numbers_beside_ours(run, study):
    out = run()

    probe = Probe.objects.get()
    ours = {row["method"]: row["p1"] for row in probe.document["summary"]}
    table = next(iter(published_tables(Study.objects.get(), None)))
    assert [row.values[:5] for row in table.rows] == [
        ("manual", "bert-base-cased", "embedded-small*", 0.25, ours["manual"]),
        ("soft", "", "", 0.5, None),
        ("majority", "", "embedded-small*", None, ours["majority"]),
    ]
    assert table.rows[0].values[7] == pytest.approx(ours["manual"] - 0.25)
    assert ours["manual"] > 0.8  # the embedded LM was trained on these facts
    assert "Published: The paper." in out
    assert "Table 1" in (study.parent / "known-results" / "published.md").read_text()
    assert "Report" not in out


def test_split_is_drawn_with_the_seed_of_the_probe(run, study, fake_probes):
    study.write_text(STUDY.replace("with_control = false", 'with_control = false\nsplit = "extended"\nseed = 3'))

    run()

    facts = Probe.objects.get().relations.get().facts
    split = split_facts(split_world()["capital_of"], "extended", 3)
    assert {part: tuple(map(tuple, pairs)) for part, pairs in facts.items()} == split


def test_second_run_and_changed_published_numbers_probe_nothing(run, study, fake_probes):
    run()

    assert "up to date" in run()
    study.write_text(STUDY.replace("0.25", "0.75"))
    out = run("run", "--yes")

    assert Probe.objects.count() == 1
    assert "−25.0" in out


def test_probe_of_another_lm_than_the_published_one_stands_beside_it(run, study, fake_probes):
    study.write_text(
        f'{STUDY}\n[[probes]]\nmodel = "org/bert-base-cased"\nmethods = ["manual"]\nwith_control = false\n'
    )
    run()

    table = next(iter(published_tables(Study.objects.get(), None)))

    assert [row.values[:3] for row in table.rows] == [
        ("manual", "bert-base-cased", "bert-base-cased"),  # not that of the embedded LM
        ("soft", "", ""),
        ("majority", "", "embedded-small*"),
    ]


def test_status_plan_and_page_show_the_probes(run, study, fake_probes, researcher_client):
    assert "probe of embedded-small: 2 methods × 1 relation, facts: " in run("plan")
    assert not Probe.objects.exists()
    assert "1 relation, 1 probe" in run("check")
    run()

    assert "probe of" not in run("plan")
    assert "Probes     done         1 of 1 probe finished" in run("status")
    stored = Study.objects.get()
    assert [stage.name for stage in stages(stored)] == ["Relations", "Probes"]
    page = researcher_client.get(stored.get_absolute_url()).content.decode()
    assert f'href="{Probe.objects.get().get_absolute_url()}"' in page
    assert "Published and reproduced P@1" in page


def test_report_prints_the_results_if_there_are_some(run, study, fake_probes):
    store_study(read_study(study))
    assert refusal(run, "report").code == "NotFound"
    run()

    assert "Published and reproduced P@1" in run("report")


def test_killed_probe_continues_with_its_records(run, study, fake_probes):
    stored = store_study(read_study(study))
    [probe] = advance(stored)
    make_record(probe.relations.get(), "majority", is_control=False, p1=0.125)
    lost = timezone.now() - timedelta(hours=1)
    token = "7e9c0000-0000-4000-8000-000000000001"
    Job.objects.filter(pk=probe.pk).update(
        status=Job.Status.RUNNING, attempts=1, started_at=lost, lease_expires_at=lost, owner_token=token
    )

    run()

    assert Probe.objects.get().pk == probe.pk
    assert dict(ProbeRecord.objects.values_list("method", "p1")) == {"majority": 0.125, "manual": 0.5}


def test_failed_probe_runs_again(run, settings, fake_probes):
    runners = settings.JOB_RUNNERS
    settings.JOB_RUNNERS = runners | {"probe": f"{__name__}.fail"}
    assert refusal(run).code == "JobFailed"
    [stage] = [stage for stage in stages(Study.objects.get()) if stage.name == "Probes"]
    assert (stage.state, "The LM is broken." in stage.text) == ("failed", True)

    settings.JOB_RUNNERS = runners
    out = run()

    assert "The LM is broken. It starts again." in out
    assert Probe.objects.get().status == Job.Status.SUCCEEDED


def test_queue_leaves_the_probes_to_workers(run, enqueued):
    assert refusal(run, "run", "--queue").code == "StudyWaits"

    assert enqueued == [Probe.objects.get().pk]


def write_facts(folder: Path, facts: dict[str, list[tuple[str, str]]]) -> None:
    lines = [{"part": part, "sub": sub, "obj": obj} for part, pairs in facts.items() for sub, obj in pairs]
    (folder / "facts.jsonl").write_text("\n".join(map(json.dumps, lines)))


def test_changed_facts_are_probed_again(run, study, fake_probes):
    study.write_text(STUDY.replace("with_control", 'facts = "facts.jsonl"\nwith_control'))
    write_facts(study.parent, FACTS)
    run()
    first = Probe.objects.get()

    write_facts(study.parent, FACTS | {"test": [("Vienna", "Austria")]})
    run("run", "--yes")

    assert first.relations.get().facts["test"] == [["Berlin", "Germany"]]
    assert Probe.objects.get(pk__gt=first.pk).relations.get().facts["test"] == [["Vienna", "Austria"]]
    write_facts(study.parent, FACTS)
    run("run", "--yes")
    assert Probe.objects.count() == 2
    assert [job for _, job in SECTION.finished(Study.objects.get())] == [first]


def test_checksum_depends_on_names_and_options(tmp_path):
    """The names of files are the relations and parts of their facts."""
    entry = {"model": "embedded-small"}
    for folder, file in [("a", "eats.jsonl"), ("b", "likes.jsonl"), ("c", "eats.jsonl")]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text('{"template": "[X] is [Y]"}\n')

    def checksum(**options: str) -> str:
        return SECTION.with_files_read([entry | options], tmp_path)[0]["checksum"]

    assert checksum(prompts="a") == checksum(prompts="c")
    assert len({checksum(prompts="a"), checksum(prompts="b"), checksum(facts="a")}) == 3
    assert checksum(facts="a", prompts="b") != checksum(facts="b", prompts="a")


def test_moved_files_are_not_probed_again(run, study, fake_probes, tmp_path):
    study.write_text(STUDY.replace("with_control", 'facts = "facts.jsonl"\nwith_control'))
    write_facts(study.parent, FACTS)
    run()
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("facts.jsonl", study.name):
        (study.parent / name).rename(moved / name)

    call_command("study", "run", str(moved / study.name), "--yes")

    assert Probe.objects.count() == 1


def test_changed_prompts_of_a_stored_relation_are_probed_again(run, study, fake_probes):
    run()
    Relation.objects.update(initial_prompts=["<ENT0> governs <ENT1> ."], prompts=[])

    run()

    assert Probe.objects.count() == 2
    assert "up to date" in run()


def test_written_default_and_other_name_repeat_no_probe(run, study, fake_probes):
    run()

    study.write_text(STUDY.replace("with_control", 'name = "mine"\nrelations = []\nwith_control'))
    run("run", "--yes")

    assert Probe.objects.count() == 1


def test_facts_that_changed_after_the_file_was_read_are_refused(study, fake_probes):
    study.write_text(STUDY.replace("with_control", 'facts = "facts.jsonl"\nwith_control'))
    write_facts(study.parent, FACTS)
    stored = store_study(read_study(study))
    write_facts(study.parent, FACTS | {"test": [("Vienna", "Austria")]})

    with pytest.raises(DomainError, match=r"^probes\[0\]: facts") as refused:
        advance(stored)

    assert (refused.value.code, Probe.objects.count()) == ("BadStudy", 0)


def test_downloaded_file_names_its_files_without_paths_of_this_machine(study):
    study.write_text(STUDY.replace("with_control", 'facts = "facts.jsonl"\nwith_control'))
    write_facts(study.parent, FACTS)
    stored = store_study(read_study(study))
    path = stored.document["probes"][0]["facts"]

    file = file_of_study(stored)

    assert path == str(study.parent / "facts.jsonl")
    assert file.document["probes"] == tomllib.loads(study.read_text())["probes"]
    assert [note.split(":")[0] for note in file.notes] == ["probes[0].facts"]
    assert stored.document["probes"][0]["facts"] == path


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("with_control = false", 'facts = "nowhere"', "NoSuchFile"),
        ("with_control = false", 'words = "nowhere.txt"', "NoSuchFile"),
        ("with_control = false", 'relations = ["eats"]', "BadStudy"),
        ('"majority", "manual"', '"autoprompt"', "NotProbed"),
        ('model = "embedded-small"', 'model = "./nothing"', "NotFound"),
    ],
)
def test_check_names_the_probe_with_an_error(run, study, old, new, code):
    study.write_text(STUDY.replace(old, new).replace("with_control", "iterations = 2\nwith_control"))

    error = refusal(run, "check")

    assert error.code == code
    assert str(error).startswith("probes[0]")


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('"manual"]', '"manuel"]', ("probes", 0, "methods", 1)),
        ("with_control", "control", ("probes", 0, "control")),
        ("with_control = false", "epochs = 0", ("probes", 0, "epochs")),
        ("with_control = false", 'split = "thirds"', ("probes", 0, "split")),
        ("p1 = 0.25", "p1 = 25", ("published", "probes", 0, "p1")),
        ("[published]", "[simulation]\n[published]", ("simulation",)),
        (
            "probes = [",
            'rows = [{ setting = "human", accepted = 0.5, rejected = 0.5 }]\nprobes = [',
            ("published", "rows"),
        ),
        ("[published]", "[round]\nn = 5\n[published]", ("round",)),  # without harvests
    ],
)
def test_error_of_the_section_names_its_key(study, old, new, path):
    study.write_text(STUDY.replace(old, new))
    document = tomllib.loads(study.read_text())

    assert [fault.path for fault in faults_of(document)] == [path]


def test_published_numbers_need_their_section(study):
    document = tomllib.loads(STUDY)
    del document["probes"]
    document |= {"harvests": [{"models": ["embedded"], "settings": ["human"]}], "round": {"n": 5}}

    assert [fault.path for fault in faults_of(document)] == [("published", "probes")]


def test_documentation_lists_every_key_of_the_section():
    page = (Path(__file__).parents[5] / "docs" / "probing.md").read_text()
    entry, row = SECTION.entry(), SECTION.published_row()
    listed = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| `probes.")}

    assert {f"`probes.{key}`" for key in entry.fields} <= listed
    assert all(f"`{key}`" in page for key in row.fields)
    assert json_schema()["properties"]["probes"]["items"]["properties"].keys() == entry.fields.keys() - {"checksum"}


@pytest.mark.exhaustive
def test_small_version_of_lama_probing_ends_with_the_published_numbers(tmp_path, monkeypatch, capsys, enqueued):
    monkeypatch.chdir(tmp_path)

    call_command("study", "run", "lama-probing", "--small")

    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "embedded-small*" in line]
    assert [(row[0], row[3]) for row in rows[:4]] == [
        ("manual", ".31"),
        ("lpaqa-top1", ".34"),
        ("lpaqa", ".39"),
        ("autoprompt", ".43"),
    ]
    assert len(rows) == 10
    assert (tmp_path / "lama-probing-small-results" / "published.md").exists()
