"""Entity tables: canonicalization rules, and labels with aliases and ids."""

from django.db import models

from kgharvest.accounts.models import person_or_null
from kgharvest.relations.models import RelationSet


class EntityTable(models.Model):
    """Canonicalization of the entities of a relation set. A change applies only to tuples that are stored later.

    source, sha256: name and hash of the label file; empty if there is none. n_labels, n_aliases: number of labels and
    of aliases in the file. n_ambiguous: number of names with several labels; these names are not linked.
    """

    relation_set = models.OneToOneField(RelationSet, on_delete=models.CASCADE, related_name="entity_table")
    without_articles = models.BooleanField(
        "ignore articles", default=True, help_text="“a dog” and “the dog” become “dog”."
    )
    in_singular = models.BooleanField(
        "singularize",
        default=False,
        help_text="“dogs” becomes “dog”, by English rules. Names that end in s may become wrong; labels do not change.",
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
    """Case-folded name of an entity, with the entity's label and id. The id can be empty. Labels are also names."""

    table = models.ForeignKey(EntityTable, on_delete=models.CASCADE, related_name="names", db_index=False)
    name = models.TextField()
    label = models.TextField()
    identifier = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["table", "name"], name="entity_name_table_name_unique")]

    def __str__(self) -> str:
        return f"{self.name}: {self.label}"
