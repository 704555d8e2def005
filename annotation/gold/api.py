"""API of gold statements: candidates for false statements, and decisions on these candidates."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.gold.candidates import LONGEST_REASON, decide_on_gold, gold_candidates, withdraw_gold
from annotation.models import GoldDecision
from annotation.rounds.instructions import freeze_statement
from kgharvest.api.input import Filters, IdField, PersonField, StrictSerializer
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

    def validate_decisions(self, decisions: dict[str, bool]) -> dict[str, bool]:
        if len(decisions) > MOST_DECISIONS:
            raise serializers.ValidationError(f"Send at most {MOST_DECISIONS} decisions.")
        return decisions


class DecidedSerializer(serializers.Serializer):
    n_stored = serializers.IntegerField(help_text="Number of new decisions. Earlier decisions stay unchanged.")


class CandidateViewSet(ApiViewSet):
    serializer_class = CandidatesSerializer
    queryset = Relation.objects.select_related("relation_set")

    @operation("Candidates for false statements", "candidates/<int:pk>/", method="get", on_list=True)
    def candidates(self, request: Request, pk: int) -> Response:
        """Up to 400 candidates without a decision. Their order is random but fixed for each relation."""
        relation = self.named()
        return self.answer(
            {"relation": pk, "candidates": [entry(relation, candidate) for candidate in gold_candidates(relation)]}
        )

    @extend_schema(
        summary="Decide on candidates",
        request=DecisionsInput,
        responses=DecidedSerializer,
        examples=[OpenApiExample("Two", {"decisions": {"0f1e2d3c4b5a6978": True, "8796a5b4c3d2e1f0": False}})],
    )
    @candidates.mapping.post
    def decide(self, request: Request, pk: int) -> Response:
        """Candidates that you confirm as false become available as gold statements for rounds that are opened later."""
        n_stored = decide_on_gold(self.named(), self.sent(DecisionsInput)["decisions"], request.user)
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
    decided_by = PersonField()

    class Meta:
        model = GoldDecision
        fields = [
            *("id", "relation", "entities", "seed", "slot", "is_confirmed", "decided_by", "decided_at"),
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
        relations = Relation.objects.visible_to(self.request.user)
        return GoldDecision.objects.filter(relation__in=relations).select_related("decided_by")

    @operation("Withdraw a decision", request=WithdrawalInput)
    def withdraw(self, request: Request, pk: int) -> Response:
        """The decision stays stored with the reason but is no longer used. Open rounds keep their gold statements."""
        decision = self.named()
        withdraw_gold(decision, self.sent(WithdrawalInput)["reason"], request.user)
        decision.refresh_from_db()
        return self.answer(decision)
