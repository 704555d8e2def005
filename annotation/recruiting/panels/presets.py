"""What each platform calls people and studies in its links, and what its link and return address look like."""

from __future__ import annotations

from dataclasses import dataclass

from annotation.models import Panel, Platform
from annotation.recruiting.panels.links import parameters, with_parameters


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
    Platform.MTURK: Preset(("workerId", "hitId", "assignmentId"), None),
}


def parameters_of(platform: str) -> dict[str, str]:
    """Return the names of a platform's parameters by the panel's fields."""
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
