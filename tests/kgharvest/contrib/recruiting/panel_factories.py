"""Factories of panels."""

from itertools import count

from annotation.models import Round
from kgharvest.contrib.recruiting.models import Panel

_numbers = count(1)


def make_panel(round: Round, status: str = Panel.Status.PUBLISHED, **fields) -> Panel:
    """Create a panel of a round. By default, its entry link needs only the parameter `participant`."""
    names = {"participant_parameter": "participant", "study_parameter": "", "session_parameter": ""}
    values = {"name": f"panel-{next(_numbers)}", "completion_code": "C0DE", **names, **fields}
    return Panel.objects.create(round=round, status=status, **values)
