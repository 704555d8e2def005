"""LMs, launches, and harvest jobs, with the prompts that jobs used and the tuples that they harvested."""

from functools import reduce
from operator import or_
from typing import Any

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.urls import reverse

from kgharvest.access import bound_to, owns_installation, visible
from kgharvest.accounts.models import Project, person_or_null
from kgharvest.engine.settings import PROMPT_SETTINGS
from kgharvest.engine.types import HUB_ID, MOST_NAMED, PROBABLY_NOISE
from kgharvest.jobs.models import Job, JobQuerySet
from kgharvest.knowledge.models import KnowledgeTuple
from kgharvest.names import short_name
from kgharvest.relations.models import Relation


class LanguageModelQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the embedded LMs, and the LMs of jobs in the user's projects."""
        if owns_installation(user):
            return self
        kinds = [field.related_model for field in LanguageModel._meta.related_objects]
        jobs = [kind.objects.visible_to(user) for kind in kinds if issubclass(kind, Job)]
        is_used = [Exists(rows.filter(language_model=OuterRef("pk"))) for rows in jobs]
        return self.filter(reduce(or_, is_used, Q(is_demonstrator=True)))

    def loadable(self):
        """Exclude chat models behind endpoints, which are never loaded, and folders not approved for loading."""
        jobs = HarvestJob.objects.filter(language_model=OuterRef("pk"), origin=HarvestJob.Origin.HARVESTED)
        is_loaded = Exists(jobs.filter(setting__in=PROMPT_SETTINGS))
        is_named = Q(is_loadable=True) | Q(name__regex=rf"^{HUB_ID.pattern}$")
        return self.filter(is_loaded | ~Exists(jobs.exclude(setting__in=PROMPT_SETTINGS))).filter(is_named)


class LanguageModel(models.Model):
    """Pretrained LM. name: name of an embedded LM, hub id, local folder, or name of an LM behind a server.

    is_demonstrator: True for embedded LMs, whose results do not generalize to other LMs. is_loadable: True if an
    authorized user has requested to load the LM. It is not enough to name it as a chat model or as the LM of imported
    tuples.
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
        """Last part of a folder or hub id, for narrow columns."""
        return short_name(self.name)


class LaunchQuerySet(models.QuerySet):
    visible_to = visible

    def with_counts(self):
        """Annotate each launch with the numbers of all, ended, failed, and canceled harvests.

        The newest launch comes first.
        """
        counts = {
            "n_over": [Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.CANCELLED],
            "n_failed": [Job.Status.FAILED],
            "n_cancelled": [Job.Status.CANCELLED],
        }
        counted = {name: models.Count("jobs", filter=Q(jobs__status__in=statuses)) for name, statuses in counts.items()}
        return self.annotate(n_jobs=models.Count("jobs"), **counted).order_by("-pk")

    def unfinished(self):
        """Return the launches with several harvests, some of which are unfinished. The newest launch comes first."""
        return self.with_counts().filter(n_jobs__gt=1, n_over__lt=F("n_jobs"))


class Launch(models.Model):
    """Harvests launched together: combinations of relations, LMs, and settings, with the same parameters."""

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
        """Join the relation, its set, the LM, and the user, because list rows show them."""
        return self.select_related("relation__relation_set", "language_model", "created_by")

    def known_to(self, user):
        """Return the harvests whose tuples the user can see: those of the user's projects, and published ones.

        A request with a token bound to a project sees only tuples of this project.
        """
        if owns_installation(user) or bound_to(user) is not None:
            return self.visible_to(user)
        own, Published = Project.objects.visible_to(user).order_by().values("pk"), Project.Published
        return self.filter(
            Q(project__in=own)
            | Q(project__published_knowledge=Published.ALL)
            | Q(project__published_knowledge=Published.SHIPPED, relation__relation_set__is_shipped=True)
        )

    def succeeded(self):
        return self.filter(status=Job.Status.SUCCEEDED)

    def probably_noise(self):
        """Return the harvests that have a `noise_warning`, with their cells."""
        return self.with_cell().filter(summary__codes__icontains=PROBABLY_NOISE)


class HarvestJob(Job):
    """Harvest of one cell (relation x LM x setting), or tuples imported for a cell.

    setting: method that produced the prompts ("human", "top1", "multi", "autoprompt", ...). The set is open.
    score_scale: "nats": scores are consistencies in nats. "log_share": scores are natural logarithms of shares in an
    imported list and are comparable only within the list. "own": scores are imported and have an unknown scale.
    "order": the harvest has no scores. Tuples are then ranked in the order of the file or of the chat model's list, and
    `score` is minus the rank; log-probabilities of a chat model's answers change the scale to "nats". summary: contains
    rejected, stats, notice, warning, codes (of notice and warning), unknown_seed_tuples, model revision, and code
    version.
    fingerprint: set if the job succeeded. Jobs with the same parameters and revision have the same fingerprint and the
    same tuples. Files refer to jobs by fingerprint, because job numbers differ between installations.
    """

    class Origin(models.TextChoices):
        HARVESTED = "harvested"
        IMPORTED = "imported"

    class ScoreScale(models.TextChoices):
        NATS = "nats", "log-probability (nats)"
        LOG_SHARE = "log_share", "log frequency share"
        OWN = "own", "imported score"
        ORDER = "order", "unscored (order of appearance)"

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
                condition=Q(score_scale__in=["nats", "log_share", "own", "order"]), name="harvest_job_scale_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.relation.name} × {self.language_model.short_name} × {self.setting}"

    def get_absolute_url(self) -> str:
        return reverse("kgharvest:harvest_detail", args=[self.pk])

    @property
    def sentences(self) -> list[str]:
        """The notice and the warning of the result, if any."""
        return [text for name in ("notice", "warning") if (text := self.summary.get(name))]

    @property
    def noise_warning(self) -> dict[str, Any] | None:
        """Return the warning that the harvest is probably noise as JSON, or None. text: names at most 5 seed tuples."""
        if PROBABLY_NOISE not in self.summary.get("codes", ()):
            return None
        text, seeds = "Few of the harvested tuples may be true.", self.summary.get("unknown_seed_tuples", [])
        if seeds:
            named = "; ".join([*map(", ".join, seeds[:MOST_NAMED]), *["..."][: len(seeds) > MOST_NAMED]])
            text += f" {self.language_model.short_name} seems not to know these seed tuples: {named}."
        return {"harvest": str(self), "text": text, "unknown_seed_tuples": seeds}

    @property
    def is_scored(self) -> bool:
        """False if `score` only repeats the rank."""
        return self.score_scale != self.ScoreScale.ORDER


class Prompt(models.Model):
    """A prompt of a relation. origin: for example "initial", "ready", "created", or "learned"."""

    relation = models.ForeignKey(Relation, on_delete=models.CASCADE, related_name="known_prompts")
    text = models.TextField()
    origin = models.CharField(max_length=30)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["relation", "text"], name="prompt_relation_text_unique")]

    def __str__(self) -> str:
        return self.text


class JobPrompt(models.Model):
    """A prompt used by a job. weight: weight in [0, 1]; the weights of a job add up to 1.

    compatibility: compatibility in nats, None if unknown.
    """

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
        """Exclude tuples that are hidden by curation or sensitive, as rounds and exports do by default."""
        rows = self if include_hidden else self.exclude(knowledge_tuple__curation=KnowledgeTuple.Curation.HIDDEN)
        return rows if include_sensitive else rows.filter(knowledge_tuple__is_sensitive=False)

    def count_unpresentable(self) -> int:
        """Return the number of tuples that `presentable` excludes by default."""
        hidden = KnowledgeTuple.objects.filter(curation=KnowledgeTuple.Curation.HIDDEN).values("pk")
        sensitive = KnowledgeTuple.objects.filter(is_sensitive=True).values("pk")
        # Use a union instead of OR, so that the database uses the partial index on each condition.
        rows = self.order_by().values("pk")
        return rows.filter(knowledge_tuple__in=hidden).union(rows.filter(knowledge_tuple__in=sensitive)).count()


class HarvestedTuple(models.Model):
    """Knowledge tuple as scored by one job. rank: 1 is best. mtl: MTL in nats, None if unknown.

    surface: entities in the spelling of the LM. references: links and short texts from an imported file, or None.
    """

    # A separate index is not needed, because the unique constraints have one.
    job = models.ForeignKey(HarvestJob, on_delete=models.CASCADE, related_name="tuples", db_index=False)
    knowledge_tuple = models.ForeignKey(KnowledgeTuple, on_delete=models.PROTECT, related_name="harvested_tuples")
    rank = models.PositiveIntegerField()
    score = models.FloatField()
    mtl = models.FloatField(null=True, blank=True)
    surface = models.JSONField()
    references = models.JSONField(null=True, blank=True)

    objects = HarvestedTupleQuerySet.as_manager()

    class Meta:
        ordering = ["job", "rank"]
        constraints = [
            models.UniqueConstraint(fields=["job", "knowledge_tuple"], name="harvested_tuple_job_tuple_unique"),
            models.UniqueConstraint(fields=["job", "rank"], name="harvested_tuple_job_rank_unique"),
            # Ranks are 1-based, as in the paper ("top 1") and in strata (rank_from=1).
            models.CheckConstraint(condition=Q(rank__gte=1), name="harvested_tuple_rank_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.rank}. {' · '.join(self.surface)}"

    @property
    def own_score(self) -> float | None:
        """The score, or None for unscored harvests, whose `score` is minus the rank."""
        return self.score if self.job.is_scored else None


class HarvestPart(models.Model):
    """Part of a harvest that any worker can run as a job. The part and its job are deleted when the harvest ends.

    stage, position: place of the part in the harvest. size: number of progress units of the stage. question, result:
    encoded by kgharvest.harvests.parts.serialization. result is None until the part is done.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="harvest_part")
    stage = models.CharField(max_length=10)
    position = models.PositiveIntegerField()
    size = models.PositiveIntegerField()
    question = models.BinaryField()
    result = models.BinaryField(null=True)

    def __str__(self) -> str:
        return f"{self.stage} {self.position}"
