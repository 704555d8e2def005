"""Adjudication: expert labels of disputed statements, stored next to the majority verdict, which does not change."""

from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from annotation.judging.verdicts import Verdict
from annotation.models import Adjudication, JudgmentTask, Label, Round
from kgharvest.access import Action, check_may
from kgharvest.audit.tables import AuditedTable
from kgharvest.errors import DomainError
from kgharvest.events.recording import record

LONGEST_REMARK = 2000  # characters

QUEUES = {"undecided": "no majority", "disagreements": "disagreements"}  # labels of the queues, by name
ADJUDICATIONS = AuditedTable(Adjudication, "task_id", "label", "comment", "is_blind", "at", "supersedes__pk")


def adjudication_queue(round: Round, queue: str) -> QuerySet[JudgmentTask]:
    """Return the unadjudicated tasks of a queue, in the round's order."""
    tasks = round.tasks.without_gold().complete()
    if queue == "disagreements":
        tasks = tasks.with_disagreement()
    else:
        # DISAGREEMENT is the condition of an index. It includes unanimous Unjudgeable labels, which are also undecided.
        tasks = tasks.filter(tasks.DISAGREEMENT, verdict=Verdict.UNDECIDED)
    current = Adjudication.objects.current().filter(task=OuterRef("pk"))
    return tasks.filter(~Exists(current)).order_by("position")


def adjudicate(
    task: JudgmentTask, label: str, client_uuid: UUID, *, by, comment: str = "", is_blind: bool = True
) -> Adjudication:
    """Store an expert's label for a task.

    The label supersedes all earlier adjudications of the task, even those by other experts. A repeated `client_uuid`
    changes nothing. The task's counters and majority verdict stay unchanged. Raises NotAllowed, or DomainError
    UuidReused if the UUID belongs to another task.
    """
    with transaction.atomic():
        locked = JudgmentTask.objects.select_for_update(of=("self",), no_key=True).select_related("round__project")
        task = locked.get(pk=task.pk)
        check_may(by, Action.ADJUDICATE, task.round.project)
        stored = Adjudication.objects.filter(pk=client_uuid).first()
        if stored is not None and stored.task_id != task.pk:
            raise DomainError("UuidReused", f"UUID {client_uuid} belongs to another adjudication. Generate a new one.")
        if stored is not None:
            return stored
        # The foreign key is checked at commit, when the new adjudication exists.
        task.adjudications.current().update(superseded_by=client_uuid)
        adjudication = Adjudication.objects.create(
            client_uuid=client_uuid,
            task=task,
            label=label,
            comment=comment,
            is_blind=is_blind,
            by=by,
            at=timezone.now(),
        )
        texts = {"label": Label(label).label}
        record("adjudication.given", adjudication, by, round=task.round, texts=texts, task=task.pk, label=label)
        return adjudication
