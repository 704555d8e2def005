"""Joining a round, by invite or account or as a guest; return codes for other devices; whether enough people joined.

An account is one way in; a guest gives a name or code where the round takes guests, or has an invite. Either way one
person is one annotator, and whoever has no account comes back with a code that only this installation can have made.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import unicodedata
from datetime import datetime
from math import ceil

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from annotation.judging.assignment import start_position
from annotation.models import Annotator, Invite, Layout, Round
from annotation.questionnaire.questions import asks_first
from annotation.rounds.models import RoundNotOpen
from kgharvest.access import Action, check_may
from kgharvest.accounts.throttle import check_attempt
from kgharvest.errors import DomainError
from kgharvest.events.recording import record

LONGEST_NAME = Annotator._meta.get_field("name").max_length  # letters, once they are in one form of Unicode
MIXED_UP = {"LATIN", "CYRILLIC", "GREEK"}  # alphabets many of whose letters look alike
RETURN_SALT = "annotation.return_code"
RETURN_BYTES = 10  # of the signature: 80 bits, written as four groups of four letters and digits
RETURN_CODE = re.compile(r"([0-9]{1,18})-([A-Z2-7]{16})")


class BadReturnCode(DomainError):
    """A code that leads back to nobody."""


def join_round(
    round: Round,
    user=None,
    *,
    name: str = "",
    agrees: bool = False,
    invite: Invite | None = None,
    address: str | None = None,
    place_size: int | None = None,
) -> Annotator:
    """Return the annotator that somebody becomes; an account is the same annotator however often it joins.

    user: None for a guest, who needs an `invite`, a `place_size` or a `name` that nobody else has. agrees: to the
    round's consent. place_size: of somebody from a panel, how many statements they are to judge. address: where a guest
    by name comes from, of whom it has only so many. Raises NotForPeople, RoundNotOpen for a
    newcomer to a closed round, NoGuests, NameMissing, BadName, NameTaken, ConsentMissing, InviteNotUsable,
    TooManyAttempts.
    """
    known = Annotator.objects.filter(round=round, user=user).first() if user else None
    if known is not None:
        return known
    check_can_join(round)
    is_recruited = invite is not None or place_size is not None
    if user is None and not is_recruited:
        _check_guest(round, name)
    if round.consent and not agrees:
        raise DomainError("ConsentMissing", "Tick that you agree before you start.")
    with transaction.atomic():
        annotator = _create_annotator(round, user, "" if user else _normalized(name), invite, place_size)
        if user is None and not is_recruited and address:  # a name that is taken is no attempt
            sentence = (
                "Many people have just joined from where you are; wait ten minutes, or ask for a link of your own."
            )
            check_attempt("guests", f"{round.pk}:{address}", timezone.now(), sentence)
    return annotator


def find_by_link(link: str) -> tuple[Round, Invite | None] | None:
    """Return the round that a link, or the token at its end, leads to, and the invite if it is one; None if it is none.

    A round's own link is for many people, an invite for one. Drafts have none yet.
    """
    token = link.rstrip("/").rpartition("/")[2]
    rounds = Round.objects.exclude(status=Round.Status.DRAFT)
    if round := rounds.filter(join_token=token).first():
        return round, None
    invite = Invite.objects.filter(round__in=rounds, token=token).select_related("round").first()
    return (invite.round, invite) if invite else None


def check_can_join(round: Round) -> None:
    if round.source != Round.Source.PEOPLE:
        raise DomainError("NotForPeople", f"Judgments of {round.name} are {round.source}; people cannot join it.")
    if round.status == Round.Status.CLOSED:
        raise RoundNotOpen(f"The round {round.name} is closed; nobody can join it any more.")


def _check_guest(round: Round, name: str) -> None:
    if not round.takes_guests:
        raise DomainError("NoGuests", f"The round {round.name} needs an account; log in first.")
    if not _normalized(name):
        raise DomainError("NameMissing", "Give a name or code, so that you are one annotator wherever you continue.")
    if len(_normalized(name)) > LONGEST_NAME:
        raise DomainError("BadName", f"This name is longer than {LONGEST_NAME} letters; give a shorter one.")
    if len({script for letter in name if (script := unicodedata.name(letter, "").partition(" ")[0]) in MIXED_UP}) > 1:
        raise DomainError("BadName", "This name has letters of several alphabets that look alike; write it in one.")


def _create_annotator(round: Round, user, name: str, invite: Invite | None, place_size: int | None = None) -> Annotator:
    try:
        with transaction.atomic():
            # Whoever comes while the round is closing waits for that, and then comes too late.
            check_can_join(Round.objects.select_for_update(of=("self",), no_key=True).get(pk=round.pk))
            code = f"a-{secrets.token_hex(4)}"
            annotator = Annotator.objects.create(
                round=round,
                user=user,
                name=name,
                code=code,
                next_position=start_position(round.seed, code, round.n_tasks),
                consented_at=timezone.now() if round.consent else None,
                place_size=place_size,
                has_questions_left=asks_first(round),
                consent_sha256=hashlib.sha256(round.consent.encode()).hexdigest() if round.consent else "",
            )
            if invite is not None:
                use_invite(invite, annotator, timezone.now())
            record("annotator.joined", annotator, user, round=round, annotator=annotator)
            return annotator
    except IntegrityError:
        if user is not None:  # the same account at the same moment
            return Annotator.objects.get(round=round, user=user)
        raise DomainError(
            "NameTaken",
            f"Somebody called {name} has joined already; if that was you, use your return code, else add to the name.",
        ) from None


def _normalized(name: str) -> str:
    """Return a name as it looks: letters of other widths and styles as usual ones, without what cannot be seen."""
    visible = (letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf")
    return " ".join("".join(visible).split())


def choose_layout(annotator: Annotator, layout: str) -> None:
    Annotator.objects.filter(pk=annotator.pk).update(layout=Layout(layout))


def return_code(annotator: Annotator) -> str:
    """Return the code with which a guest goes on elsewhere, such as 12-ABCD-EFGH-IJKL-MNOP. It lasts with the round."""
    signature = _signature(annotator.pk)
    return "-".join([str(annotator.pk), *(signature[start : start + 4] for start in range(0, 16, 4))])


def find_by_return_code(code: str) -> Annotator:
    """Return the guest whose code this is, however it is spaced. Raises BadReturnCode."""
    number, _, signature = code.strip().upper().partition("-")
    match = RETURN_CODE.fullmatch(number + "-" + re.sub(r"[-\s]", "", signature))
    if match and constant_time_compare(match[2], _signature(int(match[1]))):
        guest = Annotator.objects.select_related("round").filter(pk=match[1], user=None, erased_at=None).first()
        if guest is not None:
            return guest
    raise BadReturnCode("This return code is not one of ours; check that all of it is there.")


def _signature(pk: int) -> str:
    digest = salted_hmac(RETURN_SALT, str(pk), algorithm="sha256").digest()
    return base64.b32encode(digest[:RETURN_BYTES]).decode()


# Invites

NOT_USABLE = {
    "used": "This invite was used already; if it was by you, continue in the same browser or with your return code.",
    "revoked": "This invite was revoked; ask whoever sent it for another.",
    "expired": "This invite has expired; ask whoever sent it for another.",
}


class InviteNotUsable(DomainError):
    """An invite that somebody has used, that was revoked, or that is too old."""


def make_invites(round: Round, n: int, expires_at: datetime, by=None) -> list[Invite]:
    check_may(by, Action.WORK, round.project)
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


def revoke_invites(round: Round, tokens: list[str], now: datetime, by=None) -> int:
    """Take back those of the named invites that nobody has used; return how many that were. Raises NotAllowed."""
    check_may(by, Action.WORK, round.project)
    named = [token for token in tokens if "\x00" not in token]  # PostgreSQL fails when asked for a NUL
    return round.invites.unused().filter(token__in=named).update(revoked_at=now)


def capacity_warning(round: Round, n_left: int) -> str | None:
    """Return, in a sentence, why the limit on what one annotator may judge keeps the round from its end, or None.

    n_left: judgments that are still wanted.
    """
    quota = round.quota
    if quota is None or not round.is_open:
        return None
    judged = list(
        round.annotators.filter(status=Annotator.Status.ACTIVE, erased_at=None).values_list("n_judged", flat=True)
    )
    n_possible = sum(max(0, quota - n) for n in judged)
    if n_left <= n_possible:
        return None
    n_missing = ceil((n_left - n_possible) / quota)
    people = "people" if n_missing > 1 else "person"
    if not judged:
        return (
            f"{n_left} judgments are wanted and one annotator may judge {quota} statements at most; invite at least "
            f"{n_missing} {people}."
        )
    return (
        f"{n_left} judgments are still wanted, but those who joined may give only {n_possible} more, as one annotator "
        f"may judge {quota} statements at most; invite at least {n_missing} more {people}."
    )
