"""Operations of recruiting platforms: PLATFORMS lists one class per platform with an API.

All operations use the network: never call one in a transaction.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.module_loading import import_string

from kgharvest.contrib.recruiting.models import Panel, Platform, PlatformCommand, Submission
from kgharvest.errors import DomainError

# Platforms with an API. On all others, researchers do everything manually.
PLATFORMS = {Platform.PROLIFIC: "kgharvest.contrib.recruiting.prolific.platform.Prolific"}


class PlatformRefused(DomainError):
    """The platform rejected the request, with its reason; a retry would not help."""


class PlatformUnavailable(DomainError):
    """No response or a temporary error (429, 5xx), before any effect. Retry later, after `after_s` if given."""

    def __init__(self, sentence: str, after_s: float | None = None):
        super().__init__(sentence)
        self.after_s = after_s


class OutcomeUnknown(DomainError):
    """A payment was sent without an answer, so it may have been made. Reconcile before any retry."""


@dataclass(frozen=True)
class RemoteSubmission:
    """Current state of a submission on the platform.

    status: a Submission.Status. platform_status: the platform's own term. at: time of this state; the time of the
    request is precise enough. paid_bonuses: amounts made or in progress, in minor units; None if not queried.
    reward_paid: in minor units, None if not paid.
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
    """One panel on its platform. This base class serves platforms without an API.

    All methods can raise the errors above.
    """

    has_api = False

    def __init__(self, panel: Panel):
        self.panel = panel

    def check_entry(self, parameters: Mapping[str, str]) -> bool:
        """Return True if the platform signed the parameters of the entry link, False if there is no signature.

        Raises BadEntryLink if the signature is invalid or missing although required.
        """
        return False

    def option_problems(self) -> Iterator[str]:
        """Yield one sentence per problem in panel.platform_options."""
        return iter(())

    def cost(self) -> int | None:
        """Return the cost of publishing with fees and tax, in minor units, or None if it is not stated."""
        check_not_closed(self.panel)
        return None

    def publish(self) -> str:
        """Create the study if it does not exist and open it; return its external id. Idempotent."""
        return self.panel.external_id

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...

    def submissions(self) -> Iterator[RemoteSubmission]:
        """Yield every submission of the panel in its current state."""
        return iter(())

    def status(self) -> str | None:
        """Return the Panel.Status of the study, or None if its state on the platform has no equivalent."""
        return None

    def execute(self, command: PlatformCommand) -> None:
        """Execute a command once. A bonus is set up, stored in the command, then paid.

        Raises PlatformRefused, PlatformUnavailable, or OutcomeUnknown (bonuses only).
        """
        check_not_closed(self.panel)

    def approve_all(self, submissions: Sequence[Submission]) -> None:
        """Start a bulk approval. Raises PlatformRefused for platforms without an API."""
        raise PlatformRefused(f"{self.panel.platform} has no API. Approve the submissions on its website.")


def check_not_closed(panel: Panel) -> None:
    """Raise PlatformRefused if the panel's platform no longer exists."""
    if panel.is_platform_closed:
        name = Platform(panel.platform).product_name
        raise PlatformRefused(f"{name} closed on 30 September 2026. Select another platform for new panels.")


def platform_of(panel: Panel) -> RecruitingPlatform:
    path = PLATFORMS.get(Platform(panel.platform))
    return (import_string(path) if path else RecruitingPlatform)(panel)
