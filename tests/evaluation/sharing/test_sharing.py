"""Share links to stored reports: content, passwords, expiry, and revocation."""

import json
import re
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from annotation.models import Judgment
from annotation.quality.exclusion import exclude_annotator
from evaluation.models import ReportShare
from evaluation.rendering.evidence_page import _digest, _examples, _file
from evaluation.reports.evidence_rows import gather_rows
from evaluation.reports.files import write_html
from evaluation.reports.services import create_report
from evaluation.sharing.services import open_share, revoke_share, share_report
from evaluation.sharing.views import STATEMENTS_MISSING
from kgharvest.events.models import Event
from kgharvest.knowledge.models import KnowledgeTuple
from tests.evaluation.reports.studies import make_study
from tests.factories import judge_all, make_gold, make_researcher, make_round
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


def test_shared_page_is_not_cached_and_runs_only_its_own_script(client, report):
    response = client.get(path_of(share_report(report, "Reviewers", 7, NOW, with_statements=True)))

    assert response["Cache-Control"] == "no-store"
    assert "noindex" in response["X-Robots-Tag"]
    assert response["Referrer-Policy"] == "same-origin"
    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert re.findall(r"script-src ([^;]*)", policy) == [f"'{_digest(_file('evidence.js'))}'"]  # only its own script


def test_new_link_has_a_copy_button(researcher_client, report):
    page = researcher_client.post(f"/reports/{report.pk}/shares/", {"name": "Reviewers", "days": 7}).text

    [field] = re.findall(r'data-copy="([^"]*)"', page)
    assert re.search(f'<input id="{field}" value="[^"]*/shared/', page)
    assert "copy.js" in page


def rows_of(page: str) -> dict:
    """Return the rows of the statements that the page contains."""
    return json.loads(re.search(r'<script type="application/json" id="evidence">(.*?)</script>', page, re.DOTALL)[1])


def test_links_of_older_versions_show_no_statements(client, report):
    share = share_report(report, "Reviewers", 7, NOW)
    names = ("with_statements", "with_annotators")
    old = {name: ReportShare._meta.get_field(name).db_default for name in names}
    ReportShare.objects.filter(pk=share.pk).update(**old)

    response = client.get(path_of(share))

    assert response.text == write_html(report.document)
    assert not any(task.statement in response.text for task in report.round.tasks.all())
    assert "script-src" not in response["Content-Security-Policy"]


def test_link_shows_statements_without_annotators_comments_and_gold(client, researcher):
    round = make_round([(f"head {n}", "tail") for n in range(6)], by=researcher)
    tasks = list(round.tasks.order_by("position"))
    make_gold(round, tasks[:1], "true")
    labels = ["true"] * 4 + ["false"] * 2
    judge_all(round, labels, labels, ["true"] * 6)
    Judgment.objects.filter(task=tasks[1]).update(comment="My name is Ann.")
    page = client.get(path_of(share_report(create_report(round), "Reviewers", 7, NOW, with_statements=True))).text

    rows = rows_of(page)

    assert rows["annotators"] == [""]
    assert rows["tasks"]["comments"] == {}
    assert rows["judge"] is None
    assert "My name is Ann." not in page
    assert tasks[0].statement not in page
    assert set(rows["tasks"]["statement"]) == {task.statement for task in tasks[1:]}
    # Labels are in a fixed order: 0 is True, 1 is False.
    assert sorted(labels[1::2] for labels in rows["tasks"]["labels"]) == [[0, 0, 0]] * 3 + [[0, 1, 1]] * 2


def test_link_shows_only_statements_of_its_report(client, report):
    other = make_round([("another head", "another tail")], name="other")
    judge_all(other, ["false"], ["false"])
    page = client.get(path_of(share_report(report, "Reviewers", 7, NOW, with_statements=True))).text

    statements = rows_of(page)["tasks"]["statement"]

    assert set(statements) == {task.statement for task in report.round.tasks.all()}
    assert "another head" not in page


@pytest.mark.parametrize("with_statements", [True, False])
def test_new_links_show_nothing_about_single_annotators(client, researcher, with_statements):
    round = make_study(researcher)
    excluded, *_ = codes = list(round.annotators.order_by("pk"))
    exclude_annotator(excluded, "Guesses.", by=researcher)
    report = create_report(round, by=researcher)
    secrets = {"Guesses.", *(annotator.code for annotator in codes)}
    assert all(secret in write_html(report.document) for secret in secrets)

    page = client.get(path_of(share_report(report, "Co-author", 7, NOW, with_statements=with_statements))).text

    assert not [secret for secret in secrets if secret in page]
    assert "Krippendorff" in page


def test_link_to_a_report_on_an_open_round_keeps_its_statements(client, report):
    share = share_report(report, "Reviewers", 7, NOW, with_statements=True)
    before = client.get(path_of(share)).text

    judge_all(report.round, ["true", "true"])  # the report does not contain these judgments
    cache.clear()

    assert client.get(path_of(share)).text == before


def test_statements_that_differ_from_the_report_are_not_shown(client, report, researcher):
    share = share_report(report, "Reviewers", 7, NOW, with_statements=True)
    statements = [task.statement for task in report.round.tasks.all()]
    exclude_annotator(report.round.annotators.first(), "Guesses.", by=researcher)

    page = client.get(path_of(share)).text

    assert not any(statement in page for statement in statements)
    assert "Accepted / rejected" in page
    assert STATEMENTS_MISSING["RowsChanged"] in page


def test_hidden_tuples_are_not_shown(client, report):
    task = report.round.tasks.order_by("position").last()
    KnowledgeTuple.objects.filter(pk=task.knowledge_tuple_id).update(curation=KnowledgeTuple.Curation.HIDDEN)

    page = client.get(path_of(share_report(report, "Reviewers", 7, NOW, with_statements=True))).text

    assert task.statement not in page
    assert rows_of(page)["tasks"]["statement"].count(None) == 1


def test_examples_are_the_statements_with_the_highest_scores(client, researcher):
    round = make_round([(f"head {n}", f"tail {n}") for n in range(9)], by=researcher)  # scores fall with n
    labels = ["true", "false", "true", "false", "true", "true", "false", "false", "false"]
    order = [int(task.entities[0].split()[1]) for task in round.tasks.order_by("position")]
    labels = [labels[n] for n in order]
    judge_all(round, labels, labels, labels)
    report = create_report(round)

    [(relation, examples)] = _examples(gather_rows(report)).items()

    assert relation == report.document["cells"][0]["relation"]
    assert examples["template"] == "X goes with Y."
    heads = {name: [parts[0][0] for parts in examples[name].values()] for name in ("accepted", "rejected")}
    assert heads == {"accepted": ["head 0", "head 2", "head 4"], "rejected": ["head 1", "head 3", "head 6"]}


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
    assert share.with_statements is False  # the box is not checked
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
    assert [(entry["status"], entry["has_password"], entry["with_statements"]) for entry in listed] == [
        ("open", True, False)
    ]
    assert "link" not in listed[0]
    assert researcher_client.delete(f"{address}{created['id']}/").status_code == 204
    assert client.post(created["link"], {"password": PASSWORD}).status_code == 404
