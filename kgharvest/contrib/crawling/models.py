"""Crawls: harvests that start from seed entities and continue with the entities that they find."""

from django.db import models
from django.urls import reverse

from kgharvest.jobs.models import JobQuerySet
from kgharvest.models import HarvestJob, Job, LanguageModel, Launch, Relation


class Crawl(Job):
    """Job that completes entities in several relations, up to a depth and two budgets. It can be interrupted.

    depth: number of rounds of harvests; tuples of the seed entities have depth 1. max_entities: maximum number of
    entities, including the seed entities. max_calls: maximum number of calls; one call asks the LM to complete one
    entity in one relation, or to name relations of one entity. launch: its harvests. payload: relations (ids), params,
    device, and dtype.
    """

    KIND = "crawl"

    language_model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="crawls")
    setting = models.CharField(max_length=30)
    depth = models.PositiveSmallIntegerField()
    max_entities = models.PositiveIntegerField()
    max_calls = models.PositiveIntegerField()
    launch = models.OneToOneField(Launch, on_delete=models.PROTECT, related_name="crawl")

    objects = JobQuerySet.as_manager()

    def __str__(self) -> str:
        return f"Crawl {self.pk} × {self.language_model.short_name} × {self.setting}"

    def get_absolute_url(self) -> str:
        return reverse("kgharvest:launch_detail", args=[self.launch_id])


class CrawledEntity(models.Model):
    """Entity of a crawl, once per crawl. name: canonical, case-folded. surface: as written by the LM or in the seeds.

    depth: 0 for seed entities, otherwise the depth of the tuple that contained it first. position: order of discovery.
    """

    crawl = models.ForeignKey(Crawl, on_delete=models.CASCADE, related_name="entities", db_index=False)
    name = models.CharField(max_length=200)
    surface = models.CharField(max_length=200)
    depth = models.PositiveSmallIntegerField()
    position = models.PositiveIntegerField()

    class Meta:
        ordering = ["crawl", "position"]
        constraints = [
            models.UniqueConstraint(fields=["crawl", "name"], name="crawled_entity_name_unique"),
            models.UniqueConstraint(fields=["crawl", "position"], name="crawled_entity_position_unique"),
        ]

    def __str__(self) -> str:
        return self.surface


class CrawlStep(models.Model):
    """Finished step of a crawl: the entities of the previous depth, completed in one relation.

    relation: None if the LM was asked to name relations. job: the harvest, None if no entity fits the relation.
    n_calls: number of completed entities. n_unfit: number of entities for which no tuple can reach the minimum score.
    suggestions: relation names that the LM gave, with their numbers of entities. fault: reason why the relation was
    skipped.
    """

    crawl = models.ForeignKey(Crawl, on_delete=models.CASCADE, related_name="steps")
    depth = models.PositiveSmallIntegerField()
    relation = models.ForeignKey(Relation, on_delete=models.CASCADE, null=True, related_name="+")
    job = models.OneToOneField(HarvestJob, on_delete=models.CASCADE, null=True, related_name="crawl_step")
    n_calls = models.PositiveIntegerField()
    n_unfit = models.PositiveIntegerField(default=0)
    suggestions = models.JSONField(default=dict)
    fault = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["crawl", "depth", "relation"], name="crawl_step_depth_relation_unique")
        ]

    def __str__(self) -> str:
        return f"{self.crawl_id}, depth {self.depth}"
