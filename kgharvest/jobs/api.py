"""API to monitor, cancel, and retry jobs, and to monitor and drain workers.

The id of a harvest is the id of its job.
"""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action
from kgharvest.api.input import ProjectFilters
from kgharvest.api.views import ApiViewSet, PagedList, RetrieveMixin, operation
from kgharvest.jobs import ledger, overview, workers
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES
from kgharvest.models import Job, Worker

JOB = {
    "id": 12,
    "kind": "harvest",
    "project": "default",
    "status": "running",
    "is_unfinished": True,
    "stage": "search",
    "done": 120,
    "total": 900,
    "attempts": 1,
    "error": "",
    "created_at": "2026-11-22T09:00:00Z",
    "started_at": "2026-11-22T09:00:01Z",
    "finished_at": None,
}


@extend_schema_serializer(examples=[OpenApiExample("A job", JOB, response_only=True)])
class JobSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    is_unfinished = serializers.BooleanField(help_text="True while queued or running.")

    class Meta:
        model = Job
        fields = ["id", "kind", "project", *JOB_FIELDS, *JOB_TIMES]


class StatusFilters(ProjectFilters):
    status = serializers.ChoiceField(Job.Status.choices, required=False)


class JobFilters(StatusFilters):
    kind = serializers.CharField(required=False, max_length=30, help_text="harvest, import, probe, ...")


class JobViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Jobs of your projects, newest first."""

    access = Action.VIEW  # not checked here, because the services check who may change a job
    serializer_class = JobSerializer
    filters = JobFilters
    queryset = Job.objects.select_related("project")

    @operation("Cancel a job")
    def cancel(self, request: Request, pk: int) -> Response:
        """The worker stops within seconds. No results are stored."""
        return self.changed(ledger.cancel)

    @operation("Retry a failed or canceled job", responses={202: JobSerializer})
    def retry(self, request: Request, pk: int) -> Response:
        ledger.retry(self.named(), request.user)
        job = self.named()
        return self.accepted(job, self.address(job))


WORKER = {
    "id": 3,
    "name": "celery@gpu-host",
    "host": "gpu-host",
    "state": "working",
    "devices": ["cuda:0, NVIDIA H100 80GB HBM3, 80 GiB", "cpu, 16 cores"],
    "language_models": ["bert-large-cased on cuda, float16"],
    "queues": ["gpu", "harvest", "light", "urgent"],
    "n_processes": 1,
    "jobs": [{"id": 12, "kind": "harvest", "stage": "search", "done": 120, "total": 900}],
    "jobs_last_hour": 14,
    "tuples_last_hour": 14000,
    "busy_s_last_hour": 3410.5,
    "version": "0.1.0+1a2b3c4d",
    "started_at": "2026-11-22T09:00:00Z",
    "seen_at": "2026-11-22T12:00:01Z",
    "left_at": None,
}


@extend_schema_serializer(component_name="JobInHand")  # name of the schema in generated clients
class RunningJobSerializer(serializers.Serializer):
    id = serializers.IntegerField(
        source="visible_id", allow_null=True, help_text="Null if you are not a member of the job's project."
    )
    kind = serializers.CharField(source="job.kind")
    stage = serializers.CharField(source="job.stage", allow_blank=True)
    done = serializers.IntegerField(source="job.done")
    total = serializers.IntegerField(source="job.total", allow_null=True)


@extend_schema_serializer(examples=[OpenApiExample("A worker", WORKER, response_only=True)])
class WorkerSerializer(serializers.Serializer):
    id = serializers.IntegerField(source="worker.pk")
    name = serializers.CharField(source="worker.name")
    host = serializers.CharField(source="worker.host", allow_blank=True)
    state = serializers.ChoiceField(overview.STATES)
    devices = serializers.ListField(source="worker.devices", child=serializers.CharField())
    language_models = serializers.ListField(
        source="worker.language_models", child=serializers.CharField(), help_text="Loaded LMs."
    )
    queues = serializers.ListField(source="worker.queues", child=serializers.CharField())
    n_processes = serializers.IntegerField(source="worker.n_processes", help_text="Number of jobs run in parallel.")
    jobs = RunningJobSerializer(many=True)
    jobs_last_hour = serializers.IntegerField(source="throughput.n_jobs")
    tuples_last_hour = serializers.IntegerField(source="throughput.n_tuples")
    busy_s_last_hour = serializers.FloatField(
        source="throughput.rounded_busy_s", help_text="Busy time in seconds, summed over all processes."
    )
    version = serializers.CharField(source="worker.version", allow_blank=True)
    started_at = serializers.DateTimeField(source="worker.started_at", allow_null=True)
    seen_at = serializers.DateTimeField(
        source="worker.seen_at", help_text="Last heartbeat. A running worker sends one every few seconds."
    )
    left_at = serializers.DateTimeField(source="worker.left_at", allow_null=True)


class WorkerViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Workers with a heartbeat in the last day or with jobs, newest first."""

    access = Action.VIEW  # not checked here, because the services require a superuser
    serializer_class = WorkerSerializer

    def get_queryset(self) -> QuerySet:
        return Worker.objects.all()

    def paginate_queryset(self, queryset: QuerySet) -> list[overview.WorkerRow]:
        return overview.worker_rows(self.request.user, timezone.now(), super().paginate_queryset(queryset))

    def answer(self, worker: Worker, *args: Any, **options: Any) -> Response:
        [row] = overview.worker_rows(self.request.user, timezone.now(), [worker])
        return super().answer(row, *args, **options)

    @operation("Drain a worker")
    def drain(self, request: Request, pk: int) -> Response:
        """The worker finishes its running jobs, claims no more jobs, and exits. Superusers only."""
        return self.changed(workers.drain)

    @operation("Undrain a worker")
    def undrain(self, request: Request, pk: int) -> Response:
        """The draining worker claims jobs again. Superusers only."""
        return self.changed(workers.undrain)
