"""Rounds in the API: drafts, a round's life, instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.models import Round
from annotation.rounds.builder import freeze_round, instructions_by_relation
from annotation.rounds.instructions import DEFAULT_INSTRUCTIONS
from annotation.rounds.models import LONGEST_INSTRUCTIONS
from annotation.rounds.serializers import RoundSerializer
from annotation.rounds.services import (
    clone_round,
    close_round,
    create_draft,
    delete_draft,
    edit_draft,
    open_draft,
    pause_round,
    reopen_round,
    save_instructions,
    usual_instructions,
)
from kgharvest.access import Action, may, visible_or_404
from kgharvest.api.input import CountField, Filters, StrictSerializer
from kgharvest.api.views import ApiView, ListView
from kgharvest.models import Relation

DESCRIPTION = {
    "name": "pilot-1",
    "project": "animals",
    "cells": [{"job": 3, "n": 50}, {"relation": "demo/capital_of", "model": "embedded", "setting": "multi", "n": None}],
    "judgments_per_task": 3,
    "gold_share": 0.1,
    "seed": 7,
}


class RoundView(ApiView):
    """A view of one round, or of what belongs to it."""

    def round(self, action: Action = Action.VIEW) -> Round:
        """Return the round that the address names. Raises Http404, NotAllowed."""
        rounds = Round.objects.select_related("project", "created_by")
        return visible_or_404(self.request.user, rounds, action, pk=self.kwargs["round_id"])


# -- drafts and rounds -------------------------------------------------------------------------------------------------


class RoundEntrySerializer(serializers.ModelSerializer):
    """A round as lists have it. n_tasks: its statements, `n_gold` with known answers among them; 0 of a draft."""

    project = serializers.CharField(source="project.slug")
    created_by = serializers.CharField(source="created_by.username", allow_null=True)

    class Meta:
        model = Round
        fields = [
            *("id", "name", "project", "status", "source", "n_tasks", "n_gold", "judgments_per_task"),
            *("created_by", "created_at", "opened_at", "closed_at"),
        ]


class RoundDetailSerializer(RoundEntrySerializer):
    """join_url: by which people join; null for who may only look, and of a draft."""

    spec = serializers.DictField(help_text="Its description, without what is as usual.")
    join_url = serializers.SerializerMethodField()

    class Meta(RoundEntrySerializer.Meta):
        fields = [*RoundEntrySerializer.Meta.fields, "spec", "join_url"]

    @extend_schema_field(serializers.URLField(allow_null=True))
    def get_join_url(self, round: Round) -> str | None:
        request = self.context["request"]
        if round.status == Round.Status.DRAFT or not may(request.user, Action.WORK, round.project):
            return None
        return request.build_absolute_uri(reverse("annotation:join", args=[round.join_token]))


class RoundFilters(Filters):
    project = serializers.SlugField(source="project__slug", required=False, help_text="Slug of a project.")
    status = serializers.ChoiceField(Round.Status.choices, required=False)
    name = serializers.CharField(source="name__icontains", required=False, max_length=100, help_text="A part of it.")


class RoundList(ListView):
    """The rounds of your projects, the newest first."""

    serializer_class = RoundEntrySerializer
    filters = RoundFilters

    def get_queryset(self) -> QuerySet:
        return Round.objects.visible_to(self.request.user).select_related("project", "created_by")

    @extend_schema(
        summary="Draft a round",
        request=RoundSerializer,
        responses={201: RoundDetailSerializer},
        examples=[OpenApiExample("A description", DESCRIPTION, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Nothing is drawn until it is opened. The body is the description of docs/rounds.md, as `open_round` reads it.

        `project` may be left out by who works in one only.
        """
        self.serializer_class = RoundDetailSerializer

        def create() -> Response:
            draft = create_draft(request.data, request.user)
            return self.created(draft, reverse("annotation:api_round", args=[draft.pk]))

        return self.once(create)


class DeleteQuery(Filters):
    judge_answers = CountField(min_value=0, default=0, help_text="Of the draft's judge runs, which go with it.")


class RoundDetail(RoundView):
    serializer_class = RoundDetailSerializer

    @extend_schema(summary="A round")
    def get(self, request: Request, round_id: int) -> Response:
        return self.answer(self.round())

    @extend_schema(
        summary="Describe a draft anew",
        request=RoundSerializer,
        examples=[OpenApiExample("A description", DESCRIPTION, request_only=True)],
    )
    def put(self, request: Request, round_id: int) -> Response:
        return self.answer(edit_draft(self.round(), request.data, request.user))

    @extend_schema(summary="Delete a draft", parameters=[DeleteQuery], responses={204: None})
    def delete(self, request: Request, round_id: int) -> Response:
        """Its judge runs go with it, if you say how many of their answers you know to be lost."""
        delete_draft(self.round(), request.user, self.filtered_by(DeleteQuery)["judge_answers"])
        return self.deleted()


# -- a round's life ----------------------------------------------------------------------------------------------------


class RoundChange(RoundView):
    """change: the service's function, of the round and who changes it."""

    serializer_class = RoundDetailSerializer
    change: Callable[..., Any]

    @extend_schema(request=None)
    def post(self, request: Request, round_id: int) -> Response:
        def change() -> Response:
            type(self).change(self.round(), by=request.user)
            return self.answer(self.round())

        return self.once(change)


@extend_schema(summary="Open a draft")
class RoundOpen(RoundChange):
    """Draws its samples, freezes its statements and lets people judge them."""

    change = open_draft


@extend_schema(summary="Pause a round")
class RoundPause(RoundChange):
    """Nothing is handed out or taken until it is reopened."""

    change = pause_round


@extend_schema(summary="Reopen a round")
class RoundReopen(RoundChange):
    """Of one that is paused or closed."""

    change = reopen_round


@extend_schema(summary="Close a round")
class RoundClose(RoundChange):
    """What is in people's hands is released; statements without all their judgments stay incomplete."""

    change = close_round


class RoundClone(RoundView):
    serializer_class = RoundDetailSerializer

    @extend_schema(summary="Clone a round", request=None, responses={201: RoundDetailSerializer})
    def post(self, request: Request, round_id: int) -> Response:
        """A draft with the same description, a name of its own and the next seed."""

        def clone() -> Response:
            draft = clone_round(self.round(Action.WORK), request.user)
            return self.created(draft, reverse("annotation:api_round", args=[draft.pk]))

        return self.once(clone)


# -- instructions ------------------------------------------------------------------------------------------------------


class RelationInstructionsSerializer(serializers.Serializer):
    relation = serializers.IntegerField()
    name = serializers.CharField()
    instructions = serializers.CharField(allow_blank=True, help_text="Markdown.")


class InstructionsSerializer(serializers.Serializer):
    """What annotators read, in Markdown: of the round, and of each relation."""

    instructions = serializers.CharField()
    consent = serializers.CharField(allow_blank=True)
    relations = RelationInstructionsSerializer(many=True)


def relation_instructions(relations, by_id: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"relation": relation.pk, "name": relation.path, "instructions": by_id.get(str(relation.pk), "")}
        for relation in sorted(relations, key=lambda relation: relation.path)
    ]


class RoundInstructions(RoundView):
    serializer_class = InstructionsSerializer
    refuses = True

    @extend_schema(summary="What annotators read")
    def get(self, request: Request, round_id: int) -> Response:
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


class RelationInstructionsInput(StrictSerializer):
    instructions = serializers.CharField(
        max_length=LONGEST_INSTRUCTIONS,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Markdown that names no LM and no setting; empty brings the usual text back.",
    )


class RelationInstructions(RoundView):
    serializer_class = RelationInstructionsSerializer

    @extend_schema(summary="Word what annotators read about a relation", request=RelationInstructionsInput)
    def put(self, request: Request, round_id: int, pk: int) -> Response:
        """Of a draft only: what an open round says is frozen."""
        draft = self.round(Action.WORK)
        relation, usual = usual_instructions(draft, pk, request.user)
        save_instructions(draft, relation, self.sent(RelationInstructionsInput)["instructions"], request.user)
        draft.refresh_from_db()
        written = instructions_by_relation(draft)
        [entry] = relation_instructions([relation], {str(pk): written.get(pk, usual)})
        return self.answer(entry)
