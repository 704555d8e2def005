"""Pages and forms behind nginx with TLS, on a nonstandard port and under a path.

The other browser tests also pass behind the proxy: KGHARVEST_TEST_PROXY=1 python -m pytest tests/browser
"""

from __future__ import annotations

import json
import shutil
from urllib.parse import urlsplit

import httpx
import pytest
from django.contrib.auth.hashers import Argon2PasswordHasher
from playwright.sync_api import expect

from kgharvest.models import Relation
from tests import factories
from tests.browser.proxied_server import PREFIX

# Imported to run these tests again with the `site` fixture of this module.
from tests.browser.test_annotator_pages import test_guest_continues_in_another_browser
from tests.browser.test_judging import (
    test_answers_work_as_plain_forms_without_javascript,
    test_three_annotators_judge_by_keyboard_up_to_the_report,
)
from tests.browser.test_launching import test_relation_set_is_launched_and_cancelled_without_javascript

__all__ = [
    "test_answers_work_as_plain_forms_without_javascript",
    "test_guest_continues_in_another_browser",
    "test_relation_set_is_launched_and_cancelled_without_javascript",
    "test_three_annotators_judge_by_keyboard_up_to_the_report",
]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]

ADDRESSES = """elements => elements.flatMap(element => ["href", "src", "action", "formAction"]
    .filter(name => element.hasAttribute(name)).map(name => element[name]))"""
PASSWORD = "correct horse battery"
SENTENCE = "<ENT0> prevents <ENT1>."
SEEDS = [["lock", "theft"], ["vaccine", "measles"]]
PREVENTS = {"name": "prevents", "statement": SENTENCE, "initial_prompts": [SENTENCE], "seed_tuples": SEEDS}
OWN_SET = {"name": "own", "relations": [PREVENTS]}


@pytest.fixture
def site(proxied_server) -> str:
    return proxied_server.url


def other_urls(site: str, addresses: list[str]) -> set[str]:
    prefix = f"{site}/"
    return {address for address in addresses if address.startswith("http") and not address.startswith(prefix)}


def test_page_links_and_requests_stay_under_base_path(visit, site):
    user = factories.make_researcher()
    factories.make_harvest([("a", "b")], created_by=user)
    judged = factories.make_round(3, name="pilot", by=user)
    factories.judge_all(judged, ["true"] * 3)
    visitor = visit(user)

    pages, strays = [], set()
    for path in visitor.walk():
        pages.append(path)
        strays |= other_urls(
            site, visitor.page.locator("[href], [src], [action], [formaction]").evaluate_all(ADDRESSES)
        )

    assert len(pages) > 30
    assert strays | other_urls(site, visitor.requests) == set()
    assert visitor.complaints == []


def test_login_file_upload_and_logout_work(visit, site):
    ada = factories.make_researcher("ada")
    ada.password = Argon2PasswordHasher().encode(
        PASSWORD, "salt" * 4
    )  # the server does not know the fast hasher of tests
    ada.save()
    page = visit().page
    page.goto("/relations/import/")
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()

    file = {"name": "own.json", "mimeType": "application/json", "buffer": json.dumps(OWN_SET).encode()}
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_role("main").get_by_role("button", name="Import relations").click()
    expect(page.get_by_text("own", exact=True).first).to_be_visible()

    assert Relation.objects.get().name == "prevents"
    cookies = page.context.cookies()
    assert {(cookie["path"], cookie["secure"]) for cookie in cookies} == {(f"{PREFIX}/", True)}
    page.get_by_role("button", name="Log out").click()
    assert page.url == f"{site}/accounts/login/"


def test_cross_site_form_is_rejected(site):
    host = urlsplit(site)
    with httpx.Client(verify=False) as browser:
        page = browser.get(f"{site}/accounts/login/")
        form = {"csrfmiddlewaretoken": browser.cookies["csrftoken"], "username": "x", "password": "y"}
        sent = {
            origin: browser.post(page.url, data=form, headers={"Origin": origin, "Referer": f"{origin}/"}).status_code
            for origin in (f"https://{host.netloc}", f"https://{host.hostname}:1", "https://elsewhere.example.org")
        }

        assert list(sent.values()) == [200, 403, 403]


def test_base_path_without_slash_redirects_to_start_page(site):
    assert urlsplit(httpx.get(site, verify=False).headers["location"]).path == f"{PREFIX}/"
