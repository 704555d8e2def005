"""Heads of harvests: files, command, API, stored parameters, and results."""

import json

import pytest
from django.core.management import CommandError, call_command

from kgharvest.engine.types import EngineError, HarvestParams
from kgharvest.errors import ImportRefused
from kgharvest.harvests.heads import read_heads
from kgharvest.harvests.runner import HarvestRequest, check_harvest, create_harvest_job, payload_of
from kgharvest.models import HarvestJob
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("name", "text", "heads"),
    [
        ("heads.txt", "paris\n\n  new   york \nparis\n", ("paris", "new york")),
        ("heads.txt", "washington, d.c.\n", ("washington, d.c.",)),
        ("heads.csv", 'paris,1\n"washington, d.c.",2\n', ("paris", "washington, d.c.")),
        ("heads.tsv", "paris\tfrance\nrome\titaly\n", ("paris", "rome")),
        ("heads.csv", 'city,country\n"new\nyork",usa\n', ("city", "new york")),
    ],
)
def test_file_of_heads(tmp_path, name, text, heads):
    (tmp_path / name).write_text(text)

    assert read_heads(tmp_path / name) == heads


@pytest.mark.parametrize(
    ("text", "reason"), [("\n", "has 0 heads, not 1 to 10,000"), ("a" * 201, "is too long or not printable")]
)
def test_bad_file_of_heads(tmp_path, text, reason):
    (tmp_path / "heads.txt").write_text(text)

    with pytest.raises(ImportRefused, match=reason):
        read_heads(tmp_path / "heads.txt")


def test_field_of_a_csv_file_that_is_too_long_is_refused_with_its_line(tmp_path):
    (tmp_path / "heads.csv").write_text(f'paris,1\n"{"a" * 131_073}"\n')

    with pytest.raises(ImportRefused, match="line 2: is not a row of a table"):
        read_heads(tmp_path / "heads.csv")


def test_payload_without_new_parameters_is_unchanged():
    request = HarvestRequest(factories.make_relation(), factories.make_language_model(), "human")

    assert not {"heads", "numbers", "min_score", "order"} & payload_of(request)["spec"]["params"].keys()


def test_chat_models_refuse_heads():
    relation, lm = factories.make_relation(), factories.make_language_model()

    with pytest.raises(EngineError, match="The setting llm cannot complete heads"):
        check_harvest(HarvestRequest(relation, lm, "llm", params=HarvestParams(heads=("paris",))))


def test_command_harvests_the_heads_and_names_those_without_tuple(tmp_path, capsys):
    relation_set = factories.make_relation_set("cities")
    relation = factories.make_relation(
        "capital_of",
        relation_set=relation_set,
        initial_prompts=["<ENT0> is the capital of <ENT1>."],
        prompts=[],
        seed_tuples=[["berlin", "germany"], ["rome", "italy"], ["madrid", "spain"]],
    )
    (tmp_path / "heads.txt").write_text("oslo\ntokyo\nbanana\n")
    options = {"relation": ["capital_of"], "model": ["embedded-small"], "setting": ["human"], "wait": True}

    call_command("harvest", heads=tmp_path / "heads.txt", max_tuples=1, min_score=-9.0, **options)

    job = HarvestJob.objects.get(relation=relation)
    assert [row.surface for row in job.tuples.all()] == [["oslo", "norway"], ["tokyo", "japan"]]
    assert job.summary["null_heads"] == ["banana"]
    assert "No tuple was found for 1 of 3 heads: banana." in capsys.readouterr().err
    assert job.payload["spec"]["params"]["heads"] == ["oslo", "tokyo", "banana"]
    # The same heads are skipped, other heads are not.
    call_command("harvest", heads=tmp_path / "heads.txt", max_tuples=1, min_score=-9.0, **options)
    assert "harvested before" in capsys.readouterr().out
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("harvest", heads=tmp_path / "missing.txt", **options)


def test_launch_in_the_api_takes_heads(client, enqueued):
    researcher = factories.make_researcher()
    relation = factories.make_relation()
    client.force_login(researcher)
    body = {"relations": [relation.pk], "models": ["embedded"], "settings": ["human"]}
    options = {"heads": ["paris", "oslo"], "numbers": True, "min_score": -7.5, "max_tuples": 3}

    response = client.post("/api/v1/launches/", json.dumps(body | options), content_type="application/json")

    assert response.status_code == 202, response.content
    params = HarvestJob.objects.get().payload["spec"]["params"]
    assert {name: params[name] for name in options} == options
    assert params["candidates"] is None


def test_heads_with_order_by_consistency_are_refused(client, enqueued, tmp_path):
    client.force_login(factories.make_researcher())
    relation = factories.make_relation("capital_of")
    body = {"relations": [relation.pk], "models": ["embedded"], "settings": ["human"], "heads": ["paris"]}

    response = client.post(
        "/api/v1/launches/", json.dumps(body | {"order": "consistency"}), content_type="application/json"
    )

    assert response.status_code in (400, 409), response.content
    assert "does not support heads" in response.json()["error"]["message"]
    (tmp_path / "heads.txt").write_text("paris\n")
    with pytest.raises(CommandError, match="does not support heads"):
        call_command("harvest", relation=["capital_of"], heads=tmp_path / "heads.txt", order="consistency")
    assert not HarvestJob.objects.exists()


def test_jobs_with_other_heads_can_be_queued_together(enqueued):
    relation, lm = factories.make_relation(), factories.make_language_model()

    for head in ("paris", "rome"):
        create_harvest_job(HarvestRequest(relation, lm, "human", params=HarvestParams(heads=(head,))))

    assert HarvestJob.objects.count() == 2
