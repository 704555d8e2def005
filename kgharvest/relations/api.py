"""Relations and their sets in the API."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action, check_may_anywhere
from kgharvest.api.input import CountField, Filters, FiniteField, ProjectField, StrictSerializer, VisibleField
from kgharvest.api.views import ApiView, DetailView, ListView
from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB
from kgharvest.models import Relation, RelationSet
from kgharvest.relations.checks import LONGEST_EXPLANATION, LONGEST_SENTENCE, MOST_SENTENCES, RelationEntry
from kgharvest.relations.files import export_relations, read_relation_file
from kgharvest.relations.prompt_files import IMPORTED, ORIGINS, PromptFile, import_prompts
from kgharvest.relations.services import (
    BadRelation,
    change_set,
    delete_relation,
    delete_set,
    duplicate_set,
    import_relation_file,
    save_relation,
)

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
    "created_at": "2026-11-22T09:00:00Z",
}
WRITTEN = {name: RELATION[name] for name in ("name", "set", "statement", "explanation", "seed_tuples")}


def uploaded(file: Any) -> Any:
    """Return a file that is small enough to be read at once. Raises ValidationError."""
    if file.size > LARGEST_FILE:
        raise serializers.ValidationError(f"The file is larger than {LARGEST_FILE_MB} MB; split it and send the parts.")
    return file


# -- sets --------------------------------------------------------------------------------------------------------------


@extend_schema_serializer(examples=[OpenApiExample("A set", SET, response_only=True)])
class SetSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    n_relations = serializers.IntegerField(help_text="How many relations it has.")

    class Meta:
        model = RelationSet
        fields = [*SET]


class SetFilters(Filters):
    project = serializers.CharField(required=False, max_length=100, source="project__slug", help_text="Slug.")
    name = serializers.CharField(required=False, max_length=100, help_text="Exactly this name.")
    is_shipped = serializers.BooleanField(required=False, help_text="Whether it comes with the project.")


@extend_schema_serializer(examples=[OpenApiExample("A copy", {"copy_of": 4, "name": "places-2"}, request_only=True)])
class SetCopyInput(StrictSerializer):
    project = ProjectField()
    copy_of = VisibleField(RelationSet.objects.all(), help_text="The set whose relations are copied.")
    name = serializers.CharField(max_length=100, help_text="Letters, digits, - and _.")


class SetInput(StrictSerializer):
    name = serializers.CharField(max_length=100, required=False, help_text="Letters, digits, - and _.")
    description = serializers.CharField(max_length=LONGEST_EXPLANATION, required=False, allow_blank=True)


class SetFileInput(StrictSerializer):
    project = ProjectField()
    file = serializers.FileField(
        validators=[uploaded],
        help_text="This project's JSON, the BertNet code's relation_info JSON, or LAMA's JSON lines.",
    )
    name = serializers.CharField(max_length=100, required=False, help_text="Of the set; by default the file's own.")


class PromptFileInput(StrictSerializer):
    file = serializers.FileField(validators=[uploaded], help_text='RELATION.jsonl with lines {"template", "weight"}.')
    origin = serializers.ChoiceField([*dict.fromkeys([*ORIGINS.values(), IMPORTED])], default=IMPORTED)
    least_weight = FiniteField(min_value=0, required=False, help_text="Prompts of a smaller weight are left out.")


class PromptsImportedSerializer(serializers.Serializer):
    message = serializers.CharField()
    unknown = serializers.ListField(
        child=serializers.CharField(), help_text="Relations that the set has not, or that are not binary."
    )


def sets_of(request: Request) -> QuerySet:
    return (
        RelationSet.objects.visible_to(request.user).select_related("project").annotate(n_relations=Count("relations"))
    )


class SetList(ListView):
    """Sets of relations, the newest first."""

    serializer_class = SetSerializer
    filters = SetFilters

    def get_queryset(self) -> QuerySet:
        return sets_of(self.request)

    @extend_schema(request=SetCopyInput, responses={201: SetSerializer}, summary="Duplicate a set")
    def post(self, request: Request) -> Response:
        """A set without relations is none: write a relation into a new set, import a file, or duplicate a set."""

        def make() -> Response:
            asked = self.sent(SetCopyInput)
            copy = duplicate_set(asked["copy_of"], asked["name"], request.user, asked.get("project"))
            return self.created(sets_of(request).get(pk=copy.pk), self.location("kgharvest:api_set", copy.pk))

        return self.once(make)


class SetDetail(DetailView):
    """A set of relations."""

    serializer_class = SetSerializer

    def get_queryset(self) -> QuerySet:
        return sets_of(self.request)

    @extend_schema(request=SetInput, summary="Give a set another name or description")
    def patch(self, request: Request, pk: int) -> Response:
        relation_set = self.row(self.get_queryset())
        kept = {"name": relation_set.name, "description": relation_set.description}
        change_set(relation_set, **kept | self.sent(SetInput), by=request.user)
        return self.answer(self.row(self.get_queryset()))

    @extend_schema(responses={204: None}, summary="Delete a set with its relations")
    def delete(self, request: Request, pk: int) -> Response:
        """None of its relations may have harvests or tuples."""
        delete_set(self.row(self.get_queryset()), request.user)
        return self.deleted()


class SetImport(ApiView):
    """Relations from a file."""

    serializer_class = SetSerializer
    parser_classes = (MultiPartParser,)

    @extend_schema(request=SetFileInput, responses={201: SetSerializer}, summary="Import relations from a file")
    def post(self, request: Request) -> Response:
        """Relations that the set has already are updated, others stay. If anything is wrong, nothing is stored."""
        check_may_anywhere(request.user, Action.WORK)
        sent = self.sent(SetFileInput)
        file = read_relation_file(sent["file"].name, sent["file"].read())

        def make() -> Response:
            made = import_relation_file(file, sent.get("name"), by=request.user, project=sent.get("project"))
            return self.created(sets_of(request).get(pk=made.pk), self.location("kgharvest:api_set", made.pk))

        return self.once(make)


class SetExport(DetailView):
    """A set as this project's JSON file, which imports as an equal set."""

    def get_queryset(self) -> QuerySet:
        return RelationSet.objects.visible_to(self.request.user)

    @extend_schema(responses={200: {"type": "object", "additionalProperties": {}}}, summary="Export a set")
    def get(self, request: Request, pk: int) -> HttpResponse:
        relation_set = self.row(self.get_queryset())
        response = HttpResponse(export_relations(relation_set), content_type="application/json")
        response["Content-Disposition"] = f'attachment; filename="{relation_set.name}.json"'
        return response


class SetPrompts(ApiView):
    """Prompts from files for a set's relations."""

    serializer_class = PromptsImportedSerializer
    parser_classes = (MultiPartParser,)

    @extend_schema(request=PromptFileInput, summary="Add prompts from a file to a set's relations")
    def post(self, request: Request, pk: int) -> Response:
        relation_set = self.row(RelationSet.objects.visible_to(request.user))
        sent = self.sent(PromptFileInput)
        file = PromptFile(sent["file"].name, sent["origin"], sent["file"].read())

        def add() -> Response:
            imported = import_prompts([file], relation_set, sent.get("least_weight"), request.user)
            return self.answer({"message": f"{imported}.", "unknown": imported.unknown})

        return self.once(add)


# -- relations ---------------------------------------------------------------------------------------------------------


@extend_schema_serializer(examples=[OpenApiExample("A relation", RELATION, response_only=True)])
class RelationSerializer(serializers.ModelSerializer):
    set = serializers.CharField(source="relation_set.name")
    path = serializers.CharField(help_text="The name that is never ambiguous: set/name.")
    initial_prompts = serializers.ListField(child=serializers.CharField(), help_text="How an LM is asked.")
    prompts = serializers.ListField(child=serializers.CharField(), help_text="Ready ones; may be empty.")
    seed_tuples = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()), help_text="True examples, entities by slot."
    )

    class Meta:
        model = Relation
        fields = [
            *("id", "name", "set", "path", "statement", "explanation", "arity"),
            *("initial_prompts", "prompts", "seed_tuples", "created_at"),
        ]


class RelationFilters(Filters):
    set = serializers.CharField(required=False, max_length=100, source="relation_set__name", help_text="Name of a set.")
    name = serializers.CharField(required=False, max_length=100, help_text="Exactly this name.")
    arity = CountField(required=False, max_value=99)
    q = serializers.CharField(required=False, max_length=200, help_text="In the name or the statement.")

    def narrow(self, rows: QuerySet) -> QuerySet:
        exact = dict(self.validated_data)
        search = exact.pop("q", "")
        found = rows.filter(Q(name__icontains=search) | Q(statement__icontains=search)) if search else rows
        return found.filter(**exact)


class SentencesField(serializers.ListField):
    def __init__(self, **options: Any):
        child = serializers.CharField(max_length=LONGEST_SENTENCE)
        super().__init__(child=child, max_length=MOST_SENTENCES, **options)


@extend_schema_serializer(examples=[OpenApiExample("A relation to write", WRITTEN, request_only=True)])
class RelationInput(StrictSerializer):
    """Slots are written <ENT0>, <ENT1>, ... in statement and prompts. project: of a set that is new."""

    project = ProjectField()
    name = serializers.CharField(max_length=100, help_text="Short and without spaces.")
    set = serializers.CharField(max_length=100, help_text="One of your sets, or the name of a new one.")
    statement = serializers.CharField(max_length=LONGEST_SENTENCE, help_text="What people judge.")
    explanation = serializers.CharField(
        max_length=LONGEST_EXPLANATION, required=False, allow_blank=True, help_text="What counts and what does not."
    )
    seed_tuples = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField(max_length=1000), max_length=99),
        max_length=MOST_SENTENCES,
        help_text="True examples, at least two.",
    )
    initial_prompts = SentencesField(required=False, help_text="How an LM is asked; without any, the statement.")
    prompts = SentencesField(required=False, help_text="Ready ones; without any, paraphrases of the initial ones.")


def entry_of(sent: dict[str, Any], relation: Relation | None = None) -> RelationEntry:
    """Return what a client wrote; of a relation that it changes, the rest as it is."""
    columns = ("name", "statement", "explanation", "initial_prompts", "prompts", "seed_tuples")
    kept = {column: getattr(relation, column) for column in columns} if relation else {}
    written = kept | sent
    return RelationEntry(
        where="",
        name=written["name"],
        statement=written["statement"],
        explanation=written.get("explanation", ""),
        initial_prompts=written.get("initial_prompts") or [written["statement"]],
        prompts=written.get("prompts", []),
        seed_tuples=written["seed_tuples"],
    )


def save(sent: dict[str, Any], relation: Relation | None, by) -> Relation:
    """Store what a client wrote. Raises ValidationError with what is wrong with each field."""
    set_name = sent.get("set") or relation.relation_set.name
    try:
        return save_relation(entry_of(sent, relation), set_name, relation, by, sent.get("project"))
    except BadRelation as refusal:
        fields: dict[str, list[str]] = {}
        for error in refusal.errors:
            reason = f"seed tuple {error.seed_number} {error.reason}" if error.seed_number else error.reason
            fields.setdefault({"set_name": "set"}.get(error.field, error.field), []).append(reason)
        raise serializers.ValidationError(fields) from refusal


def relations_of(request: Request) -> QuerySet:
    return Relation.objects.visible_to(request.user).select_related("relation_set__project")


class RelationList(ListView):
    """Relations, the newest first."""

    serializer_class = RelationSerializer
    filters = RelationFilters

    def get_queryset(self) -> QuerySet:
        return relations_of(self.request)

    @extend_schema(request=RelationInput, responses={201: RelationSerializer}, summary="Write a relation")
    def post(self, request: Request) -> Response:
        def make() -> Response:
            relation = save(self.sent(RelationInput), None, request.user)
            return self.created(relation, self.location("kgharvest:api_relation", relation.pk))

        return self.once(make)


class RelationDetail(DetailView):
    """A relation."""

    serializer_class = RelationSerializer

    def get_queryset(self) -> QuerySet:
        return relations_of(self.request)

    @extend_schema(request=RelationInput, summary="Change a relation")
    def patch(self, request: Request, pk: int) -> Response:
        """Name, set and number of slots stay once it has harvests or tuples."""
        relation = self.row(self.get_queryset())
        return self.answer(save(self.sent(RelationInput, partial=True), relation, request.user))

    @extend_schema(responses={204: None}, summary="Delete a relation")
    def delete(self, request: Request, pk: int) -> Response:
        """Only one without harvests, tuples and known answers."""
        delete_relation(self.row(self.get_queryset()), request.user)
        return self.deleted()
