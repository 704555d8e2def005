"""Freeze preregistrations. A preregistration contains a plan and the state of the round.

Reports compare this state with the round's current state.

The state of a draft is computed as if the draft had been opened. It can then be compared with the state of the opened
round.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from annotation.judging.assignment import wait_for_answers
from annotation.models import Limits, Round, Stratum
from annotation.rounds.builder import freeze_round
from annotation.rounds.instructions import DEFAULT_INSTRUCTIONS
from annotation.rounds.models import OPTIONS
from annotation.rounds.serializers import LimitsSerializer, ModelDescription
from evaluation.evidence.rows import cells_of_strata, harvest_entry
from evaluation.reports.document import METHOD
from kgharvest import code_version
from kgharvest.access import Action, User, check_may
from kgharvest.audit.tables import AuditedTable, canonical_json, sha256
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.plan import completed_plan, pairs_compared
from kgharvest.errors import DomainError
from kgharvest.events.models import Event
from kgharvest.events.recording import record
from kgharvest.models import ProjectMember
from kgharvest.statistics.paired_tests import CellKey

FORMAT = "kgharvest preregistration 1"
MOST_VERSIONS = 100
STATEMENTS_AT_ONCE = 2000
STRATUM = ("rank_from", "rank_to", "judge_label", "population", "sample_size")


class PreregistrationTable(AuditedTable):
    """Audited preregistrations.

    A missing preregistration is an error unless the audit log shows that its draft was deleted.
    """

    def are_as_recorded(self, recorded: dict[str, str], number: int) -> dict[str, bool]:
        existing = super().are_as_recorded(recorded, number)
        deleted = Event.objects.filter(action="preregistration.deleted", subject_id__in=set(recorded) - set(existing))
        return existing | dict.fromkeys(deleted.values_list("subject_id", flat=True), True)


PREREGISTRATIONS = PreregistrationTable(Preregistration, "round_id", "version", "document", "sha256", "frozen_at")


def freeze_preregistration(round: Round, plan: Mapping[str, Any], now: datetime, by: User = None) -> Preregistration:
    """Freeze the state of the round and the plan as the next version.

    plan: plan validated by PlanSerializer. Annotators cannot join or answer while judgments are checked, so every
    judgment is made after the freeze. Raises NotAllowed, TooLate, BadPlan, and the errors of freeze_round.
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
        members = ProjectMember.objects.filter(project=round.project, user=by)
        document = {
            "format": FORMAT,
            "version": versions + 1,
            "frozen_at": now.isoformat(timespec="seconds"),
            "round": {"name": round.name, "project": round.project.slug, "status": round.status},
            # Only the role in the project, which does not identify anyone. For commands and superusers outside the
            # project, it is operator.
            "written_by": members.values_list("role", flat=True).first() or "operator",
            "plan": completed_plan(plan, pairs_compared(parts.cells)),
            "state": state_of(parts),
            # LM judges that labeled tuples of the round before the first judgment
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
    rule = "A round can only be preregistered before its first judgment."
    if round.status == Round.Status.CLOSED:
        raise DomainError("TooLate", f"Round {round.name} is closed. {rule}")
    if round.is_judged:
        raise DomainError("TooLate", f"Round {round.name} has judgments. {rule} Clone it, then preregister the draft.")


def note_deletion(draft: Round, by: User) -> None:
    """Record the deletion of the draft's preregistrations (registries.DRAFT_DELETED)."""
    for frozen in draft.preregistrations.order_by("version"):
        record("preregistration.deleted", frozen, by, round=draft, version=frozen.version, sha256=frozen.sha256)


class OptionsSerializer(ModelDescription):
    """Options of a round, in the form of the round's description."""

    class Meta:
        model = Round
        fields = OPTIONS


class RoundParts(NamedTuple):
    """Parts of a draft or stored round. statements: texts by position, including gold.

    relation_instructions: instructions by relation id, which is a string.
    """

    round: Round
    strata: Sequence[Stratum]
    statements: Iterable[str]
    relation_instructions: Mapping[str, str]
    limits: Limits
    n_gold: int
    n_training: int

    @property
    def cells(self) -> dict[CellKey, list[Stratum]]:
        return cells_of_strata(self.strata)


def parts_of(round: Round, by: User = None) -> RoundParts:
    """Return the parts of a round. For a draft, return the parts that opening it would create.

    Raises the errors of freeze_round.
    """
    if round.status != Round.Status.DRAFT:
        return stored_parts(round)
    frozen = freeze_round(round, by)
    return RoundParts(
        round,
        [sample.stratum for sample in frozen.samples],
        (task.statement for task in frozen.tasks),
        frozen.relation_instructions,
        Limits(**round.spec.get("limits", {})),
        sum(task.is_gold for task in frozen.tasks),
        len(frozen.training),
    )


def stored_parts(round: Round) -> RoundParts:
    """Return the parts of an opened round."""
    strata = round.strata.exclude(job=None).select_related("relation__relation_set", "job__language_model")
    statements = round.tasks.order_by("position").values_list("statement", flat=True)
    return RoundParts(
        round,
        list(strata.order_by("rank_from", "pk")),
        statements.iterator(STATEMENTS_AT_ONCE),
        round.relation_instructions,
        Limits.objects.filter(round=round).first() or Limits(),
        round.n_gold,
        round.training_statements.count(),
    )


def state_of(parts: RoundParts) -> dict[str, Any]:
    """Return options, limits, cells, statements, instructions, and analysis as plain JSON."""
    round, digest, n = parts.round, hashlib.sha256(), 0
    # The state contains only a hash of the statements, because a list would be long and would reveal gold statements.
    for statement in parts.statements:
        digest.update(f"{json.dumps(statement)}\n".encode())
        n += 1
    paths = {str(stratum.relation_id): stratum.relation.path for stratum in parts.strata}
    texts = parts.relation_instructions.items()
    with timezone.override(UTC):
        options = dict(OptionsSerializer().to_representation(round))
    state = {
        "options": options,
        "limits": dict(LimitsSerializer().to_representation(parts.limits)),
        "cells": {" · ".join(map(str, key)): _cell(strata) for key, strata in parts.cells.items()},
        "statements": {"n": n, "sha256": digest.hexdigest()},
        "known_answers": {"n_gold": parts.n_gold, "n_training": parts.n_training},
        "instructions": {
            "round_sha256": sha256(round.instructions or DEFAULT_INSTRUCTIONS),
            "consent_sha256": sha256(round.consent) if round.consent else None,
            "relations_sha256": {paths[number]: sha256(text) for number, text in texts if number in paths},
        },
        "analysis": {"quorum": round.quorum, "method_sha256": sha256(METHOD), "code_version": code_version()},
    }
    return json.loads(canonical_json(state))


def _cell(strata: Sequence[Stratum]) -> dict[str, Any]:
    return {
        "harvest": harvest_entry(strata[0].job),
        "cut": strata[0].cut,
        "population": sum(stratum.population for stratum in strata),
        "sample_size": sum(stratum.sample_size for stratum in strata),
        "strata": [
            {name: getattr(stratum, name) for name in STRATUM}
            for stratum in sorted(strata, key=lambda stratum: (stratum.rank_from, stratum.judge_label))
        ],
    }
