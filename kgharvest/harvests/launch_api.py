"""Launches in the API: many harvests at once, what they would be, how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.api.input import CountField, PlacementInput, ProjectField, ProjectFilters, StrictSerializer, VisibleField
from kgharvest.api.views import ApiViewSet, PagedList, RetrieveMixin, operation
from kgharvest.chat_models.options import api_fields, options_from
from kgharvest.engine.settings import PROMPT_SETTINGS, SETTINGS
from kgharvest.engine.types import HarvestParams
from kgharvest.harvests import launches
from kgharvest.harvests.language_models import LM_NAMES_HELP
from kgharvest.harvests.runner import MIN_SEED_TUPLES, HarvestRequest
from kgharvest.models import Launch, Relation, RelationSet

MOST_CELLS = 10_000  # of a launch
LAUNCH = {
    "id": 5,
    "project": "default",
    "created_at": "2026-11-22T09:00:00Z",
    "n_jobs": 2,
    "n_over": 1,
    "is_unfinished": True,
    "counts": {"queued": 0, "running": 1, "succeeded": 1, "failed": 0, "cancelled": 0},
    "per_minute": 6.5,
    "seconds_left": 9.2,
}


class ChatInput(StrictSerializer):
    """How chat models are asked."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return {**super().get_fields(), **api_fields()}


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "Two harvests",
            {"relations": [17], "models": ["embedded"], "settings": ["human", "multi"], "max_tuples": 100},
            request_only=True,
        )
    ]
)
class LaunchInput(PlacementInput):
    """Relations, or whole sets, x LMs x settings, with the parameters that all of the harvests share."""

    project = ProjectField()
    relations = serializers.ListField(
        child=VisibleField(Relation.objects.select_related("relation_set")), default=list, max_length=MOST_CELLS
    )
    sets = serializers.ListField(
        child=VisibleField(RelationSet.objects.all()),
        default=list,
        max_length=MOST_CELLS,
        help_text="Of whole sets, the relations with two seed tuples or more.",
    )
    models = serializers.ListField(
        child=serializers.CharField(max_length=500),
        default=list,
        max_length=100,
        help_text=f"Names: of an LM that comes with the project, {LM_NAMES_HELP}.",
    )
    chat_models = serializers.ListField(
        child=serializers.CharField(max_length=500),
        default=list,
        max_length=100,
        help_text="Names at the endpoint, of the chat models that settings such as llm ask instead of an LM.",
    )
    chat = ChatInput(required=False)
    settings = serializers.ListField(child=serializers.ChoiceField([*SETTINGS]), allow_empty=False, max_length=100)
    max_tuples = CountField(required=False, help_text="Tuples to keep after re-scoring; all if left out.")
    candidates = CountField(required=False, help_text="Tuples proposed for re-scoring.")
    max_entity_tokens = CountField(max_value=6, default=HarvestParams.max_entity_tokens)
    again = serializers.BooleanField(
        default=False, help_text="Also the cells that were harvested before with the same parameters."
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if not sent["relations"] and not sent["sets"]:
            raise serializers.ValidationError({"relations": ["Name at least one relation, or a whole set."]})
        if not sent["models"] and any(setting in PROMPT_SETTINGS for setting in sent["settings"]):
            raise serializers.ValidationError({"models": ["Name at least one LM."]})
        return super().validate(sent)


@extend_schema_serializer(examples=[OpenApiExample("A launch", LAUNCH, response_only=True)])
class LaunchSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug")
    n_jobs = serializers.IntegerField(source="progress.n_jobs", help_text="How many harvests it has.")
    n_over = serializers.IntegerField(source="progress.n_over", help_text="Harvests that have ended, however.")
    is_unfinished = serializers.SerializerMethodField()
    counts = serializers.DictField(
        source="progress.counts", child=serializers.IntegerField(), help_text="Harvests by status."
    )
    per_minute = serializers.FloatField(source="progress.per_minute", allow_null=True, help_text="Harvests a minute.")
    seconds_left = serializers.FloatField(source="progress.seconds_left", allow_null=True, help_text="Roughly.")

    class Meta:
        model = Launch
        fields = [
            *("id", "project", "created_at", "n_jobs", "n_over", "is_unfinished", "counts"),
            *("per_minute", "seconds_left"),
        ]

    def get_is_unfinished(self, launch: Launch) -> bool:
        return launch.progress.n_unfinished > 0


class SkippedCellSerializer(serializers.Serializer):
    cell = serializers.CharField(source="request.cell")
    job = serializers.IntegerField(source="job.pk", help_text="The harvest that has asked the same.")


class LaunchPlanSerializer(serializers.Serializer):
    n_cells = serializers.IntegerField(help_text="Cells that were asked for.")
    n_harvests = serializers.SerializerMethodField(help_text="Those that would be harvested.")
    skipped = SkippedCellSerializer(many=True, help_text="Those that were, or are about to be.")
    refusals = serializers.ListField(
        child=serializers.CharField(), help_text="What would keep the launch from starting."
    )
    seconds = serializers.FloatField(source="estimate.seconds", help_text="Of the LMs and settings harvested before.")
    without_past = serializers.ListField(
        child=serializers.CharField(), help_text="LM x setting of which nobody knows how long they take."
    )

    def get_n_harvests(self, plan: launches.Plan) -> int:
        return len(plan.requests)


def plan_of(sent: dict[str, Any], by) -> launches.Plan:
    """Return what a client's launch would do. Raises DomainError."""
    return launches.plan_launch(requests_of(sent), timezone.now(), sent["again"], by, sent.get("project"))


def requests_of(sent: dict[str, Any]) -> Iterable[HarvestRequest]:
    of_sets = Relation.objects.filter(relation_set__in=sent["sets"]).select_related("relation_set")
    ready = [relation for relation in of_sets if len(relation.seed_tuples) >= MIN_SEED_TUPLES]
    relations = {relation.pk: relation for relation in [*sent["relations"], *ready]}
    params = HarvestParams(**{name: sent.get(name) for name in ("max_tuples", "candidates", "max_entity_tokens")})
    n_models = len({*sent["models"]}) + len({*sent["chat_models"]})
    if len(relations) * n_models * len(sent["settings"]) > MOST_CELLS:
        raise serializers.ValidationError({"relations": [f"These are more than {MOST_CELLS:,} cells; launch a part."]})
    names = (sent["models"], sent["chat_models"], [*dict.fromkeys(sent["settings"])])
    placement = {name: sent[name] for name in ("device", "dtype")}
    return launches.named_requests(relations.values(), *names, params, options_from(sent.get("chat", {})), **placement)


class RetryInput(StrictSerializer):
    status = serializers.ChoiceField(["failed", "cancelled"], default="failed", help_text="Which of its harvests.")


class LaunchViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Launches of your projects, newest first. The harvests of a launch: `/harvests/?launch=`."""

    serializer_class = LaunchSerializer
    filters = ProjectFilters
    queryset = Launch.objects.select_related("project")

    def paginate_queryset(self, queryset: QuerySet) -> Sequence[Launch]:
        return with_progress(super().paginate_queryset(queryset))

    def answer(self, launch: Launch, *args: Any, **options: Any) -> Response:
        return super().answer(with_progress([launch])[0], *args, **options)

    @extend_schema(request=LaunchInput, responses={202: LaunchSerializer}, summary="Launch harvests")
    def create(self, request: Request) -> Response:
        """Workers do them; the launch tells how far they are. Cells that were harvested with the same are skipped."""
        launch = launches.start_launch(plan_of(self.sent(LaunchInput), request.user), request.user).launch
        return self.accepted(launch, self.address(launch))

    @operation(
        "See what a launch would do",
        on_list=True,
        request=LaunchInput,
        serializer_class=LaunchPlanSerializer,
        is_keyed=False,
    )
    def plan(self, request: Request) -> Response:
        """Nothing is started."""
        return Response(self.get_serializer(plan_of(self.sent(LaunchInput), request.user)).data)

    @operation("Cancel the unfinished harvests of a launch")
    def cancel(self, request: Request, pk: int) -> Response:
        return self.changed(launches.cancel_launch)

    @operation("Queue harvests of a launch again", request=RetryInput, responses={202: LaunchSerializer})
    def retry(self, request: Request, pk: int) -> Response:
        launch = self.get_object()
        retry = {"failed": launches.retry_failed, "cancelled": launches.retry_cancelled}[
            self.sent(RetryInput)["status"]
        ]
        retry(launch, request.user)
        return self.accepted(launch, self.address(launch))


def with_progress(rows: Sequence[Launch]) -> Sequence[Launch]:
    """Return the launches, each with its progress."""
    now = timezone.now()
    for launch in rows:
        launch.progress = launches.progress_of(launch, now)
    return rows
