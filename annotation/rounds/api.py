"""Rounds API: drafts, status changes, instructions, plan, preview, and assigned statements."""

from functools import partial
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judges.cost import WANTED_HALF_WIDTH, Wish
from annotation.judging.api import CountSerializer, PartsField
from annotation.models import Layout, Round
from annotation.monitoring.progress import holders, release_assigned
from annotation.rounds import services
from annotation.rounds.builder import freeze_round, instructions_by_relation
from annotation.rounds.instructions import DEFAULT_INSTRUCTIONS
from annotation.rounds.models import LONGEST_INSTRUCTIONS
from annotation.rounds.plan import plan_round
from annotation.rounds.serializers import RoundDetailSerializer, RoundEntrySerializer, RoundSerializer, round_from_spec
from kgharvest.access import Action, check_may_anywhere
from kgharvest.api.input import ArchiveFilters, CountField, Filters, FiniteField, StrictSerializer
from kgharvest.api.views import ApiViewSet, PagedList, operation
from kgharvest.archive import archive, restore
from kgharvest.models import Relation

DESCRIPTION = {
    "name": "pilot-1",
    "project": "animals",
    "cells": [{"job": 3, "n": 50}, {"relation": "demo/capital_of", "model": "embedded", "setting": "multi", "n": None}],
    "judgments_per_task": 3,
    "gold_share": 0.1,
    "seed": 7,
}
EXAMPLE = OpenApiExample("A description", DESCRIPTION, request_only=True)


ROUNDS = Round.objects.select_related("project", "created_by")


class RoundPartViewSet(ApiViewSet):
    """Operations on a part of a round. The round's project determines who has access."""

    def round(self) -> Round:
        """Return the round named in the URL. Raises Http404 or NotAllowed."""
        rounds = ROUNDS.visible_to(self.request.user)
        return self.permitted(get_object_or_404(rounds, pk=self.kwargs["round_id"]))

    def get_object(self) -> Any:
        return self.named()


class RoundOperations(RoundPartViewSet):
    lookup_url_kwarg = "round_id"

    def get_object(self) -> Round:
        return self.round()


class RoundFilters(ArchiveFilters):
    project = serializers.SlugField(source="project__slug", required=False, help_text="Slug of a project.")
    status = serializers.ChoiceField(Round.Status.choices, required=False)
    name = serializers.CharField(source="name__icontains", required=False, max_length=100, help_text="Part of a name.")


class RelationInstructionsSerializer(serializers.Serializer):
    relation = serializers.IntegerField()
    name = serializers.CharField()
    instructions = serializers.CharField(allow_blank=True, help_text="Markdown.")


class InstructionsSerializer(serializers.Serializer):
    """Instructions for annotators in Markdown, for the round and for each relation."""

    instructions = serializers.CharField()
    consent = serializers.CharField(allow_blank=True)
    relations = RelationInstructionsSerializer(many=True)


def relation_instructions(relations, by_id: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"relation": relation.pk, "name": relation.path, "instructions": by_id.get(str(relation.pk), "")}
        for relation in sorted(relations, key=lambda relation: relation.path)
    ]


class RelationInstructionsInput(StrictSerializer):
    instructions = serializers.CharField(
        max_length=LONGEST_INSTRUCTIONS,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Markdown. Do not mention LMs or settings. An empty text restores the default.",
    )


# Plan and preview


class WorkloadSerializer(serializers.Serializer):
    n_drawn = serializers.IntegerField()
    n_tasks = serializers.IntegerField(help_text="Statements to judge. A tuple drawn for several cells is judged once.")
    n_judgments_least = serializers.IntegerField()
    n_judgments = serializers.IntegerField()
    n_gold_shown = serializers.IntegerField()
    gold_rate = serializers.FloatField(
        help_text="Expected share of gold among the statements of an annotator. Less than `gold_share` if there is too "
        "little gold."
    )
    seconds_per_judgment = serializers.FloatField()
    is_measured = serializers.BooleanField(help_text="True if the seconds per judgment were measured, not assumed.")
    hours = serializers.FloatField()


class CellPlanSerializer(serializers.Serializer):
    name = serializers.CharField()
    population = serializers.IntegerField()
    n = serializers.IntegerField()
    n_strata = serializers.IntegerField()
    half_width = serializers.FloatField(help_text="Half-width of the expected 95 % interval.")
    n_to_halve = serializers.IntegerField(help_text="Number of statements that would halve the interval.")
    design_effect = serializers.FloatField(help_text="Expected effect of clusters; 1 without `cluster_size`.")


class MacroPlanSerializer(serializers.Serializer):
    name = serializers.CharField()
    n_relations = serializers.IntegerField()
    half_width = serializers.FloatField()


class PlannedComparisonSerializer(serializers.Serializer):
    name = serializers.CharField()
    n_relations = serializers.IntegerField()
    unit = serializers.ChoiceField(["statements", "relations"])
    difference = serializers.FloatField(
        allow_null=True, help_text="Smallest difference detected with 80 % power; null if none can be detected."
    )


class WaySerializer(serializers.Serializer):
    judge = serializers.CharField(help_text="LM judge that labels every tuple first; empty for people only.")
    n_statements = serializers.IntegerField()
    n_judgments = serializers.IntegerField()
    hours = serializers.FloatField()
    pay = serializers.FloatField(allow_null=True)
    judge_cost = serializers.FloatField(
        allow_null=True, help_text="Cost of the judge's answers; null if it has not run."
    )
    cost = serializers.FloatField(allow_null=True, help_text="Sum of pay and judge cost.")


class ClosingPlanSerializer(serializers.Serializer):
    half_width = serializers.FloatField()
    n_statements = serializers.IntegerField()
    n_judgments = serializers.IntegerField()
    hours = serializers.FloatField()
    is_reached = serializers.BooleanField(help_text="False if the sample is too small for the half-width.")


class DesignSerializer(serializers.Serializer):
    name = serializers.ChoiceField(["simple", "clusters"])
    n_statements = serializers.IntegerField()
    n_subjects = serializers.IntegerField(help_text="Expected number of different subjects, added up over cells.")
    hours = serializers.FloatField(help_text="Time of all annotators for subjects and statements.")


class RoundPlanSerializer(serializers.Serializer):
    """Expected workload and precision. macros: averages over the relations of each LM and setting."""

    workload = WorkloadSerializer()
    accuracy = serializers.FloatField(help_text="Accuracy assumed for the intervals.")
    n_gold = serializers.IntegerField()
    n_training = serializers.IntegerField()
    cells = CellPlanSerializer(many=True)
    noise_warnings = serializers.ListField(child=serializers.DictField(), help_text="Harvests that are probably noise.")
    macros = MacroPlanSerializer(many=True)
    comparisons = PlannedComparisonSerializer(many=True, source="compared.comparisons")
    ways = WaySerializer(many=True, help_text="Ways to reach the target half-width: with people only, or with a judge.")
    designs = DesignSerializer(
        many=True,
        help_text="Work to reach the target half-width with a simple random sample and with clusters; empty without "
        "`cluster_size`.",
    )
    closing = ClosingPlanSerializer(
        allow_null=True, help_text="Expected work until the round closes at its half-width; null if it does not."
    )


class PlanQuery(Filters):
    accuracy = FiniteField(
        min_value=0.01, max_value=0.99, default=0.5, help_text="Expected accuracy; 0.5 gives the widest intervals."
    )
    half_width = FiniteField(
        min_value=0.001,
        max_value=0.5,
        default=WANTED_HALF_WIDTH,
        help_text="Target half-width per cell, used for `ways`.",
    )
    pay_per_hour = FiniteField(min_value=0, max_value=10_000, allow_null=True, default=None)


class PreviewStatementSerializer(serializers.Serializer):
    parts = PartsField()


class PreviewTrainingSerializer(PreviewStatementSerializer):
    label = serializers.ChoiceField(["true", "false"])
    reason = serializers.CharField()


class PreviewSerializer(serializers.Serializer):
    """The first batch of a new annotator."""

    layout = serializers.ChoiceField(Layout.choices)
    instructions = serializers.CharField(help_text="Markdown.")
    consent = serializers.CharField(allow_blank=True, help_text="Markdown.")
    statements = PreviewStatementSerializer(many=True)
    training = PreviewTrainingSerializer(many=True)
    relations = RelationInstructionsSerializer(many=True)


# Operations


class ArchiveMixin:
    """Operations of rounds and reports."""

    @operation("Archive")
    def archive(self, request: Request, **kwargs: Any) -> Response:
        """Lists hide an archived row unless `archived` is true. Its URLs and files remain. A round must be closed."""
        return self.changed(archive)

    @operation("Restore from the archive")
    def restore(self, request: Request, **kwargs: Any) -> Response:
        return self.changed(restore)


class RoundChange(StrictSerializer):
    who_can_join = serializers.ChoiceField(Round.WhoCanJoin.choices)


class OpenInput(StrictSerializer):
    confirm_noise = serializers.BooleanField(default=False, help_text="Accept harvests that are probably noise.")


class DeleteQuery(Filters):
    judge_answers = CountField(
        min_value=0, default=0, help_text="Number of answers of the draft's judge runs, to confirm their deletion."
    )


class RoundViewSet(ArchiveMixin, PagedList, RoundOperations):
    """The rounds of your projects, newest first."""

    queryset = ROUNDS
    serializer_class = RoundDetailSerializer
    entry_serializer_class = RoundEntrySerializer
    filters = RoundFilters

    @extend_schema(summary="Draft a round", request=RoundSerializer, examples=[EXAMPLE])
    def create(self, request: Request) -> Response:
        """The sample is drawn when the draft is opened. The request body is the description that the command
        `open_round` reads (docs/rounds.md). `project` is optional if you work in only one project.
        """
        draft = services.create_draft(request.data, request.user)
        return self.created(draft, self.address(draft))

    @extend_schema(summary="A round")
    def retrieve(self, request: Request, round_id: int) -> Response:
        return self.answer(self.round())

    @extend_schema(summary="Replace the description of a draft", request=RoundSerializer, examples=[EXAMPLE])
    def update(self, request: Request, round_id: int) -> Response:
        return self.answer(services.edit_draft(self.round(), request.data, request.user))

    @extend_schema(summary="Change who can join an open round", request=RoundChange)
    def partial_update(self, request: Request, round_id: int) -> Response:
        return self.changed(services.set_who_can_join, self.sent(RoundChange)["who_can_join"])

    @extend_schema(summary="Delete a draft", parameters=[DeleteQuery])
    def destroy(self, request: Request, round_id: int) -> Response:
        """Also deletes the judge runs of the draft. To confirm, set `judge_answers` to the number of their answers."""
        services.delete_draft(self.round(), request.user, self.filtered_by(DeleteQuery)["judge_answers"])
        return self.deleted()

    @operation("Open a draft", request=OpenInput)
    def open(self, request: Request, round_id: int) -> Response:
        """Draws the samples, freezes the statements, and lets annotators judge them. Answers NoiseNotConfirmed if a
        harvest is probably noise and `confirm_noise` is not true.
        """
        return self.changed(partial(services.open_draft, **self.sent(OpenInput)))

    @operation("Pause a round")
    def pause(self, request: Request, round_id: int) -> Response:
        """No statements are assigned and no judgments are accepted until the round is reopened."""
        return self.changed(services.pause_round)

    @operation("Reopen a paused or closed round")
    def reopen(self, request: Request, round_id: int) -> Response:
        return self.changed(services.reopen_round)

    @operation("Close a round")
    def close(self, request: Request, round_id: int) -> Response:
        """Assigned statements are released. Statements that still lack judgments stay incomplete."""
        return self.changed(services.close_round)

    @operation("Clone a round", responses={201: RoundDetailSerializer})
    def clone(self, request: Request, round_id: int) -> Response:
        """Creates a draft with the same description, a new name, and the next seed."""
        draft = services.clone_round(self.round(), request.user)
        return self.created(draft, self.address(draft))

    # instructions

    @operation("Instructions for annotators", method="get", serializer_class=InstructionsSerializer, refuses=True)
    def instructions(self, request: Request, round_id: int) -> Response:
        round = self.round()
        if round.status == Round.Status.DRAFT:
            frozen = freeze_round(round, request.user)
            relations, by_id = frozen.relations, frozen.relation_instructions
        else:
            by_id = round.relation_instructions
            relations = Relation.objects.filter(pk__in=by_id).select_related("relation_set")
        return self.answer(
            {
                "instructions": round.instructions or DEFAULT_INSTRUCTIONS,
                "consent": round.consent,
                "relations": relation_instructions(relations, by_id),
            }
        )

    @operation(
        "Edit the instructions of a relation",
        "instructions/<int:pk>/",
        method="put",
        request=RelationInstructionsInput,
        serializer_class=RelationInstructionsSerializer,
    )
    def relation_instructions(self, request: Request, round_id: int, pk: int) -> Response:
        """Possible only in a draft, because the instructions are frozen when the round opens."""
        draft = self.round()
        relation, default = services.default_instructions(draft, pk, request.user)
        services.save_instructions(draft, relation, self.sent(RelationInstructionsInput)["instructions"], request.user)
        draft.refresh_from_db()
        edited = instructions_by_relation(draft)
        [entry] = relation_instructions([relation], {str(pk): edited.get(pk, default)})
        return self.answer(entry)

    # plan and preview

    def planned(self, round: Round) -> Response:
        query = self.filtered_by(PlanQuery)
        wish = Wish(query["half_width"], query["pay_per_hour"])
        return self.answer(plan_round(round, query["accuracy"], by=self.request.user, wish=wish))

    @operation("Plan a draft", method="get", parameters=[PlanQuery], serializer_class=RoundPlanSerializer, refuses=True)
    def plan(self, request: Request, round_id: int) -> Response:
        """Statements, judgments, hours, and expected intervals if the draft is opened. Nothing is stored."""
        round = self.round()
        services.check_is_draft(round, "planned")
        return self.planned(round)

    @operation(
        "Plan a description",
        "plan/",
        on_list=True,
        parameters=[PlanQuery],
        request=RoundSerializer,
        examples=[EXAMPLE],
        serializer_class=RoundPlanSerializer,
    )
    def plan_description(self, request: Request) -> Response:
        """Plans a round without creating a draft. Requires the role of owner or researcher in at least one project."""
        check_may_anywhere(request.user, Action.WORK)
        return self.planned(round_from_spec(request.data))

    @operation("Preview a draft", method="get", access=Action.WORK, serializer_class=PreviewSerializer, refuses=True)
    def preview(self, request: Request, round_id: int) -> Response:
        """The draft as annotators will see it."""
        draft = self.round()
        services.check_is_draft(draft, "previewed")
        frozen = freeze_round(draft, request.user)
        return self.answer(
            {
                "layout": draft.layout,
                "instructions": draft.instructions or DEFAULT_INSTRUCTIONS,
                "consent": draft.consent,
                "statements": frozen.tasks[: draft.batch_size],
                "training": frozen.training,
                "relations": relation_instructions(frozen.relations, frozen.relation_instructions),
            }
        )


# Assigned statements


class HolderSerializer(serializers.Serializer):
    annotator = serializers.CharField(source="annotator.code")
    who = serializers.CharField(source="annotator.who", allow_blank=True)
    n = serializers.IntegerField(help_text="Number of assigned statements, including gold.")
    last_active_at = serializers.DateTimeField(help_text="Last time the annotator loaded or answered statements.")
    expires_at = serializers.DateTimeField(help_text="Time at which the statements can be reassigned.")


class AssignedSerializer(serializers.Serializer):
    """Annotators with assigned statements. The annotator who has been inactive for the longest time comes first."""

    holders = HolderSerializer(many=True)


class ReleaseInput(StrictSerializer):
    annotators = serializers.ListField(
        child=serializers.SlugField(),
        required=False,
        max_length=1000,
        help_text="Annotator codes. Default: all.",
    )


class MonitoringViewSet(RoundOperations):
    @operation("Assigned statements by annotator", method="get", serializer_class=AssignedSerializer)
    def assigned(self, request: Request, round_id: int) -> Response:
        return self.answer({"holders": holders(self.round())})

    @operation(
        "Release assigned statements",
        request=ReleaseInput,
        examples=[OpenApiExample("Statements of one annotator", {"annotators": ["a-1f2e3d4c"]}, request_only=True)],
        serializer_class=CountSerializer,
    )
    def release(self, request: Request, round_id: int) -> Response:
        """Released statements can be reassigned immediately. A late answer counts if the statement needs a judgment."""
        codes = self.sent(ReleaseInput).get("annotators")
        return self.answer({"n": release_assigned(self.round(), codes, by=request.user)})
