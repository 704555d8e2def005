"""The knowledge base in the API: search, one tuple and its curation, one entity, sensitive words."""

from __future__ import annotations

from typing import Any

from django.http import Http404, QueryDict
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from kgharvest.access import visible
from kgharvest.api.input import Filters, FiniteField, IdField, PersonField, StrictSerializer, checked_filters
from kgharvest.api.pagination import BAD_CURSOR, CursorPagination, cursor_of, rows_limit, values_of
from kgharvest.api.views import ApiView, ApiViewSet
from kgharvest.bulk.pagination import Cursor, keyset_page
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.jobs.api import JobSerializer
from kgharvest.knowledge import curation
from kgharvest.knowledge.search import STATES, KnowledgeSearch, best_tuples_of, roles_of, verdicts_known_to
from kgharvest.knowledge.sensitive_words import LONGEST_WORD, MOST_WORDS, read_words, replace_words
from kgharvest.models import Curation, HarvestedTuple, HarvestJob, KnowledgeTuple, SensitiveWord

MOST_FINDINGS = 200  # harvests that a tuple lists
SORTABLE = {"score": "best_score", "harvests": "n_harvests", "age": "pk"}
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
    """A claim, whoever harvested it. best_score: in nats, the largest among its harvests."""

    relation = serializers.CharField(source="relation.path")
    entities = serializers.ListField(child=serializers.CharField(), help_text="Case-folded, by slot.")
    curation = serializers.ChoiceField(KnowledgeTuple.Curation.choices, allow_null=True)
    corrected_entities = serializers.ListField(child=serializers.CharField(), allow_null=True)

    class Meta:
        model = KnowledgeTuple
        fields = [*TUPLE]


class FindingSerializer(serializers.ModelSerializer):
    harvest = serializers.IntegerField(source="job_id")
    model = serializers.CharField(source="job.language_model.name")
    setting = serializers.CharField(source="job.setting")
    score = serializers.FloatField(source="own_score", allow_null=True, help_text="Null where there are no scores.")
    surface = serializers.ListField(child=serializers.CharField(), help_text="As the LM wrote it.")

    class Meta:
        model = HarvestedTuple
        fields = ["harvest", "model", "setting", "rank", "score", "mtl", "surface"]


class TupleVerdictSerializer(serializers.Serializer):
    round = serializers.CharField(source="round.name")
    verdict = serializers.CharField(help_text="Empty while judgments are wanted.")
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
    """With the harvests of your projects that found it, best first, and its verdicts in your rounds."""

    findings = FindingSerializer(many=True)
    verdicts = TupleVerdictSerializer(many=True)
    curations = CurationSerializer(many=True)

    class Meta(KnowledgeTupleSerializer.Meta):
        fields = [*TUPLE, "findings", "verdicts", "curations"]


class SearchFilters(Filters):
    """The fields of the form on the page Knowledge."""

    entity = serializers.CharField(required=False, max_length=LONGEST_ENTITY, help_text="In any slot.")
    match = serializers.ChoiceField(["whole"], required=False, help_text="The entity is exactly this, not its start.")
    relation = IdField(required=False)
    slot = serializers.IntegerField(required=False, min_value=0, max_value=99, help_text="Of the entity, from 0.")
    model = IdField(required=False, help_text="Id of an LM.")
    setting = serializers.CharField(required=False, max_length=30)
    verdict = serializers.CharField(required=False, max_length=20, help_text="accepted, rejected, undecided, ...")
    state = serializers.ChoiceField(STATES, required=False)
    score_from = FiniteField(required=False)
    score_to = FiniteField(required=False)
    sort = serializers.ChoiceField([*SORTABLE, *(f"-{key}" for key in SORTABLE)], default="-score")


class KnowledgeViewSet(ApiViewSet):
    """Knowledge tuples that match the filters. A page can be short if few of many match; `next` continues."""

    serializer_class = TupleDetailSerializer
    entry_serializer_class = KnowledgeTupleSerializer
    pagination_class = CursorPagination

    @extend_schema(
        parameters=[SearchFilters], responses=KnowledgeTupleSerializer(many=True), summary="Search knowledge tuples"
    )
    def list(self, request: Request) -> Response:
        sort = checked_filters(self, SearchFilters, CursorPagination.fields).validated_data["sort"]
        user = request.user
        search = KnowledgeSearch(request.query_params, verdicts_known_to(user), HarvestJob.objects.visible_to(user))
        if not search.is_valid():
            raise serializers.ValidationError(search.errors)
        column = f"{'-' if sort.startswith('-') else ''}{SORTABLE[sort.removeprefix('-')]}"
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
        return Response({"next": next_page, "results": self.get_serializer(page.rows, many=True).data})

    @extend_schema(description="A knowledge tuple.")
    def retrieve(self, request: Request, pk: int) -> Response:
        known, user = get_object_or_404(KnowledgeTuple.objects.with_relation(), pk=pk), request.user
        findings = visible(known.harvested_tuples, user, "job__project").select_related("job__language_model")
        known.findings = findings.defer("job__payload", "job__summary").order_by("-score", "pk")[:MOST_FINDINGS]
        known.verdicts = verdicts_known_to(user).of([known.pk]).get(known.pk, [])
        return self.answer(known)


class CurationInput(StrictSerializer):
    decision = serializers.ChoiceField(Curation.Decision.choices)
    reason = serializers.CharField(max_length=curation.LONGEST_REASON, help_text="Kept with the decision.")
    entities = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST_ENTITY),
        required=False,
        max_length=99,
        help_text="Of a correction: what is exported in the tuple's place.",
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if (sent["decision"] == Curation.Decision.CORRECT) != ("entities" in sent):
            raise serializers.ValidationError({"entities": ["A correction names the entities; nothing else does."]})
        return sent


class CurationViewSet(ApiViewSet):
    """Decisions on a knowledge tuple."""

    serializer_class = CurationSerializer

    @extend_schema(request=CurationInput, summary="Hide, correct or restore")
    def create(self, request: Request, pk: int) -> Response:
        """The last decision holds; all are kept."""
        known, sent = self.row(KnowledgeTuple.objects.all()), self.sent(CurationInput)
        if sent["decision"] == Curation.Decision.CORRECT:
            made = curation.correct(known, sent["entities"], sent["reason"], request.user)
        else:
            decide = {Curation.Decision.HIDE: curation.hide, Curation.Decision.RESTORE: curation.restore}
            made = decide[sent["decision"]](known, sent["reason"], request.user)
        return self.created(made, self.location("kgharvest:api_knowledge_tuple", pk))


# -- entities ----------------------------------------------------------------------------------------------------------


class EntityFilters(Filters):
    name = serializers.CharField(max_length=LONGEST_ENTITY)


class EntityRoleSerializer(serializers.Serializer):
    relation = serializers.CharField(source="relation.path")
    slot = serializers.IntegerField()
    n = serializers.IntegerField(help_text="Tuples that have it there.")


class EntitySerializer(serializers.Serializer):
    """roles: by relation and slot, most first. tuples: the best ones."""

    name = serializers.CharField()
    roles = EntityRoleSerializer(many=True)
    tuples = KnowledgeTupleSerializer(many=True)


class EntityDetail(ApiView):
    """Everything that an entity takes part in."""

    serializer_class = EntitySerializer

    @extend_schema(parameters=[EntityFilters], summary="Look an entity up")
    def get(self, request: Request) -> Response:
        name = self.filtered_by(EntityFilters)["name"].strip().casefold()
        if not (roles := roles_of(name)):
            raise Http404(f"No harvest found a tuple with the entity {name[:80]!r}.")
        return self.answer({"name": name, "roles": roles, "tuples": best_tuples_of(name)})


# -- sensitive words ---------------------------------------------------------------------------------------------------


class WordListSerializer(serializers.Serializer):
    words = serializers.ListField(child=serializers.CharField())
    job = JobSerializer(allow_null=True, help_text="What marks the tuples by the new list; null if nothing changed.")


class WordListInput(StrictSerializer):
    words = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST_WORD), max_length=MOST_WORDS, help_text="Words and phrases."
    )


class WordList(ApiView):
    """The installation's list of sensitive words."""

    serializer_class = WordListSerializer

    def get(self, request: Request) -> Response:
        return self.answer({"words": words_now(), "job": None})

    @extend_schema(
        request=WordListInput,
        responses={200: WordListSerializer, 202: WordListSerializer},
        summary="Replace the list of sensitive words",
    )
    def put(self, request: Request) -> Response:
        """A worker marks the tuples anew. For superusers: the list is everybody's."""
        job = replace_words(read_words("\n".join(self.sent(WordListInput)["words"])), request.user)
        answer = {"words": words_now(), "job": job}
        return self.accepted(answer, self.location("kgharvest:api_job", job.pk)) if job else self.answer(answer)


def words_now() -> list[str]:
    return list(SensitiveWord.objects.values_list("word", flat=True))
