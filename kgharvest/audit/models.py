"""The audit trail: entries in a chain of hashes, its head, and the codes under which entries name people."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, date, datetime, time
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

SYSTEM = "system"  # as whom people look for workers, and for the operator at a command
LONGEST_NAME = 150  # of an account
BEFORE_ALL = "0" * 64  # the previous hash of the first entry

# What each action says, after the one who did it; the names in braces are facts. No fact names a person but by a code.
SENTENCES = {
    "trail.begun": "began the audit trail with {n_rows} decisions and reports made before",
    "judgments.sealed": "sealed {n_judgments} judgments of the round {round}",
    "round.opened": "opened the round {round} with {n_tasks} statements",
    "round.paused": "paused the round {round}",
    "round.reopened": "reopened the round {round}",
    "round.closed": "closed the round {round} with {n_incomplete} statements incomplete",
    "round.instructions_edited": "edited the instructions of the round {round}",
    "round.imported": "imported {n_judgments} judgments into the round {round}",
    "annotator.paused": "paused {annotator} in the round {round}",
    "annotator.resumed": "let {annotator} go on in the round {round}",
    "annotator.released": "released {n} assigned statements of {annotator} in the round {round}",
    "annotator.excluded": "excluded {annotator} from the round {round}: {n_judgments} judgments",
    "annotator.reinstated": "reinstated {annotator} in the round {round}",
    "annotator.withdrew": "withdrew {annotator} from the round {round}: the judgments {what}",
    "annotator.erased": "had {annotator} of the round {round} forgotten: account, name and invite",
    "adjudication.given": "adjudicated statement {task} of the round {round}: {label}",
    "gold.decided": "decided on {n_decisions} candidates for gold of {relation}",
    "gold.withdrawn": "withdrew a decision on gold of {relation}",
    "tuple.curated": "curated a tuple of {relation}: {decision}",
    "judge_run.made": "had the judge {judge} asked about the round {round}: {run}",
    "judge_run.deleted": "deleted the judge run {run} of the draft {round} with {n_answers} answers",
    "submission.decided": "asked for this about submission {submission} of the panel {panel}: {decision}",
    "bonus.granted": "granted submission {submission} of the panel {panel} a bonus of {amount}",
    "command.settled": "said of a {kind} for submission {submission} of the panel {panel}: {outcome}",
    "pay.paid": "noted that submission {submission} of the panel {panel} was paid {amount} as {purpose}",
    "preregistration.frozen": "froze preregistration {version} of the round {round}: SHA-256 {sha256}",
    "preregistration.deleted": "deleted preregistration {version} with the draft {round}: SHA-256 {sha256}",
    "report.made": "made a report on the round {round}",
    "paper.stated": "changed {n_statements} of the statements about the round {round} for a paper",
    "report.shared": "shared report {report} on the round {round} by a link for {days} days",
    "report.share_revoked": "revoked a link to report {report} on the round {round}",
    "report.packed": "packed report {report} on the round {round}: SHA-256 {sha256}",
    "project.made": "made the project {project}",
    "member.role_set": "made {person} {role} of the project {project}",
    "member.removed": "took {person} out of the project {project}",
    "member.handed_over": "handed the project {project} over to {person}",
    "member.joined": "joined the project {project} as {role}",
    "invite.made": "made an invite to the project {project} as {role}",
    "invite.revoked": "revoked an invite to the project {project} as {role}",
    "superuser.made": "made {person} a superuser",
    "token.made": "made a token of the scope {scope} for {days} days",
    "token.revoked": "revoked a token",
    "second_factor.set_up": "set up a second factor",
    "second_factor.new_recovery_codes": "made new recovery codes",
    "second_factor.removed": "removed a second factor",
    "openid.linked": "let an account at the OpenID provider log in",
    "openid.unlinked": "let an account at the OpenID provider log in no more",
    "webhook.made": "made the webhook {webhook}",
    "webhook.changed": "changed the webhook {webhook}",
    "webhook.secret_rotated": "gave the webhook {webhook} a new secret",
    "webhook.disabled": "disabled the webhook {webhook}",
    "webhook.enabled": "enabled the webhook {webhook}",
    "webhook.deleted": "deleted the webhook {webhook}",
    "panel.published": "published the panel {panel} of the round {round} with {places} places",
    "panel.paused": "paused the panel {panel} of the round {round}: {reason}",
    "panel.resumed": "let the panel {panel} of the round {round} go on",
    "panel.stopped": "stopped the panel {panel} of the round {round}",
    "panel.moved": "found the panel {panel} of the round {round} {status} at its platform",
    "submission.moved": "found submission {submission} of the panel {panel} of the round {round} {status} at its "
    "platform",
    "account.erased": "erased the account {person}",
}


class Actor(models.Model):
    """The code under which entries name an account. user: None once the account is erased; the code stays."""

    code = models.CharField(max_length=12, unique=True)
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="audit_actor"
    )

    def __str__(self) -> str:
        return self.code


def new_actor_code() -> str:
    return f"p-{secrets.token_hex(5)}"


class AuditEntryQuerySet(models.QuerySet):
    def for_list(self):
        """Leave the hashes of rows, up to 110 kB an entry, in the database; the newest come first."""
        return self.defer("row_hashes").order_by("-number")

    def narrowed(
        self, action: str = "", who: str = "", since: date | None = None, until: date | None = None
    ) -> AuditEntryQuerySet:
        """Return the entries of an action, of an account by its name or code (or SYSTEM), of the days from `since` to
        `until` of UTC; of all where nothing is said.
        """
        entries = self.filter(action=action) if action else self
        if who == SYSTEM:
            entries = entries.filter(actor="")
        elif who:
            named = Actor.objects.filter(Q(code=who) | Q(user__username=who)).values_list("code", flat=True)
            entries = entries.filter(actor__in=list(named))
        if since:
            entries = entries.filter(at__gte=datetime.combine(since, time(), UTC))
        if until:
            entries = entries.filter(at__lte=datetime.combine(until, time.max, UTC))
        return entries


class AuditEntry(models.Model):
    """One entry of the chain. Never changed and never deleted: triggers refuse both, where rows are touched by SQL.

    number: 1, 2, 3, ... without a gap. at: not before that of the entry before. project_id: None for what is the
    installation's. actor: an Actor's code; empty for a worker and for the operator at a command. action: a key of
    SENTENCES. subject_type, subject_id: what it is about. facts: canonical JSON. row_hashes: a line "table id sha256"
    for each row of an audited table that the entry speaks for (kgharvest.audit.tables). hash: of all these and of
    previous_hash, the hash of the entry before.
    """

    number = models.PositiveBigIntegerField(primary_key=True)
    at = models.DateTimeField(db_index=True)
    project_id = models.BigIntegerField(null=True)
    actor = models.CharField(max_length=12, blank=True)
    action = models.CharField(max_length=40)
    subject_type = models.CharField(max_length=40)
    subject_id = models.CharField(max_length=40)
    facts = models.TextField()
    row_hashes = models.TextField(blank=True)
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        ordering = ["number"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["project_id", "number"], name="audit_entry_of_project"),
            models.Index(fields=["action", "number"], name="audit_entry_by_action"),
            models.Index(fields=["actor", "number"], name="audit_entry_by_actor"),
        ]

    def __str__(self) -> str:
        return f"entry {self.number}"

    @property
    def known_facts(self) -> dict[str, Any]:
        return json.loads(self.facts)

    @property
    def sentence(self) -> str:
        """What was done, without who did it."""
        return SENTENCES[self.action].format(**self.known_facts)


class AuditHead(models.Model):
    """The last entry of the chain, in the table's only row. Who appends holds its lock."""

    THE_ONE = 1

    number = models.PositiveBigIntegerField(default=0)
    hash = models.CharField(max_length=64, default=BEFORE_ALL)

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"
