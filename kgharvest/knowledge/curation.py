"""Hide or correct a knowledge tuple, or take that back: recorded decisions of researchers.

The tuple's entities stay what the LM said, and so do its judgments: they tell how much of a harvest is true. A curation
tells what leaves the house.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from kgharvest.bulk.file_reading import entities_error
from kgharvest.errors import DomainError
from kgharvest.models import Curation, KnowledgeTuple

LONGEST_REASON = 1000  # characters

Decision = Curation.Decision


class BadCuration(DomainError):
    """A decision without a reason, that changes nothing, or that corrects to what is no tuple."""


def hide(known: KnowledgeTuple, reason: str, by=None) -> Curation:
    """Keep the tuple out of rounds, and out of exports that do not ask for hidden ones. Raises BadCuration."""
    return _decide(known, Decision.HIDE, reason, by)


def correct(known: KnowledgeTuple, entities: Sequence[str], reason: str, by=None) -> Curation:
    """Let exports have `entities`, as written, with the original beside them. Raises BadCuration."""
    written = [entity.strip() for entity in entities]
    if fault := entities_error(written, len(known.entities)):
        raise BadCuration(f"The correction {fault}; write one entity for each slot.")
    return _decide(known, Decision.CORRECT, reason, by, written)


def restore(known: KnowledgeTuple, reason: str, by=None) -> Curation:
    """Let the tuple be again what the LM said. Raises BadCuration."""
    return _decide(known, Decision.RESTORE, reason, by)


def _decide(known: KnowledgeTuple, decision: Decision, reason: str, by, entities: list[str] | None = None) -> Curation:
    _check_reason(reason)
    with transaction.atomic():
        tuples = KnowledgeTuple.objects.select_for_update(no_key=True)
        current = tuples.get(pk=known.pk)
        if _state(current) == (STATES[decision], entities):
            raise BadCuration(f"{known} is {current.curation or 'as the LM said it'} already; nothing was changed.")
        KnowledgeTuple.objects.filter(pk=known.pk).update(curation=STATES[decision], corrected_entities=entities)
        return known.curations.create(decision=decision, entities=entities, reason=reason.strip(), decided_by=by)


STATES = {
    Decision.HIDE: KnowledgeTuple.Curation.HIDDEN,
    Decision.CORRECT: KnowledgeTuple.Curation.CORRECTED,
    Decision.RESTORE: None,
}


def _state(known: KnowledgeTuple) -> tuple[str | None, list[str] | None]:
    return known.curation, known.corrected_entities


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise BadCuration("Say why: the reason is kept with the decision.")
    if len(reason) > LONGEST_REASON:
        raise BadCuration(f"The reason has {len(reason):,} characters; {LONGEST_REASON:,} are the most.")
