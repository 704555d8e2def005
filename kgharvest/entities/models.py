"""What makes two entities of a set's relations one: rules, and a table of labels, aliases and ids."""

from __future__ import annotations

from django.db import models

from kgharvest.accounts.models import person_or_null
from kgharvest.relations.models import RelationSet


class EntityTable(models.Model):
    """How entities of a set's relations are brought into one form, from the tuples on that are stored next.

    source, sha256: of the file with labels, empty without one. n_labels, n_aliases: that it has; n_ambiguous: aliases
    of several labels, which lead to none.
    """

    relation_set = models.OneToOneField(RelationSet, on_delete=models.CASCADE, related_name="entity_table")
    without_articles = models.BooleanField(
        "without articles", default=True, help_text="“a dog” and “the dog” are “dog”."
    )
    in_singular = models.BooleanField(
        "in the singular",
        default=False,
        help_text="“dogs” are “dog”, by the rules of English: names that end in s may suffer; a label keeps them.",
    )
    source = models.CharField(max_length=255, blank=True)
    sha256 = models.CharField(max_length=64, blank=True)
    n_labels = models.PositiveIntegerField(default=0)
    n_aliases = models.PositiveIntegerField(default=0)
    n_ambiguous = models.PositiveIntegerField(default=0)
    changed_by = person_or_null()
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"entities of {self.relation_set_id}"


class EntityName(models.Model):
    """A name of an entity, case-folded, with the label that stands for it and the label's id, perhaps empty.

    Every label is a name of its own.
    """

    table = models.ForeignKey(EntityTable, on_delete=models.CASCADE, related_name="names", db_index=False)
    name = models.TextField()
    label = models.TextField()
    identifier = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["table", "name"], name="entity_name_table_name_unique")]

    def __str__(self) -> str:
        return f"{self.name}: {self.label}"
