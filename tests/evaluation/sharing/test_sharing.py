"""Share links to stored reports: content, passwords, expiry, and revocation."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from evaluation.models import ReportShare
from evaluation.reports.services import create_report
from evaluation.sharing.services import open_share, revoke_share, share_report
from kgharvest.events.models import Event
from tests.factories import judge_all, make_researcher, make_round
from tests.refusals import refused

pytestmark = pytest.mark.django_db

NOW = timezone.now()
PASSWORD = "correct horse"


@pytest.fixture
def report(researcher):
    round = make_round(2, name="pilot", by=researcher)
    judge_all(round, ["true", "false"], ["true", "false"])
    return create_report(round, by=researcher)


def path_of(share) -> str:
    return f"/shared/{share.secret}/"


def test_share_link_shows_only_the_stored_report(client, report):
    response = client.get(path_of(share_report(report, "Reviewers", 7, NOW)))

    page = response.text
    assert response.status_code == 200
    assert "Accepted / rejected" in page
    assert page.count("data:image/svg+xml") >= 2
    assert "site-nav" not in page
    assert 'href="/' not in page
    names = {annotator.user.username for annotator in report.round.annotators.all() if annotator.user}
    assert not any(name in page for name in {*names, report.created_by.username})


def test_shared_page_is_not_cached_and_runs_no_scripts(client, report):
    response = client.get(path_of(share_report(report, "Reviewers", 7, NOW)))

    assert response["Cache-Control"] == "no-store"
    assert "noindex" in response["X-Robots-Tag"]
    assert response["Referrer-Policy"] == "same-origin"
    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "script-src" not in policy


def test_invalid_expired_and_revoked_links_get_the_same_response(client, report):
    expired = share_report(report, "Past", 1, NOW - timedelta(days=2))
    revoked = share_report(report, "Revoked", 7, NOW)
    revoke_share(revoked, NOW)

    answers = [client.get(path) for path in ("/shared/made-up/", path_of(expired), path_of(revoked))]

    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1


def test_repeated_invalid_links_are_rate_limited(client, settings):
    settings.LIMITS = settings.LIMITS | {"wrong_links": (2, 900)}

    statuses = [client.get(f"/shared/made-up-{n}/").status_code for n in range(3)]

    assert statuses == [404, 404, 429]


def test_password_is_required_and_stored_hashed(client, report, settings):
    settings.PASSWORD_HASHERS = settings.PASSWORD_HASHERS[1:]  # without the fast hasher for tests
    share = share_report(report, "Reviewers", 7, NOW, password=PASSWORD)

    prompt = client.get(path_of(share))
    wrong = client.post(path_of(share), {"password": "wrong horse"})
    right = client.post(path_of(share), {"password": PASSWORD})

    assert "Accepted / rejected" not in prompt.text + wrong.text
    assert (wrong.status_code, right.status_code) == (403, 200)
    assert "Accepted / rejected" in right.text
    stored = ReportShare.objects.get()
    assert stored.password.startswith("argon2")
    assert share.secret not in (stored.token_hash, stored.password)


def test_password_attempts_are_rate_limited(client, report, settings):
    settings.LIMITS = settings.LIMITS | {"share_passwords": (2, 900)}
    share = share_report(report, "Reviewers", 7, NOW, password=PASSWORD)

    statuses = [client.post(path_of(share), {"password": word}).status_code for word in ("a", "b", PASSWORD)]

    assert statuses == [403, 403, 429]
    other_address = Client(REMOTE_ADDR="203.0.113.9")
    assert other_address.post(path_of(share), {"password": PASSWORD}).status_code == 200


def test_link_without_password_opens_directly(report):
    assert open_share(share_report(report, "Open", 1, NOW), "", None, NOW) is None


@pytest.mark.parametrize(("days", "password"), [(0, ""), (367, ""), (7, "short")])
def test_invalid_share_settings_are_rejected(report, days, password):
    with refused("BadShare"):
        share_report(report, "Reviewers", days, NOW, password=password)


def test_link_is_created_shown_once_and_revoked_on_page(researcher_client, report):
    page = f"/reports/{report.pk}/shares/"
    created_page = researcher_client.post(page, {"name": "ACL reviewers", "days": 30, "password": ""}).text
    share = ReportShare.objects.get()

    assert "/shared/" in created_page
    list_page = researcher_client.get(page).text
    assert "ACL reviewers" in list_page
    assert "/shared/" not in list_page
    researcher_client.post(f"{page}{share.pk}/revoke/")
    assert ReportShare.objects.usable(NOW).count() == 0
    actions = Event.objects.filter(action__startswith="report.share").values_list("action", flat=True)
    assert sorted(actions) == ["report.share_revoked", "report.shared"]


def test_link_of_another_report_cannot_be_revoked(client, report):
    share = share_report(report, "Reviewers", 7, NOW)
    other = create_report(make_round(1, name="other"))
    client.force_login(make_researcher())

    assert client.post(f"/reports/{other.pk}/shares/{share.pk}/revoke/").status_code == 404


def test_api_creates_lists_and_revokes_links(researcher_client, client, report):
    address = f"/api/v1/reports/{report.pk}/shares/"
    body = {"name": "Reviewers", "days": 7, "password": PASSWORD}

    created = researcher_client.post(address, body, "application/json").json()
    listed = researcher_client.get(address).json()["results"]

    assert client.post(created["link"], {"password": PASSWORD}).status_code == 200
    assert [(entry["status"], entry["has_password"]) for entry in listed] == [("open", True)]
    assert "link" not in listed[0]
    assert researcher_client.delete(f"{address}{created['id']}/").status_code == 204
    assert client.post(created["link"], {"password": PASSWORD}).status_code == 404
