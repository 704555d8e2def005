"""Prolific pages: study form with cost, publishing, and manual reconciliation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from kgharvest.contrib.recruiting.models import Panel, PanelEvent
from kgharvest.contrib.recruiting.panels.publishing import edit_panel, publish_panel
from kgharvest.contrib.recruiting.prolific.views import StudyForm
from kgharvest.jobs import ledger
from kgharvest.models import Event, Job
from tests import factories
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel
from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import SECRET, TOKEN, FakeProlific, serving
from tests.refusals import refused

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]

FORM_DATA = {
    "title": "Are these sentences true?",
    "description": "<p>Forty short sentences.</p>",
    "devices": ["desktop", "mobile"],
    "content_warning": "sensitive",
    "content_warning_details": "Sentences made by a language model.",
    "youngest": "18",
    "least_approved": "95",
    "filters": '[{"filter_id": "fluent-languages", "selected_values": ["19"]}]',
}


@pytest.fixture
def fake(settings) -> Iterator[FakeProlific]:
    with serving() as fake:
        settings.PROLIFIC = {"token": TOKEN, "url": fake.url, "webhook_secret": SECRET}
        yield fake
    assert fake.violations == []


@pytest.fixture
def panel(db) -> Panel:
    return make_panel(
        factories.make_round(),
        Panel.Status.DRAFT,
        platform="prolific",
        places=3,
        reward=150,
        screen_out_code="OUT",
        screen_out_reward=20,
        study_parameter="STUDY_ID",
        session_parameter="SESSION_ID",
    )


def page_of(panel: Panel) -> str:
    return reverse("recruiting:prolific_study", args=[panel.round.path, panel.name])


def test_study_page_shows_cost_and_completion_codes(researcher_client, fake, panel):
    content = researcher_client.get(page_of(panel)).content.decode()

    for text in ("USD 6.30", "USD 4.50 in rewards", "USD 1.80 in fees", "USD 9.00 per hour", "at most USD 0.60"):
        assert text in content
    assert "automatic approval after 21 days" in content
    assert "pays USD 0.20 and releases the place" in content
    assert fake.studies == {}


def test_publish_button_creates_the_study_from_the_form(researcher_client, researcher, fake, panel):
    answer = researcher_client.post(page_of(panel), FORM_DATA | {"action": "publish"})

    panel.refresh_from_db()
    [study] = fake.studies.values()
    assert answer.url == panel.get_absolute_url()
    assert (panel.status, panel.external_id, study["status"]) == ("published", study["id"], "ACTIVE")
    assert study["name"] == FORM_DATA["title"]
    assert study["device_compatibility"] == ["desktop", "mobile"]
    assert study["content_warnings"] == ["sensitive"]
    assert study["filters"] == [
        {"filter_id": "fluent-languages", "selected_values": ["19"]},
        {"filter_id": "age", "selected_range": {"lower": 18}},
        {"filter_id": "approval_rate", "selected_range": {"lower": 95, "upper": 100}},
    ]
    assert Event.objects.last().action == "panel.published"
    assert "could not be" not in researcher_client.get(panel.get_absolute_url()).content.decode()


def test_saved_study_options_are_shown_again(researcher_client, fake, panel):
    researcher_client.post(page_of(panel), FORM_DATA | {"action": "save"})

    panel.refresh_from_db()
    form = StudyForm(panel)
    assert panel.status == "draft"
    assert fake.studies == {}
    values = {name: form[name].value() for name in FORM_DATA}
    assert values == FORM_DATA | {"youngest": 18, "least_approved": 95}


def test_title_and_description_are_suggested(researcher_client, fake, panel):
    form = StudyForm(panel)

    suggested = {name: form[name].value() for name in ("title", "description", "devices")}
    researcher_client.post(page_of(panel), suggested | {"action": "publish"})

    assert [study["name"] for study in fake.studies.values()] == ["Judge 50 short statements"]


def test_refused_publication_shows_the_error_and_keeps_the_draft(researcher_client, fake, panel):
    fake.wallet = 0

    answer = researcher_client.post(page_of(panel), FORM_DATA | {"action": "publish"})

    panel.refresh_from_db()
    assert "There are not enough funds in the workspace." in answer.content.decode()
    assert (panel.status, panel.platform_options["title"]) == ("draft", FORM_DATA["title"])
    fake.wallet = 10_000
    researcher_client.post(page_of(panel), FORM_DATA | {"action": "publish"})
    assert [study["status"] for study in fake.studies.values()] == ["ACTIVE"]  # the existing draft study is reused


def test_study_page_explains_a_missing_token(researcher_client, settings, panel):
    settings.PROLIFIC = {"token": "", "url": "", "webhook_secret": ""}

    content = researcher_client.get(page_of(panel)).content.decode()

    assert "KGHARVEST_PROLIFIC_TOKEN" in content
    assert "every five minutes" in content


def test_reward_below_the_prolific_minimum_cannot_be_published(researcher_client, fake, panel):
    Panel.objects.update(reward=50)

    content = researcher_client.get(page_of(panel)).content.decode()

    assert "The reward is 3.00 USD per hour. Prolific requires at least 8.00." in content
    assert 'value="publish" disabled' in content


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"title": ""}, "required"),
        ({"devices": []}, "required"),
        ({"filters": "{"}, "Invalid JSON"),
        ({"filters": '{"filter_id": "age"}'}, "must be a list"),
        ({"filters": '["age"]'}, "Filter 1 has no filter_id"),
        ({"filters": '[{"filter_id": "age"}]'}, "either selected_values"),
        ({"filters": '[{"filter_id": "age", "selected_range": {"from": 1}}]'}, "either selected_values"),
        ({"youngest": "40", "oldest": "30"}, "below the minimum age"),
        ({"maximum_minutes": "12"}, "at least 29 minutes"),
    ],
)
def test_invalid_input_is_rejected_with_a_message(researcher_client, fake, panel, fields, reason):
    content = researcher_client.post(page_of(panel), FORM_DATA | fields | {"action": "publish"}).content.decode()

    assert reason in content
    assert fake.studies == {}


def test_deeply_nested_filters_are_rejected(panel):
    assert "filters" in StudyForm(panel, FORM_DATA | {"filters": "[" * 100_000}).errors


def test_publish_page_redirects_to_the_study_form(researcher_client, fake, panel):
    address = reverse("recruiting:panel_publish", args=[panel.round.path, panel.name])

    assert researcher_client.get(address).url == page_of(panel)


def test_published_panel_can_be_reconciled_manually(researcher_client, fake, panel):
    panel.platform_options = {"title": "Title", "description": "Description"}
    panel.save()
    publish_panel(panel)
    Panel.objects.update(reconcile_error="Prolific is unreachable; it is asked again later.")
    PanelEvent.objects.create(platform="prolific", event_id="1", body="", n_tries=2, error="Prolific is busy (429).")
    content = researcher_client.get(panel.get_absolute_url()).content.decode()
    assert "Prolific is unreachable" in content
    assert "Prolific is busy (429)." in content

    address = reverse("recruiting:panel_reconcile", args=[panel.round.path, panel.name])
    answer = researcher_client.post(address, follow=True)

    assert "Sync requested" in answer.content.decode()
    assert Job.objects.filter(kind="panel_reconciliation").exists()


def test_panel_without_a_study_cannot_be_reconciled(researcher_client, panel):
    address = reverse("recruiting:panel_reconcile", args=[panel.round.path, panel.name])

    answer = researcher_client.post(address, follow=True)

    assert "Publish it first" in answer.content.decode()


@pytest.mark.parametrize(
    "options",
    [
        {"title": 5},
        {"title": "x" * 121},
        {"description": None},
        {"devices": "desktop"},
        {"devices": [["desktop"]]},
        {"content_warning": "loud"},
        {"filters": {"filter_id": "age"}},
        {"filters": [{"filter_id": "age", "selected_range": {"lower": "18"}}]},
        {"maximum_minutes": True},
        {"screen_out_slots": 0},
        {"signs_entry": "yes"},
        {"colour": "red"},
    ],
)
def test_invalid_platform_options_are_rejected(panel, options):
    with refused("BadPanel"):
        edit_panel(panel, {"platform_options": options})


# API and command


def test_api_requests_reconciliation(researcher_client, fake, panel):
    address = reverse("recruiting:api_panel_reconciliation", args=[panel.round_id, panel.name])
    refused = researcher_client.post(address)
    panel.platform_options = {"title": "Title", "description": "Description"}
    panel.save()
    publish_panel(panel)

    answer = researcher_client.post(address)

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CannotReconcile")
    assert (answer.status_code, answer.json()) == (
        202,
        {"panel": panel.name, "reconciled_at": None, "reconcile_error": ""},
    )
    ledger.run_job(Job.objects.get(kind="panel_reconciliation").pk)
    assert researcher_client.get(address).json()["reconciled_at"] is not None


def test_event_subscriptions_are_created_and_confirmed_once(fake, settings, capsys):
    settings.ORIGIN = "https://kg.example.org"
    for _ in range(2):
        call_command("subscribe_prolific", "workspace-1")

    subscriptions = [(row["event_type"], row["target_url"], row["is_enabled"]) for row in fake.subscriptions.values()]
    address = "https://kg.example.org/recruiting/prolific/events/"
    assert subscriptions == [("submission.status.change", address, True), ("study.status.change", address, True)]
    assert f"submission.status.change events are sent to {address}." in capsys.readouterr().out


@pytest.mark.parametrize(("secret", "origin"), [("", "https://kg.example.org"), (SECRET, "http://127.0.0.1:8000")])
def test_subscription_explains_missing_settings(fake, settings, secret, origin):
    settings.ORIGIN = origin
    settings.PROLIFIC["webhook_secret"] = secret

    with pytest.raises(CommandError, match="KGHARVEST_"):
        call_command("subscribe_prolific", "workspace-1")
