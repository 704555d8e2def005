"""State of a round that a preregistration freezes and reports compare, as JSON.

A draft has the state that it would have after opening, so drafts and opened rounds can be compared.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from django.utils import timezone

from annotation.models import Limits, Round, Stratum
from annotation.rounds.builder import FrozenRound
from annotation.rounds.instructions import DEFAULT_INSTRUCTIONS
from annotation.rounds.models import OPTIONS
from annotation.rounds.serializers import ModelDescription
from evaluation.evidence.rows import cells_of_strata, harvest_entry
from evaluation.reports.document import METHOD
from kgharvest import code_version
from kgharvest.audit.tables import canonical_json, sha256
from kgharvest.statistics.paired_tests import CellKey

STATEMENTS_AT_ONCE = 2000


class OptionsSerializer(ModelDescription):
    """Options of a round, as in its description."""

    class Meta:
        model = Round
        fields = OPTIONS


class LimitsSerializer(ModelDescription):
    class Meta:
        model = Limits
        fields = Limits.OPTIONS


@dataclass(frozen=True)
class RoundParts:
    """Parts of a draft or stored round. statements: texts by position, including gold.

    relation_instructions: by the relation's id as text.
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


def draft_parts(draft: Round, frozen: FrozenRound) -> RoundParts:
    """Return the parts of a draft. frozen: objects that opening the draft would store."""
    return RoundParts(
        draft,
        [sample.stratum for sample in frozen.samples],
        (task.statement for task in frozen.tasks),
        frozen.relation_instructions,
        Limits(**draft.spec.get("limits", {})),
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
    round = parts.round
    with timezone.override(UTC):
        options = dict(OptionsSerializer().to_representation(round))
    state = {
        "options": options,
        "limits": dict(LimitsSerializer().to_representation(parts.limits)),
        "cells": {" · ".join(map(str, key)): _cell(strata) for key, strata in parts.cells.items()},
        "statements": _hashed(parts.statements),
        "known_answers": {"n_gold": parts.n_gold, "n_training": parts.n_training},
        "instructions": _instructions(parts),
        "analysis": {"quorum": round.quorum, "method_sha256": sha256(METHOD), "code_version": code_version()},
    }
    plain: dict[str, Any] = json.loads(canonical_json(state))
    return plain


def _cell(strata: Sequence[Stratum]) -> dict[str, Any]:
    return {
        "harvest": harvest_entry(strata[0].job),
        "cut": strata[0].cut,
        "population": sum(stratum.population for stratum in strata),
        "sample_size": sum(stratum.sample_size for stratum in strata),
        "strata": [
            {
                "rank_from": stratum.rank_from,
                "rank_to": stratum.rank_to,
                "judge_label": stratum.judge_label,
                "population": stratum.population,
                "sample_size": stratum.sample_size,
            }
            for stratum in sorted(strata, key=lambda stratum: (stratum.rank_from, stratum.judge_label))
        ],
    }


def _hashed(statements: Iterable[str]) -> dict[str, Any]:
    """Return the number and one hash of all statements: a list would be long and reveal gold statements."""
    digest, n = hashlib.sha256(), 0
    for statement in statements:
        digest.update(f"{json.dumps(statement)}\n".encode())
        n += 1
    return {"n": n, "sha256": digest.hexdigest()}


def _instructions(parts: RoundParts) -> dict[str, Any]:
    round, paths = parts.round, {str(stratum.relation_id): stratum.relation.path for stratum in parts.strata}
    return {
        "round_sha256": sha256(round.instructions or DEFAULT_INSTRUCTIONS),
        "consent_sha256": sha256(round.consent) if round.consent else None,
        "relations_sha256": {
            paths[number]: sha256(text) for number, text in parts.relation_instructions.items() if number in paths
        },
    }
