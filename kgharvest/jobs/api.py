"""Jobs and workers in the API.

Jobs of all kinds: how far they are, cancel and retry; a harvest or probe has the id of its job. Workers: who is there,
what each does, and sending one away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.api.input import Filters
from kgharvest.api.views import DetailView, ListView
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


class JobFilters(Filters):
    project = serializers.CharField(required=False, max_length=100, source="project__slug", help_text="Slug.")
    kind = serializers.CharField(required=False, max_length=30, help_text="harvest, import, probe, ...")
    status = serializers.ChoiceField(Job.Status.choices, required=False)


class JobList(ListView):
    """Jobs of your projects, the newest first."""

    serializer_class = JobSerializer
    filters = JobFilters

    def get_queryset(self) -> QuerySet:
        return Job.objects.visible_to(self.request.user).select_related("project")


class JobDetail(DetailView):
    """A job and how far it is."""

    serializer_class = JobSerializer

    def get_queryset(self) -> QuerySet:
        return Job.objects.visible_to(self.request.user).select_related("project")


class JobCancel(JobDetail):
    """What stops a job."""

    http_method_names = ["post"]

    @extend_schema(request=None, responses=JobSerializer, summary="Cancel a job")
    def post(self, request: Request, pk: int) -> Response:
        """Its worker stops within seconds; nothing of its results is kept."""
        job = self.row(self.get_queryset())

        def act() -> Response:
            ledger.cancel(job, request.user)
            return self.answer(self.row(self.get_queryset()))

        return self.once(act)


class JobRetry(JobDetail):
    """What takes a job up again."""

    http_method_names = ["post"]

    @extend_schema(request=None, responses={202: JobSerializer}, summary="Queue a failed or cancelled job again")
    def post(self, request: Request, pk: int) -> Response:
        job = self.row(self.get_queryset())

        def act() -> Response:
            ledger.retry(job, request.user)
            return self.accepted(self.row(self.get_queryset()), self.location("kgharvest:api_job", pk))

        return self.once(act)


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


class WorkerList(ListView):
    """Workers that were heard of within a day, and those that have done jobs, the newest first."""

    serializer_class = WorkerSerializer
    filters = Filters

    def get_queryset(self) -> QuerySet:
        return Worker.objects.all()


class WorkerDetail(DetailView):
    """A worker and what it does."""

    serializer_class = WorkerSerializer

    def get_queryset(self) -> QuerySet:
        return Worker.objects.all()


class WorkerDrain(WorkerDetail):
    """What sends a worker away."""

    http_method_names = ["post"]

    @extend_schema(request=None, responses=WorkerSerializer, summary="Have a worker end its jobs and leave")
    def post(self, request: Request, pk: int) -> Response:
        """It takes no further job. For superusers."""
        worker = self.row(self.get_queryset())

        def act() -> Response:
            workers.drain(worker, request.user)
            return self.answer(self.row(self.get_queryset()))

        return self.once(act)


class WorkerUndrain(WorkerDetail):
    """What calls a worker back."""

    http_method_names = ["post"]

    @extend_schema(request=None, responses=WorkerSerializer, summary="Have a worker that is being drained go on")
    def post(self, request: Request, pk: int) -> Response:
        """For superusers."""
        worker = self.row(self.get_queryset())

        def act() -> Response:
            workers.undrain(worker, request.user)
            return self.answer(self.row(self.get_queryset()))

        return self.once(act)
