"""Event recording. Services record events only through this module, in the transaction of the action.

The round history, the audit log, webhooks, and reports read the events. Recording does not wait for a lock, because the
sealer (kgharvest.events.chain) adds events to the hash chain later.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from kgharvest.audit.tables import DELETED, audited_tables, canonical_json, table_lines
from kgharvest.events.models import Actor, Event
from kgharvest.events.types import event_types
from kgharvest.webhooks.models import Delivery, Webhook


@transaction.atomic
def record(
    action: str,
    subject: Model | tuple[str, Any],
    by: Any,
    project_id: int | None = None,
    rows: Sequence[Model] = (),
    *,
    deleted: Sequence[Model] = (),
    round: Any = None,
    annotator: Any = None,
    texts: Mapping[str, Any] | None = None,
    path: str = "",
    **facts: Any,
) -> Event:
    """Record an event, and enqueue it for the webhooks of the project, within the caller's transaction.

    action: key of an event type. subject: affected object, or its type and id. by: account that acts; None for a worker
    or the operator. project_id: id of the project, None for the installation; the project of `round` takes precedence.
    rows: rows of audited tables to record in addition to `subject`. deleted: rows of mutable tables that the caller
    deletes next. round, annotator: objects; their name and code become facts. texts: free text, which is not hashed
    and can be erased. path: URL path of the page that webhooks link to. It defaults to the page of the subject or of
    the round. facts: JSON values, with codes instead of names of people.
    """
    event_type = event_types()[action]
    if round is not None:
        facts["round"], project_id = round.name, round.project_id
    if annotator is not None:
        facts["annotator"] = annotator.code
    # Raises KeyError if facts are missing, which is a bug in the caller.
    event_type.sentence.format(**facts | dict(texts or {}))
    event_type.history.format(**facts | dict(texts or {}))
    if not isinstance(subject, tuple):
        rows = [subject, *rows]
    row_lines = []
    for name, table in audited_tables().items():
        # Hashes are computed from the stored values, because the database may round values.
        hashes = table.row_hashes([row.pk for row in rows if table.may_contain(row)])
        hashes |= {str(row.pk): DELETED for row in deleted if table.is_mutable and table.may_contain(row)}
        row_lines += table_lines(name, hashes)
    subject_type, subject_id = subject if isinstance(subject, tuple) else (subject._meta.model_name, subject.pk)
    event = Event.objects.create(
        at=timezone.now(),
        project_id=project_id,
        actor=actor_code(by) if event_type.names_actor else "",
        action=action,
        subject_type=subject_type,
        subject_id=str(subject_id),
        facts=canonical_json(facts),
        row_hashes="\n".join(row_lines),
        round_id=round.pk if round is not None else None,
        kind=event_type.kind,
        annotator=annotator.code if annotator is not None else None,
        by=by,
        texts=texts,
    )
    if event_type.topic and project_id is not None:
        enabled = Webhook.objects.filter(project_id=project_id, disabled_at=None)
        if webhooks := [webhook for webhook in enabled if event_type.topic in webhook.events]:
            page = subject if hasattr(subject, "get_absolute_url") else round
            known_facts = {**event.known_facts, "url": f"{settings.ORIGIN}{path or page.get_absolute_url()}"}
            Delivery.objects.bulk_create(
                Delivery.about(webhook, event_type.topic, known_facts, event.at) for webhook in webhooks
            )
    return event


def actor_code(user: Any) -> str:
    """Return the code of an account in events.

    It is empty if `user` is None, which stands for a worker or the operator.
    """
    if user is None:
        return ""
    return Actor.objects.get_or_create(user=user, defaults={"code": f"p-{secrets.token_hex(5)}"})[0].code
