"""What is refused before any page sees it."""

import pytest

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("asked", [{"q": "dog\x00"}, {"\x00": "dog"}, {"status": ["open", "\x00"]}])
def test_an_address_with_a_nul_is_refused(researcher_client, asked):
    assert researcher_client.get("/rounds/", asked).status_code == 400


def test_a_filter_with_a_nul_does_not_reach_the_database(researcher_client):
    page = researcher_client.post("/rounds/new/", {"action": "filter", "find": "dog\x00"})

    assert page.context["filters"]["find"] == "dog"
