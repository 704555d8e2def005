"""API of invites, and of joining a round with an account's token."""

from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import exceptions, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

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
    """Single-use link for one person without an account. Anyone with the link can use it, so keep it secret."""

    url = serializers.SerializerMethodField()
    status = serializers.SerializerMethodField()
    annotator = serializers.CharField(source="annotator.code", allow_null=True, help_text="Annotator who joined.")

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
    days = serializers.IntegerField(min_value=1, max_value=366, default=30, help_text="Days until the links expire.")


class MadeInvitesSerializer(serializers.Serializer):
    invites = RoundInviteSerializer(many=True)


class InviteViewSet(PagedList, RoundPartViewSet):
    """Invites of a round, newest first. Links are secret: only members with edit permission can list them."""

    access = Action.WORK
    serializer_class = RoundInviteSerializer

    def get_queryset(self) -> QuerySet:
        return self.round().invites.select_related("annotator")

    @extend_schema(summary="Create invites", request=InvitesInput, responses={201: MadeInvitesSerializer})
    def create(self, request: Request, round_id: int) -> Response:
        sent = self.sent(InvitesInput)
        expires_at = timezone.now() + timedelta(days=sent["days"])
        invites = make_invites(self.round(), sent["n"], expires_at, request.user)
        answer = MadeInvitesSerializer({"invites": invites}, context=self.get_serializer_context())
        return Response(answer.data, status.HTTP_201_CREATED)

    @extend_schema(summary="Revoke an invite")
    def destroy(self, request: Request, round_id: int, pk: int) -> Response:
        """Invites that were already used are not changed."""
        round = self.round()
        revoke_invites(round, [self.row(round.invites.all()).token], timezone.now(), request.user)
        return self.deleted()


class JoinInput(StrictSerializer):
    link = serializers.CharField(max_length=500, help_text="Join link or invite link, or only the token at its end.")
    agrees = serializers.BooleanField(default=False, help_text="True if you agree to the consent text of the round.")


class JoinedSerializer(serializers.Serializer):
    """Round that you have joined. round: id of the round, as used in the judging URLs."""

    round = serializers.IntegerField(source="round_id")
    name = serializers.CharField(source="round.name")
    annotator = serializers.CharField(source="code", help_text="The code under which your answers are stored.")
    needs_questions = serializers.BooleanField(
        source="has_questions_left", help_text="True if you must answer questions before judging."
    )
    needs_training = serializers.SerializerMethodField()

    def get_needs_training(self, annotator: Annotator) -> bool:
        return bool(annotator.round.training_size) and annotator.trained_at is None


class JoinedRounds(ListView):
    """Rounds that you have joined, newest first."""

    permission_classes = (TokenAllows,)
    serializer_class = JoinedSerializer
    scope = Scope.JUDGE
    is_keyed = False

    def get_queryset(self) -> QuerySet:
        return Annotator.objects.of_account(self.request.user).select_related("round")

    @extend_schema(
        summary="Join a round",
        request=JoinInput,
        responses={200: JoinedSerializer},
        examples=[OpenApiExample("A link", {"link": "https://example.org/join/3f2xYpQ/"}, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Idempotent: joining again returns the same annotator."""
        sent = self.sent(JoinInput)
        target = find_by_link(sent["link"])
        if target is None:
            maximum, _ = settings.LIMITS["wrong_links"]
            if count_attempt("wrong_links", network_of(request._request), timezone.now()) > maximum:
                raise exceptions.Throttled(detail="Too many invalid links from your network. Wait 15 minutes.")
            raise exceptions.NotFound("Invalid link. Check that you copied the complete link.")
        round, invite = target
        if getattr(request.user, "bound_to", None) not in (None, round.project_id):
            raise exceptions.PermissionDenied("This token is bound to another project. Use a different token.")
        return self.answer(join_round(round, request.user, agrees=sent["agrees"], invite=invite))
