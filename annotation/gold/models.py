"""Researchers' decisions on candidates for false gold statements."""

from django.db import models
from django.db.models import Q

from kgharvest.access import owns_installation
from kgharvest.accounts.models import person_or_null
from kgharvest.models import Project, Relation


class GoldDecisionQuerySet(models.QuerySet):
    def in_force(self):
        return self.filter(withdrawn_at=None)

    def of(self, project: Project | int | None):
        """Return the decisions that rounds of the project use."""
        return self.filter(Q(project=None) | Q(project=project))

    def visible_to(self, user):
        """Return the decisions of the user's projects, those on relations of these projects, and the user's own."""
        if owns_installation(user):
            return self
        projects = Project.objects.visible_to(user).order_by().values("pk")
        is_own = Q(project=None, relation__relation_set__project=None, decided_by=user)
        return self.filter(Q(project__in=projects) | Q(relation__relation_set__project__in=projects) | is_own)


class GoldDecision(models.Model):
    """A corrupted seed that a person confirmed as false or rejected. Only confirmed seeds become gold.

    project: the project that decided on a relation of a built-in set. None for relations of projects, and for decisions
    of the operator, which all rounds use. entities: the seed tuple with the entity of `slot` replaced. key: `tuple_key`
    of `entities`. seed: the original tuple. withdrawn_at: None while the decision is in force. Withdrawn decisions are
    kept because rounds may depend on them.
    """

    relation = models.ForeignKey(Relation, on_delete=models.PROTECT, related_name="gold_decisions")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, related_name="gold_decisions")
    entities = models.JSONField()
    key = models.TextField()
    seed = models.JSONField()
    slot = models.PositiveSmallIntegerField()
    is_confirmed = models.BooleanField()
    decided_by = person_or_null()
    decided_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = person_or_null()
    reason = models.TextField(blank=True)

    objects = GoldDecisionQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["relation", "key"],
                condition=Q(withdrawn_at=None, project=None),
                name="gold_decision_relation_key_unique",
            ),
            models.UniqueConstraint(
                fields=["relation", "project", "key"],
                condition=Q(withdrawn_at=None),
                name="gold_decision_project_key_unique",
            ),
            models.CheckConstraint(
                condition=Q(withdrawn_at=None) | ~Q(reason=""), name="gold_decision_withdrawn_for_a_reason"
            ),
        ]

    def __str__(self) -> str:
        return f"{' · '.join(self.entities)}: {'false' if self.is_confirmed else 'rejected'}"
