"""API of relations and relation sets."""

from typing import Any

from django.db.models import Count, QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action, check_may_anywhere
from kgharvest.api.input import (
    CountField,
    Filters,
    FiniteField,
    ProjectField,
    ProjectFilters,
    StrictSerializer,
    VisibleField,
)
from kgharvest.api.views import ApiViewSet, PagedList, RetrieveMixin, operation
from kgharvest.bulk.file_reading import upload_limit
from kgharvest.bulk.pagination import containing
from kgharvest.models import Relation, RelationSet
from kgharvest.relations import services
from kgharvest.relations.checks import LONGEST_EXPLANATION, LONGEST_SENTENCE, MOST_SENTENCES, RelationEntry
from kgharvest.relations.files import EXPORTED_COLUMNS, export_relations, read_relation_file
from kgharvest.relations.prompt_files import IMPORTED, ORIGIN_CHOICES, PromptFile, import_prompts
from kgharvest.tables.downloads import download

SET = {
    "id": 4,
    "name": "places",
    "project": "default",
    "description": "Where things are.",
    "is_shipped": False,
    "n_relations": 2,
}
RELATION = {
    "id": 17,
    "name": "place_for",
    "set": "places",
    "path": "places/place_for",
    "statement": "<ENT0> is a place for <ENT1>.",
    "explanation": "What people usually go there for.",
    "arity": 2,
    "initial_prompts": ["<ENT0> is a place for <ENT1>."],
    "prompts": [],
    "seed_tuples": [["kitchen", "cooking"], ["school", "learning"]],
    "negative_seed_tuples": [["kitchen", "kettle"]],
    "created_at": "2026-11-22T09:00:00Z",
}
check_file_size = upload_limit("split it and send the parts")
RELATION_INPUT = {name: RELATION[name] for name in ("name", "set", "statement", "explanation", "seed_tuples")}


@extend_schema_serializer(examples=[OpenApiExample("A set", SET, response_only=True)])
class SetSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    n_relations = serializers.IntegerField(help_text="Number of relations.")

    class Meta:
        model = RelationSet
        fields = [*SET]


class SetFilters(ProjectFilters):
    name = serializers.CharField(required=False, max_length=100, help_text="Exact name.")
    is_shipped = serializers.BooleanField(required=False, help_text="True for built-in relation sets.")


@extend_schema_serializer(examples=[OpenApiExample("A copy", {"copy_of": 4, "name": "places-2"}, request_only=True)])
class SetCopyInput(StrictSerializer):
    project = ProjectField()
    copy_of = VisibleField(RelationSet.objects.all(), help_text="Id of the set to copy.")
    name = serializers.CharField(max_length=100, help_text="Letters, digits, -, and _.")


class SetInput(StrictSerializer):
    name = serializers.CharField(max_length=100, required=False, help_text="Letters, digits, -, and _.")
    description = serializers.CharField(max_length=LONGEST_EXPLANATION, required=False, allow_blank=True)


class SetFileInput(StrictSerializer):
    project = ProjectField()
    file = serializers.FileField(
        validators=[check_file_size],
        help_text="kgharvest JSON, relation_info JSON of the BertNet code, or JSON Lines of LAMA or E-KAR.",
    )
    name = serializers.CharField(max_length=100, required=False, help_text="Set name. Default: the name in the file.")


class PromptFileInput(StrictSerializer):
    file = serializers.FileField(
        validators=[check_file_size], help_text='RELATION.jsonl with lines {"template", "weight"}.'
    )
    origin = serializers.ChoiceField(ORIGIN_CHOICES, default=IMPORTED)
    least_weight = FiniteField(
        min_value=0, required=False, help_text="Minimum weight. Prompts with smaller weights are skipped."
    )


class PromptsImportedSerializer(serializers.Serializer):
    message = serializers.CharField()
    unknown = serializers.ListField(
        child=serializers.CharField(),
        help_text="Names of relations in the file that are missing from the set or not binary.",
    )


class SetViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Relation sets, newest first. Services check who may change a set."""

    serializer_class = SetSerializer
    filters = SetFilters

    def get_queryset(self) -> QuerySet:
        sets = RelationSet.objects.visible_to(self.request.user).select_related("project")
        return sets.annotate(n_relations=Count("relations"))

    def created_set(self, relation_set: RelationSet) -> Response:
        return self.created(self.get_queryset().get(pk=relation_set.pk), self.address(relation_set))

    @extend_schema(request=SetCopyInput, summary="Duplicate a set")
    def create(self, request: Request) -> Response:
        """Copies a set. There are no empty sets: to create a new set, create a relation in it or import a file."""
        sent = self.sent(SetCopyInput)
        return self.created_set(
            services.duplicate_set(sent["copy_of"], sent["name"], request.user, sent.get("project"))
        )

    @extend_schema(request=SetInput, summary="Rename or describe a set")
    def partial_update(self, request: Request, pk: int) -> Response:
        relation_set = self.named()
        current = {"name": relation_set.name, "description": relation_set.description}
        services.change_set(relation_set, **current | self.sent(SetInput), by=request.user)
        return self.answer(self.named())

    @extend_schema(summary="Delete a set with its relations")
    def destroy(self, request: Request, pk: int) -> Response:
        """Deletes the set unless a relation of the set has harvests or tuples."""
        services.delete_set(self.named(), request.user)
        return self.deleted()

    @operation(
        "Import relations from a file",
        "import/",
        on_list=True,
        request=SetFileInput,
        responses={201: SetSerializer},
        parser_classes=(MultiPartParser,),
    )
    def import_file(self, request: Request) -> Response:
        """Relations that are already in the set are updated. If the file has an error, nothing is stored."""
        check_may_anywhere(request.user, Action.WORK)
        sent = self.sent(SetFileInput)
        file = read_relation_file(sent["file"].name, sent["file"].read())
        return self.created_set(
            services.import_relation_file(file, sent.get("name"), by=request.user, project=sent.get("project"))
        )

    @operation("Export a set", method="get", responses={200: {"type": "object", "additionalProperties": {}}})
    def export(self, request: Request, pk: int) -> HttpResponse:
        """Returns the set as a JSON file that can be imported."""
        relation_set = self.named()
        return download(export_relations(relation_set), f"{relation_set.name}.json")

    @operation(
        "Add prompts from a file to a set's relations",
        request=PromptFileInput,
        serializer_class=PromptsImportedSerializer,
        parser_classes=(MultiPartParser,),
    )
    def prompts(self, request: Request, pk: int) -> Response:
        relation_set, sent = self.named(), self.sent(PromptFileInput)
        file = PromptFile(sent["file"].name, sent["origin"], sent["file"].read())
        imported = import_prompts([file], relation_set, sent.get("least_weight"), request.user)
        return self.answer({"message": f"{imported}.", "unknown": imported.unknown})


@extend_schema_serializer(examples=[OpenApiExample("A relation", RELATION, response_only=True)])
class RelationSerializer(serializers.ModelSerializer):
    set = serializers.CharField(source="relation_set.name")
    path = serializers.CharField(help_text="Unique name: set/name.")
    initial_prompts = serializers.ListField(child=serializers.CharField(), help_text="Prompts to start from.")
    prompts = serializers.ListField(child=serializers.CharField(), help_text="Predefined prompts; may be empty.")
    seed_tuples = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="True examples with entities in slot order.",
    )
    negative_seed_tuples = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()), help_text="False examples; may be empty."
    )

    class Meta:
        model = Relation
        fields = [
            *("id", "name", "set", "path", "statement", "explanation", "arity"),
            *("initial_prompts", "prompts", "seed_tuples", "negative_seed_tuples", "created_at"),
        ]


class RelationFilters(Filters):
    set = serializers.CharField(required=False, max_length=100, source="relation_set__name", help_text="Set name.")
    name = serializers.CharField(required=False, max_length=100, help_text="Exact name.")
    arity = CountField(required=False, max_value=99)
    q = serializers.CharField(required=False, max_length=200, help_text="Text in the name or statement.")

    def narrow(self, rows: QuerySet) -> QuerySet:
        text = self.validated_data.pop("q", "")
        return super().narrow(containing(rows, text, ("name", "statement")))


def sentences_field(help_text: str) -> serializers.ListField:
    child = serializers.CharField(max_length=LONGEST_SENTENCE)
    return serializers.ListField(child=child, max_length=MOST_SENTENCES, required=False, help_text=help_text)


def tuples_field(help_text: str, required: bool = True) -> serializers.ListField:
    child = serializers.ListField(child=serializers.CharField(max_length=1000), max_length=99)
    return serializers.ListField(child=child, max_length=MOST_SENTENCES, required=required, help_text=help_text)


class RelationTextInput(StrictSerializer):
    """A relation without its set. In the statement and the prompts, slots are written <ENT0>, <ENT1>, ..."""

    name = serializers.CharField(max_length=100, help_text="Short name without spaces.")
    statement = serializers.CharField(max_length=LONGEST_SENTENCE, help_text="Sentence that annotators judge.")
    explanation = serializers.CharField(
        max_length=LONGEST_EXPLANATION,
        required=False,
        allow_blank=True,
        help_text="Criteria for judging the statement.",
    )
    seed_tuples = tuples_field("True examples, at least two.")
    negative_seed_tuples = tuples_field("False examples for causal LMs and chat models.", required=False)
    initial_prompts = sentences_field("Prompts from which further prompts are created. Default: the statement.")
    prompts = sentences_field("Predefined prompts. Default: paraphrases of the initial prompts.")


@extend_schema_serializer(examples=[OpenApiExample("A relation to write", RELATION_INPUT, request_only=True)])
class RelationInput(RelationTextInput):
    """A relation to create or change. In the statement and the prompts, slots are written <ENT0>, <ENT1>, ...

    project: project of the set if the set is new; ignored for an existing set.
    """

    project = ProjectField()
    set = serializers.CharField(max_length=100, help_text="Name of one of your sets or of a new set.")


def save(sent: dict[str, Any], relation: Relation | None, by) -> Relation:
    """Create a relation, or change those fields of `relation` that were sent.

    Raises ValidationError with errors by field.
    """
    values = {column: getattr(relation, column) for column in EXPORTED_COLUMNS} if relation else {}
    values |= {column: sent[column] for column in EXPORTED_COLUMNS if column in sent}
    values["initial_prompts"] = values.get("initial_prompts") or [values["statement"]]
    set_name = sent.get("set") or relation.relation_set.name
    try:
        entry = RelationEntry(where="", **values)
        return services.save_relation(entry, set_name, relation, by, sent.get("project"))
    except services.BadRelation as refusal:
        fields: dict[str, list[str]] = {}
        for error in refusal.errors:
            fields.setdefault({"set_name": "set"}.get(error.field, error.field), []).append(str(error))
        raise serializers.ValidationError(fields) from refusal


class RelationViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Relations, newest first. Services check who may change a relation."""

    serializer_class = RelationSerializer
    filters = RelationFilters
    queryset = Relation.objects.select_related("relation_set__project")

    @extend_schema(request=RelationInput, summary="Create a relation")
    def create(self, request: Request) -> Response:
        relation = save(self.sent(RelationInput), None, request.user)
        return self.created(relation, self.address(relation))

    @extend_schema(request=RelationInput, summary="Edit a relation")
    def partial_update(self, request: Request, pk: int) -> Response:
        """Changes fields of a relation.

        If the relation has harvests or tuples, its name, set, and number of slots cannot be changed.
        """
        return self.answer(save(self.sent(RelationInput, partial=True), self.named(), request.user))

    @extend_schema(summary="Delete a relation")
    def destroy(self, request: Request, pk: int) -> Response:
        """Deletes the relation unless it has harvests, tuples, or gold statements."""
        services.delete_relation(self.named(), request.user)
        return self.deleted()
