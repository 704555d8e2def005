"""LMs, launches and harvest jobs, with the prompts they used and the tuples they harvested."""

from __future__ import annotations

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.urls import reverse

from kgharvest.access import visible
from kgharvest.accounts.models import Project, person_or_null
from kgharvest.engine.settings import PROMPT_SETTINGS
from kgharvest.engine.types import HUB_ID
from kgharvest.jobs.models import Job, JobQuerySet
from kgharvest.knowledge.models import KnowledgeTuple
from kgharvest.names import short_name
from kgharvest.relations.models import Relation


class LanguageModelQuerySet(models.QuerySet):
    def loadable(self):
        """Leave out chat models behind endpoints, which are asked and never loaded, and folders that are not to be."""
        jobs = HarvestJob.objects.filter(language_model=OuterRef("pk"), origin=HarvestJob.Origin.HARVESTED)
        is_loaded = Exists(jobs.filter(setting__in=PROMPT_SETTINGS))
        is_named = Q(is_loadable=True) | Q(name__regex=rf"^{HUB_ID.pattern}$")
        return self.filter(is_loaded | ~Exists(jobs.exclude(setting__in=PROMPT_SETTINGS))).filter(is_named)


class LanguageModel(models.Model):
    """A pretrained LM: name of an embedded one, hub id or local folder. A demonstrator says nothing about other LMs.

    is_loadable: somebody who may has named it to be loaded, and not only as a chat model or beside imported tuples.
    """

    name = models.CharField(max_length=500)
    revision = models.CharField(max_length=100, blank=True)
    is_demonstrator = models.BooleanField(default=False)
    is_loadable = models.BooleanField(default=False, db_default=False, editable=False)

    objects = LanguageModelQuerySet.as_manager()

    class Meta:
        ordering = ["name", "revision"]
        constraints = [models.UniqueConstraint(fields=["name", "revision"], name="language_model_name_revision_unique")]

    def __str__(self) -> str:
        return f"{self.name}@{self.revision}" if self.revision else self.name

    @property
    def short_name(self) -> str:
        """The last part of a folder or hub id, for narrow columns."""
        return short_name(self.name)


class LaunchQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the launches of the user's projects; all of them for a superuser and for the operator."""
        return visible(self, user)

    def with_counts(self):
        """Count the harvests of each launch, those that have ended, and of these the failed and cancelled ones."""
        counts = {
            "n_over": [Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.CANCELLED],
            "n_failed": [Job.Status.FAILED],
            "n_cancelled": [Job.Status.CANCELLED],
        }
        counted = {name: models.Count("jobs", filter=Q(jobs__status__in=statuses)) for name, statuses in counts.items()}
        return self.annotate(n_jobs=models.Count("jobs"), **counted).order_by("-pk")

    def unfinished(self):
        """Return launches of several harvests with unfinished ones, the newest first."""
        return self.with_counts().filter(n_jobs__gt=1, n_over__lt=F("n_jobs"))


class Launch(models.Model):
    """Harvests launched together: relations x LMs x settings, with the same parameters."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="launches")
    created_by = person_or_null()
    created_at = models.DateTimeField(auto_now_add=True)

    objects = LaunchQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"Launch {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("kgharvest:launch_detail", args=[self.pk])


class HarvestJobQuerySet(JobQuerySet):
    def with_cell(self):
        """Join what a row of a list shows: relation, its set and LM."""
        return self.select_related("relation__relation_set", "language_model", "created_by")

    def under_way_first(self):
        return self.order_by(F("started_at").desc(nulls_last=True), "pk")

    def succeeded(self):
        return self.filter(status=Job.Status.SUCCEEDED)


class HarvestJob(Job):
    """A harvest of one cell: relation x LM x setting; or tuples imported for one.

    setting: how the prompts were obtained; an open set ("human", "top1", "multi", "autoprompt", ...).
    score_scale: "nats" is the consistency; "log_share" is ln of a share of an imported list, comparable within it only;
    "own" is what an imported file has as scores, on a scale that nobody said; "order" that there are none: tuples rank
    as in the file, or as a chat model listed them, with minus the rank in the place of a score.
    summary: rejected, stats, notice, warning, model revision, code version. fingerprint: of a job that has succeeded,
    equal for jobs with the same parameters and revision, and so the same tuples; files name a job by it, because
    numbers differ.
    """

    class Origin(models.TextChoices):
        HARVESTED = "harvested"
        IMPORTED = "imported"

    class ScoreScale(models.TextChoices):
        NATS = "nats", "log-probability (nats)"
        LOG_SHARE = "log_share", "log of the share of its list"
        OWN = "own", "the imported file's own score"
        ORDER = "order", "none: in the order of appearance"

    relation = models.ForeignKey(Relation, on_delete=models.PROTECT, related_name="jobs")
    language_model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="jobs")
    setting = models.CharField(max_length=30)
    origin = models.CharField(max_length=10, choices=Origin, default=Origin.HARVESTED)
    score_scale = models.CharField(max_length=10, choices=ScoreScale, default=ScoreScale.NATS)
    launch = models.ForeignKey(Launch, on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs")
    summary = models.JSONField(default=dict, blank=True)
    n_tuples = models.PositiveIntegerField(default=0)
    fingerprint = models.CharField(max_length=16, db_index=True, editable=False)

    objects = HarvestJobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(origin__in=["harvested", "imported"]), name="harvest_job_origin_known"),
            models.CheckConstraint(
                condition=Q(score_scale__in=["nats", "log_share", "own", "order"]),
                name="harvest_job_scale_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.relation.name} × {self.language_model.short_name} × {self.setting}"

    def get_absolute_url(self) -> str:
        return reverse("kgharvest:harvest_detail", args=[self.pk])

    @property
    def is_scored(self) -> bool:
        """Whether `score` of its tuples says more than their rank."""
        return self.score_scale != self.ScoreScale.ORDER


class Prompt(models.Model):
    """A prompt of a relation. origin: how it came to be, e.g. "initial", "ready", "created"."""

    relation = models.ForeignKey(Relation, on_delete=models.CASCADE, related_name="known_prompts")
    text = models.TextField()
    origin = models.CharField(max_length=30)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["relation", "text"], name="prompt_relation_text_unique")]

    def __str__(self) -> str:
        return self.text


class JobPrompt(models.Model):
    """A prompt as one job used it. weight: in [0, 1], of sum 1 over the job; compatibility: nats, None if unknown."""

    job = models.ForeignKey(HarvestJob, on_delete=models.CASCADE, related_name="job_prompts")
    prompt = models.ForeignKey(Prompt, on_delete=models.PROTECT, related_name="+")
    weight = models.FloatField()
    compatibility = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ["-weight", "pk"]
        constraints = [models.UniqueConstraint(fields=["job", "prompt"], name="job_prompt_unique")]

    def __str__(self) -> str:
        return f"{self.weight:.3f} {self.prompt_id}"


class HarvestedTupleQuerySet(models.QuerySet):
    def presentable(self, include_hidden: bool = False, include_sensitive: bool = False):
        """Return what rounds and exports take: neither hidden by a curation nor, unless asked for, sensitive."""
        kept = self if include_hidden else self.exclude(knowledge_tuple__curation=KnowledgeTuple.Curation.HIDDEN)
        return kept if include_sensitive else kept.filter(knowledge_tuple__is_sensitive=False)

    def count_unpresentable(self) -> int:
        """Return how many `presentable` leaves out unless it is asked for them."""
        hidden = KnowledgeTuple.objects.filter(curation=KnowledgeTuple.Curation.HIDDEN).values("pk")
        sensitive = KnowledgeTuple.objects.filter(is_sensitive=True).values("pk")
        # Each has a partial index, which one condition with "or" would not use.
        rows = self.order_by().values("pk")
        return rows.filter(knowledge_tuple__in=hidden).union(rows.filter(knowledge_tuple__in=sensitive)).count()


class HarvestedTuple(models.Model):
    """A knowledge tuple as one job scored it. rank: 1 is best; mtl: nats, None where unknown; surface: as written."""

    job = models.ForeignKey(
        HarvestJob, on_delete=models.CASCADE, related_name="tuples", db_index=False
    )  # the unique constraints have the index
    knowledge_tuple = models.ForeignKey(KnowledgeTuple, on_delete=models.PROTECT, related_name="harvested_tuples")
    rank = models.PositiveIntegerField()
    score = models.FloatField()
    mtl = models.FloatField(null=True, blank=True)
    surface = models.JSONField()

    objects = HarvestedTupleQuerySet.as_manager()

    class Meta:
        ordering = ["job", "rank"]
        constraints = [
            models.UniqueConstraint(fields=["job", "knowledge_tuple"], name="harvested_tuple_job_tuple_unique"),
            models.UniqueConstraint(fields=["job", "rank"], name="harvested_tuple_job_rank_unique"),
            # Ranks are 1-based: annotators and the paper say "top 1", strata use rank_from=1.
            models.CheckConstraint(condition=Q(rank__gte=1), name="harvested_tuple_rank_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.rank}. {' · '.join(self.surface)}"

    @property
    def own_score(self) -> float | None:
        """The score; None where the harvest has none, and minus the rank stands in its place."""
        return self.score if self.job.is_scored else None
