"""Operations of recruiting platforms. PLATFORMS names the class of each platform that has an API.

All operations use the network, so they must not be called in a transaction.
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
    """The platform rejected the request, or the request cannot be sent. The message says why.

    A retry would not help.
    """


class PlatformUnavailable(DomainError):
    """The platform did not respond, or reported a temporary error (429, 5xx). The request can be retried later.

    A payment that raises this error was not made. after_s: seconds to wait before the retry, None if unknown.
    """

    def __init__(self, sentence: str, after_s: float | None = None):
        super().__init__(sentence)
        self.after_s = after_s


class OutcomeUnknown(DomainError):
    """The platform did not answer a payment request, so the payment may have been made. Reconcile before you retry."""


@dataclass(frozen=True)
class RemoteSubmission:
    """Current state of a submission on the platform.

    status: a Submission.Status. platform_status: the platform's own term for the status. at: time of this state; the
    time of the request is precise enough. paid_bonuses: amounts in minor units of bonuses that are paid or in progress;
    None if not queried. reward_paid: paid reward in minor units, None if not paid.
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
    """Operations for one panel on its platform. This base class is used for platforms without an API.

    Every method can raise PlatformRefused or PlatformUnavailable.
    """

    has_api = False

    def __init__(self, panel: Panel):
        self.panel = panel

    def check_entry(self, parameters: Mapping[str, str]) -> bool:
        """Return True if the platform signed the parameters of the entry link, False if there is no signature.

        Raises BadEntryLink if the signature is invalid, or if the panel requires a signature and there is none.
        """
        return False

    def option_problems(self) -> Iterator[str]:
        """Yield one sentence per problem in panel.platform_options."""
        return iter(())

    def cost(self) -> int | None:
        """Return the cost of publishing the panel, including fees and tax, in minor units.

        Return None if the platform has no API.
        """
        check_not_closed(self.panel)
        return None

    def publish(self) -> str:
        """Create the study if it does not exist, and open it. Return the study's external id. Idempotent."""
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
        """Execute a command once. A bonus is first set up on the platform.

        Its id is stored in the command; then the bonus is paid.

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
