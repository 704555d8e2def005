"""LMs, harvests and their tuples in the API."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
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

from kgharvest.api.input import Filters, IdField, ProjectField, ProjectFilters, StrictSerializer, VisibleField
from kgharvest.api.views import AnyRenderer, ApiViewSet, LineRenderer, PagedList, RetrieveMixin, operation
from kgharvest.bulk.file_reading import upload_limit
from kgharvest.harvests.cuts import kept_size, parse_cut
from kgharvest.harvests.language_models import name_language_model
from kgharvest.harvests.tuple_export import FILE_FORMATS, Included, export_tuples, exported
from kgharvest.harvests.tuple_import import Cell, prepared_import
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES
from kgharvest.knowledge.tuple_files import IMPORT_FORMATS
from kgharvest.models import HarvestedTuple, HarvestJob, Job, LanguageModel, Relation
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import FORMATS, NDJSON

HARVEST = {
    "id": 12,
    "project": "default",
    "relation": "places/place_for",
    "model": "embedded",
    "setting": "multi",
    "origin": "harvested",
    "launch": 5,
    "status": "succeeded",
    "is_unfinished": False,
    "stage": "re-scoring",
    "done": 900,
    "total": 900,
    "attempts": 1,
    "error": "",
    "n_tuples": 100,
    "summary": {},
    "device": "cpu",
    "dtype": "float32",
    "fingerprint": "0f1e2d3c4b5a6978",
    "created_at": "2026-11-22T09:00:00Z",
    "started_at": "2026-11-22T09:00:01Z",
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


# -- LMs ---------------------------------------------------------------------------------------------------------------


class LanguageModelSerializer(serializers.ModelSerializer):
    """A demonstrator comes with the project and says nothing about other LMs."""

    class Meta:
        model = LanguageModel
        fields = ["id", "name", "revision", "is_demonstrator"]


class LanguageModelFilters(Filters):
    name = serializers.CharField(required=False, max_length=500, help_text="Exactly this name.")


class LanguageModelViewSet(PagedList, ApiViewSet):
    """LMs that something was harvested or probed with, newest first. A launch may name others, too."""

    serializer_class = LanguageModelSerializer
    filters = LanguageModelFilters

    def get_queryset(self) -> QuerySet:
        return LanguageModel.objects.all()


# -- harvests ----------------------------------------------------------------------------------------------------------


@extend_schema_serializer(examples=[OpenApiExample("A harvest", HARVEST, response_only=True)])
class HarvestSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug")
    relation = serializers.CharField(source="relation.path")
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField(help_text="Whether it waits or is being done.")
    summary = serializers.DictField(help_text="Counts of the search, what was rejected, versions.")
    device = serializers.CharField(
        source="payload.device", default=None, allow_null=True, help_text="Where the LM was; null if imported."
    )
    dtype = serializers.CharField(
        source="payload.dtype", default=None, allow_null=True, help_text="Number format of its weights."
    )

    class Meta:
        model = HarvestJob
        fields = [
            *("id", "project", "relation", "model", "setting", "origin", "launch", *JOB_FIELDS),
            *("n_tuples", "summary", "device", "dtype", "fingerprint", *JOB_TIMES),
        ]


class HarvestFilters(ProjectFilters):
    relation = IdField(required=False)
    model = serializers.CharField(required=False, max_length=500, source="language_model__name", help_text="Name.")
    setting = serializers.CharField(required=False, max_length=30)
    launch = IdField(required=False)
    status = serializers.ChoiceField(Job.Status.choices, required=False)
    origin = serializers.ChoiceField(HarvestJob.Origin.choices, required=False)


class TupleFileInput(StrictSerializer):
    project = ProjectField()
    file = serializers.FileField(
        validators=[upload_limit("import it with the command import_tuples")],
        help_text="JSON lines of this project, CSV, or the reference code's ent_tuples.json.",
    )
    relation = VisibleField(Relation.objects.select_related("relation_set"))
    model = serializers.CharField(max_length=500, help_text="The LM that the tuples came from; any name.")
    setting = serializers.CharField(max_length=30, help_text="How the prompts were obtained: human, multi, ...")
    format = serializers.ChoiceField(["auto", *IMPORT_FORMATS], default="auto")


class TuplesOfPage(serializers.ListSerializer):
    def to_representation(self, found: list[HarvestedTuple]) -> list[dict[str, Any]]:
        return exported(self.context["job"], found)


@extend_schema_serializer(examples=[OpenApiExample("A tuple", TUPLE, response_only=True)])
class HarvestedTupleSerializer(serializers.Serializer):
    """A tuple as files have it. rank: 1 is best, among all that the LM said; score and mtl in nats."""

    relation = serializers.CharField()
    model = serializers.CharField()
    setting = serializers.CharField()
    rank = serializers.IntegerField()
    entities = serializers.ListField(child=serializers.CharField(), help_text="Case-folded, by slot.")
    surface = serializers.ListField(child=serializers.CharField(), help_text="As the LM wrote them.")
    score = serializers.FloatField(allow_null=True)
    mtl = serializers.FloatField(allow_null=True)
    job = serializers.CharField(help_text="Fingerprint of the harvest.")
    original = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Of a corrected tuple: what the LM said."
    )
    ids = serializers.ListField(
        child=serializers.CharField(allow_null=True),
        required=False,
        help_text="Of the entities, by slot, where the relation's set has a table of labels.",
    )

    class Meta:
        list_serializer_class = TuplesOfPage


class TupleFilters(Filters):
    cut = serializers.CharField(
        required=False, max_length=40, help_text="Keeps the best part: top:100, share:0.5, base:10, score:-12, ..."
    )
    include = serializers.ChoiceField(["all"], required=False, help_text="Hidden and sensitive tuples, too.")

    def narrow(self, rows: QuerySet) -> QuerySet:
        asked = self.validated_data
        everything = asked.get("include") == "all"
        size = kept_size(self.context["view"].job, parse_cut(asked["cut"]) if "cut" in asked else None)
        return rows.presentable(everything, everything).filter(rank__lte=size)


def export(
    job: HarvestJob, asked: dict[str, Any], file_format: str, name: str = "", content_type: str = ""
) -> HttpResponse:
    """Return a file of the job's tuples. Raises NothingToExport, BadCut."""
    everything = asked.get("include") == "all"
    cut = parse_cut(asked["cut"]) if "cut" in asked else None
    return download(export_tuples(job, cut, file_format, Included(everything, everything)), name, content_type)


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
        """Ranked by score. Of equal tuples, the better one is stored. If a row is bad, nothing is stored."""
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
        """JSON lines, CSV, N-Triples or Turtle, best first."""
        job, asked = self.get_object(), self.filtered_by(ExportFilters)
        return export(job, asked, asked["format"], f"harvest-{job.pk}.{asked['format']}")


@extend_schema_view(
    list=extend_schema(
        responses={
            (200, "application/json"): HarvestedTupleSerializer(many=True),
            (200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "A tuple a line."),
        }
    )
)
class TupleViewSet(PagedList, ApiViewSet):
    """The tuples of a harvest, best first: pages of JSON, or all of them with `Accept: application/x-ndjson`."""

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
            return export(self.job, self.filtered_by(TupleFilters), "jsonl", content_type=NDJSON)
        return super().list(request)
