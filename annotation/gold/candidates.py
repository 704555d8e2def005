"""Candidates for false gold statements, created by negative sampling, and people's decisions on them."""

import hashlib
from collections.abc import Iterable, Mapping
from random import Random
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from annotation.models import GoldDecision
from kgharvest.access import MAY, Action, NotAllowed, check_may, may, may_anywhere
from kgharvest.accounts.projects import project_for
from kgharvest.audit.tables import AuditedTable
from kgharvest.entities.tables import canonical_entities
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import HarvestedTuple, HarvestJob, Project, Relation, tuple_key

CANDIDATES_AT_ONCE = 400
LONGEST_REASON = 1000  # characters
HARVESTED_AT_ONCE = 50  # harvested tuples used as a source of entities
GOLD_DECISIONS = AuditedTable(GoldDecision, "relation_id", "entities", "seed", "slot", "is_confirmed", "decided_at")
GOLD_WITHDRAWALS = AuditedTable(GoldDecision, "withdrawn_at", "reason", condition=~Q(withdrawn_at=None))


class GoldCandidate(NamedTuple):
    """A seed tuple with the entity of `slot` replaced by another entity of that slot."""

    entities: list[str]
    seed: list[str]
    slot: int

    @property
    def key(self) -> str:
        return tuple_key(self.entities)

    @property
    def code(self) -> str:
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]


def gold_candidates(relation: Relation, by=None, project: Project | None = None) -> list[GoldCandidate]:
    """Return up to CANDIDATES_AT_ONCE corrupted seeds without a decision. The random order is fixed for each relation.

    by: the user whose known harvests are a source of entities; None for all harvests. project: see GoldDecision.
    Corrupted seeds that equal a seed tuple or a harvested tuple are excluded, because they may be true.
    """
    harvests = HarvestJob.objects.known_to(by).filter(relation=relation).order_by().values("pk")
    best = HarvestedTuple.objects.presentable().filter(job__in=harvests, rank__lte=HARVESTED_AT_ONCE)
    harvested = best.order_by("rank", "pk").values_list("surface", flat=True)[:HARVESTED_AT_ONCE]
    by_slot = [list(dict.fromkeys(entities)) for entities in zip(*relation.seed_tuples, *harvested, strict=True)]
    canonical = canonical_entities({relation: by_slot})[relation.pk]
    candidates = {}
    for slot, entities in enumerate(by_slot):
        for seed in relation.seed_tuples:
            seed_entities = set(canonical(seed))
            for entity in entities:
                if seed_entities.isdisjoint(canonical([entity])):
                    candidate = GoldCandidate([*seed[:slot], entity, *seed[slot + 1 :]], seed, slot)
                    candidates[candidate.key] = candidate
    facts = {key: tuple_key(canonical(candidate.entities)) for key, candidate in candidates.items()}
    seeds = {tuple_key(canonical(seed)) for seed in relation.seed_tuples}
    keys = sorted(key for key, fact in facts.items() if fact not in seeds)
    Random(relation.pk).shuffle(keys)
    keys = keys[: 2 * CANDIDATES_AT_ONCE]
    # Also match surface forms, for tuples harvested before the set had an entity table.
    tuples = relation.knowledge_tuples.harvested().filter(key__in={*keys, *(facts[key] for key in keys)})
    harvested_keys = set(tuples.values_list("key", flat=True))
    decided = set(relation.gold_decisions.in_force().of(project).values_list("key", flat=True))
    is_open = [key for key in keys if harvested_keys.isdisjoint((key, facts[key])) and key not in decided]
    return [candidates[key] for key in is_open[:CANDIDATES_AT_ONCE]]


def may_decide(relation: Relation, by) -> bool:
    """Return whether `by` may work in the relation's project or, for a built-in relation, in at least one project."""
    if relation.project is None and by is not None:
        return may_anywhere(by, Action.WORK)
    return may(by, Action.WORK, relation.project)


def deciding_projects(relation: Relation, by) -> QuerySet[Project]:
    """Return the projects for which `by` may decide on a built-in relation; none for relations of projects."""
    projects = Project.objects.with_role(by, MAY[Action.WORK])
    return projects if by is not None and relation.project is None else projects.none()


@transaction.atomic
def decide_on_gold(relation: Relation, decisions: Mapping[str, bool], by=None, project: Project | None = None) -> int:
    """Store decisions on candidates and return the number of stored decisions.

    decisions: by candidate code; True confirms the statement as false. Codes that no longer belong to a candidate are
    skipped. project: required if `by` works in several projects and the relation is built-in. Raises NotAllowed or
    ProjectNotNamed.
    """
    if not may_decide(relation, by):
        check_may(by, Action.WORK, relation.project)
    project = project_for(by, project) if by is not None and relation.project is None else None
    # Lock the relation: concurrent decisions must not see these candidates as open.
    relation = Relation.objects.select_for_update(of=("self",), no_key=True).get(pk=relation.pk)
    candidates = {candidate.code: candidate for candidate in gold_candidates(relation, by, project)}
    new = [
        GoldDecision(
            relation=relation,
            project=project,
            entities=candidates[code].entities,
            key=candidates[code].key,
            seed=candidates[code].seed,
            slot=candidates[code].slot,
            is_confirmed=is_confirmed,
            decided_by=by,
        )
        for code, is_confirmed in decisions.items()
        if code in candidates
    ]
    stored = GoldDecision.objects.bulk_create(new)
    if stored:
        record("gold.decided", relation, by, rows=stored, relation=relation.name, n_decisions=len(stored))
    return len(stored)


def confirmed_counts(relations: Iterable[Relation], project: Project) -> dict[int, int]:
    """Return the number of confirmed false statements for a project by relation id, without relations with none."""
    confirmed = GoldDecision.objects.in_force().of(project).filter(relation__in=relations, is_confirmed=True).order_by()
    return dict(confirmed.values_list("relation").annotate(n=Count("pk")))


def may_withdraw(decision: GoldDecision, by) -> bool:
    """Return whether `by` may withdraw the decision.

    Decisions without a project on built-in relations affect all projects, so only superusers and the user who decided
    may withdraw them.
    """
    is_own = by is not None and decision.decided_by_id == by.pk and may_decide(decision.relation, by)
    return is_own or may(by, Action.WORK, decision.project or decision.relation.project)


def check_may_withdraw(decision: GoldDecision, by) -> None:
    if not may_withdraw(decision, by):
        raise NotAllowed(
            "Only the user who decided, users who work in the project, and superusers may withdraw the decision."
        )


@transaction.atomic
def withdraw_gold(decision: GoldDecision, reason: str, by=None) -> None:
    """Withdraw a decision and store the reason. Open rounds keep their gold statements. Idempotent.

    Raises NotAllowed or ReasonMissing.
    """
    check_may_withdraw(decision, by)
    if not reason.strip():
        raise DomainError("ReasonMissing", "The reason is missing. Enter a reason; it is stored with the decision.")
    decisions = GoldDecision.objects.in_force().filter(pk=decision.pk)
    if decisions.update(withdrawn_at=timezone.now(), withdrawn_by=by, reason=reason.strip()[:LONGEST_REASON]):
        record("gold.withdrawn", decision, by, relation=decision.relation.name)
