"""List pages: filters, search, sorting, and hand-written query strings."""

from __future__ import annotations

import pytest

from tests.factories import make_harvest_job, make_member, make_project, make_relation

pytestmark = pytest.mark.django_db
HARVESTS = "/harvests/"


def shown(client, **query) -> set[str]:
    response = client.get(HARVESTS, query)
    assert response.status_code == 200
    return {job.relation.name for job in response.context["page_obj"]}


@pytest.fixture
def harvests():
    return [
        make_harvest_job(relation=make_relation(name), project=make_project(name), status=status)
        for name, status in (("helps", "succeeded"), ("hinders", "failed"))
    ]


def test_list_filters_match_the_api_and_ignore_empty_values(admin_client, harvests):
    assert shown(admin_client, status="failed") == {"hinders"}
    assert shown(admin_client, launch="", setting=" ") == {"helps", "hinders"}


def test_search_matches_part_of_a_name(admin_client, harvests):
    assert shown(admin_client, q="HELP") == {"helps"}
    assert admin_client.get(HARVESTS, {"q": "help"}).context["is_filtered"]


def test_an_invalid_filter_is_ignored_and_the_valid_ones_apply(admin_client, harvests):
    assert shown(admin_client, status="no-such", relation="x", q="help") == {"helps"}
    assert shown(admin_client, page="x", sort="x") == {"helps", "hinders"}


def test_project_filter_applies_only_to_several_projects(client, admin_client, harvests):
    helps, _ = harvests
    client.force_login(make_member(project=helps.project))

    assert shown(admin_client, project=helps.project.slug) == {"helps"}
    assert shown(client, project="another") == {"helps"}
    assert client.get(HARVESTS).context["filter_projects"] == []


def test_a_list_is_sorted_by_a_column(admin_client, harvests):
    page = admin_client.get(HARVESTS, {"sort": "-relation"}).context["page_obj"]

    assert [job.relation.name for job in page] == ["hinders", "helps"]
