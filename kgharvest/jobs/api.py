"""Jobs of all kinds in the API: how far they are, cancel and retry. A harvest or probe has the id of its job."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.api.input import Filters
from kgharvest.api.views import DetailView, ListView
from kgharvest.jobs import ledger
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES
from kgharvest.models import Job

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
