"""Make single-use invites, take them back, and let each be used once."""

from __future__ import annotations

from datetime import datetime

from annotation.models import Annotator, Invite, Round
from kgharvest.errors import DomainError

NOT_USABLE = {
    "used": "This invite was used already; if it was by you, go on in the same browser or with your return code.",
    "taken back": "This invite was taken back; ask whoever sent it for another.",
    "ended": "This invite has ended; ask whoever sent it for another.",
}


class InviteNotUsable(DomainError):
    """An invite that somebody has used, that was taken back, or that is too old."""


def make_invites(round: Round, n: int, expires_at: datetime, by=None) -> list[Invite]:
    return Invite.objects.bulk_create(Invite(round=round, expires_at=expires_at, created_by=by) for _ in range(n))


def check_usable(invite: Invite, now: datetime) -> None:
    """Raise InviteNotUsable, with a reason, unless somebody can join with this invite."""
    if invite.status(now) in NOT_USABLE:
        raise InviteNotUsable(NOT_USABLE[invite.status(now)])


def use_invite(invite: Invite, annotator: Annotator, now: datetime) -> None:
    """Make the invite the annotator's. Call it in the transaction that made them. Raises InviteNotUsable."""
    usable = Invite.objects.usable(now).filter(pk=invite.pk, round=annotator.round)
    if not usable.update(annotator=annotator, used_at=now):
        invite.refresh_from_db()
        raise InviteNotUsable(NOT_USABLE.get(invite.status(now), "This invite is to another round."))


def revoke_invites(round: Round, tokens: list[str], now: datetime) -> int:
    """Take back those of the named invites that nobody has used; return how many that were."""
    named = [token for token in tokens if "\x00" not in token]  # PostgreSQL fails when asked for a NUL
    return round.invites.unused().filter(token__in=named).update(revoked_at=now)
