"""Erasing people: who an annotator was is forgotten, what they judged stays."""

from __future__ import annotations

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.db import transaction
from django.utils import timezone

from annotation.judging.assignment import release_leases
from annotation.models import Adjudication, Annotator, Invite, RoundEvent, StudyMember
from kgharvest.errors import DomainError


class SoleOwner(DomainError):
    """Erasing the account of a study's only owner."""


@transaction.atomic
def erase_annotator(annotator: Annotator, by=None) -> None:
    """Forget account, name and invite of an annotator, and let nobody come back as them. Twice is once.

    Their code, judgments, comments, consent and what the round's log says of them under that code stay. What is leased
    to them is released. Whoever has an account keeps it (erase_account), and joins as somebody new.
    """
    annotator = Annotator.objects.lock(annotator.pk)
    if not Annotator.objects.filter(pk=annotator.pk, erased_at=None).update(
        user=None, name="", erased_at=timezone.now()
    ):
        return
    Invite.objects.filter(annotator=annotator).delete()
    if annotator.user_id:
        RoundEvent.objects.filter(annotator=annotator, by=annotator.user_id).update(by=None)
    release_leases(annotator.assignments.all())
    annotator.round.events.record("erased", by=by, annotator=annotator)


@transaction.atomic
def erase_account(user) -> int:
    """Delete an account with all that names it; return in how many rounds it judged. What it judged and decided stays.

    Raises SoleOwner while a study would be left without an owner.
    """
    owned = StudyMember.objects.filter(role=StudyMember.Role.OWNER)
    for study in owned.filter(user=user).values_list("study", "study__name"):
        if not owned.filter(study=study[0]).exclude(user=user).exists():
            raise SoleOwner(f"{user} is the only owner of the study {study[1]!r}; make somebody else an owner first.")
    annotators = list(user.annotators.order_by("pk"))
    for annotator in annotators:
        erase_annotator(annotator)
    Adjudication.objects.filter(by=user).update(by=None)
    for attempts in (AccessAttempt, AccessFailureLog, AccessLog):
        attempts.objects.filter(username=user.get_username()).delete()
    user.delete()
    return len(annotators)
