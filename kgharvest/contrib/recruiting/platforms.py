"""Operations of recruiting platforms: one class for each platform with an API, named in PLATFORMS.

All calls go over the network: never make one in a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.utils.module_loading import import_string

from kgharvest.contrib.recruiting.panels.models import Panel, Platform, Submission
from kgharvest.contrib.recruiting.pay.models import PlatformCommand
from kgharvest.errors import DomainError

# Platforms with an API. On all others, people do everything by hand.
PLATFORMS = {Platform.PROLIFIC: "kgharvest.contrib.recruiting.prolific.platform.Prolific"}


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


class RecruitingPlatform:
    """One panel on its platform. This class serves platforms on which people do everything by hand.

    can: operations that the platform does by itself. All methods raise the errors above.
    """

    can: frozenset[Can] = frozenset()

    def __init__(self, panel: Panel):
        self.panel = panel

    def check_entry(self, parameters: Mapping[str, str]) -> bool:
        """Return True if the platform has signed the parameters of the entry link, False if there is no signature.

        Raises EntryRefused if the signature is invalid or missing although required.
        """
        return False

    def option_problems(self) -> Iterator[str]:
        """Yield what is wrong with panel.platform_options, in a sentence each."""
        return iter(())

    def cost(self) -> Cost | None:
        """Return the cost of publishing, None if the platform does not state it."""
        check_not_closed(self.panel)
        return None

    def publish(self) -> str:
        """Create the study if there is none and let people in; return its external id. Twice is once."""
        return self.panel.external_id

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...

    def submissions(self) -> Iterator[RemoteSubmission]:
        """Yield every submission of the panel, as the platform has it now."""
        return iter(())

    def status(self) -> str | None:
        """Return the Panel.Status of the study, None if its state at the platform is no such status."""
        return None

    def execute(self, command: PlatformCommand) -> None:
        """Do what the command says, once. A bonus is set up, stored in the command, then paid.

        Raises PlatformRefused, PlatformUnavailable, OutcomeUnknown (bonuses only).
        """
        check_not_closed(self.panel)

    def approve_all(self, submissions: Sequence[Submission]) -> None:
        """Start the approval of many submissions at once. Only called if `can` has APPROVE_ALL."""
        raise NotImplementedError


def check_not_closed(panel: Panel) -> None:
    """Raise PlatformRefused if the panel's platform no longer exists."""
    if panel.is_platform_closed:
        name = Platform(panel.platform).product_name
        raise PlatformRefused(f"{name} closed on 30 September 2026. Choose another platform for new panels.")


def platform_class(platform: str) -> type[RecruitingPlatform]:
    path = PLATFORMS.get(Platform(platform))
    return import_string(path) if path else RecruitingPlatform


def platform_of(panel: Panel) -> RecruitingPlatform:
    return platform_class(panel.platform)(panel)
