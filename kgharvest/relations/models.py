"""Relations and relation sets."""

from django.db import models
from django.db.models import Q
from django.urls import reverse

from kgharvest.accounts.models import Project, person_or_null


class RelationSetQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return built-in sets and the sets of the user's projects. Superusers and the operator see all sets."""
        return self.filter(Q(project=None) | Q(project__in=Project.objects.visible_to(user)))


class RelationSet(models.Model):
    """Named collection of relations. A set belongs to a project or is built-in. Everyone can read built-in sets.

    Names of sets are unique in the installation, because projects share knowledge and "set/relation" must identify a
    relation.
    """

    name = models.SlugField(max_length=100, unique=True)
    description = models.TextField(blank=True)
    is_shipped = models.BooleanField(default=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, related_name="relation_sets")
    created_by = person_or_null()

    objects = RelationSetQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(is_shipped=True, project=None) | Q(is_shipped=False, project__isnull=False),
                name="relation_set_of_a_project_or_shipped",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Return the URL of the relation list, filtered by this set."""
        return f"{reverse('kgharvest:relation_list')}?set={self.name}"


class RelationQuerySet(models.QuerySet):
    def visible_to(self, user):
        return self.filter(relation_set__in=RelationSet.objects.visible_to(user))

    def lock(self, relation_id: int) -> None:
        """Prevent other transactions from storing or flagging tuples of the relation until this transaction ends."""
        self.select_for_update(no_key=True).get(pk=relation_id)


class Relation(models.Model):
    """A relation that can be harvested from an LM.

    name: must not contain "/", which separates set and name in paths. statement: sentence with slots that annotators
    judge. initial_prompts: one or more prompts written by a person. prompts: predefined prompts; may be empty.
    seed_tuples: lists of `arity` entities. A harvest needs at least two seed tuples. negative_seed_tuples: false tuples
    that show causal LMs and chat models the limits of the relation; may be empty.
    """

    relation_set = models.ForeignKey(RelationSet, on_delete=models.CASCADE, related_name="relations")
    name = models.CharField(max_length=100)
    statement = models.TextField()
    explanation = models.TextField(blank=True)
    arity = models.PositiveSmallIntegerField()
    initial_prompts = models.JSONField()
    prompts = models.JSONField(default=list, blank=True)
    seed_tuples = models.JSONField()
    negative_seed_tuples = models.JSONField(default=list, db_default=[], blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = RelationQuerySet.as_manager()

    class Meta:
        ordering = ["relation_set", "name"]
        constraints = [
            models.UniqueConstraint(fields=["relation_set", "name"], name="relation_set_name_unique"),
            models.CheckConstraint(condition=Q(arity__gte=2), name="relation_arity_at_least_two"),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("kgharvest:relation_detail", args=[self.pk])

    @property
    def project(self) -> Project | None:
        return self.relation_set.project

    @property
    def path(self) -> str:
        """Unique name: set/name."""
        return f"{self.relation_set.name}/{self.name}"
