"""The ledger of long work, and the harvests in it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from kgharvest.models.relations import LanguageModel, Relation


class JobQuerySet(models.QuerySet):
    def lost(self, now):
        """Return running jobs whose worker has been silent for longer than its lease."""
        return self.filter(status=Job.Status.RUNNING, lease_expires_at__lt=now)

    def claimable(self, now):
        """Return jobs that a worker may take: queued, or lost with attempts left."""
        lost = Q(status=Job.Status.RUNNING, lease_expires_at__lt=now)
        return self.filter(Q(status=Job.Status.QUEUED) | lost, attempts__lt=F("max_attempts"))

    def owned(self, job_id: int, owner_token):
        """Return the job if it is running under the claim `owner_token`; nothing once cancelled or taken over."""
        return self.filter(pk=job_id, owner_token=owner_token, status=Job.Status.RUNNING)

    def unfinished(self):
        return self.filter(status__in=[Job.Status.QUEUED, Job.Status.RUNNING])

    def ended_in_vain(self):
        return self.filter(status__in=[Job.Status.FAILED, Job.Status.CANCELLED])


class Job(models.Model):
    """The ledger of long work: the database is the truth about a job, the broker only rings for it.

    kind: key of settings.JOB_RUNNERS, or "import" for jobs that are born finished. payload: parameters of the kind.
    total: None while unknown. attempts: claims so far; a job whose workers die `max_attempts` times fails.
    owner_token: names the claim that may report and finish; lease_expires_at: when its worker counts as lost.
    rung_at: when a worker was last told, or is taken to have been.
    """

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        CANCELLED = "cancelled"

    kind = models.CharField(max_length=30)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    payload = models.JSONField(default=dict, blank=True)
    stage = models.CharField(max_length=60, blank=True)
    done = models.PositiveBigIntegerField(default=0)
    total = models.PositiveBigIntegerField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    max_attempts = models.PositiveSmallIntegerField(default=3)
    owner_token = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    rung_at = models.DateTimeField(default=timezone.now)
    error = models.TextField(blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["queued", "running", "succeeded", "failed", "cancelled"]),
                name="job_status_known",
            ),
            models.CheckConstraint(
                condition=~Q(status="running") | Q(owner_token__isnull=False, lease_expires_at__isnull=False),
                name="job_running_has_owner",
            ),
            models.CheckConstraint(condition=Q(attempts__lte=F("max_attempts")), name="job_attempts_capped"),
        ]
        indexes = [models.Index(fields=["status", "rung_at"], name="job_status_rung_at")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"

    @property
    def is_unfinished(self) -> bool:
        return self.status in (self.Status.QUEUED, self.Status.RUNNING)

    @property
    def can_retry(self) -> bool:
        return self.status in (self.Status.FAILED, self.Status.CANCELLED)


class Worker(models.Model):
    """A worker that was last heard of at `seen_at`. n_processes: the jobs it does at once."""

    name = models.CharField(max_length=200, unique=True)
    n_processes = models.PositiveSmallIntegerField(default=1)
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class LaunchQuerySet(models.QuerySet):
    def with_counts(self):
        """Count the harvests of each launch, those that are over, and of these the failed and cancelled ones."""
        counts = {
            "n_over": [Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.CANCELLED],
            "n_failed": [Job.Status.FAILED],
            "n_cancelled": [Job.Status.CANCELLED],
        }
        counted = {name: models.Count("jobs", filter=Q(jobs__status__in=statuses)) for name, statuses in counts.items()}
        return self.annotate(n_jobs=models.Count("jobs"), **counted).order_by("-pk")

    def unfinished(self):
        """Return launches of several harvests that are not all over, the newest first."""
        return self.with_counts().filter(n_jobs__gt=1, n_over__lt=F("n_jobs"))


class Launch(models.Model):
    """Harvests that were asked for together: relations x LMs x settings, with the same parameters."""

    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
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
    score_scale: "nats" is the consistency; "log_share" is ln of a share of an imported list, comparable within it only.
    summary: rejected, stats, notice, model revision, code version. fingerprint: of a job that has succeeded, equal for
    jobs that asked the same in the same way, and so found the same; files name a job by it, because numbers differ.
    """

    class Origin(models.TextChoices):
        HARVESTED = "harvested"
        IMPORTED = "imported"

    class ScoreScale(models.TextChoices):
        NATS = "nats", "log-probability (nats)"
        LOG_SHARE = "log_share", "log of the share of its list"

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
            models.CheckConstraint(condition=Q(score_scale__in=["nats", "log_share"]), name="harvest_job_scale_known"),
        ]

    def __str__(self) -> str:
        return f"{self.relation.name} × {self.language_model.short_name} × {self.setting}"

    def get_absolute_url(self) -> str:
        return reverse("kgharvest:harvest_detail", args=[self.pk])


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
