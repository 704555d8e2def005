"""Knowledge tuples, their entities, curation and sensitive words.

Two identities carry the design: a KnowledgeTuple is (relation, case-folded entities) and belongs to no job, so that
people judge it once whoever found it; a HarvestedTuple is that tuple as one job scored it. What lists sort by stands on
the knowledge tuple itself, so that a page costs the same among a thousand tuples and among a million.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection, models
from django.db.models import Q
from django.urls import reverse

from kgharvest.accounts.models import person_or_null
from kgharvest.relations.models import Relation

KEY_SEPARATOR = "\x1f"


def tuple_key(entities: Sequence[str]) -> str:
    """Return what makes a tuple of one relation unique: its case-folded entities, joined."""
    return KEY_SEPARATOR.join(entity.casefold() for entity in entities)


class KnowledgeTupleQuerySet(models.QuerySet):
    def harvested(self):
        """Leave out what no harvest found, such as tuples that came with imported judgments."""
        return self.filter(best_score__isnull=False)

    def with_relation(self):
        """Join what rows show of the relation."""
        unused = (f"relation__{field}" for field in ("initial_prompts", "prompts", "seed_tuples"))
        return self.select_related("relation__relation_set").defer(*unused)


class KnowledgeTuple(models.Model):
    """A claim: ordered, case-folded `entities` of a relation, whoever found it. `key` is `tuple_key(entities)`.

    n_harvests: jobs that found it; best_score: the largest score among them, None if there is none.
    is_sensitive: an entity has a word of the installation's list. curation: what researchers decided about it, None if
    nothing; corrected_entities: as written, of a corrected one. Its entities stay what the LM said.
    """

    class Curation(models.TextChoices):
        HIDDEN = "hidden"
        CORRECTED = "corrected"

    relation = models.ForeignKey(
        Relation, on_delete=models.PROTECT, related_name="knowledge_tuples", db_index=False
    )  # the unique constraint has the index
    entities = models.JSONField()
    key = models.TextField()
    n_harvests = models.PositiveIntegerField(default=0)
    best_score = models.FloatField(null=True, blank=True)
    is_sensitive = models.BooleanField(default=False)
    # NULL and not "": partial indexes by IS NOT NULL are used for any value that is asked for.
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
                # A CHECK holds where it is NULL, as a comparison with NULL is: hence the tests for it.
                condition=Q(curation__isnull=False, curation="corrected", corrected_entities__isnull=False)
                | Q(corrected_entities__isnull=True) & (Q(curation__isnull=True) | Q(curation="hidden")),
                name="knowledge_tuple_correction_has_entities",
            ),
        ]
        indexes = [
            # With the id, by which lists order what is equal: a million tuples may have been found once each.
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
        """Return occurrences of entities that start with `prefix`, by an index in every database."""
        folded = prefix.casefold()
        if connection.vendor == "postgresql":
            return self.filter(entity__startswith=folded)
        return self.filter(entity__gte=folded, entity__lt=folded + "\U0010ffff")


class EntityOccurrence(models.Model):
    """That a knowledge tuple has the case-folded `entity` in a slot: the index by which entities are found."""

    entity = models.TextField()
    # Rows are only made from rows of knowledge tuples; to check each of millions anew would take a fifth of an import.
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
            # text_pattern_ops: PostgreSQL finds prefixes with it whatever the collation.
            models.Index(
                fields=["entity", "relation", "slot"],
                opclasses=["text_pattern_ops", "int8_ops", "int2_ops"],
                name="entity_occurrence_entity",
            )
        ]

    def __str__(self) -> str:
        return self.entity


class Curation(models.Model):
    """A decision of a researcher about a knowledge tuple. Append-only: the last one holds, going back is another one.

    entities: what a correction puts in the place of what the LM said, as written; None for other decisions.
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
    """A case-folded word or phrase of this installation's list."""

    word = models.CharField(max_length=100, unique=True)

    class Meta:
        ordering = ["word"]

    def __str__(self) -> str:
        return self.word
