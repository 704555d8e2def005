"""Reviewing completed places: approving, one or all; rejecting, for a ground that is one; asking to return."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Exists, F, OuterRef, QuerySet

from annotation.models import Panel, PlatformCommand, Submission
from annotation.recruiting.pay.commands import NotAskable, NotUncertain, ask, resend
from annotation.recruiting.platforms import check_not_closed
from kgharvest.access import Action, check_may

MOST_AT_ONCE = 1000

Kind, State = PlatformCommand.Kind, PlatformCommand.State


def to_review(panel: Panel) -> QuerySet[Submission]:
    """Return completed submissions without a decision, the earliest automatic approval first.

    Empty if the platform is closed, as no decision can be made.
    """
    if panel.is_platform_closed:
        return Submission.objects.none()
    decided = PlatformCommand.objects.filter(submission=OuterRef("pk")).exclude(kind=Kind.BONUS)
    undecided = panel.submissions.to_review().filter(~Exists(decided.exclude(state=State.FAILED)))
    return undecided.select_related("annotator").order_by(
        F("approves_itself_at").asc(nulls_last=True), "completed_at", "pk"
    )


def decide(submission: Submission, kind: str, *, message: str = "", category: str = "", by=None) -> PlatformCommand:
    """Have the platform approve, reject or ask to return, or screen out. What it refused before is sent once more.

    Raises NotAllowed, NotAskable, BadRejection.
    """
    check_may(by, Action.WORK, submission.panel.project)
    failed = submission.commands.filter(kind=kind, state=State.FAILED)
    last = failed.order_by("-pk").first()
    if last is not None and (last.message, last.category) == (message.strip(), category):
        resend(last, by)
        return last
    n = failed.count()
    return ask(submission, kind, f"{kind}:{n + 1}" if n else kind, message=message, category=category, by=by)


def approve(panel: Panel, submissions: Collection[int] | None = None, by=None) -> int:
    """Approve these of the places that wait for review, or all, MOST_AT_ONCE at most; return how many.

    Submissions with a decision are skipped. Raises NotAllowed, PlatformRefused.
    """
    check_may(by, Action.WORK, panel.project)
    check_not_closed(panel)
    waiting = to_review(panel).select_related("panel__round__project")
    if submissions is not None:
        waiting = waiting.filter(pk__in=submissions)
    n_approved = 0
    for submission in waiting[:MOST_AT_ONCE]:
        try:
            decide(submission, Kind.APPROVE, by=by)
        except (NotAskable, NotUncertain):
            continue
        n_approved += 1
    return n_approved
