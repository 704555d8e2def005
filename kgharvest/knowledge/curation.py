"""Curation: researchers' decisions to hide, correct, or restore a knowledge tuple.

Curation affects rounds and exports. It does not change the tuple's entities or its judgments, because judgments measure
the accuracy of the LM's output.
"""

from collections.abc import Sequence

from django.db import transaction

from kgharvest.access import Action, NotAllowed, may, owns_installation
from kgharvest.audit.tables import AuditedTable
from kgharvest.bulk.file_values import entities_error
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import Curation, KnowledgeTuple, Project

LONGEST_REASON = 1000  # maximum number of characters

Decision = Curation.Decision
CURATIONS = AuditedTable(Curation, "knowledge_tuple_id", "decision", "entities", "reason", "decided_at")
STATES = {
    Decision.HIDE: KnowledgeTuple.Curation.HIDDEN,
    Decision.CORRECT: KnowledgeTuple.Curation.CORRECTED,
    Decision.RESTORE: None,
}


def may_curate(user, knowledge_tuple: KnowledgeTuple) -> bool:
    """Return True if `user` may work in every project that harvested the tuple.

    A decision affects all these projects.
    """
    if owns_installation(user):
        return True
    projects = Project.objects.filter(pk__in=knowledge_tuple.harvested_tuples.order_by().values("job__project"))
    return projects.exists() and all(may(user, Action.WORK, project) for project in projects)


def check_may_curate(user, knowledge_tuple: KnowledgeTuple) -> None:
    """Raise NotAllowed unless `user` may curate the tuple."""
    if not may_curate(user, knowledge_tuple):
        raise NotAllowed(
            "You cannot curate this tuple. Curation affects all projects and requires a superuser, or the researcher "
            "or owner role in every project that harvested the tuple."
        )


@transaction.atomic
def curate(
    knowledge_tuple: KnowledgeTuple, decision: str, reason: str, by=None, entities: Sequence[str] | None = None
) -> Curation:
    """Hide, correct, or restore the tuple. Raises BadCuration or NotAllowed.

    A hidden tuple is excluded from rounds and, by default, from exports. entities: corrected entities if the decision
    is a correction. Exports then contain the corrected and the original entities.
    """
    if decision == Decision.CORRECT:
        entities = [entity.strip() for entity in entities or ()]
        if error := entities_error(entities, len(knowledge_tuple.entities)):
            raise DomainError("BadCuration", f"The correction {error}. Enter one entity for each slot.")
    check_may_curate(by, knowledge_tuple)
    if not reason.strip():
        raise DomainError("BadCuration", "The reason is empty. Enter a reason for the decision.")
    if len(reason) > LONGEST_REASON:
        raise DomainError(
            "BadCuration", f"The reason has {len(reason):,} characters. Shorten it to {LONGEST_REASON:,} characters."
        )
    current = (
        KnowledgeTuple.objects.select_for_update(of=("self",), no_key=True)
        .select_related("relation")
        .get(pk=knowledge_tuple.pk)
    )
    if (current.curation, current.corrected_entities) == (STATES[decision], entities):
        state = current.curation or "neither hidden nor corrected"
        raise DomainError("BadCuration", f"Nothing to change: {current} is already {state}.")
    KnowledgeTuple.objects.filter(pk=current.pk).update(curation=STATES[decision], corrected_entities=entities)
    curation = current.curations.create(decision=decision, entities=entities, reason=reason.strip(), decided_by=by)
    record("tuple.curated", curation, by, relation=current.relation.name, tuple=current.pk, decision=decision)
    return curation
