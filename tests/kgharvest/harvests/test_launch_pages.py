"""Launch pages: form, preview, progress, and list."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from django.urls import reverse
from django.utils import timezone

from kgharvest.engine.types import HarvestParams
from kgharvest.models import HarvestJob, Launch
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("installation_owner")]

NEW = "kgharvest:harvest_new"


def filled_in(**fields) -> dict:
    return {"models": ["embedded"], "settings": ["multi"], "candidates": 50, "max_entity_tokens": 1, **fields}


def make_launch(*statuses: str, **fields) -> Launch:
    launch = factories.make_launch()
    for status in statuses:
        factories.make_harvest_job(status, launch=launch, **fields)
    return launch


def test_more_than_a_thousand_relations_can_be_selected(researcher_client):
    many = range(1_000_000, 1_001_100)  # none of them exists

    response = researcher_client.post(reverse(NEW), filled_in(relations=many))

    assert response.status_code == 200
    assert response.context["form"].errors["relations"]


def test_one_harvest_is_queued_for_each_relation_lm_and_setting(researcher_client, researcher, enqueued):
    relations = [factories.make_relation(), factories.make_relation()]
    models = ["embedded", "embedded-small"]
    form = filled_in(relations=[relation.pk for relation in relations], models=models, settings=["human", "multi"])

    response = researcher_client.post(reverse(NEW), form)

    launch = Launch.objects.get()
    assert response.url == launch.get_absolute_url()
    cells = set(launch.jobs.values_list("relation", "language_model__name", "setting"))
    assert cells == set(product([relation.pk for relation in relations], models, ["human", "multi"]))
    assert set(launch.jobs.values_list("status", "created_by")) == {("queued", researcher.pk)}
    assert sorted(enqueued) == sorted(launch.jobs.values_list("pk", flat=True))


def test_worker_devices_are_offered_and_selection_is_used(researcher_client, enqueued):
    now = timezone.now()
    factories.make_worker(
        now, devices=["cuda:0, NVIDIA H200, 140 GiB", "cuda:1, NVIDIA H200, 140 GiB", "cpu, 16 cores"]
    )
    factories.make_worker(now - timedelta(hours=1), devices=["cuda:7, NVIDIA H200, 140 GiB"])  # inactive
    form = filled_in(relations=[factories.make_relation().pk], device="cuda:1", dtype="bfloat16")

    offered = researcher_client.get(reverse(NEW)).context["form"].fields["device"].choices
    researcher_client.post(reverse(NEW), form)

    assert [name for name, _ in offered] == ["cpu", "cuda", "cuda:0", "cuda:1", "auto"]
    payload = HarvestJob.objects.get().payload
    assert (payload["device"], payload["dtype"]) == ("cuda:1", "bfloat16")


def test_advanced_fields_are_folded_until_one_is_changed(researcher_client, enqueued):
    form = filled_in(relations=[factories.make_relation().pk])

    folded = '<details class="folded" data-part="advanced">'
    new = researcher_client.get(reverse(NEW)).content.decode()
    invalid = researcher_client.post(reverse(NEW), form | {"candidates": 0}).content.decode()
    preview = researcher_client.post(reverse(NEW), form | {"order": "consistency", "preview": 1}).content.decode()
    for order in ("", "consistency"):
        researcher_client.post(reverse(NEW), form | {"order": order})

    assert folded in new
    assert folded.replace(">", " open>") in preview
    assert folded.replace(">", " open>") in invalid
    params = [job.payload["spec"]["params"] for job in HarvestJob.objects.order_by("pk")]
    assert [sent.get("order") for sent in params] == [None, "consistency"]


def test_placement_is_collapsed_until_a_field_is_changed(researcher_client):
    folded = '<details class="folded" data-part="placement">'
    unfolded = '<details class="folded" data-part="placement" open>'
    factories.make_relation()

    assert folded in researcher_client.get(reverse(NEW)).content.decode()
    assert unfolded in researcher_client.post(reverse(NEW), filled_in(device="auto")).content.decode()


def test_lms_with_only_failed_harvests_are_not_offered(researcher_client):
    for name, statuses in {"good/lm": ("failed", "succeeded"), "slip/lm": ("failed", "failed")}.items():
        language_model = factories.make_language_model(name)
        for status in statuses:
            factories.make_harvest_job(status, language_model=language_model)

    offered = [name for name, _ in researcher_client.get(reverse(NEW)).context["form"].fields["models"].choices]

    assert "good/lm" in offered
    assert "slip/lm" not in offered


def test_launching_one_harvest_redirects_to_its_page(researcher_client, enqueued):
    response = researcher_client.post(reverse(NEW), filled_in(relations=[factories.make_relation().pk]))

    assert response.url == HarvestJob.objects.get().get_absolute_url()


def test_launching_a_set_skips_incomplete_relations(researcher_client, enqueued):
    relation_set = factories.make_relation_set()
    ready = [factories.make_relation(relation_set=relation_set) for _ in range(3)]
    factories.make_relation(relation_set=relation_set, seed_tuples=[])

    researcher_client.post(reverse(NEW), filled_in(sets=[relation_set.pk]))

    assert {job.relation for job in HarvestJob.objects.all()} == set(ready)


def test_a_preview_shows_the_plan_without_starting(researcher_client, enqueued):
    form = filled_in(relations=[factories.make_relation().pk, factories.make_relation().pk])

    page = researcher_client.post(reverse(NEW), {**form, "preview": "1"}).content.decode()

    assert "2 harvests</b>, duration unknown" in page
    assert "No past harvests of embedded × multi." in " ".join(page.split())
    assert "Start harvest" in page
    assert not HarvestJob.objects.exists()


def test_newest_relations_of_projects_are_offered_first(researcher_client):
    shipped = factories.make_relation(relation_set=factories.make_relation_set(is_shipped=True))
    mine = factories.make_relation_set()
    old, middle, new = (factories.make_relation(relation_set=mine) for _ in range(3))
    factories.make_relation(relation_set=mine, seed_tuples=[])

    def first(query: str = ""):
        form = researcher_client.get(reverse(NEW) + query).context["form"]
        return [(choice.relation, choice.is_chosen) for choice in form.first]

    assert first() == [(new, True), (middle, False)]
    assert first(f"?relation={old.pk}") == [(old, True), (new, False)]
    assert first(f"?relation={shipped.pk}") == [(new, False), (middle, False)]


def test_a_preview_estimates_the_harvests_with_past_durations(researcher_client, enqueued):
    embedded = factories.make_language_model("embedded")
    end = timezone.now()
    factories.make_harvest_job(
        "succeeded", language_model=embedded, started_at=end - timedelta(minutes=10), finished_at=end
    )
    form = filled_in(relations=[factories.make_relation().pk], settings=["multi", "human"], preview="1")
    form |= {"candidates": "", "max_entity_tokens": HarvestParams.max_entity_tokens}

    page = " ".join(researcher_client.post(reverse(NEW), form).content.decode().split())

    assert "2 harvests</b>, about 20 min" in page
    assert "No past harvests" not in page


def test_cells_launched_before_are_skipped_unless_repeated(researcher_client, enqueued):
    form = filled_in(relations=[factories.make_relation().pk])
    researcher_client.post(reverse(NEW), form)

    page = researcher_client.post(reverse(NEW), form).content.decode()
    assert "Nothing to launch: 1 cell skipped" in page
    assert "select Repeat finished harvests" in page
    assert HarvestJob.objects.count() == 1

    researcher_client.post(reverse(NEW), {**form, "again": "on"})
    assert HarvestJob.objects.count() == 1  # still unfinished
    HarvestJob.objects.update(status="succeeded")
    researcher_client.post(reverse(NEW), {**form, "again": "on"})
    assert HarvestJob.objects.count() == 2


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"relations": []}, "Choose at least one relation or set."),
        ({"models": []}, "Select at least one LM or enter an additional one."),
        ({"other_models": "/no/such/folder"}, "Model &#x27;/no/such/folder&#x27; not found"),
        ({"candidates": 0}, "greater than or equal to 1"),
        ({"device": "cuda:3"}, "cuda:3 is not one of the available choices"),
        ({"dtype": "int8"}, "Weights in int8 require an NVIDIA GPU"),
    ],
)
def test_invalid_input_is_reported_and_nothing_launched(researcher_client, enqueued, fields, sentence):
    form = filled_in(relations=[factories.make_relation().pk])

    page = researcher_client.post(reverse(NEW), {**form, **fields}).content.decode()

    assert sentence in page
    assert not HarvestJob.objects.exists()
    assert enqueued == []


def test_form_query_count_is_independent_of_relations(researcher_client, django_assert_num_queries):
    for _ in range(20):
        factories.make_relation()

    with django_assert_num_queries(6):  # session, user, group; LMs, devices of workers, relations
        page = researcher_client.get(reverse(NEW)).content.decode()

    assert page.count('name="relations"') == 22  # two of them are also offered first


def test_launch_page_query_count_is_independent_of_harvests(researcher_client, django_assert_max_num_queries):
    error = "The LM is not at home."
    launch = make_launch(
        *["queued"] * 20, *["failed"] * 10, error=error, language_model=factories.make_language_model()
    )

    with django_assert_max_num_queries(15):
        page = researcher_client.get(launch.get_absolute_url()).content.decode()
    with django_assert_max_num_queries(11):
        answer = researcher_client.get(reverse("kgharvest:launch_progress", args=[launch.pk])).json()

    assert page.count(error) == 10
    assert (answer["is_unfinished"], answer["n_over"], answer["n_jobs"], len(answer["jobs"])) == (True, 10, 30, 30)


def test_progress_endpoint_applies_the_status_filter(researcher_client):
    launch = make_launch("queued", "failed", "queued")

    answer = researcher_client.get(reverse("kgharvest:launch_progress", args=[launch.pk]), {"status": "failed"}).json()

    assert [job["status"] for job in answer["jobs"]] == ["failed"]


def test_launch_is_cancelled_and_retried_as_a_whole(researcher_client, enqueued):
    launch = make_launch("queued", "queued", "failed")

    page = researcher_client.post(reverse("kgharvest:launch_cancel", args=[launch.pk]), follow=True).content.decode()
    assert "2 harvests cancelled." in page
    page = researcher_client.post(
        reverse("kgharvest:launch_retry_failed", args=[launch.pk]), follow=True
    ).content.decode()
    assert "1 harvest queued again." in page
    assert sorted(launch.jobs.values_list("status", flat=True)) == ["cancelled", "cancelled", "queued"]

    page = researcher_client.post(
        reverse("kgharvest:launch_retry_cancelled", args=[launch.pk]), follow=True
    ).content.decode()
    assert "2 harvests queued again." in page
    assert set(launch.jobs.values_list("status", flat=True)) == {"queued"}


def test_cancelling_one_harvest_redirects_to_its_launch(researcher_client):
    launch = make_launch("queued", "queued")
    job = launch.jobs.first()

    response = researcher_client.post(reverse("kgharvest:harvest_cancel", args=[job.pk]), {"from_launch": "1"})

    assert response.url == launch.get_absolute_url()
    job.refresh_from_db()
    assert job.status == "cancelled"


@pytest.mark.parametrize("name", ["launch_cancel", "launch_retry_failed", "launch_retry_cancelled"])
def test_launch_actions_reject_get_requests(researcher_client, name):
    assert researcher_client.get(reverse(f"kgharvest:{name}", args=[make_launch("queued").pk])).status_code == 405


def test_annotators_cannot_see_launches(client):
    launch = make_launch("queued")
    client.force_login(factories.make_user())

    assert client.get(launch.get_absolute_url()).status_code == 403
    assert client.get(reverse("kgharvest:launch_progress", args=[launch.pk])).status_code == 403
    assert client.get(reverse("kgharvest:launch_list")).status_code == 403


def test_launch_list_counts_harvests_by_status(researcher_client, django_assert_num_queries):
    for _ in range(5):
        make_launch("queued", "failed", "succeeded", "cancelled")

    with django_assert_num_queries(5):  # session, user, group; count, launches
        response = researcher_client.get(reverse("kgharvest:launch_list"))

    launches = response.context["page_obj"]
    assert {(launch.n_jobs, launch.n_over, launch.n_failed, launch.n_cancelled) for launch in launches} == {
        (4, 3, 1, 1)
    }


def test_the_home_page_shows_unfinished_launches(researcher_client, django_assert_max_num_queries):
    lm = factories.make_language_model()
    launches = [make_launch(*["queued"] * 5, "failed", language_model=lm) for _ in range(3)]
    make_launch("succeeded", "failed")

    with django_assert_max_num_queries(40):
        page = researcher_client.get(reverse("home")).text

    positions = [page.index(f'href="{launch.get_absolute_url()}"') for launch in launches]
    assert positions == sorted(positions, reverse=True)
    assert page.count("0 of 6") == 3  # failed harvests are not progress
    assert page.count(">1 failed<") == 3


def test_large_launch_is_paginated(researcher_client, django_assert_max_num_queries):
    relation, lm = factories.make_relation(), factories.make_language_model()
    launch = make_launch(*["queued"] * 120, relation=relation, language_model=lm)

    with django_assert_max_num_queries(15):
        response = researcher_client.get(launch.get_absolute_url(), {"page": 3})

    assert len(response.context["page_obj"]) == 20


@pytest.mark.parametrize(("status", "heading"), [("cancelled", "Harvests: canceled"), ("unknown", "Harvests: unknown")])
def test_launch_page_names_the_status_of_its_filter(researcher_client, status, heading):
    page = researcher_client.get(f"{make_launch('cancelled').get_absolute_url()}?status={status}").text

    assert f"<h2>{heading}</h2>" in page
    assert "<dt>Canceled</dt>" in page
