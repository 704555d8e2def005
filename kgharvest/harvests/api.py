"""The JSON interface of harvests and launches."""

from __future__ import annotations

from django.utils import timezone
from rest_framework import generics, serializers
from rest_framework.response import Response

from kgharvest.harvests.launches import progress_of
from kgharvest.harvests.views import jobs_page
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES
from kgharvest.models import HarvestJob, Launch
from kgharvest.pages.number_format import duration, pace


class HarvestSerializer(serializers.ModelSerializer):
    relation = serializers.CharField(source="relation.path")
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = HarvestJob
        fields = [
            *("id", "relation", "model", "setting", "origin", *JOB_FIELDS),
            *("n_tuples", "summary", "fingerprint", *JOB_TIMES),
        ]


class LaunchJobSerializer(serializers.ModelSerializer):
    status_name = serializers.CharField(source="get_status_display")

    class Meta:
        model = HarvestJob
        fields = ["id", "status", "status_name", "stage", "done", "total", "n_tuples"]


class LaunchSerializer(serializers.Serializer):
    """n_over of n_jobs have ended; rate and left are for people, empty while unknown."""

    is_unfinished = serializers.BooleanField(source="progress.n_unfinished")
    n_over = serializers.IntegerField(source="progress.n_over")
    n_jobs = serializers.IntegerField(source="progress.n_jobs")
    counts = serializers.DictField(source="progress.counts", child=serializers.IntegerField())
    rate = serializers.SerializerMethodField()
    left = serializers.SerializerMethodField()
    jobs = LaunchJobSerializer(many=True)

    def get_rate(self, launch) -> str:
        return pace(launch["progress"].per_minute)

    def get_left(self, launch) -> str:
        return duration(launch["progress"].seconds_left)


class HarvestDetail(generics.RetrieveAPIView):
    """A harvest and how far it is."""

    queryset = HarvestJob.objects.with_cell()
    serializer_class = HarvestSerializer


class LaunchDetail(generics.GenericAPIView):
    """How far a launch is, with the harvests of one page of it (`page`, `status` as in the page's address)."""

    queryset = Launch.objects.all()
    serializer_class = LaunchSerializer

    def get(self, request, pk: int) -> Response:
        launch = self.get_object()
        progress = progress_of(launch, timezone.now())
        return Response(self.get_serializer({"progress": progress, "jobs": jobs_page(request, launch)}).data)
