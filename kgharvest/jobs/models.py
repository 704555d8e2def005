"""The ledger of long work: jobs, and the workers that do them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from kgharvest.access import visible
from kgharvest.accounts.models import Project

# What the API shows of every kind of job.
JOB_FIELDS = ("status", "is_unfinished", "stage", "done", "total", "attempts", "error")
JOB_TIMES = ("created_at", "started_at", "finished_at")


class JobQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the jobs of the user's projects; all of them for a superuser and for the operator."""
        return visible(self, user)

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

    def retryable(self):
        return self.filter(status__in=[Job.Status.FAILED, Job.Status.CANCELLED])


class Job(models.Model):
    """A row of long work: the database is the truth about a job, the broker only wakes workers for it.

    kind: key of registries.JOB_RUNNERS, or "import" for tuples from a file, recorded as succeeded.
    payload: parameters of the kind. total: None while unknown.
    attempts: claims so far; a job that was lost at the last of `max_attempts` fails. max_attempts: grows with each
    attempt that a cut connection ended, within bounds (kgharvest.jobs.ledger).
    owner_token: names the claim that may report and finish; lease_expires_at: when its worker counts as lost.
    project: None for work of the whole installation. unique_key: says what the job does, if of those in one project
    that do the same only one may be unfinished; else empty.
    enqueued_at: when the last message for it was sent to the broker, or is taken to have been.
    """

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        CANCELLED = "cancelled"

    kind = models.CharField(max_length=30)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, related_name="jobs")
    payload = models.JSONField(default=dict, blank=True)
    unique_key = models.CharField(max_length=100, blank=True, editable=False)
    stage = models.CharField(max_length=60, blank=True)
    done = models.PositiveBigIntegerField(default=0)
    total = models.PositiveBigIntegerField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    max_attempts = models.PositiveSmallIntegerField(default=3)
    owner_token = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    enqueued_at = models.DateTimeField(default=timezone.now)
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
            models.UniqueConstraint(
                fields=["project", "unique_key"],
                condition=Q(status__in=["queued", "running"]) & ~Q(unique_key=""),
                name="job_unique_in_project_while_unfinished",
            ),
            # Above, rows without a project would all be unique.
            models.UniqueConstraint(
                fields=["unique_key"],
                condition=Q(status__in=["queued", "running"], project=None) & ~Q(unique_key=""),
                name="job_unique_while_unfinished",
            ),
        ]
        indexes = [models.Index(fields=["status", "enqueued_at"], name="job_status_enqueued_at")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"

    @property
    def is_unfinished(self) -> bool:
        return self.status in (self.Status.QUEUED, self.Status.RUNNING)

    @property
    def can_retry(self) -> bool:
        return self.status in (self.Status.FAILED, self.Status.CANCELLED)


class Worker(models.Model):
    """A Celery worker. seen_at: its last heartbeat. n_processes: jobs it does at once, 0 if only urgent ones."""

    name = models.CharField(max_length=200, unique=True)
    n_processes = models.PositiveSmallIntegerField(default=1)
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
