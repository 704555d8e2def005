"""The ledger of long work: jobs, and the workers that do them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from kgharvest.access import visible
from kgharvest.accounts.models import Project, person_or_null
from kgharvest.jobs.queues import queue_of

# What the API shows of every kind of job.
JOB_FIELDS = ("status", "is_unfinished", "stage", "done", "total", "attempts", "error")
JOB_TIMES = ("created_at", "started_at", "finished_at")


class QueueField(models.CharField):
    """The queue of a job, set when its row is inserted, one by one or in bulk."""

    def __init__(self, **options: Any):
        super().__init__(**{"max_length": 10, "editable": False, "default": "", "db_default": "", **options})

    def deconstruct(self) -> tuple:
        """To migrations it is a column like others."""
        name, _, arguments, options = super().deconstruct()
        return name, "django.db.models.CharField", arguments, options

    def pre_save(self, model_instance: models.Model, add: bool) -> str:
        if add:
            setattr(model_instance, self.attname, queue_of(model_instance.kind, model_instance.payload))
        return super().pre_save(model_instance, add)


class Written(models.Value):
    """A status that is written into the statement, and no parameter of it.

    PostgreSQL plans a statement that comes often once for all values of its parameters, and then it can take no index
    of the jobs that have some status.
    """

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        return f"'{Job.Status(self.value).value}'", []


class JobQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the jobs of the user's projects; all of them for a superuser and for the operator.

        A part of a job is seen with that job.
        """
        return visible(self.whole(), user)

    def whole(self):
        """Leave out the parts of jobs, which come and go while these are done."""
        return self.filter(parent=None)

    def lost(self, now):
        """Return running jobs whose worker has been silent for longer than its lease."""
        return self.filter(status=Job.Status.RUNNING, lease_expires_at__lt=now)

    def running(self, now):
        """Return running jobs whose worker was heard of within its lease."""
        return self.filter(status=Job.Status.RUNNING, lease_expires_at__gte=now)

    def claimable(self, now):
        """Return jobs that a worker of this version may take: queued, or lost with attempts left."""
        lost = Q(status=Written(Job.Status.RUNNING), lease_expires_at__lt=now)
        known = self.filter(kind__in=list(settings.JOB_RUNNERS))
        return known.filter(Q(status=Written(Job.Status.QUEUED)) | lost, attempts__lt=F("max_attempts"))

    def owned(self, job_id: int, owner_token):
        """Return the job if it is running under the claim `owner_token`; nothing once cancelled or taken over."""
        return self.filter(pk=job_id, owner_token=owner_token, status=Job.Status.RUNNING)

    def unfinished(self):
        return self.filter(status__in=[Written(Job.Status.QUEUED), Written(Job.Status.RUNNING)])

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
    parent: the job that this one is a part of; its worker may do parts under its own claim, and they go when it ends.
    queue: whose workers may take it (kgharvest.jobs.queues). lm: the LM that it loads first, as
    harvests.language_models.in_words says it; empty where that is not known. worker: of the last claim; None for a
    command's process.
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
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, editable=False, related_name="parts")
    queue = QueueField()
    lm = models.TextField(blank=True, editable=False, default="", db_default="")
    unique_key = models.CharField(max_length=100, blank=True, editable=False)
    stage = models.CharField(max_length=60, blank=True)
    done = models.PositiveBigIntegerField(default=0)
    total = models.PositiveBigIntegerField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    max_attempts = models.PositiveSmallIntegerField(default=3)
    owner_token = models.UUIDField(null=True, blank=True)
    worker = models.ForeignKey(
        "kgharvest.Worker", on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="jobs"
    )
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)
    created_by = person_or_null()
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
        indexes = [
            models.Index(fields=["status", "lease_expires_at"], name="job_status_lease_expires_at"),
            models.Index(
                fields=["queue", "id"], condition=Q(status__in=["queued", "running"]), name="job_unfinished_of_queue"
            ),
            # For ledger.next_job: the oldest job that needs an LM, and the jobs that were started.
            models.Index(
                fields=["queue", "lm", "id"], condition=Q(status__in=["queued", "running"]), name="job_unfinished_of_lm"
            ),
            models.Index(
                fields=["queue", "id", "started_at"], condition=Q(started_at__isnull=False), name="job_begun_of_queue"
            ),
            # For housekeeping jobs, which belong to no project.
            models.Index(fields=["kind", "finished_at"], condition=Q(project=None), name="job_ended_of_installation"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"

    @property
    def is_unfinished(self) -> bool:
        return self.status in (self.Status.QUEUED, self.Status.RUNNING)

    @property
    def can_retry(self) -> bool:
        return self.status in (self.Status.FAILED, self.Status.CANCELLED)


class Worker(models.Model):
    """A Celery worker, there or gone: kgharvest.jobs.workers.

    token: of the process that it is now. n_processes: jobs it does at once. devices, language_models: in words; the
    LMs are those in memory. seen_at: its last heartbeat. left_at: when it went of its own accord, its last job done.
    """

    name = models.CharField(max_length=200, unique=True)
    token = models.UUIDField(unique=True, null=True)
    host = models.CharField(max_length=200, default="", db_default="")
    pid = models.PositiveIntegerField(null=True)
    queues = models.JSONField(default=list, db_default=[])
    devices = models.JSONField(default=list, db_default=[])
    language_models = models.JSONField(default=list, db_default=[])
    n_processes = models.PositiveSmallIntegerField(default=1)
    version = models.CharField(max_length=50, default="", db_default="")
    started_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField()
    is_draining = models.BooleanField(default=False, db_default=False)
    left_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name
