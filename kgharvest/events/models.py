"""Events in an append-only log with a hash chain, and the codes that represent people in events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from kgharvest.events.types import event_types, history_sentences

SYSTEM = "system"  # filter value for events of workers and the operator
LONGEST_NAME = 150  # maximum length of a username
BEFORE_ALL = "0" * 64  # previous hash of the first entry


class Actor(models.Model):
    """Code that represents an account in events. user: None after the account is erased; the code is kept."""

    code = models.CharField(max_length=12, unique=True)
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="audit_actor"
    )

    def __str__(self) -> str:
        return self.code


class EventQuerySet(models.QuerySet):
    def audited(self) -> EventQuerySet:
        """Return the events of the audit log, newest first, without the row hashes (up to 110 kB per event)."""
        return self.filter(~Q(hash="") | Q(hash=None)).defer("row_hashes").order_by("-pk")

    def sealed(self) -> EventQuerySet:
        """Return the entries of the chain, oldest first."""
        return self.exclude(number=None).order_by("number")

    def unsealed(self) -> EventQuerySet:
        return self.filter(hash=None).order_by("pk")

    def narrowed(
        self, action: str = "", who: str = "", since: date | None = None, until: date | None = None
    ) -> EventQuerySet:
        """Filter by action, account, and days in UTC; an empty argument does not filter.

        who: the name or code of an account, or SYSTEM. since, until: first and last day.
        """
        events = self.filter(action=action) if action else self
        if who == SYSTEM:
            events = events.filter(actor="")
        elif who:
            named = Actor.objects.filter(Q(code=who) | Q(user__username=who)).values_list("code", flat=True)
            events = events.filter(actor__in=list(named))
        if since:
            events = events.filter(at__gte=datetime.combine(since, time(), UTC))
        if until:
            events = events.filter(at__lte=datetime.combine(until, time.max, UTC))
        return events

    def json_lines(self) -> Iterator[str]:
        """Yield the history of a round as JSON lines, oldest first."""
        for event in self.order_by("pk").iterator():
            line = {
                "at": event.at.isoformat(),
                "kind": event.kind,
                "by": event.by.get_username() if event.by else None,
                "annotator": event.annotator,
                **event.details,
            }
            yield json.dumps(line, ensure_ascii=False) + "\n"


class Event(models.Model):
    """One action. Triggers forbid deletion and all changes except sealing and erasure.

    The following columns are hashed. at: time of the action. project_id: id of the project, None for the installation.
    actor: code of an Actor; empty for workers and the operator. action: key of an EventType. subject_type, subject_id:
    the affected object. facts: canonical JSON of codes, ids, numbers, and stored names. row_hashes: a line "table id
    sha256" for each recorded row of an audited table (kgharvest.audit.tables).

    The sealer (kgharvest.events.chain) sets number (1, 2, 3, ... without gaps), previous_hash, and hash. Before that,
    all three are None. Events from the round logs of older versions are not in the chain; their hash is empty.

    The following columns are not hashed. round_id, kind, annotator: round, code of the event type, and annotator code
    for the history of a round. by, texts: the account, and free text by name; both can be erased.
    """

    at = models.DateTimeField(db_index=True)
    project_id = models.BigIntegerField(null=True)
    actor = models.CharField(max_length=12, blank=True)
    action = models.CharField(max_length=40)
    subject_type = models.CharField(max_length=40)
    subject_id = models.CharField(max_length=40)
    facts = models.TextField()
    row_hashes = models.TextField(blank=True)
    number = models.PositiveBigIntegerField(null=True, unique=True, editable=False)
    previous_hash = models.CharField(max_length=64, null=True, editable=False)  # noqa: DJ001 - None: not sealed yet
    hash = models.CharField(max_length=64, null=True, editable=False)  # noqa: DJ001 - None: not sealed yet
    round_id = models.BigIntegerField(null=True)
    kind = models.CharField(max_length=30, blank=True, db_default="")
    annotator = models.CharField(max_length=30, null=True, blank=True)  # noqa: DJ001 - None: not about an annotator
    # There is no database constraint, because the previous release deletes accounts and does not know this column.
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_constraint=False,
    )
    texts = models.JSONField(null=True, blank=True)

    objects = EventQuerySet.as_manager()

    class Meta:
        db_table = "kgharvest_auditentry"
        ordering = ["pk"]
        indexes = [
            models.Index(fields=["project_id", "id"], name="event_of_project"),
            models.Index(fields=["action", "id"], name="event_by_action"),
            models.Index(fields=["actor", "id"], name="event_by_actor"),
            models.Index(fields=["round_id", "id"], condition=Q(round_id__isnull=False), name="event_of_round"),
            models.Index(fields=["id"], condition=Q(hash=None), name="event_unsealed"),
        ]

    def __str__(self) -> str:
        return f"{self.action} at {self.at:%Y-%m-%d %H:%M}"

    @property
    def known_facts(self) -> dict[str, Any]:
        """Facts, and free text that was not erased. Facts take precedence."""
        return (self.texts or {}) | json.loads(self.facts)

    @property
    def sentence(self) -> str:
        """Predicate of the event's sentence in the audit log."""
        event_type = event_types().get(self.action)
        return event_type.sentence.format_map(_SentenceFacts(self.known_facts)) if event_type else self.action

    @property
    def details(self) -> dict[str, Any]:
        """Facts and free text for the history of a round. Texts take precedence."""
        details = json.loads(self.facts) | (self.texts or {})
        return {name: value for name, value in details.items() if name not in ("round", "annotator")}

    @property
    def history_sentence(self) -> str:
        """Predicate of the event's sentence in the round history."""
        return history_sentences().get(self.kind, self.kind).format_map(_SentenceFacts(self.details))


class _SentenceFacts(dict):
    """Facts for a sentence, with an ellipsis for erased text."""

    def __missing__(self, name: str) -> str:
        return "…"


class AuditHead(models.Model):
    """The last entry of the chain: a single row, locked by the sealer."""

    THE_ONE = 1

    number = models.PositiveBigIntegerField(default=0)
    hash = models.CharField(max_length=64, default=BEFORE_ALL)

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"
