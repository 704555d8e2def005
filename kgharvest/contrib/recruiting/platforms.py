"""What a platform can do by itself: one class a platform, named in PLATFORMS.

A class is instantiated with a panel. What a platform lacks, people do there by hand: `can` says what it has. All calls
go over the network: never make one in a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from django.utils.module_loading import import_string

from kgharvest.contrib.recruiting.panels.models import Panel, Platform, Submission
from kgharvest.contrib.recruiting.pay.models import PlatformCommand
from kgharvest.errors import DomainError

PLATFORMS = {
    Platform.LINK: "kgharvest.contrib.recruiting.platforms.ByHand",
    Platform.CONNECT: "kgharvest.contrib.recruiting.platforms.ByHand",
    Platform.SONA: "kgharvest.contrib.recruiting.platforms.ByHand",
    Platform.PROLIFIC: "kgharvest.contrib.recruiting.prolific.platform.Prolific",
    Platform.MTURK: "kgharvest.contrib.recruiting.platforms.ByHand",
}

# What checks the entry links of a platform: functions of (panel, parameters of the link) that raise EntryRefused.
ENTRY_CHECKS = {
    Platform.PROLIFIC: "kgharvest.contrib.recruiting.prolific.entry_token.check_entry",
}

# What checks panel.platform_options: functions of a panel that yield what is wrong, in a sentence each.
OPTION_CHECKS = {
    Platform.PROLIFIC: "kgharvest.contrib.recruiting.prolific.study.option_problems",
}


class PlatformRefused(DomainError):
    """What the platform does not do, in its own words; asking again would not help."""


class PlatformUnavailable(DomainError):
    """No answer, or "later" (429, 5xx), before anything was done: ask again. after_s: as the platform wishes."""

    def __init__(self, sentence: str, after_s: float | None = None):
        super().__init__(sentence)
        self.after_s = after_s


class OutcomeUnknown(DomainError):
    """A payment was sent and no answer came: it may have been made. Reconcile before anything is sent again."""


class EntryRefused(DomainError):
    """Coming by an entry link that the platform has not given out so."""


class Can(StrEnum):
    PUBLISH = "publish"
    PAUSE = "pause"
    STOP = "stop"
    RECONCILE = "reconcile"
    APPROVE = "approve"
    APPROVE_ALL = "approve_all"
    REJECT = "reject"
    RETURN = "return"
    SCREEN_OUT = "screen_out"
    BONUS = "bonus"
    STATUS = "status"


@dataclass(frozen=True)
class Cost:
    """In minor units of the panel's currency. rewards: for all places. fee: of the platform, tax included."""

    rewards: int
    fee: int

    @property
    def total(self) -> int:
        return self.rewards + self.fee


@dataclass(frozen=True)
class RemoteSubmission:
    """A submission as the platform has it now.

    status: in our words (Submission.Status). platform_status: in the platform's. at: when it was so, for which the time
    of the question does. paid_bonuses: in minor units, each payment made or under way; None where nobody looked.
    reward_paid: in minor units, None while not.
    """

    participant: str
    session: str
    status: Submission.Status
    platform_status: str
    at: datetime | None
    approves_itself_at: datetime | None = None
    paid_bonuses: Sequence[int] | None = None
    reward_paid: int | None = None


class RecruitingPlatform(Protocol):
    can: frozenset[Can]

    def __init__(self, panel: Panel): ...

    def cost(self) -> Cost | None:
        """Return what publishing will cost, None where nobody says. Raises the errors above, as all do."""

    def publish(self) -> str:
        """Create the study if there is none and let people in; return its external id. Twice is once."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...

    def submissions(self) -> Iterator[RemoteSubmission]:
        """Yield every submission of the panel, as the platform has it now."""

    def status(self) -> str | None:
        """Return the Panel.Status that the study has there, None where that says nothing; only asked if it can."""

    def execute(self, command: PlatformCommand) -> None:
        """Do what the command says, once. A bonus is set up, stored in the command, then paid.

        Raises PlatformRefused, PlatformUnavailable, OutcomeUnknown (bonuses only).
        """

    def approve_all(self, submissions: Sequence[Submission]) -> None:
        """Have it approve many by itself, when it comes to that; only asked if it can."""


def check_entry(panel: Panel, parameters: Mapping[str, str]) -> bool:
    """Return True if the platform has signed the parameters of the entry link, False if there is no signature.

    May use the network: never call it in a transaction. Raises EntryRefused if the signature is invalid or missing
    although required, PlatformUnavailable.
    """
    check = ENTRY_CHECKS.get(Platform(panel.platform))
    return check is not None and import_string(check)(panel, parameters)


def check_not_closed(panel: Panel) -> None:
    """Raise PlatformRefused if the panel's platform no longer exists."""
    if panel.is_platform_closed:
        name = Platform(panel.platform).product_name
        raise PlatformRefused(f"{name} closed on 30 September 2026. Choose another platform for new panels.")


def option_problems(panel: Panel) -> Iterator[str]:
    """Yield what is wrong with what only the panel's platform takes, in a sentence each."""
    check = OPTION_CHECKS.get(Platform(panel.platform))
    if check is not None:
        yield from import_string(check)(panel)


def platform_of(panel: Panel) -> RecruitingPlatform:
    return import_string(PLATFORMS[Platform(panel.platform)])(panel)


class ByHand:
    """Implements kgharvest.contrib.recruiting.platforms.RecruitingPlatform; nothing outside changes."""

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
