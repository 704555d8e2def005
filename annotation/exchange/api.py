"""API of judgments: paginated list, file export, and file import."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from django.db.models import Max, Min, QuerySet
from django.http import HttpResponse
from django.urls import reverse
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.exchange.judgment_export import FILE_FORMATS, current_judgments, judgments_file
from annotation.exchange.judgment_files import DUPLICATES
from annotation.exchange.judgment_import import import_judgments
from annotation.models import Judgment, Label
from annotation.rounds.api import RoundOperations, RoundPartViewSet
from kgharvest.api.input import Filters, IdField, StrictSerializer
from kgharvest.api.views import PagedList, file_operation, operation
from kgharvest.tables.formats import FORMATS

CONTENT_TYPES = {name: FORMATS[name].content_type for name in FILE_FORMATS}


class JudgmentSerializer(serializers.ModelSerializer):
    """The current judgment of one annotator on one statement. adjudication: label given by an expert."""

    id = serializers.UUIDField(source="client_uuid")
    relation = serializers.CharField(source="task.knowledge_tuple.relation.name")
    entities = serializers.ListField(child=serializers.CharField(), source="task.entities")
    statement = serializers.CharField(source="task.statement")
    is_gold = serializers.BooleanField(source="task.is_gold")
    annotator = serializers.CharField(source="annotator.code")
    adjudication = serializers.ChoiceField(Label.choices, allow_null=True)

    class Meta:
        model = Judgment
        fields = [
            *("id", "task", "relation", "entities", "statement", "is_gold", "annotator", "label", "is_counted"),
            *("is_excluded", "is_late", "seconds", "comment", "judged_at", "adjudication"),
            *("wrong_part", "opened_reference"),
        ]


class JudgmentFilters(Filters):
    annotator = serializers.SlugField(source="annotator__code", required=False, help_text="Annotator code.")
    label = serializers.ChoiceField(Label.choices, required=False)
    task = IdField(required=False)


class JudgmentViewSet(PagedList, RoundPartViewSet):
    """Current judgments of a round, ordered by statement. To get all judgments at once, download the judgments file."""

    serializer_class = JudgmentSerializer
    filters = JudgmentFilters
    order = ("task_id", "client_uuid")

    def get_queryset(self) -> QuerySet:
        round = self.round()
        ends = round.tasks.aggregate(first=Min("pk"), last=Max("pk"))  # limits the scan to one index range
        current = current_judgments(round).filter(task_id__gte=ends["first"] or 0, task_id__lte=ends["last"] or 0)
        return current.select_related("annotator", "task__knowledge_tuple__relation")


class ImportInput(StrictSerializer):
    file = serializers.FileField(
        help_text="CSV with the columns relation, entities, annotator, and label (docs/commands.md)."
    )
    round = serializers.CharField(max_length=201, help_text="Round name, or project/name.")
    project = serializers.SlugField(required=False, help_text="Project of a new round.")
    create = serializers.BooleanField(default=False, help_text="Create missing rounds, relations, tuples, and tasks.")
    set = serializers.CharField(
        max_length=100,
        required=False,
        source="set_name",
        help_text="Relation set to use if several sets contain the relation.",
    )
    duplicates = serializers.ChoiceField(
        DUPLICATES,
        default="error",
        help_text="Policy for repeated judgments of one tuple by the same annotator: reject the file, or keep the "
        "first or last judgment.",
    )


class ImportedSerializer(serializers.Serializer):
    round = serializers.IntegerField(source="round.pk")
    n_judgments = serializers.IntegerField()
    n_duplicates = serializers.IntegerField()


class ExchangeViewSet(RoundOperations):
    @file_operation("Download the judgments of a round", "judgments.<slug:file_format>", CONTENT_TYPES)
    def judgments_file(self, request: Request, round_id: int, file_format: str) -> HttpResponse:
        """Streams one row per annotator and statement, with annotator codes instead of names."""
        return judgments_file(self.round(), file_format)

    @operation(
        "Import judgments",
        "import/",
        on_list=True,
        request={"multipart/form-data": ImportInput},
        responses={201: ImportedSerializer},
        serializer_class=ImportedSerializer,
        parser_classes=(MultiPartParser,),
    )
    def import_judgments(self, request: Request) -> Response:
        """Imports all rows of the file or none of them. ImportRefused names each invalid line."""
        sent = self.sent(ImportInput)
        file, name = sent.pop("file"), sent.pop("round")
        with TemporaryDirectory() as folder:
            # Keep the name of the uploaded file, because error messages show it.
            path = Path(folder) / (re.sub(r"[^\w.-]", "_", file.name)[-100:].lstrip(".") or "judgments.csv")
            with path.open("wb") as copy:
                copy.writelines(file.chunks())
            summary = import_judgments(path, name, **sent, by=request.user)
        return self.created(summary, reverse("annotation:api_round", args=[summary.round.pk]))
