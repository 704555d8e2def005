"""Platforms without an API here: researchers publish, pay and pause there by hand and record it here.

Panels of a closed platform can be paused and stopped here; every request to such a platform is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from annotation.models import Panel, PlatformCommand
from annotation.recruiting.platforms import Can, Cost, RemoteSubmission, check_not_closed


class ByHand:
    """Implements annotation.recruiting.platforms.RecruitingPlatform; nothing outside changes."""

    can: frozenset[Can] = frozenset()

    def __init__(self, panel: Panel):
        self.panel = panel

    def cost(self) -> Cost | None:
        check_not_closed(self.panel)
        return None

    def publish(self) -> str:
        return self.panel.external_id

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...

    def submissions(self) -> Iterator[RemoteSubmission]:
        return iter(())

    def execute(self, command: PlatformCommand) -> None:
        """Do nothing: a researcher does it at the platform. Raises PlatformRefused if the platform is closed."""
        check_not_closed(self.panel)
