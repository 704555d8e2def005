"""Archive of rounds and reports. Lists and choices hide archived rows; links, files, and numbers stay the same."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from kgharvest.access import Action, check_may
from kgharvest.errors import DomainError
from kgharvest.events.recording import record


def archive(row: Any, by=None) -> None:
    """Archive a closed round with its reports, or one report. Idempotent. Raises NotAllowed or WrongStatus."""
    _set_archived(row, timezone.now(), "archived", by)


def restore(row: Any, by=None) -> None:
    """Restore an archived round or report. Idempotent. Raises NotAllowed, WrongStatus, or RoundArchived."""
    _set_archived(row, None, "restored", by)


@transaction.atomic
def _set_archived(row: Any, archived_at: datetime | None, verb: str, by) -> None:
    check_may(by, Action.WORK, row.project)
    round = getattr(row, "round", row)
    if archived_at is None and row != round and type(round).objects.filter(pk=round.pk).archived().exists():
        raise DomainError("RoundArchived", f"Round {round} is archived. Restore it first. Its reports are then shown.")
    rows = type(row).objects.filter(pk=row.pk, **getattr(row, "ARCHIVABLE", {}))
    if rows.filter(archived_at__isnull=archived_at is not None).update(archived_at=archived_at):
        kind = row._meta.model_name
        facts = {"report": row.pk} if kind == "report" else {}
        record(f"{kind}.{verb}", row, by, round=round, **facts)
    elif not rows.exists():
        # Annotators would continue to judge an open round that researchers no longer see in their lists.
        raise DomainError("WrongStatus", f"Only a closed round can be archived. Close {row} first.")
