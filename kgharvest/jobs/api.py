"""Jobs and workers in the API.

Jobs of all kinds: how far they are, cancel and retry; a harvest or probe has the id of its job. Workers: who is there,
what each does, and sending one away.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    is_unfinished = serializers.BooleanField(help_text="Whether it waits or is being done.")

    class Meta:
        model = Job
        fields = ["id", "kind", "project", *JOB_FIELDS, *JOB_TIMES]


class JobFilters(ProjectFilters):
    kind = serializers.CharField(required=False, max_length=30, help_text="harvest, import, probe, ...")
    status = serializers.ChoiceField(Job.Status.choices, required=False)


class JobViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Jobs of your projects, newest first."""

    access = Action.VIEW  # the services decide who may change a job
    serializer_class = JobSerializer
    filters = JobFilters
    queryset = Job.objects.select_related("project")

    @operation("Cancel a job")
    def cancel(self, request: Request, pk: int) -> Response:
        """Its worker stops within seconds. No results are stored."""
        return self.changed(ledger.cancel)

    @operation("Queue a failed or cancelled job again", responses={202: JobSerializer})
    def retry(self, request: Request, pk: int) -> Response:
        ledger.retry(self.named(), request.user)
        job = self.named()
        return self.accepted(job, self.address(job))


# -- workers -----------------------------------------------------------------------------------------------------------

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


class JobInHand(serializers.Serializer):
    id = serializers.IntegerField(allow_null=True, help_text="Null for a job of a project that you are no member of.")
    kind = serializers.CharField()
    stage = serializers.CharField(allow_blank=True)
    done = serializers.IntegerField()
    total = serializers.IntegerField(allow_null=True)


class WorkersOfPage(serializers.ListSerializer):
    def to_representation(self, found: list[Worker]) -> list[dict[str, Any]]:
        return told_of(self.context["request"], found)


def told_of(request: Request, found: Sequence[Worker]) -> list[dict[str, Any]]:
    return list(map(overview.to_json, overview.worker_rows(request.user, timezone.now(), found)))


@extend_schema_serializer(examples=[OpenApiExample("A worker", WORKER, response_only=True)])
class WorkerSerializer(serializers.Serializer):
    """As kgharvest.jobs.overview tells of it; made for all rows of an answer at once."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    host = serializers.CharField(allow_blank=True)
    state = serializers.ChoiceField(overview.STATES)
    devices = serializers.ListField(child=serializers.CharField())
    language_models = serializers.ListField(child=serializers.CharField(), help_text="Those in its memory.")
    queues = serializers.ListField(child=serializers.CharField())
    n_processes = serializers.IntegerField(help_text="Jobs that it does at once.")
    jobs = JobInHand(many=True)
    jobs_last_hour = serializers.IntegerField()
    tuples_last_hour = serializers.IntegerField()
    busy_s_last_hour = serializers.FloatField(help_text="Seconds, of all its processes together.")
    version = serializers.CharField(allow_blank=True)
    started_at = serializers.DateTimeField(allow_null=True)
    seen_at = serializers.DateTimeField(help_text="Its last heartbeat, which comes every few seconds.")
    left_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, instance: Worker) -> dict[str, Any]:
        return super().to_representation(told_of(self.context["request"], [instance])[0])

    class Meta:
        list_serializer_class = WorkersOfPage


class WorkerViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Workers that were seen within a day and workers that have done jobs, newest first."""

    access = Action.VIEW  # the services admit superusers only
    serializer_class = WorkerSerializer

    def get_queryset(self) -> QuerySet:
        return Worker.objects.all()

    @operation("Have a worker end its jobs and leave")
    def drain(self, request: Request, pk: int) -> Response:
        """It takes no further job. For superusers."""
        return self.changed(workers.drain)

    @operation("Have a worker that is being drained go on")
    def undrain(self, request: Request, pk: int) -> Response:
        """For superusers."""
        return self.changed(workers.undrain)
