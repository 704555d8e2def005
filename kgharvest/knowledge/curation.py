"""Curation: recorded decisions of researchers to hide or correct a knowledge tuple, or to take that back.

The tuple's entities stay what the LM said, and so do its judgments: they tell how much of a harvest is true. A curation
tells what leaves the house.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from kgharvest.access import Action, NotAllowed, may, owns_installation
from kgharvest.audit.tables import AuditedTable
from kgharvest.bulk.file_reading import entities_error
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import Curation, KnowledgeTuple, Project

LONGEST_REASON = 1000  # characters

Decision = Curation.Decision
CURATIONS = AuditedTable(Curation, "knowledge_tuple_id", "decision", "entities", "reason", "decided_at")


STATES = {
    Decision.HIDE: KnowledgeTuple.Curation.HIDDEN,
    Decision.CORRECT: KnowledgeTuple.Curation.CORRECTED,
    Decision.RESTORE: None,
}


def may_curate(user, knowledge_tuple: KnowledgeTuple) -> bool:
    """Return whether `user` works in every project whose harvests found the tuple: a decision on it is for all."""
    if owns_installation(user):
        return True
    projects = Project.objects.filter(pk__in=knowledge_tuple.harvested_tuples.order_by().values("job__project"))
    return projects.exists() and all(may(user, Action.WORK, project) for project in projects)


def check_may_curate(user, knowledge_tuple: KnowledgeTuple) -> None:
    """Raise NotAllowed unless `user` may decide on the tuple."""
    if not may_curate(user, knowledge_tuple):
        raise NotAllowed(
            "Knowledge is everybody's: only who works in every project that harvested this tuple, or a superuser, may "
            "decide on it."
        )


def hide(knowledge_tuple: KnowledgeTuple, reason: str, by=None) -> Curation:
    """Keep the tuple out of rounds, and of exports that do not ask for it. Raises BadCuration, NotAllowed."""
    return _decide(knowledge_tuple, Decision.HIDE, reason, by)


def correct(knowledge_tuple: KnowledgeTuple, entities: Sequence[str], reason: str, by=None) -> Curation:
    """Let exports have `entities`, as written, with the original beside them. Raises BadCuration, NotAllowed."""
    written = [entity.strip() for entity in entities]
    if error := entities_error(written, len(knowledge_tuple.entities)):
        raise DomainError("BadCuration", f"The correction {error}; write one entity for each slot.")
    return _decide(knowledge_tuple, Decision.CORRECT, reason, by, written)


def restore(knowledge_tuple: KnowledgeTuple, reason: str, by=None) -> Curation:
    """Let the tuple be again what the LM said. Raises BadCuration, NotAllowed."""
    return _decide(knowledge_tuple, Decision.RESTORE, reason, by)


@transaction.atomic
def _decide(
    knowledge_tuple: KnowledgeTuple, decision: Decision, reason: str, by, entities: list[str] | None = None
) -> Curation:
    check_may_curate(by, knowledge_tuple)
    if not reason.strip():
        raise DomainError("BadCuration", "Say why: the reason is kept with the decision.")
    if len(reason) > LONGEST_REASON:
        raise DomainError("BadCuration", f"The reason has {len(reason):,} characters; {LONGEST_REASON:,} are the most.")
    current = (
        KnowledgeTuple.objects.select_for_update(of=("self",), no_key=True)
        .select_related("relation")
        .get(pk=knowledge_tuple.pk)
    )
    if (current.curation, current.corrected_entities) == (STATES[decision], entities):
        state = current.curation or "as the LM said it"
        raise DomainError("BadCuration", f"{current} is {state} already; nothing was changed.")
    KnowledgeTuple.objects.filter(pk=current.pk).update(curation=STATES[decision], corrected_entities=entities)
    curation = current.curations.create(decision=decision, entities=entities, reason=reason.strip(), decided_by=by)
    record("tuple.curated", curation, by, relation=current.relation.name, tuple=current.pk, decision=decision)
    return curation
