"""Links to frozen reports: what they show to whom, and when they are closed."""

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


def path_of(made) -> str:
    return f"/shared/{made.secret}/"


def test_whoever_has_the_link_reads_the_frozen_report_and_nothing_else(client, report):
    response = client.get(path_of(share_report(report, "Reviewers", 7, NOW)))

    page = response.text
    assert response.status_code == 200
    assert "Accepted / rejected" in page
    assert page.count("data:image/svg+xml") >= 2
    assert "site-nav" not in page
    assert 'href="/' not in page
    names = {annotator.user.username for annotator in report.round.annotators.all() if annotator.user}
    assert not any(name in page for name in {*names, report.created_by.username})


def test_the_page_is_kept_nowhere_and_runs_nothing(client, report):
    response = client.get(path_of(share_report(report, "Reviewers", 7, NOW)))

    assert response["Cache-Control"] == "no-store"
    assert "noindex" in response["X-Robots-Tag"]
    assert response["Referrer-Policy"] == "same-origin"
    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "script-src" not in policy


def test_wrong_expired_and_revoked_links_are_answered_alike(client, report):
    expired = share_report(report, "Past", 1, NOW - timedelta(days=2))
    revoked = share_report(report, "Revoked", 7, NOW)
    revoke_share(revoked, NOW)

    answers = [client.get(path) for path in ("/shared/made-up/", path_of(expired), path_of(revoked))]

    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1


def test_many_wrong_links_are_stopped(client, settings):
    settings.LIMITS = settings.LIMITS | {"wrong_links": (2, 900)}

    statuses = [client.get(f"/shared/made-up-{n}/").status_code for n in range(3)]

    assert statuses == [404, 404, 429]


def test_a_password_is_asked_for_and_stored_hashed(client, report, settings):
    settings.PASSWORD_HASHERS = settings.PASSWORD_HASHERS[1:]  # without the fast one of tests
    made = share_report(report, "Reviewers", 7, NOW, password=PASSWORD)

    asked = client.get(path_of(made))
    wrong = client.post(path_of(made), {"password": "wrong horse"})
    right = client.post(path_of(made), {"password": PASSWORD})

    assert "Accepted / rejected" not in asked.text + wrong.text
    assert (wrong.status_code, right.status_code) == (403, 200)
    assert "Accepted / rejected" in right.text
    stored = ReportShare.objects.get()
    assert stored.password.startswith("argon2")
    assert made.secret not in (stored.token_hash, stored.password)


def test_passwords_are_tried_a_few_times_only(client, report, settings):
    settings.LIMITS = settings.LIMITS | {"share_passwords": (2, 900)}
    made = share_report(report, "Reviewers", 7, NOW, password=PASSWORD)

    statuses = [client.post(path_of(made), {"password": word}).status_code for word in ("a", "b", PASSWORD)]

    assert statuses == [403, 403, 429]
    other_address = Client(REMOTE_ADDR="203.0.113.9")
    assert other_address.post(path_of(made), {"password": PASSWORD}).status_code == 200


def test_a_link_without_a_password_lets_in_at_once(report):
    assert open_share(share_report(report, "Open", 1, NOW), "", None, NOW) is None


@pytest.mark.parametrize(("days", "password"), [(0, ""), (367, ""), (7, "short")])
def test_what_makes_no_link_is_refused(report, days, password):
    with refused("BadShare"):
        share_report(report, "Reviewers", days, NOW, password=password)


def test_links_are_made_shown_once_and_revoked_on_their_page(researcher_client, report):
    page = f"/reports/{report.pk}/shares/"
    made = researcher_client.post(page, {"name": "ACL reviewers", "days": 30, "password": ""}).text
    share = ReportShare.objects.get()

    assert "/shared/" in made
    again = researcher_client.get(page).text
    assert "ACL reviewers" in again
    assert "/shared/" not in again
    researcher_client.post(f"{page}{share.pk}/revoke/")
    assert ReportShare.objects.usable(NOW).count() == 0
    actions = Event.objects.filter(action__startswith="report.share").values_list("action", flat=True)
    assert sorted(actions) == ["report.share_revoked", "report.shared"]


def test_links_of_a_report_are_its_own(client, report):
    share = share_report(report, "Reviewers", 7, NOW)
    other = create_report(make_round(1, name="other"))
    client.force_login(make_researcher())

    assert client.post(f"/reports/{other.pk}/shares/{share.pk}/revoke/").status_code == 404


def test_a_program_makes_lists_and_revokes_links(researcher_client, client, report):
    address = f"/api/v1/reports/{report.pk}/shares/"
    sent = {"name": "Reviewers", "days": 7, "password": PASSWORD}

    made = researcher_client.post(address, sent, "application/json").json()
    listed = researcher_client.get(address).json()["results"]

    assert client.post(made["link"], {"password": PASSWORD}).status_code == 200
    assert [(entry["status"], entry["has_password"]) for entry in listed] == [("open", True)]
    assert "link" not in listed[0]
    assert researcher_client.delete(f"{address}{made['id']}/").status_code == 204
    assert client.post(made["link"], {"password": PASSWORD}).status_code == 404
