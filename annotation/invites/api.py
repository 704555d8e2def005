"""Recruiting in the API: invites to a round, and joining one with an account's token."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import exceptions, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.invites.access import own_annotators
from annotation.invites.services import find_by_link, join_round, make_invites, revoke_invites
from annotation.models import Annotator, Invite
from annotation.rounds.api import RoundPartViewSet
from kgharvest.access import Action
from kgharvest.accounts.throttle import count_attempt, network_of
from kgharvest.accounts.tokens import Scope
from kgharvest.api.authentication import TokenAllows
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import ListView, PagedList


class RoundInviteSerializer(serializers.ModelSerializer):
    """A link that lets in one person, without an account. Whoever has it can use it: keep it as a password is kept."""

    url = serializers.SerializerMethodField()
    status = serializers.SerializerMethodField()
    annotator = serializers.CharField(source="annotator.code", allow_null=True, help_text="Who joined with it.")

    class Meta:
        model = Invite
        fields = ["id", "url", "status", "expires_at", "used_at", "annotator"]

    @extend_schema_field(serializers.URLField())
    def get_url(self, invite: Invite) -> str:
        return self.context["request"].build_absolute_uri(invite.get_absolute_url())

    @extend_schema_field(serializers.ChoiceField(["open", "used", "revoked", "expired"]))
    def get_status(self, invite: Invite) -> str:
        return invite.status(timezone.now())


class InvitesInput(StrictSerializer):
    n = serializers.IntegerField(min_value=1, max_value=1000, default=10)
    days = serializers.IntegerField(min_value=1, max_value=366, default=30, help_text="Until they end.")


class MadeInvitesSerializer(serializers.Serializer):
    invites = RoundInviteSerializer(many=True)


class InviteViewSet(PagedList, RoundPartViewSet):
    """The invites of a round, newest first. They are secrets: only members who work in the project see them."""

    access = Action.WORK
    serializer_class = RoundInviteSerializer

    def get_queryset(self) -> QuerySet:
        return self.round().invites.select_related("annotator")

    @extend_schema(summary="Create invites", request=InvitesInput, responses={201: MadeInvitesSerializer})
    def create(self, request: Request, round_id: int) -> Response:
        sent = self.sent(InvitesInput)
        expires_at = timezone.now() + timedelta(days=sent["days"])
        made = make_invites(self.round(), sent["n"], expires_at, request.user)
        answer = MadeInvitesSerializer({"invites": made}, context=self.get_serializer_context())
        return Response(answer.data, status.HTTP_201_CREATED)

    @extend_schema(summary="Revoke an invite")
    def destroy(self, request: Request, round_id: int, pk: int) -> Response:
        """A used invite does not change."""
        round = self.round()
        revoke_invites(round, [self.row(round.invites.all()).token], timezone.now(), request.user)
        return self.deleted()


class JoinInput(StrictSerializer):
    link = serializers.CharField(max_length=500, help_text="The link that you were sent, or what stands at its end.")
    agrees = serializers.BooleanField(default=False, help_text="To what the round asks consent for.")


class JoinedSerializer(serializers.Serializer):
    """round: its number in the addresses under which you judge."""

    round = serializers.IntegerField(source="round_id")
    name = serializers.CharField(source="round.name")
    annotator = serializers.CharField(source="code", help_text="The code under which your answers are kept.")
    needs_questions = serializers.BooleanField(
        source="has_questions_left", help_text="Whether the questions of the round come first."
    )
    needs_training = serializers.SerializerMethodField()

    def get_needs_training(self, annotator: Annotator) -> bool:
        return bool(annotator.round.training_size) and annotator.trained_at is None


class JoinedRounds(ListView):
    """The rounds that you have joined, the last one first."""

    permission_classes = (TokenAllows,)
    serializer_class = JoinedSerializer
    scope = Scope.JUDGE
    is_keyed = False

    def get_queryset(self) -> QuerySet:
        return own_annotators(self.request.user).select_related("round")

    @extend_schema(
        summary="Join a round",
        request=JoinInput,
        responses={200: JoinedSerializer},
        examples=[OpenApiExample("A link", {"link": "https://example.org/join/3f2xYpQ/"}, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Joining again is joining once."""
        sent = self.sent(JoinInput)
        found = find_by_link(sent["link"])
        if found is None:
            most, _ = settings.LIMITS["wrong_links"]
            if count_attempt("wrong_links", network_of(request._request), timezone.now()) > most:
                raise exceptions.Throttled(detail="Too many wrong links came from here; wait a quarter of an hour.")
            raise exceptions.NotFound("Nothing is behind this link: a part of it is missing, or it was made up.")
        round, invite = found
        if getattr(request.user, "bound_to", None) not in (None, round.project_id):
            raise exceptions.PermissionDenied("This token is bound to another project; take one that is not.")
        return self.answer(join_round(round, request.user, agrees=sent["agrees"], invite=invite))
