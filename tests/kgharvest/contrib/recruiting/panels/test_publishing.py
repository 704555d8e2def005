"""Panels: suggested options, validation, and lifecycle."""

import pytest

from annotation.models import Round
from annotation.rounds.services import clone_round, pause_round
from kgharvest.contrib.recruiting import platforms
from kgharvest.contrib.recruiting.models import Panel, Platform
from kgharvest.contrib.recruiting.panels import presets
from kgharvest.contrib.recruiting.panels.publishing import (
    cost_in_words,
    create_panel,
    delete_panel,
    edit_panel,
    pause_panel,
    publish_panel,
    resume_panel,
    stop_panel,
)
from kgharvest.contrib.recruiting.platforms import PlatformUnavailable
from kgharvest.models import Event
from tests.factories import judge_all, make_gold, make_round
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel
from tests.refusals import refused

pytestmark = pytest.mark.django_db

Status = Panel.Status


class StudyPlatform(platforms.RecruitingPlatform):
    """Fake platform with an API. It is unavailable if `is_away` is set."""

    has_api = True
    is_away = False

    def cost(self) -> int:
        self._answer()
        return 3200

    def publish(self) -> str:
        self._answer()
        return "study-1"

    pause = resume = stop = lambda self: self._answer()

    def _answer(self) -> None:
        if self.is_away:
            raise PlatformUnavailable("The platform does not answer; try again in a minute.")


@pytest.fixture
def platform(monkeypatch):
    monkeypatch.setattr(platforms, "RecruitingPlatform", StudyPlatform)
    monkeypatch.setattr(StudyPlatform, "is_away", False)
    return StudyPlatform


# Options


def test_suggested_places_cover_the_required_judgments(monkeypatch):
    monkeypatch.setattr(presets, "JUDGING_MINUTES", 1)  # ten statements at six seconds
    round = make_round(40, judgments_per_task=3)

    panel = create_panel(round, {})

    assert (panel.statements_per_place, panel.places) == (10, 12)
    assert panel.estimated_minutes == 3
    assert panel.reward == 60  # 12.00 per hour
    assert panel.completion_code not in ("", panel.screen_out_code)


def test_places_account_for_gold_and_existing_judgments(monkeypatch):
    monkeypatch.setattr(presets, "JUDGING_MINUTES", 1)
    round = make_round(40, judgments_per_task=2)
    make_gold(round, round.tasks.order_by("position")[:8], "true")
    Round.objects.filter(pk=round.pk).update(gold_share=0.2)
    round.refresh_from_db()

    before = presets.places_for(round, 10)
    judge_all(round, ["true"] * 40)

    assert before == 8  # 2 x 32 judgments, eight per person
    assert presets.places_for(round, 10) == 4


def test_suggested_statements_do_not_exceed_the_round():
    panel = create_panel(make_round(4, judgments_per_task=3), {})

    assert (panel.statements_per_place, panel.places) == (4, 3)


@pytest.mark.parametrize("platform", [platform.value for platform in Platform if not platform.is_closed])
def test_participant_parameter_follows_the_platform(platform):
    panel = create_panel(make_round(4), {"platform": platform})

    assert panel.participant_parameter == presets.PRESETS[Platform(platform)].names[0]


def test_presets_of_connect_and_sona():
    connect, sona = (presets.default_options(make_round(4), platform) for platform in ("connect", "sona"))

    assert connect["participant_parameter"] == "participantId"
    assert connect["study_parameter"] == "projectId"
    assert connect["session_parameter"] == "assignmentId"
    assert [sona[f"{name}_parameter"] for name in ("participant", "study", "session")] == ["survey_code", "", ""]


def test_entry_link_follows_the_platform_format():
    round = make_round(4)
    links = {
        platform: presets.entry_link(create_panel(round, {"platform": platform}), "https://example.org/enter/t/")
        for platform in ("connect", "sona", "prolific")
    }
    link_panel = create_panel(round, {"participant_parameter": "who", "study_parameter": "", "session_parameter": ""})

    assert presets.link_parameters_note(link_panel) == "The platform fills in the values in capitals."
    assert presets.link_parameters_note(round.panels.get(platform="connect")).endswith("adds the participant's ids.")
    assert links["sona"] == "https://example.org/enter/t/?survey_code=%SURVEY_CODE%"
    assert links["connect"] == "https://example.org/enter/t/"
    assert links["prolific"].startswith("https://example.org/enter/t/?PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%")
    assert (
        presets.entry_link(link_panel, "https://example.org/enter/t/") == "https://example.org/enter/t/?who=PARTICIPANT"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "new"}, "name cannot be “new”"),
        ({"name": "a b"}, "name: Enter a valid"),
        ({"places": 0}, "places: "),
        ({"currency": "dollars"}, "currency: "),
        ({"completion_code": "a b"}, "letters, digits"),
        ({"completion_code": "SAME", "screen_out_code": "SAME"}, "equals another code"),
        ({"study_parameter": "participant"}, "have the same name"),
        (
            {"hourly_floor": 10_00, "reward": 100, "estimated_minutes": 10},
            "minimum hourly rate of USD 10.00",
        ),
        ({"completion_url": "javascript:alert(1)"}, "begins with https://"),
        ({"completion_url": "data:text/html,x"}, "begins with https://"),
        ({"completion_url": "//example.org/"}, "begins with https://"),
        ({"completion_url": "https:///no-host"}, "begins with https://"),
        ({"completion_url": "https://[broken/"}, "begins with https://"),
        ({"completion_url": "https://{participant}.example.org/"}, "only after the host name"),
        ({"completion_url": "https://example.org/?c={password}"}, "Unknown placeholder {password}"),
    ],
)
def test_invalid_options_are_rejected_with_a_message(options, sentence):
    round = make_round(4)

    with refused("BadPanel") as refusal:
        create_panel(round, options)

    assert sentence in str(refusal.value)
    assert not round.panels.exists()


def test_draft_and_imported_rounds_get_no_panels():
    round = make_round(4)
    draft = clone_round(round)
    Round.objects.filter(pk=round.pk).update(source="imported")
    round.refresh_from_db()

    for not_open in (draft, round):
        with refused("BadPanel", match="does not accept annotators"):
            create_panel(not_open, {})


def test_duplicate_panel_name_is_rejected():
    round = make_round(4)
    create_panel(round, {"name": "main"})

    with refused("PanelNameTaken", match="already has a panel main"):
        create_panel(round, {"name": "main"})


def test_published_panel_can_change_only_places_and_floor():
    panel = make_panel(make_round(4), places=2, reward=500)

    edit_panel(panel, {"places": 5, "hourly_floor": 100})
    with refused("WrongPanelStatus", match="Cannot change reward"):
        edit_panel(panel, {"reward": 1})

    panel.refresh_from_db()
    assert (panel.places, panel.hourly_floor, panel.reward) == (5, 100, 500)


def test_places_are_fixed_after_publishing_to_a_platform(platform):
    panel = make_panel(make_round(4), places=2)

    with refused("WrongPanelStatus", match="Cannot change places"):
        edit_panel(panel, {"places": 5})


# Lifecycle


def test_panel_is_published_paused_resumed_and_stopped(platform):
    panel = make_panel(make_round(4), Status.DRAFT)

    publish_panel(panel)
    assert (panel.status, panel.external_id) == (Status.PUBLISHED, "study-1")
    pause_panel(panel, "Somebody asked.")
    assert (panel.status, panel.ended_reason) == (Status.PAUSED, "Somebody asked.")
    resume_panel(panel)
    assert (panel.status, panel.ended_reason) == (Status.PUBLISHED, "")
    stop_panel(panel)
    assert panel.status == Status.STOPPED

    kinds = list(panel.round.events.order_by("pk").values_list("kind", flat=True))
    assert kinds[-4:] == ["panel_published", "panel_paused", "panel_resumed", "panel_stopped"]
    actions = list(Event.objects.order_by("pk").values_list("action", flat=True))
    assert actions[-4:] == ["panel.published", "panel.paused", "panel.resumed", "panel.stopped"]


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (Status.DRAFT, publish_panel),
        (Status.PUBLISHED, pause_panel),
        (Status.PAUSED, resume_panel),
        (Status.PUBLISHED, stop_panel),
    ],
)
def test_refused_change_is_reverted(platform, monkeypatch, status, change):
    panel = make_panel(make_round(4), status, external_id="" if status == Status.DRAFT else "study-1")
    monkeypatch.setattr(platform, "is_away", True)

    with pytest.raises(PlatformUnavailable):
        change(panel)

    panel.refresh_from_db()
    assert panel.status == status
    assert not panel.round.events.filter(kind__startswith="panel_").exists()


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (Status.PUBLISHED, publish_panel),
        (Status.DRAFT, pause_panel),
        (Status.STOPPED, resume_panel),
        (Status.DRAFT, stop_panel),
        (Status.PUBLISHED, delete_panel),
    ],
)
def test_actions_in_the_wrong_status_are_rejected(status, change):
    with refused("WrongPanelStatus"):
        change(make_panel(make_round(4), status))


def test_publishing_requires_a_code_and_an_open_round():
    round = make_round(4)
    codeless, panel = make_panel(round, Status.DRAFT, completion_code=""), make_panel(round, Status.DRAFT)

    with refused("BadPanel", match="neither a completion code nor a return URL"):
        publish_panel(codeless)
    pause_round(round)
    panel.refresh_from_db()
    with refused("BadPanel", match="does not accept annotators"):
        publish_panel(panel)


def test_cost_is_shown_before_publishing(platform, monkeypatch):
    panel = make_panel(make_round(4), Status.DRAFT, places=12, reward=200, estimated_minutes=10)

    assert cost_in_words(panel) == "12 places at USD 2.00 cost USD 32.00: USD 24.00 in rewards and USD 8.00 in fees."
    monkeypatch.setattr(platform, "is_away", True)
    assert "does not answer" in cost_in_words(panel)
    monkeypatch.undo()
    rewards = "12 places at USD 2.00 (USD 12.00 per estimated hour) cost USD 24.00 in rewards"
    assert cost_in_words(panel) == f"{rewards}. The platform charges an additional fee."
    panel.screen_out_reward = 50
    assert f"{rewards}, plus USD 0.50 per screen-out. The" in cost_in_words(panel)
