"""The section `preregistration` of study files: frozen once, before the first judgment."""

from __future__ import annotations

import tomllib

import pytest
from django.core.management import call_command
from django.utils import timezone

from annotation.models import Round
from annotation.rounds.services import open_draft, open_round
from evaluation.models import Report, Study
from evaluation.studies import steps
from evaluation.studies.export import study_of_round
from evaluation.studies.files import read_study, toml_of
from evaluation.studies.services import store_study
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.services import freeze_preregistration
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob
from tests.evaluation.studies.conftest import STUDY
from tests.evaluation.studies.test_study_command import refusal, states
from tests.factories import join_round, judge, judge_all, make_user, next_batch
from tests.kgharvest.contrib.publishing.preregistration.planning import planned

pytestmark = pytest.mark.usefixtures("fake_harvests")

SIDES = 'first = { model = "embedded", setting = "multi" }\nsecond = { model = "embedded", setting = "human" }\n'
TEXTS = """\
primary_outcome = "Accuracy."
exclusion_rules = "Nobody."
stopping_rule = "All judged."
analysis = "As usual."
"""
PLANNED = f"""\
[preregistration]
{TEXTS}
[[preregistration.hypotheses]]
{SIDES}expects = "first"
"""
SETTINGS = STUDY.replace('["human"]', '["human", "multi", "top1"]')


@pytest.fixture
def planned_study(study):
    study.write_text(SETTINGS + PLANNED)
    return study


def test_plan_is_frozen_before_the_first_judgment_and_once(run, planned_study):
    out = run()
    run()

    frozen = Preregistration.objects.get()
    hypothesis = frozen.document["plan"]["hypotheses"][0]
    assert "Preregistration: Version 1" in out
    assert frozen.round == Study.objects.get().round
    assert frozen.frozen_at >= frozen.round.opened_at
    assert hypothesis["words"] == "embedded · multi is more accurate than embedded · human."
    assert frozen.document["plan"]["primary_outcome"] == "Accuracy."
    assert states(Study.objects.get())["Preregistration"] == "done"


def test_report_shows_the_comparison_as_planned_and_no_deviations(run, planned_study):
    run()
    judge_all(Round.objects.get(), ["true"] * 36)
    run()

    document = Report.objects.get().document
    assert document["preregistration"]["version"] == 1
    assert [entry["path"] for entry in document["preregistration"]["deviations"]] == ["stopping_rule"]  # not closed
    compared = {(entry["a"], entry["b"]): entry["planned"] for entry in document["comparisons"]}
    assert sorted(compared.values()) == [False, False, True]
    run()
    assert Preregistration.objects.count() == 1


@pytest.mark.parametrize("failing", ["open_draft", "freeze"])
def test_round_opens_with_its_preregistration_or_not_at_all(failing, run, planned_study, monkeypatch):
    class Killed(Exception):
        pass

    def killed(*arguments, **options):
        calls[failing](*arguments, **options)
        raise Killed

    calls = {"open_draft": open_draft, "freeze": freeze_preregistration}
    module = "kgharvest.contrib.publishing.preregistration.study_section.freeze_preregistration"
    with monkeypatch.context() as patched:
        patched.setattr("evaluation.studies.steps.open_draft" if failing == "open_draft" else module, killed)
        with pytest.raises(Killed):
            run()
    assert not Preregistration.objects.exists()
    assert not Round.objects.filter(status="open").exists()

    run()

    assert Preregistration.objects.count() == Round.objects.filter(status="open").count() == 1


def test_changed_plan_is_the_next_version_until_the_first_judgment(run, planned_study):
    first = planned_study.read_text()
    changed = first.replace("Accuracy.", "Rejection rate.")
    run()
    for text in (changed, first):
        planned_study.write_text(text)
        assert refusal(run) == "StudyChanged"
        run("run", "--yes")
    outcomes = [row.document["plan"]["primary_outcome"] for row in Preregistration.objects.order_by("version")]
    assert outcomes == ["Accuracy.", "Rejection rate.", "Accuracy."]
    annotator = join_round(Round.objects.get(), make_user())
    judge(annotator, next_batch(annotator, timezone.now())[0])

    planned_study.write_text(first.replace("Accuracy.", "Alpha."))
    assert refusal(run, "run", "--yes") == "StudyFrozen"
    planned_study.write_text(SETTINGS)
    assert refusal(run, "run", "--yes") == "StudyFrozen"
    planned_study.write_text(changed)  # a frozen version, for example after a change that was too late
    run("run", "--yes")

    assert Preregistration.objects.count() == 3


def test_plan_cannot_be_added_after_the_first_judgment(run, study):
    study.write_text(SETTINGS)
    run()
    annotator = join_round(Round.objects.get(), make_user())
    judge(annotator, next_batch(annotator, timezone.now())[0])
    study.write_text(SETTINGS + PLANNED)

    assert refusal(run, "run", "--yes") == "StudyFrozen"

    assert Study.objects.get().document == tomllib.loads(SETTINGS)


def test_frozen_plan_cannot_be_removed(run, planned_study):
    run()
    planned_study.write_text(SETTINGS)

    assert refusal(run, "run", "--yes") == "StudyFrozen"


def test_study_plan_prints_the_plan(run, planned_study):
    before, *_ = run("plan"), run(), run("plan")

    lines = [line.strip() for line in before.splitlines()]
    assert "preregistration: 1 hypothesis and 1 planned comparison, frozen before the first judgment" in lines
    assert "hypothesis: embedded · multi is more accurate than embedded · human." in lines
    assert "comparison: embedded · multi and embedded · human" in lines
    assert "stopping rule: All judged." in lines


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ('setting = "multi" }', 'setting = "soft" }', 24, "preregistration.hypotheses[0].first.setting"),
        (
            'second = { model = "embedded"',
            'second = { model = "gpt2"',
            25,
            "preregistration.hypotheses[0].second.model",
        ),
        ('expects = "first"', 'expects = "more"', 26, "preregistration.hypotheses[0].expects"),
        ('expects = "first"', 'expects = "alike"', 23, "preregistration.hypotheses[0].margin"),
        ('analysis = "As usual."', "", 17, "preregistration.analysis"),
        ('analysis = "As usual."', 'analyses = "As usual."', 17, "preregistration.analysis"),
        ('expects = "first"', 'expects = "first"\nwhy = "x"', 27, "preregistration.hypotheses[0].why"),
    ],
)
def test_error_names_line_and_key(old, new, line, key, planned_study):
    text = planned_study.read_text()
    assert old in text
    planned_study.write_text(text.replace(old, new, 1))

    with pytest.raises(ImportRefused) as refused:
        read_study(planned_study)

    entry = refused.value.entries[0]
    assert (entry.where, entry.reason.split()[0].rstrip(":")) == (f"line {line}", key)


def test_comparison_that_no_report_makes_is_refused_by_check(run, planned_study):
    """The sides share one relation only."""
    cells = [("prevent", "multi"), ("prevent", "human"), ("capital_of", "human")]
    rows = ", ".join(f'{{ relation = "{name}", model = "embedded", setting = "{way}" }}' for name, way in cells)
    planned_study.write_text(planned_study.read_text().replace("n = 4", f"n = 4\ncells = [{rows}]"))

    assert refusal(run, "check") == "BadPlan"


def test_preregistration_needs_a_round_and_its_app(planned_study, settings):
    document = tomllib.loads(planned_study.read_text()) | {"scores": [{}]}
    del document["round"]
    planned_study.write_text(toml_of(document))
    with pytest.raises(ImportRefused) as refused:
        read_study(planned_study)
    assert refused.value.entries[0].reason.startswith("preregistration needs a round")

    planned_study.write_text(SETTINGS + PLANNED)
    settings.STUDY_SECTIONS = []
    with pytest.raises(ImportRefused) as refused:
        read_study(planned_study)
    assert refused.value.entries[0].reason.startswith("preregistration needs the app publishing")


def test_judge_runs_before_the_round_opens_are_recorded(planned_study):
    """A round whose strata are a judge's labels is opened after the judge run."""
    judged = '[[judges]]\nname = "j"\nkind = "score"\nmodel = "embedded-small"\nthreshold = -7.0\n'
    text = planned_study.read_text().replace("n = 4", 'n = 4\njudge = "j"') + judged
    planned_study.write_text(text)
    stored = store_study(read_study(planned_study))
    for job in steps.advance(stored):
        ledger.run_job(job.pk)
    assert [job.name for job in steps.advance(stored)] == ["j"]

    assert not Preregistration.objects.exists()
    assert Round.objects.get().status == "draft"


def test_downloaded_file_of_a_preregistered_round_preregisters_its_copy(run, study, tmp_path):
    study.write_text(SETTINGS)
    run()
    jobs = HarvestJob.objects.order_by("pk")
    clicked = open_round({"name": "clicked", "cells": [{"job": job.pk, "n": 3} for job in jobs]})
    sides = {side: {"model": "embedded", "setting": way} for side, way in [("first", "multi"), ("second", "human")]}
    plan = planned(hypotheses=[sides | {"expects": "alike", "margin": 5}], comparisons=[])
    freeze_preregistration(clicked, plan, timezone.now())
    path = tmp_path / "clicked.toml"
    path.write_text('project = "Other"\n' + toml_of(study_of_round(clicked).document))

    call_command("study", "run", str(path))

    first, second = Preregistration.objects.order_by("pk")
    assert second.round.project.name == "Other"
    assert second.document["plan"] == first.document["plan"]


def test_downloaded_file_of_a_study_contains_a_later_preregistration(run, study):
    study.write_text(SETTINGS)
    run()
    freeze_preregistration(Round.objects.get(), planned(comparisons=[]), timezone.now())

    document = study_of_round(Round.objects.get()).document

    assert document["preregistration"]["primary_outcome"] == "Accuracy."
    stored = Study.objects.get().document
    assert document.keys() == stored.keys() | {"preregistration"}
    assert (document["harvests"], document["round"]) == (stored["harvests"], stored["round"])


def test_round_of_a_race_with_a_judgment_is_not_preregistered(run, planned_study):
    """A changed plan that was stored just before the first judgment is refused, and can be undone."""
    run()
    old = Study.objects.get().document
    new = old | {"preregistration": old["preregistration"] | {"analysis": "Another."}}
    store_study(new)
    annotator = join_round(Round.objects.get(), make_user())
    judge(annotator, next_batch(annotator, timezone.now())[0])
    with pytest.raises(DomainError) as refused:
        steps.advance(Study.objects.get())
    assert refused.value.code == "TooLate"

    assert refusal(run) == "StudyChanged"
    run("run", "--yes")

    assert Study.objects.get().document == old
    assert Preregistration.objects.count() == 1
