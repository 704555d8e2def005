"""Event types.

To add an event, declare its type here (or in `event_types` of an optional app) and call `record` of
kgharvest.events.recording in the service. The round history, the audit log, and webhooks are derived from it.
"""

from functools import cache
from typing import NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string


class EventType(NamedTuple):
    """One type of event.

    key: key stored in events and the audit log; it never changes. sentence: predicate of the sentence in the audit log,
    with facts in braces. The subject of the sentence is the actor. kind: code in the history of a round; empty if the
    history does not show the event. history: predicate of the sentence in the history. topic: webhook topic, a key of
    TOPICS. names_actor: False for events of annotators, so that the chain does not connect an annotator's account with
    the annotator code.
    """

    key: str
    sentence: str
    kind: str = ""
    history: str = ""
    topic: str = ""
    names_actor: bool = True


# Webhook topics with their descriptions
TOPICS = {
    "job.finished": "A harvest or another job of the project succeeded or failed",
    "launch.finished": "The last harvest of a launch ended",
    "round.complete": "All statements of a round have their judgments",
    "annotator.paused": "An annotator was paused by a limit or by a researcher",
    "report.made": "A report was created",
}

CORE_TYPES = (
    EventType("trail.begun", "started the audit log with {n_rows} existing decisions and reports"),
    EventType("trail.extended", "added {n_rows} existing rows of more tables to the audit log"),
    EventType("trail.head_restored", "restored the missing head of the audit log at entry {entry}"),
    EventType("judgments.sealed", "sealed {n_judgments} judgments of the round {round}"),
    # Rounds
    EventType("round.opened", "opened the round {round} with {n_tasks} statements", "opened",
              "opened the round with {n_tasks} statements"),
    EventType("round.paused", "paused the round {round}", "paused", "paused the round"),
    EventType("round.reopened", "reopened the round {round}", "reopened", "reopened the round"),
    EventType("round.closed", "closed the round {round} with {n_incomplete} statements incomplete", "closed",
              "closed the round with {n_incomplete} statements incomplete"),
    EventType("round.released", "released {n} assigned statements of the round {round}", "given_back",
              "released {n} assigned statements"),
    EventType("round.reserved", "reserved {n} statements of the round {round} for {annotators}", "reserved",
              "reserved {n} statements for {annotators}"),
    EventType("round.reservation_released", "released {n} reserved statements of the round {round}",
              "reservation_released", "released {n} reserved statements"),
    EventType("round.archived", "archived the round {round}", "archived", "archived the round"),
    EventType("round.restored", "restored the round {round} from the archive", "restored",
              "restored the round from the archive"),
    EventType("round.instructions_edited", "edited the instructions of the round {round}"),
    EventType("round.who_can_join_set", "changed who can join the round {round}: {who}", "who_can_join_set",
              "changed who can join: {who}"),
    EventType("round.imported", "imported {n_judgments} judgments into the round {round}", "imported",
              "imported {n_judgments} judgments from {file}"),
    EventType("round.complete", "noted that all {n_statements} statements of the round {round} have their judgments",
              topic="round.complete"),
    EventType("round.limits_set", "set limits in the round {round}: {limits}", "limits_set", "set limits: {limits}"),
    # Annotators
    EventType("annotator.joined", "noted that {annotator} joined the round {round}", "joined", "joined",
              names_actor=False),
    EventType("annotator.check_failed",
              "noted that {annotator} failed the comprehension check of the round {round} twice", "check_failed",
              "failed the comprehension check twice and cannot judge"),
    EventType("annotator.limit_crossed", "paused {annotator} in the round {round} by a limit: {why}", "limit_crossed",
              "was paused by a limit: {why}", "annotator.paused"),
    EventType("annotator.paused", "paused {annotator} in the round {round}", "annotator_paused",
              "paused the annotator", "annotator.paused"),
    EventType("annotator.resumed", "resumed {annotator} in the round {round}", "annotator_resumed",
              "resumed the annotator"),
    EventType("annotator.released", "released {n} assigned statements of {annotator} in the round {round}",
              "given_back", "released {n} assigned statements"),
    EventType("annotator.excluded", "excluded {annotator} from the round {round}: {n_judgments} judgments", "excluded",
              "excluded the annotator, {n_judgments} judgments no longer counted: {reason}"),
    EventType("annotator.reinstated", "reinstated {annotator} in the round {round}"),
    EventType("annotator.counted_again",
              "finished reinstating {annotator} in the round {round}: {n_counted_again} judgments counted again, "
              "{n_left_out} not counted", "reinstated",
              "reinstated the annotator, {n_counted_again} judgments counted again, {n_left_out} not counted"),
    EventType("annotator.withdrew", "withdrew {annotator} from the round {round}: the judgments {what}", "withdrew",
              "withdrew; the judgments {what}"),
    EventType("annotator.withdrawn", "withdrew {annotator} from the round {round} on request: the judgments {what}",
              "withdrawn", "withdrew the annotator on request; the judgments {what}"),
    EventType("annotator.erased", "erased {annotator} of the round {round}: account, name, and invite", "erased",
              "erased the annotator: account, name, and invite"),
    # Decisions on statements and tuples
    EventType("adjudication.given", "adjudicated statement {task} of the round {round}: {label}", "adjudicated",
              "adjudicated statement {task}: {label}"),
    EventType("gold.decided", "decided on {n_decisions} candidates for gold of {relation}"),
    EventType("gold.withdrawn", "withdrew a decision on gold of {relation}"),
    EventType("tuple.curated", "curated a tuple of {relation}: {decision}"),
    # Judge runs, reports, and preregistrations
    EventType("judge_run.made", "started a run of the judge {judge} for the round {round}: {run}"),
    EventType("judge_run.deleted", "deleted the judge run {run} of the draft {round} with {n_answers} answers"),
    EventType("preregistration.frozen", "froze preregistration {version} of the round {round}: SHA-256 {sha256}"),
    EventType("preregistration.deleted", "deleted preregistration {version} with the draft {round}: SHA-256 {sha256}"),
    EventType("study.made", "created the study {study}"),
    EventType("study.changed", "changed the study {study}: {keys}"),
    EventType("report.made", "created a report on the round {round}", topic="report.made"),
    EventType("paper.stated", "changed {n_statements} answers about the round {round} in the paper metadata"),
    EventType("report.shared", "shared report {report} on the round {round} by a link for {days} days"),
    EventType("report.share_revoked", "revoked a link to report {report} on the round {round}"),
    EventType("report.archived", "archived report {report} on the round {round}"),
    EventType("report.restored", "restored report {report} on the round {round} from the archive"),
    EventType("report.packed", "packed report {report} on the round {round}: SHA-256 {sha256}"),
    # Projects and accounts
    EventType("project.made", "created the project {project}"),
    EventType("project.knowledge_published", "changed the published knowledge of the project {project}: {published}"),
    EventType("member.role_set", "made {person} {role} of the project {project}"),
    EventType("member.removed", "removed {person} from the project {project}"),
    EventType("member.handed_over", "transferred the project {project} to {person}"),
    EventType("member.joined", "joined the project {project} as {role}"),
    EventType("invite.made", "created an invite to the project {project} as {role}"),
    EventType("invite.revoked", "revoked an invite to the project {project} as {role}"),
    EventType("superuser.made", "made {person} a superuser"),
    EventType("token.made", "created a token with the scope {scope} for {days} days"),
    EventType("token.revoked", "revoked a token"),
    EventType("second_factor.set_up", "set up a second factor"),
    EventType("second_factor.new_recovery_codes", "created new recovery codes"),
    EventType("second_factor.removed", "removed a second factor"),
    EventType("openid.linked", "linked an OpenID identity"),
    EventType("openid.unlinked", "unlinked an OpenID identity"),
    EventType("account.made", "created the account {person} for an annotator of the project {project}"),
    EventType("account.link_renewed", "created a new link for the account {person} in the project {project}"),
    EventType("account.erased", "erased the account {person}"),
    EventType("account.created", "created the account {person}"),
    EventType("account.set", "changed {what} of the account {person}"),
    EventType("account.deleted", "deleted the account {person}"),
    EventType("account.logged_in", "logged in"),
    EventType("export.made", "downloaded {file} from {page}"),
    # Relations and harvests
    EventType("relations.saved", "saved {n_relations} relations of the set {set}"),
    EventType("relations.deleted", "deleted {n_relations} relations of the set {set}"),
    EventType("harvests.imported", "imported {n_tuples} tuples in {n_harvests} harvests"),
    # Webhooks and jobs
    EventType("webhook.made", "created the webhook {webhook}"),
    EventType("webhook.changed", "changed the webhook {webhook}"),
    EventType("webhook.secret_rotated", "rotated the secret of the webhook {webhook}"),
    EventType("webhook.disabled", "disabled the webhook {webhook}"),
    EventType("webhook.enabled", "enabled the webhook {webhook}"),
    EventType("webhook.deleted", "deleted the webhook {webhook}"),
    EventType("job.finished", "ended job {job} ({kind}): {status}", topic="job.finished"),
    EventType("job.cancelled", "canceled job {job} ({kind})"),
    EventType("launch.finished",
              "ended launch {launch}: {n_succeeded} succeeded, {n_failed} failed, {n_cancelled} canceled",
              topic="launch.finished"),
    # Panels and pay
    EventType("panel.made", "created the panel {panel} of the round {round} with {places} places", "panel_made",
              "created the panel {panel} with {places} places"),
    EventType("panel.changed", "changed the panel {panel} of the round {round}", "panel_changed",
              "changed the panel {panel}"),
    EventType("panel.deleted", "deleted the draft panel {panel} of the round {round}", "panel_deleted",
              "deleted the draft panel {panel}"),
    EventType("panel.published", "published the panel {panel} of the round {round} with {places} places",
              "panel_published", "published the panel {panel} with {places} places"),
    EventType("panel.paused", "paused the panel {panel} of the round {round}: {reason}", "panel_paused",
              "paused the panel {panel}: {reason}"),
    EventType("panel.resumed", "resumed the panel {panel} of the round {round}", "panel_resumed",
              "resumed the panel {panel}"),
    EventType("panel.stopped", "stopped the panel {panel} of the round {round}", "panel_stopped",
              "stopped the panel {panel}: {reason}"),
    EventType("panel.moved", "noted that the panel {panel} of the round {round} is {status} on its platform",
              "panel_moved", "noted that the panel {panel} is {status}: {why}"),
    EventType("submission.moved",
              "noted that submission {submission} in panel {panel} of the round {round} is {status} on the platform",
              "submission_moved",
              "noted that submission {submission} of the panel {panel} is {status} on the platform"),
    EventType("place.completed", "noted that a place of the panel {panel} of the round {round} was completed",
              "place_completed", "completed a place of the panel {panel}"),
    EventType("place.left", "noted that a place of the panel {panel} of the round {round} was left: {status}",
              "place_left", "left a place of the panel {panel}: {status}"),
    EventType("submission.decided", "requested for submission {submission} of the panel {panel}: {decision}"),
    EventType("bonus.granted", "granted submission {submission} of the panel {panel} a bonus of {amount}"),
    EventType("command.settled", "settled a {kind} for submission {submission} of the panel {panel}: {outcome}"),
    EventType("pay.owed", "noted that submission {submission} of the panel {panel} is owed {amount} as {purpose}"),
    EventType("pay.paid", "noted that submission {submission} of the panel {panel} was paid {amount} as {purpose}"),
)  # fmt: skip


@cache
def event_types() -> dict[str, EventType]:
    """Return all event types by key: core types, followed by types of installed optional apps."""
    added = [event_type for path in settings.EVENT_TYPES for event_type in import_string(path)]
    return {event_type.key: event_type for event_type in (*CORE_TYPES, *added)}


@cache
def history_sentences() -> dict[str, str]:
    """Return the round history sentences by kind."""
    return {event_type.kind: event_type.history for event_type in event_types().values() if event_type.kind}
