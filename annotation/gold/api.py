"""API of gold statements: candidates for false statements, and decisions on these candidates."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.gold.candidates import LONGEST_REASON, decide_on_gold, deciding_projects, gold_candidates, withdraw_gold
from annotation.models import GoldDecision
from annotation.rounds.instructions import freeze_statement
from kgharvest.api.input import Filters, IdField, PersonField, ProjectField, StrictSerializer
from kgharvest.api.views import ApiViewSet, PagedList, operation
from kgharvest.models import Relation

MOST_DECISIONS = 400  # per request; also the maximum number of candidates


class CandidateSerializer(serializers.Serializer):
    """A candidate for a false statement: a seed tuple with one entity replaced by another entity of the same slot."""

    code = serializers.CharField()
    statement = serializers.CharField()
    entities = serializers.ListField(child=serializers.CharField())
    seed = serializers.ListField(child=serializers.CharField())
    slot = serializers.IntegerField(help_text="Slot of the replaced entity, from 0.")


class CandidatesSerializer(serializers.Serializer):
    relation = serializers.IntegerField()
    candidates = CandidateSerializer(many=True)


class DecisionsInput(StrictSerializer):
    decisions = serializers.DictField(
        child=serializers.BooleanField(),
        help_text="Decisions by candidate code: true confirms the statement as false; false rejects the candidate.",
    )

    project = ProjectField(
        "Slug of the project of decisions on a built-in relation. Required only if you work in several projects."
    )

    def validate_decisions(self, decisions: dict[str, bool]) -> dict[str, bool]:
        if len(decisions) > MOST_DECISIONS:
            raise serializers.ValidationError(f"Send at most {MOST_DECISIONS} decisions.")
        return decisions


class DecidedSerializer(serializers.Serializer):
    n_stored = serializers.IntegerField(help_text="Number of new decisions. Earlier decisions stay unchanged.")


class CandidateFilters(Filters):
    project = serializers.SlugField(required=False, help_text="Project of the decisions. Default: your first project.")


class CandidateViewSet(ApiViewSet):
    serializer_class = CandidatesSerializer
    queryset = Relation.objects.select_related("relation_set")

    @operation(
        "Candidates for false statements",
        "candidates/<int:pk>/",
        method="get",
        on_list=True,
        parameters=[CandidateFilters],
    )
    def candidates(self, request: Request, pk: int) -> Response:
        """Up to 400 candidates without a decision. Their order is random but fixed for each relation."""
        relation, slug = self.named(), self.filtered_by(CandidateFilters).get("project")
        projects = deciding_projects(relation, request.user)
        project = get_object_or_404(projects, slug=slug) if slug else projects.first()
        candidates = gold_candidates(relation, request.user, project)
        return self.answer({"relation": pk, "candidates": [entry(relation, candidate) for candidate in candidates]})

    @extend_schema(
        summary="Decide on candidates",
        request=DecisionsInput,
        responses=DecidedSerializer,
        examples=[OpenApiExample("Two", {"decisions": {"0f1e2d3c4b5a6978": True, "8796a5b4c3d2e1f0": False}})],
    )
    @candidates.mapping.post
    def decide(self, request: Request, pk: int) -> Response:
        """Candidates that you confirm as false become available as gold statements for rounds that are opened later."""
        sent = self.sent(DecisionsInput)
        n_stored = decide_on_gold(self.named(), sent["decisions"], request.user, sent.get("project"))
        return Response({"n_stored": n_stored})


def entry(relation: Relation, candidate) -> dict[str, Any]:
    statement = freeze_statement(relation.statement, candidate.entities).text
    return {**candidate._asdict(), "code": candidate.code, "statement": statement}


class DecisionSerializer(serializers.ModelSerializer):
    """A decision on a candidate. It is in force unless it was withdrawn.

    is_confirmed: true if the statement was confirmed as false.
    """

    entities = serializers.ListField(child=serializers.CharField())
    seed = serializers.ListField(child=serializers.CharField())
    project = serializers.CharField(
        source="project.slug",
        default=None,
        allow_null=True,
        help_text="Slug of the project that decided on a built-in relation; null for other relations.",
    )
    decided_by = PersonField()

    class Meta:
        model = GoldDecision
        fields = [
            *("id", "relation", "project", "entities", "seed", "slot", "is_confirmed", "decided_by", "decided_at"),
            *("withdrawn_at", "reason"),
        ]


class DecisionFilters(Filters):
    relation = IdField(required=False)
    is_confirmed = serializers.BooleanField(required=False)

    def narrow(self, rows: QuerySet) -> QuerySet:
        sent = self.fields.keys() & self.initial_data.keys()
        return rows.filter(**{name: self.validated_data[name] for name in sent})


class WithdrawalInput(StrictSerializer):
    reason = serializers.CharField(max_length=LONGEST_REASON)


class DecisionViewSet(PagedList, ApiViewSet):
    """Decisions on candidates, including withdrawn decisions, newest first."""

    serializer_class = DecisionSerializer
    filters = DecisionFilters

    def get_queryset(self) -> QuerySet:
        return GoldDecision.objects.visible_to(self.request.user).select_related("decided_by", "project")

    @operation("Withdraw a decision", request=WithdrawalInput)
    def withdraw(self, request: Request, pk: int) -> Response:
        """The decision stays stored with the reason but is no longer used. Open rounds keep their gold statements."""
        decision = self.named()
        withdraw_gold(decision, self.sent(WithdrawalInput)["reason"], request.user)
        decision.refresh_from_db()
        return self.answer(decision)
