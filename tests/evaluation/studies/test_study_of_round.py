"""Study files of rounds: a downloaded file reproduces the harvests and the sample in another project."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random

import pytest
from django.core.management import call_command

from annotation.judging.simulation import fill_with_simulated_judgments
from annotation.models import Round
from annotation.rounds.services import create_draft, open_draft, open_round
from evaluation.models import Study
from evaluation.studies.export import file_of_study, study_of_round
from evaluation.studies.files import read_study
from evaluation.studies.schema import entry_of
from evaluation.studies.services import import_study_relations, store_study
from kgharvest.accounts.projects import create_project, default_project
from kgharvest.engine.types import HarvestParams
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import get_language_model
from kgharvest.harvests.runner import HarvestRequest, create_harvest_job
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, LanguageModel, Relation, RelationSet
from kgharvest.relations.services import load_shipped_sets
from tests.factories import make_judge_answer, make_judge_run, make_relation, make_relation_set, make_round

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
        other = harvested(
            make_relation("eats"), prompts=("<ENT0> eats <ENT1> .",), max_tuples=7, seed=3, order="consistency"
        )
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
    # Two seed tuples and 20 candidates look like noise. The file contains the confirmation.
    document = {"name": "clicked", "cells": [{"job": job.pk, "n": 4}], "seed": 5, "confirm_noise": True}
    round = open_round(document, project=default_project())

    other_round = run_elsewhere(downloaded(round, researcher_client, tmp_path), tmp_path)

    assert tuples(other_round) == tuples(round)
    assert sample(other_round) == sample(round)


def test_study_page_downloads_the_file(run, study, fake_harvests, researcher_client):
    run()
    round = Round.objects.get()

    page = researcher_client.get(round.study.get_absolute_url()).text
    response = researcher_client.get(f"/studies/{round.study.pk}/study.toml")

    document = tomllib.loads(b"".join(response.streaming_content).decode())
    assert document == study_of_round(round).document
    assert document | {"relations": []} == round.study.document | {"relations": []}
    assert [relation["name"] for relation in document["relations"]] == ["capital_of", "prevent", "currency_of"]
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

    document, _ = study_of_round(open_round({"name": "two", "cells": cells}, project=default_project()))

    assert [relation["name"] for relation in document["relations"]] == ["a-eats", "b-eats"]


def test_relation_that_changed_keeps_the_texts_of_its_harvest(fake_harvests):
    relation = make_relation("eats")
    job = harvested(relation)
    round = open_round({"name": "old", "cells": [{"job": job.pk, "n": 2}]}, project=default_project())
    Relation.objects.filter(pk=relation.pk).update(seed_tuples=[["a", "b"], ["c", "d"]])

    assert study_of_round(round).document["relations"][0]["seed_tuples"] == relation.seed_tuples


def test_negative_seed_tuples_of_a_harvest_are_written(fake_harvests):
    relation = make_relation("eats", negative_seed_tuples=[["a", "b"]])
    job = harvested(relation)
    round = open_round({"name": "old", "cells": [{"job": job.pk, "n": 2}]}, project=default_project())
    Relation.objects.filter(pk=relation.pk).update(negative_seed_tuples=[])

    [section] = study_of_round(round).document["relations"]

    assert section["negative_seed_tuples"] == [["a", "b"]]
    assert entry_of(section).columns()["negative_seed_tuples"] == [["a", "b"]]


def test_imported_tuples_cannot_be_reproduced(db):
    with pytest.raises(DomainError) as refusal:
        study_of_round(make_round())

    assert refusal.value.code == "NotReproducible"


# Rounds of studies


@pytest.fixture
def by_hand(study) -> RelationSet:
    """Set of relations that only this installation has. The study uses it instead of the set demo."""
    by_hand = make_relation_set("by-hand", project=default_project())
    for name in ("capital_of", "prevent"):
        texts = {"statement": f"<ENT0> {name} <ENT1>.", "prompts": [f"<ENT0> {name} <ENT1> ."]}
        make_relation(name, relation_set=by_hand, explanation=f"About {name}.", **texts)
    instructions = 'relation_instructions = { "by-hand/prevent" = "Judge with care." }'
    study.write_text(f"{study.read_text().replace('demo', 'by-hand')}{instructions}\n")
    return by_hand


@pytest.mark.parametrize("has_names", [True, False])
def test_study_of_a_set_made_by_hand_runs_in_another_installation(
    has_names, study, by_hand, run, fake_harvests, researcher_client, tmp_path
):
    """The set is missing there, and its texts have changed here since the harvests."""
    if not has_names:
        study.write_text(study.read_text().replace('names = ["capital_of", "prevent"]\n', ""))
    run()
    round = Round.objects.get()
    changed = {"seed_tuples": [["a", "b"], ["c", "d"]], "prompts": [], "statement": "<ENT1> and <ENT0>."}
    statements = dict(by_hand.relations.values_list("name", "statement"))
    by_hand.relations.update(**changed)
    make_relation("added_later", relation_set=by_hand)
    document = downloaded(round, researcher_client, tmp_path)
    RelationSet.objects.filter(pk=by_hand.pk).update(name="elsewhere")

    other_round = run_elsewhere(document, tmp_path)

    assert sample(other_round) == sample(round)
    assert {job.fingerprint for job in HarvestJob.objects.filter(strata__round=other_round)} == {
        job.fingerprint for job in HarvestJob.objects.filter(strata__round=round)
    }
    of_file = {relation["name"]: relation["statement"] for relation in document["relations"]}
    assert of_file.pop("currency_of") == "<ENT0> is the currency of <ENT1>."
    assert of_file == statements
    assert list(other_round.spec["relation_instructions"].values()) == ["Judge with care."]


def test_closing_date_of_an_open_round_is_left_out(study, run, fake_harvests):
    options = read_study(study)["round"]
    study.write_text(f'{study.read_text()}closes_when = "date"\ncloses_at = 2999-01-02T03:04:05Z\n')

    run()

    assert file_of_study(Study.objects.get()).document["round"] == options


def test_study_without_harvests_is_downloaded_with_the_present_texts(study, by_hand, researcher_client):
    stored = store_study(read_study(study))

    document = file_of_study(stored).document

    assert [relation.get("explanation") for relation in document["relations"]] == [
        "About capital_of.", "About prevent.", None,
    ]  # fmt: skip
    assert document["round"]["relation_instructions"] == {"prevent": "Judge with care."}


def test_built_in_set_is_named_if_its_harvests_used_the_packaged_texts(study, run, fake_harvests):
    Relation.objects.all().delete()
    load_shipped_sets()
    run()
    stored = Study.objects.get()

    assert file_of_study(stored).document == stored.document

    whole_set = {
        "relations": [{"set": "demo"}],
        "harvests": [stored.document["harvests"][0] | {"relations": ["prevent"]}],
    }
    unharvested = Study(document=stored.document | whole_set, project=stored.project)
    assert file_of_study(unharvested).document == unharvested.document

    Relation.objects.filter(name="prevent").update(explanation="An older release")
    names = [relation.get("name") for relation in file_of_study(stored).document["relations"]]
    assert names == ["capital_of", "prevent", "currency_of"]


# Parts that cannot be reproduced


def test_file_says_that_the_seed_of_simulated_labels_is_unknown(fake_harvests, researcher_client, tmp_path):
    cells = [{"job": harvested(Relation.objects.get(name="prevent")).pk, "n": 4}]
    round = open_round({"name": "simulated", "cells": cells, "source": "simulated"}, project=default_project())
    fill_with_simulated_judgments(round, lambda claim: 0.5, Random(3), n_annotators=4)

    document = downloaded(round, researcher_client, tmp_path)

    assert document["simulation"] == {"n_annotators": 4}
    [note] = study_of_round(round).notes
    assert "simulation.seed" in note
    text = (tmp_path / "simulated.toml").read_text()
    assert " ".join(note.split()) in " ".join(text.replace("\n# ", " ").split())


def test_round_with_the_strata_of_an_imported_judge_gives_a_valid_file(fake_harvests, researcher_client, tmp_path):
    job = harvested(Relation.objects.get(name="prevent"))
    cell = {"job": job.pk, "n": 6, "allocation": "optimal"}
    draft = create_draft({"name": "stratified", "cells": [cell], "judge": "imported"}, project=default_project())
    run = make_judge_run(draft, "imported", judge_kind="file")
    for harvested_tuple in job.tuples.all():
        make_judge_answer(run, harvested_tuple.knowledge_tuple, ["true", "false"][harvested_tuple.rank % 2])
    round = open_draft(draft)

    document = downloaded(round, researcher_client, tmp_path)

    assert "judge" not in document["round"]
    assert "judges" not in document
    [note] = study_of_round(round).notes
    assert "judge imported" in note
    assert run_elsewhere(document, tmp_path).n_tasks == 6
