"""Services for joining a round with an invite, with an account, or as a guest, for return codes, and for invites.

Guests need an invite, or a name if the round allows guests. Each person is one annotator. Guests return with a signed
code.
"""

import base64
import hashlib
import re
import secrets
import unicodedata
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from annotation.judging.assignment import start_position
from annotation.models import Annotator, Invite, Round
from annotation.rounds.models import RoundNotOpen
from kgharvest.access import Action, check_may
from kgharvest.accounts.throttle import check_attempt
from kgharvest.errors import DomainError
from kgharvest.events.recording import record

LONGEST_NAME = Annotator._meta.get_field("name").max_length  # characters after normalization
CONFUSABLE_SCRIPTS = {"LATIN", "CYRILLIC", "GREEK"}  # scripts with letters that look alike
RETURN_SALT = "annotation.return_code"
RETURN_BYTES = 10  # signature of 80 bits, written as four groups of four letters and digits
RETURN_CODE = re.compile(r"([0-9]{1,18})-([A-Z2-7]{16})")


class BadReturnCode(DomainError):
    """Invalid return code."""


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
    """Create the annotator of a person who joins a round. If the account has already joined, return its annotator.

    user: None for a guest, who needs an `invite`, a `place_size`, or a unique `name`. agrees: True if the person agrees
    to the round's consent. place_size: number of statements to judge, for panel participants. address: network of a
    guest who joins with a name; the number of such guests per network is limited. Raises RoundNotOpen for a closed
    round, InviteNotUsable, TooManyAttempts, or DomainError NotForPeople, InviteMissing, NoGuests, NameMissing, BadName,
    NameTaken, or ConsentMissing.
    """
    existing = Annotator.objects.filter(round=round, user=user).first() if user else None
    if existing is not None:
        return existing
    is_recruited = invite is not None or place_size is not None
    check_can_join(round, user, is_recruited)
    if user is None and not is_recruited:
        if not _normalized(name):
            raise DomainError("NameMissing", "Enter a name or code that identifies you.")
        if len(_normalized(name)) > LONGEST_NAME:
            raise DomainError("BadName", f"The name is longer than {LONGEST_NAME} characters. Enter a shorter name.")
        scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in name}
        if len(scripts & CONFUSABLE_SCRIPTS) > 1:
            raise DomainError("BadName", "The name mixes alphabets with letters that look alike. Use one alphabet.")
    if round.consent and not agrees:
        raise DomainError("ConsentMissing", "You must agree to the consent text before you start.")
    with transaction.atomic():
        annotator = _create_annotator(round, user, "" if user else _normalized(name), invite, place_size)
        if user is None and not is_recruited and address:  # names already in use do not count as attempts
            sentence = "Too many people joined from your network. Wait ten minutes, or ask for a personal invite link."
            check_attempt("guests", f"{round.pk}:{address}", timezone.now(), sentence)
    return annotator


def find_by_link(link: str) -> tuple[Round, Invite | None] | None:
    """Return (round, invite) for a link or token.

    The invite is None for a join link. Return None if the link is invalid. A join link is for many people; an invite is
    for one person. Links to draft rounds are invalid.
    """
    token = link.rstrip("/").rpartition("/")[2]
    rounds = Round.objects.exclude(status=Round.Status.DRAFT)
    if round := rounds.filter(join_token=token).first():
        return round, None
    invite = Invite.objects.filter(round__in=rounds, token=token).select_related("round").first()
    return (invite.round, invite) if invite else None


def check_can_join(round: Round, user=None, is_recruited: bool = False) -> None:
    """Raise RoundNotOpen, or DomainError NotForPeople, InviteMissing, or NoGuests, unless the person can join.

    user: None for a guest. is_recruited: True for people with an invite or a place in a panel.
    """
    if round.source != Round.Source.PEOPLE:
        raise DomainError("NotForPeople", f"Cannot join {round.name}: its judgments are {round.source}.")
    if round.status == Round.Status.CLOSED:
        raise RoundNotOpen(f"The round {round.name} is closed. You can no longer join it.")
    if is_recruited:
        return
    if round.who_can_join == Round.WhoCanJoin.INVITE:
        reason = f"You can join the round {round.name} only with a personal invite. Ask the researchers for one."
        raise DomainError("InviteMissing", reason)
    if user is None and round.who_can_join == Round.WhoCanJoin.ACCOUNT:
        raise DomainError("NoGuests", f"The round {round.name} requires an account. Log in first.")


def _create_annotator(round: Round, user, name: str, invite: Invite | None, place_size: int | None = None) -> Annotator:
    try:
        with transaction.atomic():
            # If the round is being closed concurrently, this lock waits until it is closed; joining is then refused.
            locked = Round.objects.select_for_update(of=("self",), no_key=True).get(pk=round.pk)
            check_can_join(locked, user, invite is not None or place_size is not None)
            code = f"a-{secrets.token_hex(4)}"
            annotator = Annotator.objects.create(
                round=round,
                user=user,
                name=name,
                code=code,
                next_position=start_position(round, code),
                consented_at=timezone.now() if round.consent else None,
                place_size=place_size,
                has_questions_left=round.asks_who or bool(round.check_questions),
                consent_sha256=hashlib.sha256(round.consent.encode()).hexdigest() if round.consent else "",
            )
            if invite is not None:
                use_invite(invite, annotator, timezone.now())
            record("annotator.joined", annotator, user, round=round, annotator=annotator)
            return annotator
    except IntegrityError:
        if user is not None:  # the same account joined concurrently
            return Annotator.objects.get(round=round, user=user)
        message = f"The name {name} is already in use. If it is yours, use your return code; otherwise choose another."
        raise DomainError("NameTaken", message) from None


def _normalized(name: str) -> str:
    """Return the name in Unicode form NFKC, without invisible characters or repeated spaces."""
    visible = (letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf")
    return " ".join("".join(visible).split())


def return_code(annotator: Annotator) -> str:
    """Return a guest's code for other devices, for example 12-ABCD-EFGH-IJKL-MNOP. It does not expire."""
    signature = _signature(annotator.pk)
    return "-".join([str(annotator.pk), *(signature[start : start + 4] for start in range(0, 16, 4))])


def find_by_return_code(code: str) -> Annotator:
    """Return the guest of a return code, ignoring case, spaces, and hyphens. Raises BadReturnCode."""
    number, _, signature = code.strip().upper().partition("-")
    match = RETURN_CODE.fullmatch(number + "-" + re.sub(r"[-\s]", "", signature))
    if match and constant_time_compare(match[2], _signature(int(match[1]))):
        guest = Annotator.objects.select_related("round").filter(pk=match[1], user=None, erased_at=None).first()
        if guest is not None:
            return guest
    raise BadReturnCode("Invalid return code. Check that you entered the complete code.")


def _signature(pk: int) -> str:
    digest = salted_hmac(RETURN_SALT, str(pk), algorithm="sha256").digest()
    return base64.b32encode(digest[:RETURN_BYTES]).decode()


NOT_USABLE = {
    "used": "This invite was already used. If you used it, continue in the same browser or with your return code.",
    "revoked": "This invite was revoked. Ask the sender for a new one.",
    "expired": "This invite has expired. Ask the sender for a new one.",
}


class InviteNotUsable(DomainError):
    """The invite is used, revoked, or expired."""


def make_invites(round: Round, n: int, expires_at: datetime, by=None) -> list[Invite]:
    check_may(by, Action.WORK, round.project)
    return Invite.objects.bulk_create(Invite(round=round, expires_at=expires_at, created_by=by) for _ in range(n))


def use_invite(invite: Invite, annotator: Annotator, now: datetime) -> None:
    """Assign the invite to the annotator, in the transaction that created the annotator. Raises InviteNotUsable."""
    usable = Invite.objects.usable(now).filter(pk=invite.pk, round=annotator.round)
    if not usable.update(annotator=annotator, used_at=now):
        invite.refresh_from_db()
        raise InviteNotUsable(NOT_USABLE.get(invite.status(now), "This invite is for a different round."))


def revoke_invites(round: Round, tokens: list[str], now: datetime, by=None) -> int:
    """Revoke the unused invites among `tokens`; return their number. Raises NotAllowed."""
    check_may(by, Action.WORK, round.project)
    valid_tokens = [token for token in tokens if "\x00" not in token]  # PostgreSQL rejects NUL characters
    return round.invites.unused().filter(token__in=valid_tokens).update(revoked_at=now)
