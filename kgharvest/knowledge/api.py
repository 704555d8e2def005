"""API of the knowledge base: search, tuples and their curation, entities, and sensitive words."""

from typing import Any

from django.http import Http404, QueryDict
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from kgharvest.api.input import Filters, FiniteField, IdField, PersonField, StrictSerializer, checked_filters
from kgharvest.api.pagination import BAD_CURSOR, CursorPagination, cursor_of, rows_limit, values_of
from kgharvest.api.views import ApiView, ApiViewSet
from kgharvest.bulk.pagination import Cursor, keyset_page
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.jobs.api import JobSerializer
from kgharvest.knowledge import curation
from kgharvest.knowledge.search import (
    SORT_COLUMNS,
    STATES,
    KnowledgeSearch,
    best_tuples_of,
    findings_of,
    roles_of,
    verdicts_visible_to,
)
from kgharvest.knowledge.sensitive_words import LONGEST_WORD, MOST_WORDS, current_words, read_words, replace_words
from kgharvest.knowledge.visibility import VisibleTuples
from kgharvest.models import Curation, HarvestedTuple, KnowledgeTuple

TUPLE = {
    "id": 901,
    "relation": "places/place_for",
    "entities": ["kitchen", "cooking"],
    "n_harvests": 3,
    "best_score": -2.31,
    "is_sensitive": False,
    "curation": None,
    "corrected_entities": None,
}


@extend_schema_serializer(examples=[OpenApiExample("A tuple", TUPLE, response_only=True)])
class KnowledgeTupleSerializer(serializers.ModelSerializer):
    """A harvested claim.

    n_harvests, best_score: number of visible harvests of the tuple, and their largest score in nats.
    """

    relation = serializers.CharField(source="relation.path")
    entities = serializers.ListField(child=serializers.CharField(), help_text="Case-folded entities, one per slot.")
    curation = serializers.ChoiceField(KnowledgeTuple.Curation.choices, allow_null=True)
    corrected_entities = serializers.ListField(child=serializers.CharField(), allow_null=True)

    class Meta:
        model = KnowledgeTuple
        fields = [*TUPLE]


class FindingSerializer(serializers.ModelSerializer):
    harvest = serializers.IntegerField(source="job_id")
    model = serializers.CharField(source="job.language_model.name")
    setting = serializers.CharField(source="job.setting")
    score = serializers.FloatField(source="own_score", allow_null=True, help_text="Null for unscored harvests.")
    surface = serializers.ListField(child=serializers.CharField(), help_text="Entities as spelled by the LM.")

    class Meta:
        model = HarvestedTuple
        fields = ["harvest", "model", "setting", "rank", "score", "mtl", "surface"]


class TupleVerdictSerializer(serializers.Serializer):
    round = serializers.CharField(source="round.name")
    verdict = serializers.CharField(help_text="Empty if more judgments are required.")
    n_true = serializers.IntegerField()
    n_false = serializers.IntegerField()
    n_unjudgeable = serializers.IntegerField()


class CurationSerializer(serializers.ModelSerializer):
    entities = serializers.ListField(child=serializers.CharField(), allow_null=True)
    decided_by = PersonField()

    class Meta:
        model = Curation
        fields = ["id", "decision", "entities", "reason", "decided_by", "decided_at"]


class TupleDetailSerializer(KnowledgeTupleSerializer):
    """A tuple with its harvests in your projects, largest score first, and its verdicts in your rounds."""

    findings = FindingSerializer(many=True)
    verdicts = TupleVerdictSerializer(many=True)
    curations = CurationSerializer(many=True)

    class Meta(KnowledgeTupleSerializer.Meta):
        fields = [*TUPLE, "findings", "verdicts", "curations"]


class SearchFilters(Filters):
    """Filters of the knowledge base page."""

    entity = serializers.CharField(
        required=False, max_length=LONGEST_ENTITY, help_text="Text with which an entity of the tuple starts."
    )
    match = serializers.ChoiceField(["whole"], required=False, help_text="If set, `entity` must match a whole entity.")
    relation = IdField(required=False, help_text="Relation id.")
    slot = serializers.IntegerField(
        required=False, min_value=0, max_value=99, help_text="Slot of the entity, from 0. Default: any slot."
    )
    model = IdField(required=False, help_text="LM id.")
    setting = serializers.CharField(required=False, max_length=30)
    verdict = serializers.CharField(required=False, max_length=20, help_text="accepted, rejected, undecided, ...")
    state = serializers.ChoiceField(STATES, required=False)
    score_from = FiniteField(required=False)
    score_to = FiniteField(required=False)
    sort = serializers.ChoiceField([*SORT_COLUMNS, *(f"-{key}" for key in SORT_COLUMNS)], default="-score")


class KnowledgeViewSet(ApiViewSet):
    """Knowledge tuples that match the filters. If matches are rare, a page can have fewer rows than requested.

    Follow `next` to continue.
    """

    serializer_class = TupleDetailSerializer
    entry_serializer_class = KnowledgeTupleSerializer
    pagination_class = CursorPagination

    @extend_schema(
        parameters=[SearchFilters], responses=KnowledgeTupleSerializer(many=True), summary="Search knowledge tuples"
    )
    def list(self, request: Request) -> Response:
        sort = checked_filters(self, SearchFilters, CursorPagination.fields).validated_data["sort"]
        search = KnowledgeSearch(request.query_params, request.user)
        if not search.is_valid():
            raise serializers.ValidationError(search.errors)
        column = f"{'-' if sort.startswith('-') else ''}{SORT_COLUMNS[sort.removeprefix('-')]}"
        position = QueryDict(mutable=True)
        if "after" in request.query_params:
            value, pk = values_of(request.query_params["after"], 2)
            if isinstance(value, str) or not isinstance(pk, int):
                raise serializers.ValidationError({"after": [BAD_CURSOR]})
            position["after"] = str(Cursor(value, pk))
        page = keyset_page(search.filtered(), column, position, rows_limit(request))
        next_page = page.after and replace_query_param(
            request.build_absolute_uri(), "after", cursor_of([page.after.value, page.after.pk])
        )
        search.visible.count_harvests(page.rows)
        return Response({"next": next_page, "results": self.get_serializer(page.rows, many=True).data})

    @extend_schema(description="A knowledge tuple.")
    def retrieve(self, request: Request, pk: int) -> Response:
        visible = VisibleTuples(request.user)
        knowledge_tuple = self.row(visible.look_up(KnowledgeTuple.objects.with_relation()))
        visible.count_harvests([knowledge_tuple])
        knowledge_tuple.findings = findings_of(knowledge_tuple, request.user)
        knowledge_tuple.verdicts = verdicts_visible_to(request.user).of([pk]).get(pk, [])
        return self.answer(knowledge_tuple)


class CurationInput(StrictSerializer):
    decision = serializers.ChoiceField(Curation.Decision.choices)
    reason = serializers.CharField(max_length=curation.LONGEST_REASON, help_text="Stored with the decision.")
    entities = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST_ENTITY),
        required=False,
        max_length=99,
        help_text="Entities to export instead. Required for a correction; not allowed for other decisions.",
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if (sent["decision"] == Curation.Decision.CORRECT) != ("entities" in sent):
            raise serializers.ValidationError(
                {"entities": ["This field is required for a correction and not allowed for other decisions."]}
            )
        return sent


class CurationViewSet(ApiViewSet):
    """Curation decisions about a knowledge tuple."""

    serializer_class = CurationSerializer

    @extend_schema(request=CurationInput, summary="Hide, correct, or restore a tuple")
    def create(self, request: Request, pk: int) -> Response:
        """The latest decision applies. Earlier decisions remain stored."""
        knowledge_tuple = self.row(VisibleTuples(request.user).look_up(KnowledgeTuple.objects.all()))
        sent = self.sent(CurationInput)
        decision = curation.curate(
            knowledge_tuple, sent["decision"], sent["reason"], request.user, sent.get("entities")
        )
        return self.created(decision, self.location("kgharvest:api_knowledge_tuple", pk))


class EntityFilters(Filters):
    name = serializers.CharField(max_length=LONGEST_ENTITY)


class EntityRoleSerializer(serializers.Serializer):
    relation = serializers.CharField(source="relation.path")
    slot = serializers.IntegerField()
    n = serializers.IntegerField(help_text="Number of tuples with the entity in this slot.")


class EntitySerializer(serializers.Serializer):
    """An entity. roles: relations and slots in which it occurs, most tuples first.

    tuples: tuples of the entity with the largest scores.
    """

    name = serializers.CharField()
    roles = EntityRoleSerializer(many=True)
    tuples = KnowledgeTupleSerializer(many=True)


class EntityDetail(ApiView):
    """Returns the relations, slots, and tuples of an entity."""

    serializer_class = EntitySerializer

    @extend_schema(parameters=[EntityFilters], summary="Look up an entity")
    def get(self, request: Request) -> Response:
        name = self.filtered_by(EntityFilters)["name"].strip().casefold()
        visible = VisibleTuples(request.user)
        if not (roles := roles_of(name, visible)):
            raise Http404(f"No harvested tuple contains the entity {name[:80]!r}.")
        return self.answer({"name": name, "roles": roles, "tuples": best_tuples_of(name, visible)})


class WordListSerializer(serializers.Serializer):
    words = serializers.ListField(child=serializers.CharField())
    job = JobSerializer(allow_null=True, help_text="Job that updates the tuples. Null if the list did not change.")


class WordListInput(StrictSerializer):
    words = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST_WORD), max_length=MOST_WORDS, help_text="Words and phrases."
    )


class WordList(ApiView):
    """List of sensitive words, shared by all projects."""

    serializer_class = WordListSerializer

    def get(self, request: Request) -> Response:
        return self.answer({"words": current_words(), "job": None})

    @extend_schema(
        request=WordListInput,
        responses={200: WordListSerializer, 202: WordListSerializer},
        summary="Replace the list of sensitive words",
    )
    def put(self, request: Request) -> Response:
        """After the change, a worker updates the tuples. Requires a superuser."""
        job = replace_words(read_words("\n".join(self.sent(WordListInput)["words"])), request.user)
        answer = {"words": current_words(), "job": job}
        return self.accepted(answer, self.location("kgharvest:api_job", job.pk)) if job else self.answer(answer)
