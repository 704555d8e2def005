"""Pages and API of the KG import."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from kgharvest.accounts.tokens import create_token
from kgharvest.contrib.knowledge_graphs.imports.kg_import import (
    delete_expired_uploads,
    import_upload,
    staged_upload,
)
from kgharvest.contrib.knowledge_graphs.imports.mapping import new_target
from kgharvest.contrib.knowledge_graphs.models import LIFETIME, UploadedKG
from kgharvest.models import HarvestJob
from tests import factories
from tests.kgharvest.contrib.knowledge_graphs.kg_factories import make_uploaded_kg
from tests.refusals import refused

pytestmark = pytest.mark.django_db
KG = "Ada\tborn\tLondon\nAlan\tborn\tMaida Vale\nAda\tknows\tAlan\n"


@pytest.fixture
def researcher(client):
    user = factories.make_researcher()
    client.force_login(user)
    return user


def upload_file(client, content: str = KG, **fields):
    file = SimpleUploadedFile("kg.tsv", content.encode())
    return client.post("/harvests/import/", {"file": file, "system": "GPTKB", "file_format": "auto", **fields})


def test_file_is_mapped_previewed_and_imported(client, researcher):
    relation = factories.make_relation("knows", relation_set=factories.make_relation_set("own"))
    mapping = upload_file(client)["Location"]

    page = client.get(mapping).content.decode()
    assert 'value="own/knows"' in page  # same name as the relation in the file
    fields = {"relation_0": "", "template_0": "[HEAD] was born in [TAIL].", "relation_1": "own/knows", "template_1": ""}

    preview = client.post(mapping, {**fields, "preview": "1"}).content.decode()
    assert "<b><bdi>Alan</bdi></b> was born in <b><bdi>Maida Vale</bdi></b>." in preview
    assert not HarvestJob.objects.exists()

    result_page = client.post(mapping, fields, follow=True).content.decode()
    assert "3 tuples imported in 2 harvests." in result_page
    assert "Create round" in result_page
    assert [job.n_tuples for job in HarvestJob.objects.order_by("pk")] == [2, 1]
    assert HarvestJob.objects.order_by("pk").last().relation == relation
    assert not UploadedKG.objects.exists()
    harvest = client.get(HarvestJob.objects.first().get_absolute_url()).content.decode()
    assert "unscored (order of appearance)" in harvest
    assert "Scores by rank" not in harvest


def test_mapping_errors_are_shown_at_the_field_without_import(client, researcher):
    mapping = upload_file(client)["Location"]

    page = client.post(mapping, {"relation_0": "made_up", "template_1": "[HEAD] knows."}).content.decode()

    assert "There is no relation" in page
    assert "must contain both [HEAD] and [TAIL]" in page
    assert "is mapped" in client.post(mapping, {"import": "1"}).content.decode()
    assert not HarvestJob.objects.exists()


def test_bad_file_is_rejected_with_its_lines(client, researcher):
    page = upload_file(client, "a\tb\tc\na\tb\n").content.decode()

    assert "line 2" in page
    assert not UploadedKG.objects.exists()


def test_expired_uploads_are_deleted(client, researcher):
    make_uploaded_kg(KG, uploaded_at=timezone.now() - LIFETIME)
    for _ in range(7):
        upload_file(client)

    assert UploadedKG.objects.count() == 5


def test_score_cut_of_unscored_harvest_reports_missing_scores(client, researcher):
    client.post(upload_file(client)["Location"], {"template_0": "[HEAD] was born in [TAIL]."})
    job = HarvestJob.objects.get()

    for cut in ("base:1", "score:-1", "precision:0.8"):
        assert "needs scores" in client.get(job.get_absolute_url(), {"cut": cut}).content.decode()
    assert "1 of 2" in client.get(job.get_absolute_url(), {"cut": "top:1"}).content.decode()
    rows = [json.loads(line) for line in b"".join(client.get(f"/harvests/{job.pk}/tuples.jsonl")).splitlines()]
    assert [row["score"] for row in rows] == [None, None]


def test_api_imports_with_a_mapping(client):
    user = factories.make_researcher()
    secret = create_token(user, "test", "write", 1, timezone.now()).secret
    mapping = json.dumps({"relations": {"born": {"template": "[HEAD] was born in [TAIL]."}}})
    body = {"file": SimpleUploadedFile("kg.tsv", KG.encode()), "name": "GPTKB", "mapping": mapping}

    answer = client.post("/api/v1/harvests/import-kg/", body, headers={"Authorization": f"Bearer {secret}"})

    assert answer.status_code == 201, answer.content
    assert answer.json() | {"launch": 0, "harvests": 0} == {
        "launch": 0, "harvests": 0, "n_tuples": 2, "n_repeated": 0, "n_left_out": 1,
    }  # fmt: skip


def test_further_slots_are_filled_by_entity_position(client, researcher):
    factories.make_relation("in_year", arity=3)
    line = {"relation": "in_year", "entities": ["Ada", "Alan", "1840"], "qualifiers": {"verdict": "accepted"}}
    mapping = upload_file(client, json.dumps(line))["Location"]

    client.post(mapping, {"relation_0": "in_year", "template_0": ""})

    assert HarvestJob.objects.get().tuples.get().surface == ["Ada", "Alan", "1840"]


@pytest.mark.parametrize("name", ["labels", f"{'知' * 100}.tsv"])
def test_any_file_name_is_accepted(client, researcher, name):
    files = {"file": SimpleUploadedFile(name, KG.encode()), "labels": SimpleUploadedFile("l", b"Ada\tLovelace\n")}
    mapping = client.post("/harvests/import/", {**files, "system": "GPTKB", "file_format": "auto"})["Location"]

    assert "Lovelace" in client.post(mapping, {"template_0": "[HEAD] met [TAIL].", "preview": "1"}).content.decode()


def test_invalid_score_is_rejected_with_its_line(client, researcher):
    page = upload_file(client, "head\trelation\ttail\tscore\nAda\tborn\tLondon\thigh\n").content.decode()

    assert "line 2, column 4" in page
    assert "is not a number" in page
    assert not UploadedKG.objects.exists()


def test_lone_surrogate_is_rejected_with_its_line(client, researcher):
    page = upload_file(client, '{"head": "Ada \\ud800", "relation": "knows", "tail": "Alan"}').content.decode()

    assert "line 1" in page


def test_second_import_of_an_upload_is_rejected(client, researcher):
    upload = make_uploaded_kg(KG)
    with staged_upload(upload) as staged:
        targets = {"born": new_target("born", "[HEAD] was born in [TAIL].")}
        import_upload(upload, staged, targets, researcher)

        with refused("ImportedAlready"):  # a second click while the first request is running
            import_upload(upload, staged, targets, researcher)

    assert HarvestJob.objects.count() == 1


def test_workers_delete_expired_files(researcher, settings):
    now = timezone.now()
    make_uploaded_kg(KG, uploaded_at=now - LIFETIME - timedelta(seconds=1))
    recent = make_uploaded_kg(KG, uploaded_at=now)

    assert "kgharvest.contrib.knowledge_graphs.imports.kg_import.delete_expired_uploads" in settings.PERIODIC_TASKS
    delete_expired_uploads(now)

    assert UploadedKG.objects.get() == recent
