"""Tables of the job ledger: jobs, and the workers that run them."""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from kgharvest.access import visible
from kgharvest.accounts.models import Project, person_or_null
from kgharvest.jobs.queues import queue_of

# API fields that every kind of job has
JOB_FIELDS = ("status", "is_unfinished", "stage", "done", "total", "attempts", "error")
JOB_TIMES = ("created_at", "started_at", "finished_at")


class QueueField(models.CharField):
    """The queue of a job. It is set when the job's row is inserted, individually or in bulk."""

    def __init__(self, **options: Any):
        super().__init__(**{"max_length": 10, "editable": False, "default": "", "db_default": "", **options})

    def deconstruct(self) -> tuple:
        """Make migrations treat the field as a CharField."""
        name, _, arguments, options = super().deconstruct()
        return name, "django.db.models.CharField", arguments, options

    def pre_save(self, model_instance: models.Model, add: bool) -> str:
        if add:
            setattr(model_instance, self.attname, queue_of(model_instance.kind, model_instance.payload))
        return super().pre_save(model_instance, add)


class StatusLiteral(models.Value):
    """A status as a literal in SQL instead of a parameter.

    If a status is a parameter, PostgreSQL may reuse a generic plan, which cannot use the partial indexes on status.
    """

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        return f"'{Job.Status(self.value).value}'", []


class JobQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the jobs of the user's projects, excluding parts of jobs.

        Superusers and the operator see all projects.
        """
        return visible(self.whole(), user)

    def whole(self):
        """Exclude parts of jobs. Parts exist only while their job runs."""
        return self.filter(parent=None)

    def lost(self, now):
        """Return running jobs whose lease has expired."""
        return self.filter(status=Job.Status.RUNNING, lease_expires_at__lt=now)

    def running(self, now):
        """Return running jobs with a valid lease."""
        return self.filter(status=Job.Status.RUNNING, lease_expires_at__gte=now)

    def claimable(self, now):
        """Return jobs that workers of this version can claim: queued jobs, and lost jobs with attempts left."""
        lost = Q(status=StatusLiteral(Job.Status.RUNNING), lease_expires_at__lt=now)
        runnable = self.filter(kind__in=list(settings.JOB_RUNNERS))
        return runnable.filter(Q(status=StatusLiteral(Job.Status.QUEUED)) | lost, attempts__lt=F("max_attempts"))

    def owned(self, job_id: int, owner_token):
        """Return the job that runs under the claim `owner_token`.

        The result is empty if the job was canceled or taken over.
        """
        return self.filter(pk=job_id, owner_token=owner_token, status=Job.Status.RUNNING)

    def unfinished(self):
        return self.filter(status__in=[StatusLiteral(Job.Status.QUEUED), StatusLiteral(Job.Status.RUNNING)])

    def retryable(self):
        return self.filter(status__in=[Job.Status.FAILED, Job.Status.CANCELLED])


class Job(models.Model):
    """Background job. The database is the source of truth; the broker only wakes workers.

    kind: key of registries.JOB_RUNNERS, or "import" for tuples from a file, stored as succeeded. payload: parameters of
    the job; they depend on the kind. total: total number of progress units, None while unknown. attempts: number of
    claims so far. A job that is lost in the last of `max_attempts` attempts fails. max_attempts: maximum number of
    attempts. It is incremented if an attempt ends because of a lost connection, up to a limit (kgharvest.jobs.ledger).
    owner_token: token of the claim that may report progress and finish the job. lease_expires_at: time when the job
    counts as lost. project: None for installation-wide jobs. unique_key: key of the task, if a project may have only
    one unfinished job for this task; otherwise "". parent: the job of which this job is a part. The worker of the
    parent may run parts under the parent's claim. Parts are deleted when the parent ends. queue: queue of the job
    (kgharvest.jobs.queues). lm: first LM that the job loads, in the format of harvests.language_models.in_words; "" if
    unknown. worker: worker of the last claim; None for a command's process.
    """

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        CANCELLED = "cancelled", "Canceled"

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
            # NULLs compare as distinct, so jobs without a project need a constraint of their own.
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
            # Indexes for ledger.next_job, which looks up started jobs and the oldest job that uses an LM.
            models.Index(
                fields=["queue", "lm", "id"], condition=Q(status__in=["queued", "running"]), name="job_unfinished_of_lm"
            ),
            models.Index(
                fields=["queue", "id", "started_at"], condition=Q(started_at__isnull=False), name="job_begun_of_queue"
            ),
            # Index for housekeeping jobs, which do not belong to a project.
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
    """A Celery worker that is running or gone (kgharvest.jobs.workers).

    token: token of the worker's current process. n_processes: number of jobs run in parallel. devices: descriptions of
    the worker's devices. language_models: keys of the loaded LMs. seen_at: time of the last heartbeat. left_at: time of
    a regular exit, after all jobs have ended.
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
