"""Study files of rounds: a downloaded file reproduces the harvests and the sample in another project."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from django.core.management import call_command

from annotation.models import Round
from annotation.rounds.services import open_round
from evaluation.models import Study
from evaluation.studies.export import study_of_round
from evaluation.studies.files import read_study
from evaluation.studies.services import import_study_relations, store_study
from kgharvest.accounts.projects import create_project, default_project
from kgharvest.engine.types import HarvestParams
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import get_language_model
from kgharvest.harvests.runner import HarvestRequest, create_harvest_job
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, LanguageModel, Relation
from tests.factories import make_relation, make_relation_set, make_round

pytestmark = pytest.mark.django_db


def harvested(relation: Relation, setting: str = "human", prompts: tuple[str, ...] = (), **params) -> HarvestJob:
    """Harvest as a page or command does."""
    lm, chosen = get_language_model("embedded"), HarvestParams(**{"max_tuples": 12, **params})
    job = create_harvest_job(HarvestRequest(relation, lm, setting, chosen, prompts), project=default_project())
    ledger.run_job(job.pk)
    return HarvestJob.objects.get(pk=job.pk)


def downloaded(round: Round, client, tmp_path: Path) -> dict:
    """Download the study file of the round and read it; it asks for the project Other."""
    response = client.get(f"/projects/default/rounds/{round.name}/study.toml")
    path = tmp_path / f"{round.name}.toml"
    path.write_text('project = "Other"\n' + b"".join(response.streaming_content).decode())
    return read_study(path)


def run_elsewhere(document: dict, tmp_path: Path) -> Round:
    create_project("Other")
    call_command("study", "run", str(tmp_path / f"{document['name']}.toml"))
    return Round.objects.get(project__name="Other")


def sample(round: Round) -> list[tuple]:
    """Return position, statement, relation, setting, and rank of each draw."""
    draws = round.tasks.order_by("position", "draws__stratum").values_list(
        *("position", "statement", "draws__stratum__relation__name", "draws__stratum__setting"),
        *("draws__stratum__judge_label", "draws__harvested_tuple__rank"),
    )
    return list(draws)


def tuples(round: Round) -> list[tuple]:
    jobs = HarvestJob.objects.filter(strata__round=round).distinct().order_by("pk")
    columns = ("rank", "score", "knowledge_tuple__key", "surface")
    return [(job.relation.name, job.setting, list(job.tuples.values_list(*columns))) for job in jobs]


@pytest.mark.parametrize("is_uniform", [True, False])
def test_downloaded_file_gives_the_same_sample(is_uniform, fake_harvests, researcher_client, tmp_path):
    relations = [Relation.objects.get(name="prevent"), make_relation("sells", arity=3)]
    cells = [
        {"job": harvested(relation, setting).pk, "n": 5, "strata": 2}
        for relation in relations
        for setting in ("human", "multi")
    ]
    if not is_uniform:
        other = harvested(make_relation("eats"), prompts=("<ENT0> eats <ENT1> .",), max_tuples=7, seed=3)
        cells = [{"job": other.pk, "n": None, "cut": "top:5"}, *reversed(cells)]
        cells[1] |= {"n": 4, "strata": None}
    options = {"seed": 11, "judgments_per_task": 2, "takes_guests": True, "limits": {"gold_accuracy": 0.7}}
    round = open_round({"name": "clicked", "cells": cells, **options}, project=default_project())
    document = downloaded(round, researcher_client, tmp_path)

    other_round = run_elsewhere(document, tmp_path)

    assert ("cells" in document["round"]) == (not is_uniform)
    assert [relation["name"] for relation in document["relations"]] == list(
        dict.fromkeys(stratum.relation.name for stratum in round.strata.order_by("pk"))
    )
    assert sample(other_round) == sample(round)
    assert {job.fingerprint for job in HarvestJob.objects.filter(strata__round=other_round)} == {
        job.fingerprint for job in HarvestJob.objects.filter(strata__round=round)
    }
    assert other_round.spec | {"cells": []} == round.spec | {"cells": []}


def test_downloaded_file_gives_the_same_tuples(settings, enqueued, researcher_client, tmp_path):
    relation = make_relation(
        "capital_of",
        statement="<ENT0> is the capital of <ENT1>.",
        initial_prompts=["<ENT0> is the capital of <ENT1> ."],
        seed_tuples=[["paris", "france"], ["rome", "italy"]],
    )
    job = harvested(relation, candidates=20, max_entity_tokens=1)
    round = open_round({"name": "clicked", "cells": [{"job": job.pk, "n": 4}], "seed": 5}, project=default_project())

    other_round = run_elsewhere(downloaded(round, researcher_client, tmp_path), tmp_path)

    assert tuples(other_round) == tuples(round)
    assert sample(other_round) == sample(round)


def test_study_page_downloads_the_file(run, study, fake_harvests, researcher_client):
    run()
    round = Round.objects.get()

    page = researcher_client.get(round.study.get_absolute_url()).text
    response = researcher_client.get(f"/studies/{round.study.pk}/study.toml")

    document = tomllib.loads(b"".join(response.streaming_content).decode())
    assert document == round.study.document == study_of_round(round)
    assert f"/join/{round.join_token}/" in page
    assert "3 of 3 harvests finished" in page
    assert round.study.get_absolute_url() in researcher_client.get("/studies/").text
    assert round.study.get_absolute_url() in researcher_client.get(round.get_absolute_url()).text


def test_page_of_a_new_study_has_no_harvests(study, fake_harvests, researcher_client):
    stored = store_study(read_study(study))

    page = researcher_client.get(stored.get_absolute_url()).text
    assert "Not imported yet" in page
    assert "0 of" not in page


@pytest.mark.parametrize("harvest", [{"models": ["someone/lm", "./folder"]}, {"unknown": 1}, {"models": "embedded"}])
def test_page_plans_nothing(harvest, study, fake_harvests, researcher_client):
    stored = store_study(read_study(study))
    import_study_relations(stored)
    Study.objects.update(document=stored.document | {"harvests": [stored.document["harvests"][0] | harvest]})

    page = researcher_client.get(stored.get_absolute_url())

    assert page.status_code == 200
    assert "Not queued yet" in page.text
    assert not LanguageModel.objects.exists()
    assert "./folder" not in page.text


def test_relations_of_one_name_get_the_names_of_their_sets(fake_harvests):
    jobs = [harvested(make_relation("eats", relation_set=make_relation_set(name))) for name in ("a", "b")]
    cells = [{"job": job.pk, "n": 2} for job in jobs]

    document = study_of_round(open_round({"name": "two", "cells": cells}, project=default_project()))

    assert [relation["name"] for relation in document["relations"]] == ["a-eats", "b-eats"]


def test_relation_that_changed_keeps_the_texts_of_its_harvest(fake_harvests):
    relation = make_relation("eats")
    job = harvested(relation)
    round = open_round({"name": "old", "cells": [{"job": job.pk, "n": 2}]}, project=default_project())
    Relation.objects.filter(pk=relation.pk).update(seed_tuples=[["a", "b"], ["c", "d"]])

    assert study_of_round(round)["relations"][0]["seed_tuples"] == relation.seed_tuples


def test_imported_tuples_cannot_be_reproduced(db):
    with pytest.raises(DomainError) as refusal:
        study_of_round(make_round())

    assert refusal.value.code == "NotReproducible"
