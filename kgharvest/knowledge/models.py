"""Knowledge tuples, entity occurrences, curation, and sensitive words.

A KnowledgeTuple consists of a relation and case-folded entities. It does not belong to a job, so annotators judge it
once even if several jobs harvest it. A HarvestedTuple is a knowledge tuple as scored by one job. KnowledgeTuple has
denormalized columns by which lists are sorted, so the cost of a page does not depend on the number of tuples.
"""

from collections.abc import Sequence

from django.db import connection, models
from django.db.models import Q
from django.urls import reverse

from kgharvest.accounts.models import person_or_null
from kgharvest.relations.models import Relation

KEY_SEPARATOR = "\x1f"


def tuple_key(entities: Sequence[str]) -> str:
    """Return the unique key of a tuple within its relation: the joined case-folded entities."""
    return KEY_SEPARATOR.join(entity.casefold() for entity in entities)


class KnowledgeTupleQuerySet(models.QuerySet):
    def harvested(self):
        """Exclude tuples without harvests, for example tuples created by a judgment import."""
        return self.filter(best_score__isnull=False)

    def with_relation(self):
        """Join the relation and its set, without prompts and seed tuples."""
        columns = ("initial_prompts", "prompts", "seed_tuples", "negative_seed_tuples")
        unused = (f"relation__{column}" for column in columns)
        return self.select_related("relation__relation_set").defer(*unused)


class KnowledgeTuple(models.Model):
    """A claim: a relation with ordered, case-folded `entities`. key: `tuple_key(entities)`.

    n_harvests: number of jobs that harvested the tuple. best_score: largest score in these jobs; None without jobs.
    is_sensitive: True if an entity contains a sensitive word. curation: current decision of researchers, or None.
    corrected_entities: entities of a correction as they were entered. `entities` always contains the LM's output.
    """

    class Curation(models.TextChoices):
        HIDDEN = "hidden"
        CORRECTED = "corrected"

    relation = models.ForeignKey(  # no index of its own, because the unique constraint provides one
        Relation, on_delete=models.PROTECT, related_name="knowledge_tuples", db_index=False
    )
    entities = models.JSONField()
    key = models.TextField()
    n_harvests = models.PositiveIntegerField(default=0)
    best_score = models.FloatField(null=True, blank=True)
    is_sensitive = models.BooleanField(default=False)
    # NULL is used instead of "", so that queries for any value can use the partial index on IS NOT NULL.
    curation = models.CharField(max_length=9, null=True, blank=True, choices=Curation)  # noqa: DJ001
    corrected_entities = models.JSONField(null=True, blank=True)

    objects = KnowledgeTupleQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["relation", "key"], name="knowledge_tuple_relation_key_unique"),
            models.CheckConstraint(
                condition=Q(curation__isnull=True) | Q(curation__in=["hidden", "corrected"]),
                name="knowledge_tuple_curation_known",
            ),
            models.CheckConstraint(
                # A CHECK constraint passes if it evaluates to NULL, so NULLs are tested explicitly.
                condition=Q(curation__isnull=False, curation="corrected", corrected_entities__isnull=False)
                | Q(corrected_entities__isnull=True) & (Q(curation__isnull=True) | Q(curation="hidden")),
                name="knowledge_tuple_correction_has_entities",
            ),
        ]
        indexes = [
            # The indexes include the id, because lists order ties by id, and millions of tuples can have equal values.
            models.Index(fields=["best_score", "id"], name="knowledge_tuple_by_score"),
            models.Index(fields=["relation", "best_score", "id"], name="knowledge_tuple_of_relation"),
            models.Index(fields=["n_harvests", "id"], name="knowledge_tuple_by_harvests"),
            models.Index(fields=["curation"], condition=Q(curation__isnull=False), name="knowledge_tuple_curated"),
            models.Index(fields=["is_sensitive"], condition=Q(is_sensitive=True), name="knowledge_tuple_sensitive"),
        ]

    def __str__(self) -> str:
        return " · ".join(self.entities)

    def get_absolute_url(self) -> str:
        return reverse("kgharvest:tuple_detail", args=[self.pk])


class EntityOccurrenceQuerySet(models.QuerySet):
    def of(self, entity: str):
        return self.filter(entity=entity.casefold())

    def starting_with(self, prefix: str):
        """Return occurrences of entities that start with `prefix`.

        Both PostgreSQL and SQLite use the index for this query.
        """
        folded = prefix.casefold()
        if connection.vendor == "postgresql":
            return self.filter(entity__startswith=folded)
        return self.filter(entity__gte=folded, entity__lt=folded + "\U0010ffff")


class EntityOccurrence(models.Model):
    """Index of entities. Each row states that a knowledge tuple has the case-folded `entity` in `slot`."""

    entity = models.TextField()
    # The foreign keys have no database constraints. Rows are derived only from knowledge tuples, and checking the keys
    # would take a fifth of an import's time.
    knowledge_tuple = models.ForeignKey(
        KnowledgeTuple, on_delete=models.CASCADE, related_name="occurrences", db_index=False, db_constraint=False
    )
    relation = models.ForeignKey(
        Relation, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    slot = models.PositiveSmallIntegerField()

    objects = EntityOccurrenceQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["knowledge_tuple", "slot"], name="entity_occurrence_tuple_slot_unique")
        ]
        indexes = [
            # With text_pattern_ops, PostgreSQL can use the index to search prefixes under any collation.
            models.Index(
                fields=["entity", "relation", "slot"],
                opclasses=["text_pattern_ops", "int8_ops", "int2_ops"],
                name="entity_occurrence_entity",
            )
        ]

    def __str__(self) -> str:
        return self.entity


class Curation(models.Model):
    """A researcher's decision about a knowledge tuple. Rows are only appended; the latest decision applies.

    entities: the corrected entities as entered. None unless the decision is a correction.
    """

    class Decision(models.TextChoices):
        HIDE = "hide", "hidden"
        CORRECT = "correct", "corrected"
        RESTORE = "restore", "restored"

    knowledge_tuple = models.ForeignKey(KnowledgeTuple, on_delete=models.PROTECT, related_name="curations")
    decision = models.CharField(max_length=7, choices=Decision)
    entities = models.JSONField(null=True, blank=True)
    reason = models.TextField()
    decided_by = person_or_null()
    decided_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(decision="correct", entities__isnull=False)
                | Q(decision__in=["hide", "restore"], entities__isnull=True),
                name="curation_decision_known",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="curation_has_reason"),
        ]

    def __str__(self) -> str:
        return f"{self.decision} {self.knowledge_tuple_id}"


class SensitiveWord(models.Model):
    """Case-folded word or phrase in the installation's list."""

    word = models.CharField(max_length=100, unique=True)

    class Meta:
        ordering = ["word"]

    def __str__(self) -> str:
        return self.word
