"""Erasure of people. Erasing deletes accounts and the identities of annotators, but not their judgments."""

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from annotation.invites.recruitment import recruitment
from annotation.judging.assignment import release_leases
from annotation.models import Adjudication, Annotator, Invite, WhoAnswers
from annotation.monitoring.progress import delete_snapshots
from kgharvest.access import Action, check_may
from kgharvest.accounts.account_events import record_deletion
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import Project, ProjectMember, Role
from kgharvest.optional_apps import uninstalled_rows_kept


def check_may_erase(user, by) -> None:
    """Raise NotYoursToErase unless `by` owns all projects that the account works or judges in.

    Accounts belong to the installation, so owners may erase an account only if they own all of its projects.
    Superusers may erase every account except their own.
    """
    if by is None or (by.is_superuser and by != user):
        return
    user_projects = Project.objects.filter(Q(members__user=user) | Q(rounds__annotators__user=user)).order_by()
    owned = Project.objects.with_role(by, [Role.OWNER]).order_by().values("pk")
    other_projects = Project.objects.filter(pk__in=user_projects.values("pk")).exclude(pk__in=owned)
    if by == user or user.is_staff or user.is_superuser or other_projects.exists():
        reason = "It is your own account, a staff account, or an account in projects that you do not own."
        raise DomainError("NotYoursToErase", f"Cannot erase {user}. {reason} Ask the operator of this installation.")


@transaction.atomic
def erase_annotator(annotator: Annotator, by=None) -> list[str]:
    """Delete the account link, name, invite, and questionnaire of an annotator, who then cannot return. Idempotent.

    The annotator's code, judgments, comments, consent, and events under that code stay. Leased statements are released.
    The account itself stays (erase_account deletes it). If the user of the account joins again, a new annotator is
    created. Returns one sentence for each platform id that is retained for now, with the reason. Erasure cannot be
    undone, so it requires the permission to manage the project. Raises NotAllowed.
    """
    check_may(by, Action.MANAGE, annotator.round.project)
    recruitment().lock(annotator)
    annotator = Annotator.objects.lock(annotator.pk)
    forget(annotator, by)
    return recruitment().forget(annotator)


def forget(annotator: Annotator, by) -> bool:
    """Erase a locked annotator, but not the annotator's panel places. Return False if already erased."""
    if not Annotator.objects.filter(pk=annotator.pk, erased_at=None).update(
        user=None, name="", erased_at=timezone.now()
    ):
        return False
    Invite.objects.filter(annotator=annotator).delete()
    WhoAnswers.objects.filter(annotator=annotator).delete()
    if annotator.user_id:
        annotator.round.events.filter(annotator=annotator.code, by=annotator.user_id).update(by=None)
    release_leases(annotator.assignments.all())
    delete_snapshots(annotator.round)  # cached statistics contain names
    record("annotator.erased", annotator, by, round=annotator.round, annotator=annotator)
    return True


@uninstalled_rows_kept()
@transaction.atomic
def erase_account(user, by=None) -> int:
    """Delete an account and all data that identifies its user. Return the number of rounds in which the user judged.

    Judgments and decisions stay. Raises AppNotInstalled, DomainError NotYoursToErase, or DomainError SoleOwner if the
    account is the only owner of a project.
    """
    check_may_erase(user, by)
    owned = ProjectMember.objects.filter(role=Role.OWNER)
    for project, name in owned.filter(user=user).values_list("project", "project__name"):
        if not owned.filter(project=project).exclude(user=user).exists():
            raise DomainError(
                "SoleOwner", f"{user} is the only owner of the project {name!r}. Add another owner first."
            )
    for annotator in user.annotators.order_by("pk"):
        recruitment().lock(annotator)
    annotators = [Annotator.objects.lock(pk) for pk in user.annotators.order_by("pk").values_list("pk", flat=True)]
    for annotator in annotators:
        forget(annotator, by)
    Adjudication.objects.filter(by=user).update(by=None)
    record_deletion("account.erased", user, by)
    user.delete()
    for annotator in annotators:
        recruitment().forget(annotator)
    return len(annotators)
