"""What a panel is usually like: how its platform names people in links, and what fits the round."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import count
from math import ceil
from typing import Any

from django.db.models import Count, Sum

from annotation.models import Round
from annotation.rounds.plan import ASSUMED_SECONDS, measured_pace
from kgharvest.contrib.recruiting.models import Panel, Platform
from kgharvest.contrib.recruiting.panels.links import parameters, with_parameters

USUAL_MINUTES = 15  # of judging, for one person
READING_MINUTES = 2  # of instructions and consent
USUAL_HOURLY_PAY = 12_00  # minor units: above what the large platforms ask for at least


@dataclass(frozen=True)
class Preset:
    """names: of the parameters for participant, study and session, empty where there is none.

    values: what stands in their places in the link that one pastes at the platform, which fills them in; None where
    the platform appends the parameters by itself. return_address: an example, capital letters for what differs.
    """

    names: tuple[str, str, str]
    values: tuple[str, str, str] | None
    return_address: str = ""


PRESETS = {
    Platform.LINK: Preset(
        ("participant", "study", "session"),
        ("PARTICIPANT", "STUDY", "SESSION"),
        "https://PANEL/back?code={code}&participant={participant}",
    ),
    Platform.CONNECT: Preset(
        ("participantId", "projectId", "assignmentId"), None, "The redirect that Connect shows for the project."
    ),
    Platform.SONA: Preset(
        ("survey_code", "", ""),
        ("%SURVEY_CODE%", "", ""),
        "https://SCHOOL.sona-systems.com/webstudy_credit.aspx?experiment_id=NUMBER&credit_token=TOKEN"
        "&survey_code={participant}",
    ),
    Platform.PROLIFIC: Preset(
        ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID"),
        ("{{%PROLIFIC_PID%}}", "{{%STUDY_ID%}}", "{{%SESSION_ID%}}"),
        "https://app.prolific.com/submissions/complete?cc={code}",
    ),
    Platform.MTURK: Preset(("workerId", "hitId", "assignmentId"), None),  # closed: for existing panels
}


def parameters_of(platform: str) -> dict[str, str]:
    fields = ("participant_parameter", "study_parameter", "session_parameter")
    return dict(zip(fields, PRESETS[Platform(platform)].names, strict=True))


def entry_link(panel: Panel, address: str) -> str:
    """Return the link that is pasted at the platform. address: of the panel's entry.

    Where a panel has names of its own, they stand in capitals for what the platform is to fill in.
    """
    preset = PRESETS[Platform(panel.platform)]
    if parameters(panel) == preset.names:
        return with_parameters(address, panel, preset.values) if preset.values else address
    return with_parameters(address, panel, ("PARTICIPANT", "STUDY", "SESSION"))


def what_platform_adds(panel: Panel) -> str:
    """Return in a sentence what becomes of the link at the platform."""
    preset = PRESETS[Platform(panel.platform)]
    if panel.platform == Platform.LINK or parameters(panel) != preset.names:
        return "The platform fills in what stands in capitals."
    verb = "fills in who it is" if preset.values else "adds by itself who it is"
    return f"{panel.get_platform_display()} {verb}."


def usual_options(round: Round, platform: str) -> dict[str, Any]:
    """Return options for a panel that gets the round what it still wants, in places of a quarter of an hour."""
    seconds = measured_pace() or ASSUMED_SECONDS
    tens = max(10, int(USUAL_MINUTES * 60 / seconds) // 10 * 10)
    n = max(1, min(tens, round.most_by_one))  # statements, gold among them
    minutes = READING_MINUTES + ceil((n + round.training_size) * seconds / 60)
    taken = set(round.panels.values_list("name", flat=True))
    return {
        "name": next(name for number in count(1) if (name := f"{platform}-{number}") not in taken),
        "places": places_for(round, n),
        "statements_per_place": n,
        "estimated_minutes": minutes,
        "reward": 0 if platform == Platform.SONA else ceil(minutes * USUAL_HOURLY_PAY / 60),  # which gives credits
        "completion_code": new_code(),
        "screen_out_code": new_code(),
        **parameters_of(platform),
    }


def places_for(round: Round, statements_per_place: int) -> int:
    """Return how many people give the judgments that the round still wants: tasks x k / statements that are no gold."""
    figures = round.tasks.without_gold().aggregate(n=Count("pk"), n_counted=Sum("n_judgments", default=0))
    n_wanted = figures["n"] * round.judgments_per_task - figures["n_counted"]
    return max(1, ceil(n_wanted / (statements_per_place * (1 - round.gold_rate)) - 1e-9))


def new_code() -> str:
    """Return a code that nobody guesses: 10 letters and digits, without those that look alike."""
    return "".join(secrets.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(10))
