"""Freeze preregistrations."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count

from annotation.judging.assignment import wait_for_answers
from annotation.models import Round
from annotation.rounds.builder import freeze_round
from evaluation.reports.document import METHOD
from kgharvest.access import Action, User, check_may
from kgharvest.audit.tables import AuditedTable, canonical_json, sha256
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.plan import completed_plan, pairs_compared
from kgharvest.contrib.publishing.preregistration.round_state import RoundParts, draft_parts, state_of, stored_parts
from kgharvest.errors import DomainError
from kgharvest.events.models import Event
from kgharvest.events.recording import record
from kgharvest.models import ProjectMember

FORMAT = "kgharvest preregistration 1"
MOST_VERSIONS = 100
OPERATOR = "operator"  # user of a command, or a superuser outside the project


class PreregistrationTable(AuditedTable):
    """Audited preregistrations. A missing one is valid only if its deletion with its draft was recorded."""

    def are_as_recorded(self, recorded: dict[str, str], number: int) -> dict[str, bool]:
        existing = super().are_as_recorded(recorded, number)
        deleted = Event.objects.filter(action="preregistration.deleted", subject_id__in=set(recorded) - set(existing))
        return existing | dict.fromkeys(deleted.values_list("subject_id", flat=True), True)


PREREGISTRATIONS = PreregistrationTable(Preregistration, "round_id", "version", "document", "sha256", "frozen_at")


def freeze_preregistration(round: Round, plan: Mapping[str, Any], now: datetime, by: User = None) -> Preregistration:
    """Freeze the state of the round and the plan as the next version.

    plan: validated by PlanSerializer. Annotators cannot join or answer during the check for judgments, so every
    judgment is later. Raises NotAllowed, TooLate, BadPlan, and errors of freeze_round.
    """
    with transaction.atomic():
        round = Round.objects.select_for_update(of=("self",)).select_related("project").get(pk=round.pk)
        check_may(by, Action.WORK, round.project)
        wait_for_answers(round)
        check_unjudged(round)
        parts = parts_of(round, by)
        versions = round.preregistrations.count()
        if versions >= MOST_VERSIONS:
            message = f"Round {round.name} already has {versions} preregistrations, the maximum."
            raise DomainError("TooLate", message)
        document = {
            "format": FORMAT,
            "version": versions + 1,
            "frozen_at": now.isoformat(timespec="seconds"),
            "round": {"name": round.name, "project": round.project.slug, "status": round.status},
            "written_by": role_in_words(round, by),
            "plan": completed_plan(plan, pairs_compared(parts.cells)),
            "state": state_of(parts),
            # LMs that labeled tuples of the round before the first judgment
            "judges_before": [
                {"name": run.name, "model": run.model, "n_answers": run.n_answers}
                for run in round.judge_runs.annotate(n_answers=Count("answers")).order_by("pk")
            ],
            "method": METHOD,
        }
        text = canonical_json(document)
        frozen = Preregistration.objects.create(
            round=round,
            version=document["version"],
            document=json.loads(text),
            sha256=sha256(text),
            created_by=by,
            frozen_at=now,
        )
        record("preregistration.frozen", frozen, by, round=round, version=frozen.version, sha256=frozen.sha256)
        return frozen


def check_unjudged(round: Round) -> None:
    """Raise TooLate if the round is closed or has judgments."""
    if round.status == Round.Status.CLOSED:
        message = f"Round {round.name} is closed. A round can only be preregistered before its first judgment."
        raise DomainError("TooLate", message)
    if round.is_judged:
        raise DomainError(
            "TooLate",
            f"Round {round.name} has judgments. A round can only be preregistered before its first judgment. Clone it "
            "and preregister the draft.",
        )


def parts_of(round: Round, by: User = None) -> RoundParts:
    """Return the parts of a round, for a draft as if it were opened. Raises errors of freeze_round."""
    if round.status == Round.Status.DRAFT:
        return draft_parts(round, freeze_round(round, by))
    return stored_parts(round)


def role_in_words(round: Round, by: User) -> str:
    """Return the user's role in the project, which identifies nobody."""
    role = by and ProjectMember.objects.filter(project=round.project_id, user=by).values_list("role", flat=True).first()
    return role or OPERATOR


def note_deletion(draft: Round, by: User) -> None:
    """Record the deletion of the draft's preregistrations (registries.DRAFT_DELETED)."""
    for frozen in draft.preregistrations.order_by("version"):
        record("preregistration.deleted", frozen, by, round=draft, version=frozen.version, sha256=frozen.sha256)
