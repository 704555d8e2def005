"""API of LMs, harvests and their tuples, and launches."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils import timezone
from django.utils.text import capfirst
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiResponse,
    OpenApiTypes,
    extend_schema,
    extend_schema_serializer,
    extend_schema_view,
)
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.api.input import (
    CountField,
    Filters,
    FiniteField,
    IdField,
    PlacementInput,
    ProjectField,
    ProjectFilters,
    StrictSerializer,
    VisibleField,
)
from kgharvest.api.views import AnyRenderer, ApiViewSet, LineRenderer, PagedList, RetrieveMixin, operation
from kgharvest.bulk.file_reading import upload_limit
from kgharvest.chat_models.options import api_fields, options_from
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.engine.settings import PROMPT_SETTINGS, SETTINGS
from kgharvest.engine.types import ORDER_HELP, HarvestParams, TupleOrder
from kgharvest.harvests import launches
from kgharvest.harvests.cuts import Cut, kept_size, parse_cut
from kgharvest.harvests.heads import MOST_HEADS
from kgharvest.harvests.language_models import LM_NAMES_HELP, name_language_model
from kgharvest.harvests.runner import MIN_SEED_TUPLES
from kgharvest.harvests.tuple_files import FILE_FORMATS, Cell, export_tuples, exported, prepared_import
from kgharvest.jobs.api import JOB
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES
from kgharvest.knowledge.tuple_files import IMPORT_FORMATS
from kgharvest.models import HarvestedTuple, HarvestJob, Job, LanguageModel, Launch, Relation, RelationSet
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import FORMATS, NDJSON

MAX_CELLS = 10_000  # maximum number of cells per launch
HARVEST = {name: value for name, value in JOB.items() if name != "kind"} | {
    "relation": "places/place_for",
    "model": "embedded",
    "setting": "multi",
    "origin": "harvested",
    "launch": 5,
    "status": "succeeded",
    "is_unfinished": False,
    "stage": "re-scoring",
    "done": 900,
    "n_tuples": 100,
    "summary": {},
    "device": "cpu",
    "dtype": "float32",
    "fingerprint": "0f1e2d3c4b5a6978",
    "finished_at": "2026-11-22T09:00:09Z",
}
TUPLE = {
    "relation": "place_for",
    "model": "embedded",
    "setting": "multi",
    "rank": 1,
    "entities": ["kitchen", "cooking"],
    "surface": ["Kitchen", "cooking"],
    "score": -2.31,
    "mtl": -1.2,
    "job": "0f1e2d3c4b5a6978",
}
LAUNCH_REQUEST = {"relations": [17], "models": ["embedded"], "settings": ["human", "multi"], "max_tuples": 100}
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


class LanguageModelSerializer(serializers.ModelSerializer):
    """Built-in LMs are demonstrators. Their results do not generalize to other LMs."""

    class Meta:
        model = LanguageModel
        fields = ["id", "name", "revision", "is_demonstrator"]


class LanguageModelFilters(Filters):
    name = serializers.CharField(required=False, max_length=500, help_text="Exact name.")


class LanguageModelViewSet(PagedList, ApiViewSet):
    """Embedded LMs, and LMs used in your projects, newest first. A launch can name additional LMs."""

    serializer_class = LanguageModelSerializer
    filters = LanguageModelFilters

    def get_queryset(self) -> QuerySet:
        return LanguageModel.objects.visible_to(self.request.user)


@extend_schema_serializer(examples=[OpenApiExample("A harvest", HARVEST, response_only=True)])
class HarvestSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug")
    relation = serializers.CharField(source="relation.path")
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField(help_text="True while queued or running.")
    summary = serializers.DictField(help_text="Search statistics, number of rejected tuples by filter, and versions.")
    device = serializers.CharField(
        source="payload.device", default=None, allow_null=True, help_text="Device of the LM; null if imported."
    )
    dtype = serializers.CharField(
        source="payload.dtype", default=None, allow_null=True, help_text="Number format of the LM's weights."
    )

    class Meta:
        model = HarvestJob
        fields = [
            *("id", "project", "relation", "model", "setting", "origin", "launch", *JOB_FIELDS),
            *("n_tuples", "summary", "device", "dtype", "fingerprint", *JOB_TIMES),
        ]


class HarvestFilters(ProjectFilters):
    relation = IdField(required=False)
    model = serializers.CharField(required=False, max_length=500, source="language_model__name", help_text="LM name.")
    setting = serializers.CharField(required=False, max_length=30)
    launch = IdField(required=False)
    status = serializers.ChoiceField(Job.Status.choices, required=False)
    origin = serializers.ChoiceField(HarvestJob.Origin.choices, required=False)


class TupleFileInput(StrictSerializer):
    project = ProjectField()
    file = serializers.FileField(
        validators=[upload_limit("import it with the command import_tuples")],
        help_text="JSON Lines as exported by kgharvest, CSV, or ent_tuples.json of the reference implementation.",
    )
    relation = VisibleField(Relation.objects.select_related("relation_set"))
    model = serializers.CharField(max_length=500, help_text="Source LM of the tuples. Any name is accepted.")
    setting = serializers.CharField(max_length=30, help_text="Method that produced the prompts: human, multi, ...")
    format = serializers.ChoiceField(["auto", *IMPORT_FORMATS], default="auto")


class TupleListSerializer(serializers.ListSerializer):
    def to_representation(self, tuples: list[HarvestedTuple]) -> list[dict[str, Any]]:
        return exported(self.context["job"], tuples)


@extend_schema_serializer(examples=[OpenApiExample("A tuple", TUPLE, response_only=True)])
class HarvestedTupleSerializer(serializers.Serializer):
    """A tuple in the format of exported files. rank: rank among all tuples of the harvest; 1 is best.

    score and mtl are in nats.
    """

    relation = serializers.CharField()
    model = serializers.CharField()
    setting = serializers.CharField()
    rank = serializers.IntegerField()
    entities = serializers.ListField(child=serializers.CharField(), help_text="Case-folded entities, one per slot.")
    surface = serializers.ListField(
        child=serializers.CharField(), help_text="Entities in the spelling of the LM, one per slot."
    )
    score = serializers.FloatField(allow_null=True)
    mtl = serializers.FloatField(allow_null=True)
    job = serializers.CharField(help_text="Fingerprint of the harvest.")
    original = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="LM output before correction. Present only for corrected tuples.",
    )
    ids = serializers.ListField(
        child=serializers.CharField(allow_null=True),
        required=False,
        help_text="Entity ids by slot, if the relation set has a label table.",
    )

    class Meta:
        list_serializer_class = TupleListSerializer


class TupleFilters(Filters):
    cut = serializers.CharField(
        required=False, max_length=40, help_text="Cut to the best tuples: top:100, share:0.5, base:10, score:-12, ..."
    )
    include = serializers.ChoiceField(["all"], required=False, help_text="Include hidden and sensitive tuples.")

    def narrow(self, rows: QuerySet) -> QuerySet:
        cut, includes_all = _cut_and_inclusion(self.validated_data)
        return rows.presentable(includes_all, includes_all).filter(rank__lte=kept_size(self.context["view"].job, cut))


def _cut_and_inclusion(query: dict[str, Any]) -> tuple[Cut | None, bool]:
    """Return the cut and whether hidden and sensitive tuples are included. Raises BadCut."""
    return parse_cut(query["cut"]) if "cut" in query else None, query.get("include") == "all"


class ExportFilters(TupleFilters):
    format = serializers.ChoiceField(FILE_FORMATS, default="jsonl")


class HarvestViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Harvests of your projects, newest first."""

    serializer_class = HarvestSerializer
    filters = HarvestFilters
    queryset = HarvestJob.objects.with_cell().select_related("project")

    @operation(
        "Import tuples as a harvest",
        "import/",
        url_name="import",
        on_list=True,
        request=TupleFileInput,
        responses={201: HarvestSerializer},
        parser_classes=(MultiPartParser,),
        once=False,  # the file is read before the transaction
    )
    def import_file(self, request: Request) -> Response:
        """Tuples are ranked by score. If a tuple occurs twice, only the better-ranked one is stored.

        If any row is invalid, the whole file is rejected.
        """
        sent = self.sent(TupleFileInput)
        cell = Cell(sent["relation"], name_language_model(sent["model"]), sent["setting"])
        with TemporaryDirectory() as folder:
            path = Path(folder) / (Path(sent["file"].name).name or "tuples")
            path.write_bytes(sent["file"].read())
            with prepared_import(path, cell, sent["format"], request.user, sent.get("project")) as store:

                def make(_: None) -> Response:
                    job = store()
                    return self.created(job, self.address(job))

                return self.prepared_once(lambda: None, make)

    @operation(
        "Export the tuples of a harvest",
        method="get",
        parameters=[ExportFilters],
        responses={
            (200, FORMATS[name].content_type.partition(";")[0]): OpenApiResponse(OpenApiTypes.STR, "The file.")
            for name in FILE_FORMATS
        },
        refuses=True,
        renderer_classes=(AnyRenderer,),
    )
    def export(self, request: Request, pk: int) -> HttpResponse:
        """Returns the tuples as JSON Lines, CSV, N-Triples, or Turtle, best first."""
        job, query = self.get_object(), self.filtered_by(ExportFilters)
        cut, includes_all = _cut_and_inclusion(query)
        lines = export_tuples(job, cut, query["format"], includes_all, includes_all)
        return download(lines, f"harvest-{job.pk}.{query['format']}")


@extend_schema_view(
    list=extend_schema(
        responses={
            (200, "application/json"): HarvestedTupleSerializer(many=True),
            (200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "One tuple per line."),
        }
    )
)
class TupleViewSet(PagedList, ApiViewSet):
    """Tuples of a harvest, best first, as JSON pages. Use `Accept: application/x-ndjson` to get all tuples at once."""

    serializer_class = HarvestedTupleSerializer
    renderer_classes = (JSONRenderer, LineRenderer)
    filters = TupleFilters
    order = ("rank",)
    refuses = True

    def get_queryset(self) -> QuerySet:
        return self.job.tuples.select_related("knowledge_tuple")

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "job": getattr(self, "job", None)}

    def list(self, request: Request, pk: int) -> HttpResponse:
        self.job = self.row(HarvestJob.objects.visible_to(request.user).with_cell())
        if request.accepted_renderer.media_type == LineRenderer.media_type:
            cut, includes_all = _cut_and_inclusion(self.filtered_by(TupleFilters))
            return download(export_tuples(self.job, cut, "jsonl", includes_all, includes_all), content_type=NDJSON)
        return super().list(request)


# Launches


class ChatInput(StrictSerializer):
    """Options for chat models."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return {**super().get_fields(), **api_fields()}


def _names_field(help_text: str) -> serializers.Field:
    name = serializers.CharField(max_length=500)
    return serializers.ListField(child=name, default=list, max_length=100, help_text=help_text)


class HarvestInput(PlacementInput):
    """Combinations of LMs and settings, with parameters that apply to all harvests."""

    models = _names_field(f"LM names: a built-in LM, {LM_NAMES_HELP}.")
    chat_models = _names_field("Model ids accepted by the endpoint. Used by settings with a chat model, such as llm.")
    chat = ChatInput(required=False)
    settings = serializers.ListField(child=serializers.ChoiceField([*SETTINGS]), allow_empty=False, max_length=100)
    max_tuples = CountField(required=False, help_text="Maximum number of tuples after re-scoring. Default: all.")
    candidates = CountField(required=False, help_text="Number of tuples that the search proposes for re-scoring.")
    max_entity_tokens = CountField(max_value=6, default=HarvestParams.max_entity_tokens)
    heads = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST_ENTITY),
        default=list,
        max_length=MOST_HEADS,
        help_text="Entities of the first slot. Only tuples with these heads are harvested; limits apply to every head.",
    )
    numbers = serializers.BooleanField(default=False, help_text="Admit numbers as entities.")
    min_score = FiniteField(required=False, help_text="Minimum consistency of a tuple in nats. Default: no limit.")
    order = serializers.ChoiceField(
        get_args(TupleOrder), default=HarvestParams.order, help_text=f"{capfirst(ORDER_HELP)}."
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if not sent["models"] and any(setting in PROMPT_SETTINGS for setting in sent["settings"]):
            raise serializers.ValidationError({"models": ["Select at least one LM."]})
        return super().validate(sent)

    def params(self, sent: Mapping[str, Any]) -> HarvestParams:
        """Return the harvest parameters of valid input."""
        return HarvestParams(**{field.name: sent[field.name] for field in fields(HarvestParams) if field.name in sent})


@extend_schema_serializer(examples=[OpenApiExample("Two harvests", LAUNCH_REQUEST, request_only=True)])
class LaunchInput(HarvestInput):
    """Combinations of relations or whole sets, LMs, and settings, with parameters that apply to all harvests."""

    project = ProjectField()
    relations = serializers.ListField(
        child=VisibleField(Relation.objects.select_related("relation_set")), default=list, max_length=MAX_CELLS
    )
    sets = serializers.ListField(
        child=VisibleField(RelationSet.objects.all()),
        default=list,
        max_length=MAX_CELLS,
        help_text="Relation sets. The launch includes their relations with at least two seed tuples.",
    )
    again = serializers.BooleanField(
        default=False, help_text="Repeat finished harvests with the same parameters instead of skipping them."
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if not sent["relations"] and not sent["sets"]:
            raise serializers.ValidationError({"relations": ["Select at least one relation or relation set."]})
        return super().validate(sent)


@extend_schema_serializer(examples=[OpenApiExample("A launch", LAUNCH, response_only=True)])
class LaunchSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug")
    n_jobs = serializers.IntegerField(source="progress.n_jobs", help_text="Number of harvests.")
    n_over = serializers.IntegerField(
        source="progress.n_over", help_text="Number of harvests that succeeded, failed, or were canceled."
    )
    is_unfinished = serializers.SerializerMethodField()
    counts = serializers.DictField(
        source="progress.counts", child=serializers.IntegerField(), help_text="Number of harvests by status."
    )
    per_minute = serializers.FloatField(
        source="progress.per_minute", allow_null=True, help_text="Number of harvests finished per minute."
    )
    seconds_left = serializers.FloatField(source="progress.seconds_left", allow_null=True, help_text="Rough estimate.")

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
    job = serializers.IntegerField(source="job.pk", help_text="Existing harvest with the same parameters.")


class LaunchPlanSerializer(serializers.Serializer):
    n_cells = serializers.IntegerField(help_text="Number of requested cells.")
    n_harvests = serializers.SerializerMethodField(help_text="Number of cells to harvest.")
    skipped = SkippedCellSerializer(many=True, help_text="Cells with a finished or unfinished harvest.")
    refusals = serializers.ListField(child=serializers.CharField(), help_text="Errors that prevent the launch.")
    seconds = serializers.FloatField(
        source="estimate.seconds", help_text="Estimated duration in seconds. Excludes the harvests in `without_past`."
    )
    without_past = serializers.ListField(
        child=serializers.CharField(), help_text="Pairs of LM and setting without comparable past harvests."
    )

    def get_n_harvests(self, plan: launches.Plan) -> int:
        return len(plan.requests)


def plan_of(sent: dict[str, Any], by) -> launches.Plan:
    """Return the plan of a requested launch. Raises ValidationError or DomainError."""
    relations_of_sets = Relation.objects.filter(relation_set__in=sent["sets"]).select_related("relation_set")
    ready = [relation for relation in relations_of_sets if len(relation.seed_tuples) >= MIN_SEED_TUPLES]
    relations = {relation.pk: relation for relation in [*sent["relations"], *ready]}
    params = LaunchInput().params(sent)
    n_models = len({*sent["models"]}) + len({*sent["chat_models"]})
    if len(relations) * n_models * len(sent["settings"]) > MAX_CELLS:
        raise serializers.ValidationError(
            {"relations": [f"The launch has more than {MAX_CELLS:,} cells. Split it into several launches."]}
        )
    names = (sent["models"], sent["chat_models"], [*dict.fromkeys(sent["settings"])])
    placement = {name: sent[name] for name in ("device", "dtype")}
    chat = options_from(sent.get("chat", {}))
    requests = launches.named_requests(relations.values(), *names, params, chat, **placement)
    return launches.plan_launch(requests, timezone.now(), sent["again"], by, sent.get("project"))


class RetryInput(StrictSerializer):
    status = serializers.ChoiceField(
        ["failed", "cancelled"], default="failed", help_text="Status of the harvests to retry."
    )


class LaunchViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Launches of your projects, newest first. List the harvests of a launch with `/harvests/?launch=`."""

    serializer_class = LaunchSerializer
    filters = ProjectFilters
    queryset = Launch.objects.select_related("project")

    def paginate_queryset(self, queryset: QuerySet) -> Sequence[Launch]:
        return with_progress(super().paginate_queryset(queryset))

    def answer(self, launch: Launch, *args: Any, **options: Any) -> Response:
        return super().answer(with_progress([launch])[0], *args, **options)

    @extend_schema(request=LaunchInput, responses={202: LaunchSerializer}, summary="Launch harvests")
    def create(self, request: Request) -> Response:
        """Workers run the harvests. Cells that were already harvested with the same parameters are skipped."""
        launch, _ = launches.start_launch(plan_of(self.sent(LaunchInput), request.user), request.user)
        return self.accepted(launch, self.address(launch))

    @operation(
        "Preview a launch", on_list=True, request=LaunchInput, serializer_class=LaunchPlanSerializer, is_keyed=False
    )
    def plan(self, request: Request) -> Response:
        """Returns the plan without starting any harvest."""
        return Response(self.get_serializer(plan_of(self.sent(LaunchInput), request.user)).data)

    @operation("Cancel the unfinished harvests of a launch")
    def cancel(self, request: Request, pk: int) -> Response:
        return self.changed(launches.cancel_launch)

    @operation("Retry harvests of a launch", request=RetryInput, responses={202: LaunchSerializer})
    def retry(self, request: Request, pk: int) -> Response:
        launch = self.get_object()
        retry_cancelled = self.sent(RetryInput)["status"] == "cancelled"
        (launches.retry_cancelled if retry_cancelled else launches.retry_failed)(launch, request.user)
        return self.accepted(launch, self.address(launch))


def with_progress(rows: Sequence[Launch]) -> Sequence[Launch]:
    """Set the progress of each launch. Return the launches."""
    now = timezone.now()
    for launch in rows:
        launch.progress = launches.progress_of(launch, now)
    return rows
