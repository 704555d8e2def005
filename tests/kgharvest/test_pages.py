"""Pages for researchers: content, query counts, and access."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse
from django.utils import timezone

from kgharvest.models import HarvestJob, Job
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("installation_owner")]

PAIRS = [["seat belt", "injury"], ["Vaccine", "measles"]]


def harvest_page(job: HarvestJob) -> str:
    return reverse("kgharvest:harvest_detail", args=[job.pk])


def test_researchers_can_read_the_api_schema(client):
    client.force_login(factories.make_researcher())

    media_types = ("application/vnd.oai.openapi", "application/vnd.oai.openapi+json")
    yaml, as_json = (client.get(reverse("api_schema"), headers={"accept": accepted}) for accepted in media_types)

    assert "/api/v1/harvests/{id}/" in json.loads(as_json.content)["paths"]
    assert "/api/v1/harvests/{id}/" in yaml.text
    assert (yaml["Content-Type"], as_json["Content-Type"]) == media_types
    assert as_json["Content-Disposition"] == 'inline; filename="kgharvest.json"'


@pytest.mark.parametrize("name", ["relation_list", "harvest_list", "harvest_new"])
def test_annotators_cannot_see_researcher_pages(client, name):
    client.force_login(factories.make_user())

    response = client.get(reverse(f"kgharvest:{name}"))

    assert response.status_code == 403
    assert "for researchers" in response.content.decode()


def test_annotators_cannot_see_a_harvest_in_the_api(client):
    job = factories.make_harvest(PAIRS)
    client.force_login(factories.make_user())

    response = client.get(reverse("kgharvest:api_harvest", args=[job.pk]))

    assert response.status_code == 403
    assert response.json()["error"]["code"] == "PermissionDenied"


def test_visitors_are_sent_to_the_login(client):
    response = client.get(reverse("kgharvest:harvest_list"))

    assert response.url == "/accounts/login/?next=/harvests/"


def test_the_relation_list_costs_the_same_for_any_number_of_relations(researcher_client, django_assert_num_queries):
    for _ in range(20):
        factories.make_harvest_job()

    with django_assert_num_queries(6):  # session, user, group; count, relations, sets
        response = researcher_client.get(reverse("kgharvest:relation_list"))

    assert len(response.context["page_obj"]) == 20


def test_relations_are_found_by_name_and_statement(researcher_client):
    factories.make_relation("prevents")
    factories.make_relation("other", statement="<ENT0> prevents <ENT1>.", initial_prompts=["<ENT0> x <ENT1>"])
    factories.make_relation("helps")

    response = researcher_client.get(reverse("kgharvest:relation_list"), {"q": "PREVENT", "sort": "-name"})

    assert [relation.name for relation in response.context["page_obj"]] == ["prevents", "other"]


def test_the_harvest_list_costs_the_same_for_any_number_of_harvests(researcher_client, django_assert_num_queries):
    for _ in range(20):
        factories.make_harvest(PAIRS)

    with django_assert_num_queries(8):  # session, user, group; count, harvests, LMs, settings, a queued job
        response = researcher_client.get(reverse("kgharvest:harvest_list"))

    assert len(response.context["page_obj"]) == 20


def test_harvests_are_filtered_by_cell_and_status(researcher_client):
    failed = factories.make_harvest_job(Job.Status.FAILED)
    factories.make_harvest_job()

    response = researcher_client.get(reverse("kgharvest:harvest_list"), {"status": "failed", "setting": "multi"})

    assert list(response.context["page_obj"]) == [failed]


def test_a_harvest_shows_its_tuples_within_a_query_budget(researcher_client, django_assert_num_queries):
    job = factories.make_harvest(PAIRS)

    # session, user; job, prompts, omitted tuples, scores, curve, tuples, verdicts, rounds with samples of the job
    with django_assert_num_queries(10):
        page = researcher_client.get(harvest_page(job)).content.decode()

    assert "<b><bdi>Vaccine</bdi></b>" in page
    assert "<b><bdi>measles</bdi></b>" in page


def test_page_of_a_queued_harvest_mentions_a_missing_worker(researcher_client):
    job = factories.make_harvest_job()

    assert "No worker is running" in researcher_client.get(harvest_page(job)).content.decode()
    factories.make_worker(timezone.now())
    assert "No worker is running" not in researcher_client.get(harvest_page(job)).content.decode()


def test_api_returns_the_progress_of_a_harvest(researcher_client):
    job = factories.make_harvest_job(stage="search", done=3, total=10)

    answer = researcher_client.get(reverse("kgharvest:api_harvest", args=[job.pk])).json()

    assert (answer["stage"], answer["done"], answer["total"], answer["is_unfinished"]) == ("search", 3, 10, True)


def test_harvest_is_cancelled_with_one_button(researcher_client):
    job = factories.make_harvest_job()

    researcher_client.post(reverse("kgharvest:harvest_cancel", args=[job.pk]))

    job.refresh_from_db()
    assert job.status == Job.Status.CANCELLED


def test_cancelling_twice_is_explained(researcher_client):
    job = factories.make_harvest_job(Job.Status.CANCELLED)

    page = researcher_client.post(reverse("kgharvest:harvest_cancel", args=[job.pk]), follow=True).content.decode()

    assert "it has already ended" in page


def test_get_request_does_not_cancel_a_harvest(researcher_client):
    job = factories.make_harvest_job()

    assert researcher_client.get(reverse("kgharvest:harvest_cancel", args=[job.pk])).status_code == 405


def test_tuples_are_downloaded_best_first(researcher_client):
    job = factories.make_harvest(PAIRS)

    response = researcher_client.get(reverse("kgharvest:harvest_export", args=[job.pk, "jsonl"]), {"cut": "top:1"})

    assert [json.loads(line)["entities"] for line in response.getvalue().splitlines()] == [["seat belt", "injury"]]


def test_text_from_imported_files_is_escaped(researcher_client):
    relation = factories.make_relation(statement="<script>alert(1)</script> <ENT0> x <ENT1>")

    page = researcher_client.get(reverse("kgharvest:relation_detail", args=[relation.pk])).content.decode()

    assert "<script>alert" not in page
    assert '<code class="slot">&lt;ENT0&gt;</code>' in page


@pytest.mark.parametrize("address", ["/relations/?q=%00", "/harvests/?model=a%00", "/reports/?q=%00", "/join/%00/"])
def test_nul_in_a_url_is_rejected(researcher_client, address):
    assert researcher_client.get(address).status_code == 400
