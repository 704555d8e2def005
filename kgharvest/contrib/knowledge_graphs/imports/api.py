"""API of the KG import."""

from pathlib import Path

from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.api.input import ProjectField, StrictSerializer
from kgharvest.api.views import ApiView
from kgharvest.contrib.knowledge_graphs.imports.kg_import import ImportedKG, prepared_kg, staged_upload
from kgharvest.contrib.knowledge_graphs.imports.mapping import read_mapping, targets_by_name
from kgharvest.contrib.knowledge_graphs.imports.statements import FORMATS
from kgharvest.contrib.knowledge_graphs.imports.views import check_file_size
from kgharvest.contrib.knowledge_graphs.models import UploadedKG
from kgharvest.models import Relation

EXAMPLE = {"launch": 5, "harvests": [12, 13], "n_tuples": 900, "n_repeated": 4, "n_left_out": 120}


class KGFileInput(StrictSerializer):
    project = ProjectField()
    file = serializers.FileField(validators=[check_file_size], help_text="TSV, CSV, N-Triples, or JSON Lines.")
    name = serializers.CharField(max_length=500, help_text="Name of the source system. Stored as the LM name.")
    mapping = serializers.CharField(
        required=False,
        max_length=1_000_000,
        help_text='JSON: {"relations": {NAME IN FILE: {"relation": SET/NAME} or {"name", "template"}}}. '
        "Default: relations with the same name.",
    )
    labels = serializers.FileField(
        required=False, validators=[check_file_size], help_text="One id and label per line, separated by a tab."
    )
    format = serializers.ChoiceField(["auto", *FORMATS], default="auto")


@extend_schema_serializer(examples=[OpenApiExample("An imported KG", EXAMPLE, response_only=True)])
class ImportedKGSerializer(serializers.Serializer):
    """An imported KG. n_repeated: number of duplicates of better-ranked statements.

    n_left_out: number of statements of unmapped relations.
    """

    launch = serializers.IntegerField(source="launch.pk")
    harvests = serializers.SerializerMethodField()
    n_tuples = serializers.IntegerField(read_only=True)
    n_repeated = serializers.IntegerField()
    n_left_out = serializers.IntegerField()

    def get_harvests(self, imported: ImportedKG) -> list[int]:
        return [job.pk for job in imported.jobs]


class KGImport(ApiView):
    """Import of external knowledge graphs."""

    serializer_class = ImportedKGSerializer
    parser_classes = (MultiPartParser,)

    @extend_schema(request=KGFileInput, responses={201: ImportedKGSerializer}, summary="Import a KG as harvests")
    def post(self, request: Request) -> Response:
        """Each mapped relation becomes a finished harvest. If a statement is invalid, nothing is stored."""
        sent = self.sent(KGFileInput)
        relations = Relation.objects.visible_to(request.user)
        upload = UploadedKG(
            file_name=Path(sent["file"].name).name or "kg",
            content=sent["file"].read(),
            labels=sent["labels"].read() if "labels" in sent else None,
            file_format=sent["format"],
        )
        with staged_upload(upload) as staged:
            if "mapping" in sent:
                targets = read_mapping(sent["mapping"], "mapping", relations)
            else:
                targets = targets_by_name([relation.name for relation in staged.relations()], relations)
            with prepared_kg(staged, sent["name"], targets, request.user, sent.get("project")) as store:

                def make(_: None) -> Response:
                    imported = store()
                    return self.created(imported, self.location("kgharvest:api_launch", imported.launch.pk))

                return self.prepared_once(lambda: None, make)
