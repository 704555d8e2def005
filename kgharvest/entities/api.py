"""API of the entity table of a relation set."""

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import ApiViewSet, JsonParser, operation
from kgharvest.entities.models import EntityTable
from kgharvest.entities.tables import delete_table, save_table
from kgharvest.relations.api import check_file_size
from kgharvest.relations.models import RelationSet

TABLE = {
    "set": "places",
    "without_articles": True,
    "in_singular": False,
    "source": "labels.tsv",
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "n_labels": 1200,
    "n_aliases": 5100,
    "n_ambiguous": 12,
    "changed_at": "2026-11-22T09:00:00Z",
}


@extend_schema_serializer(examples=[OpenApiExample("A table", TABLE, response_only=True)])
class EntityTableSerializer(serializers.ModelSerializer):
    """Rules and names that determine the canonical form of entities in a relation set.

    n_ambiguous: number of names with several labels.
    """

    set = serializers.CharField(source="relation_set.name")

    class Meta:
        model = EntityTable
        fields = [*TABLE]


class EntityTableInput(StrictSerializer):
    without_articles = serializers.BooleanField(
        default=True, help_text="Ignore articles: “a dog” and “the dog” both become “dog”."
    )
    in_singular = serializers.BooleanField(
        default=False, help_text="Singularize by English rules: “dogs” becomes “dog”."
    )
    file = serializers.FileField(
        required=False,
        validators=[check_file_size],
        help_text="File with one entity per line: tab-separated label, aliases (separated by |), and id. Send it as "
        "multipart/form-data. Default: keep the current names.",
    )


class EntityTableViewSet(ApiViewSet):
    """The entity table of a relation set."""

    access = Action.WORK
    serializer_class = EntityTableSerializer
    parser_classes = (JsonParser, MultiPartParser)
    queryset = RelationSet.objects.select_related("project")

    @operation("Retrieve the entity table of a set", method="get")
    def entities(self, request: Request, pk: int) -> Response:
        """Returns 404 if the set has no table. Requires the owner or researcher role."""
        return self.answer(get_object_or_404(EntityTable, relation_set=self.get_object()))

    @extend_schema(
        request={"application/json": EntityTableInput, "multipart/form-data": EntityTableInput},
        summary="Create or replace the entity table of a set",
    )
    @entities.mapping.post
    def save_entities(self, request: Request, pk: int) -> Response:
        """The new table applies to tuples that are stored after this request."""
        relation_set, sent = self.named(), self.sent(EntityTableInput)
        file = (sent["file"].name, sent["file"].read()) if "file" in sent else None
        rules = (sent["without_articles"], sent["in_singular"])
        return self.answer(save_table(relation_set, *rules, file, request.user))

    @extend_schema(responses={204: None}, summary="Delete the entity table of a set")
    @entities.mapping.delete
    def delete_entities(self, request: Request, pk: int) -> Response:
        delete_table(self.named(), request.user)
        return self.deleted()
