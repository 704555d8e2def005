"""Panel defaults: link parameters of each platform, and options suggested for a round."""

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

JUDGING_MINUTES = 15  # minutes of judging per participant
READING_MINUTES = 2  # for instructions and consent
HOURLY_RATE = 12_00  # minor units; above the minimum of the large platforms


@dataclass(frozen=True)
class Preset:
    """Link parameters of a platform.

    names: parameter names for participant, study, and session; empty if not used. values: placeholders that the
    platform fills in; None if the platform appends the parameters itself. return_address: an example, with variable
    parts in capitals.
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
        ("participantId", "projectId", "assignmentId"), None, "Redirect URL shown in the Connect project."
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
    Platform.MTURK: Preset(("workerId", "hitId", "assignmentId"), None),  # closed; used by existing panels only
}


def entry_link(panel: Panel, address: str) -> str:
    """Return the link to paste on the platform. address: URL of the panel's entry page.

    If the panel's parameter names differ from the preset, capitals mark the values that the platform must fill in.
    """
    preset = PRESETS[Platform(panel.platform)]
    if parameters(panel) == preset.names:
        return with_parameters(address, panel, preset.values) if preset.values else address
    return with_parameters(address, panel, ("PARTICIPANT", "STUDY", "SESSION"))


def link_parameters_note(panel: Panel) -> str:
    """Return a sentence that says how the platform fills in the link parameters."""
    preset = PRESETS[Platform(panel.platform)]
    if panel.platform == Platform.LINK or parameters(panel) != preset.names:
        return "The platform fills in the values in capitals."
    verb = "fills in" if preset.values else "adds"
    return f"{panel.get_platform_display()} {verb} the participant's ids."


def default_options(round: Round, platform: str) -> dict[str, Any]:
    """Return default options for a panel that collects the remaining judgments.

    Judging takes about 15 minutes per place.
    """
    seconds = measured_pace() or ASSUMED_SECONDS
    tens = max(10, int(JUDGING_MINUTES * 60 / seconds) // 10 * 10)
    n = max(1, min(tens, round.most_by_one))  # number of statements, including gold
    minutes = READING_MINUTES + ceil((n + round.training_size) * seconds / 60)
    names = set(round.panels.values_list("name", flat=True))
    fields = ("participant_parameter", "study_parameter", "session_parameter")
    return {
        "name": next(name for number in count(1) if (name := f"{platform}-{number}") not in names),
        "places": places_for(round, n),
        "statements_per_place": n,
        "estimated_minutes": minutes,
        "reward": 0 if platform == Platform.SONA else ceil(minutes * HOURLY_RATE / 60),  # SONA gives credits
        "completion_code": new_code(),
        "screen_out_code": new_code(),
        **dict(zip(fields, PRESETS[Platform(platform)].names, strict=True)),
    }


def places_for(round: Round, statements_per_place: int) -> int:
    """Return the number of participants for the remaining judgments: (tasks x k - judgments) / non-gold per place."""
    figures = round.tasks.without_gold().aggregate(n=Count("pk"), n_counted=Sum("n_judgments", default=0))
    n_remaining = figures["n"] * round.judgments_per_task - figures["n_counted"]
    return max(1, ceil(n_remaining / (statements_per_place * (1 - round.gold_rate)) - 1e-9))


def new_code() -> str:
    """Return a random code of 10 letters and digits, without characters that look alike."""
    return "".join(secrets.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(10))
