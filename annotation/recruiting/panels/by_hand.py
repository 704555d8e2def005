"""Platforms without an API here: people publish, pay and pause there by hand, and we record what we see."""

from __future__ import annotations

from collections.abc import Iterator

from annotation.models import Panel, PlatformCommand
from annotation.recruiting.platforms import Can, Cost, RemoteSubmission


class ByHand:
    """Implements annotation.recruiting.platforms.RecruitingPlatform; nothing outside changes."""

    can: frozenset[Can] = frozenset()

    def __init__(self, panel: Panel):
        self.panel = panel

    def cost(self) -> Cost | None:
        return None

    def publish(self) -> str:
        return self.panel.external_id

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...

    def submissions(self) -> Iterator[RemoteSubmission]:
        return iter(())

    def execute(self, command: PlatformCommand) -> None:
        """Somebody does it at the platform; the command says that they were told to."""
