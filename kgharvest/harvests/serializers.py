"""What the API says about jobs."""

from __future__ import annotations

from rest_framework import serializers

from kgharvest.models import HarvestJob
from kgharvest.templatetags.durations import duration, pace


class HarvestSerializer(serializers.ModelSerializer):
    relation = serializers.CharField(source="relation.path")
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = HarvestJob
        fields = [
            *("id", "relation", "model", "setting", "origin", "status", "is_unfinished", "stage", "done", "total"),
            *("attempts", "error", "n_tuples", "summary", "fingerprint", "created_at", "started_at", "finished_at"),
        ]


class LaunchJobSerializer(serializers.ModelSerializer):
    status_name = serializers.CharField(source="get_status_display")

    class Meta:
        model = HarvestJob
        fields = ["id", "status", "status_name", "stage", "done", "total", "n_tuples"]


class LaunchSerializer(serializers.Serializer):
    """n_over of n_jobs are over; rate and left are for people, empty while unknown."""

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
