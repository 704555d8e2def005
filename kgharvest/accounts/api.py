"""API of projects, members, invitations, and access tokens."""

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.utils import timezone
from django.utils.functional import cached_property
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer, extend_schema_view
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action
from kgharvest.accounts import projects
from kgharvest.accounts.project_views import find_visible
from kgharvest.accounts.tokens import LONGEST_DAYS, Scope, create_token, revoke_token, revoke_tokens
from kgharvest.api.authentication import TokenAllows
from kgharvest.api.input import ProjectField, StrictSerializer
from kgharvest.api.views import ApiViewSet, PagedList, RetrieveMixin, operation
from kgharvest.models import ApiToken, Project, ProjectInvite, ProjectMember, Role

PROJECT = {
    "slug": "default",
    "name": "Default",
    "created_at": "2026-11-22T09:00:00Z",
    "role": "owner",
    "published_knowledge": "shipped",
}
PUBLISHED_HELP = "Tuples that researchers of other projects can see: none, of built-in relation sets, or all."


@extend_schema_serializer(examples=[OpenApiExample("A project", PROJECT, response_only=True)])
class ProjectSerializer(serializers.ModelSerializer):
    role = serializers.ChoiceField(
        Role.choices, allow_null=True, help_text="Your role; null for a superuser who is not a member."
    )

    published_knowledge = serializers.ChoiceField(Project.Published.choices, help_text=PUBLISHED_HELP)

    class Meta:
        model = Project
        fields = [*PROJECT]


class ProjectInput(StrictSerializer):
    name = serializers.CharField(max_length=projects.LONGEST_NAME)


class ProjectChange(StrictSerializer):
    name = serializers.CharField(max_length=projects.LONGEST_NAME, required=False)
    published_knowledge = serializers.ChoiceField(Project.Published.choices, required=False, help_text=PUBLISHED_HELP)

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if not sent:
            raise serializers.ValidationError({"name": ["Send a name, published_knowledge, or both."]})
        return sent


class ProjectViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Your projects, newest first."""

    access = Action.VIEW  # the services check who may change a project
    serializer_class = ProjectSerializer
    lookup_field = "slug"
    lookup_value_converter = "slug"

    def get_queryset(self) -> QuerySet:
        role = ProjectMember.objects.filter(project=OuterRef("pk"), user=self.request.user).values("role")
        return Project.objects.visible_to(self.request.user).annotate(role=Subquery(role))

    @extend_schema(request=ProjectInput, summary="Create a project")
    def create(self, request: Request) -> Response:
        """You become the owner of the project. Requires the role of owner or researcher in at least one project."""
        project = projects.create_project(self.sent(ProjectInput)["name"], request.user)
        return self.created(self.get_queryset().get(pk=project.pk), self.address(project))

    @extend_schema(request=ProjectChange, summary="Change a project")
    @transaction.atomic
    def partial_update(self, request: Request, slug: str) -> Response:
        """Changes the name or the published knowledge. The slug and the URLs do not change."""
        project, sent = self.get_object(), self.sent(ProjectChange)
        if "name" in sent:
            projects.rename_project(project, sent["name"], request.user)
        if "published_knowledge" in sent:
            projects.publish_knowledge(project, sent["published_knowledge"], request.user)
        return self.answer(self.named())


class ProjectPartViewSet(ApiViewSet):
    @cached_property
    def project(self) -> Project:
        """The project in the URL. Raises Http404, or NotAllowed if the role of the caller does not permit `access`."""
        return find_visible(self.request, self.kwargs["slug"], self.access or Action.VIEW)

    def get_object(self) -> Any:
        return self.named()


class ProjectMemberSerializer(serializers.ModelSerializer):
    user = serializers.CharField(source="user.username")

    class Meta:
        model = ProjectMember
        fields = ["user", "role"]


class RoleInput(StrictSerializer):
    role = serializers.ChoiceField(Role.choices)


@extend_schema_view(list=extend_schema(operation_id="project_members_list"))
class MemberViewSet(PagedList, RetrieveMixin, ProjectPartViewSet):
    """Members of a project. New members join by invitation."""

    serializer_class = ProjectMemberSerializer
    lookup_field = "user__username"
    lookup_url_kwarg = "username"
    lookup_value_converter = "str"

    def get_queryset(self) -> QuerySet:
        return self.project.members.select_related("user", "project")

    @extend_schema(request=RoleInput, summary="Change the role of a member")
    def partial_update(self, request: Request, slug: str, username: str) -> Response:
        projects.set_role(self.project, self.named().user, self.sent(RoleInput)["role"], request.user)
        return self.answer(self.named())

    @extend_schema(summary="Remove a member")
    def destroy(self, request: Request, slug: str, username: str) -> Response:
        """Owners can remove any member; members can remove themselves. The last owner cannot leave."""
        projects.remove_member(self.project, self.named().user, request.user)
        return self.deleted()


class ProjectInviteSerializer(serializers.ModelSerializer):
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)
    used_by = serializers.CharField(source="used_by.username", default=None, allow_null=True)

    class Meta:
        model = ProjectInvite
        fields = ["id", "role", "created_by", "created_at", "expires_at", "used_by", "used_at", "revoked_at"]


class NewProjectInviteSerializer(ProjectInviteSerializer):
    link = serializers.CharField(help_text="Invitation link. Shown only once.")

    class Meta(ProjectInviteSerializer.Meta):
        fields = [*ProjectInviteSerializer.Meta.fields, "link"]


class InviteInput(StrictSerializer):
    role = serializers.ChoiceField(Role.choices)
    days = serializers.IntegerField(min_value=1, max_value=projects.MOST_DAYS, default=14)


@extend_schema_view(list=extend_schema(operation_id="project_invites_list"))
class InviteViewSet(PagedList, RetrieveMixin, ProjectPartViewSet):
    """Invitations to a project. Only owners of the project have access."""

    access = Action.MANAGE
    serializer_class = ProjectInviteSerializer
    is_keyed = False  # the response to POST contains a secret

    def get_queryset(self) -> QuerySet:
        return self.project.invites.select_related("project", "created_by", "used_by")

    @extend_schema(request=InviteInput, responses={201: NewProjectInviteSerializer}, summary="Create an invitation")
    def create(self, request: Request, slug: str) -> Response:
        """Each link works once, for one person."""
        invite_input = self.sent(InviteInput)
        expires_at = timezone.now() + timedelta(days=invite_input["days"])
        invite, secret = projects.create_invite(self.project, invite_input["role"], expires_at, request.user)
        invite.link = request.build_absolute_uri(self.location("kgharvest:project_join", secret))
        self.serializer_class = NewProjectInviteSerializer
        return self.created(invite, self.address(invite))

    @extend_schema(summary="Revoke an invitation")
    def destroy(self, request: Request, slug: str, pk: int) -> Response:
        projects.revoke_invite(self.named(), timezone.now(), request.user)
        return self.deleted()


# Tokens

TOKEN = {
    "id": 3,
    "name": "nightly harvest",
    "prefix": "kgh_Zb3xQ0aR",
    "scope": "write",
    "project": None,
    "created_at": "2026-11-01T09:00:00Z",
    "expires_at": "2027-01-30T09:00:00Z",
    "last_used_at": "2026-11-22T02:00:00Z",
    "revoked_at": None,
}


@extend_schema_serializer(examples=[OpenApiExample("A token", TOKEN, response_only=True)])
class TokenSerializer(serializers.ModelSerializer):
    """An API token. Its secret is returned only once, on creation."""

    project = serializers.CharField(
        source="project.slug",
        default=None,
        allow_null=True,
        help_text="Slug of the only project that the token can access; null for all your projects.",
    )

    class Meta:
        model = ApiToken
        fields = ["id", "name", "prefix", "scope", "project", "created_at", "expires_at", "last_used_at", "revoked_at"]


@extend_schema_serializer(
    examples=[OpenApiExample("A new token", TOKEN | {"token": "kgh_Zb3xQ0aR..."}, response_only=True)]
)
class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="Secret for the Authorization header. Shown only once.")

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]


class TokenInput(StrictSerializer):
    name = serializers.CharField(max_length=100, help_text="Purpose of the token.")
    scope = serializers.ChoiceField(Scope.choices)
    days = serializers.IntegerField(min_value=1, max_value=LONGEST_DAYS, default=90)
    project = ProjectField("Slug of the only project that the token can access. Default: all your projects.")


class NotByToken(exceptions.PermissionDenied):
    default_detail = "A token cannot create tokens. Use the API tokens page or the command `token`."


class TokenViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Your tokens, newest first. A token bound to a project lists only tokens bound to the same project."""

    access = Action.VIEW
    permission_classes = (TokenAllows,)
    serializer_class = TokenSerializer
    is_keyed = False  # the response to POST contains a secret
    queryset = ApiToken.objects.select_related("project")

    @extend_schema(request=TokenInput, responses={201: NewTokenSerializer}, summary="Create a token")
    def create(self, request: Request) -> Response:
        """Requires a browser session, because a stolen token must not create another token that outlives it."""
        if request.auth:
            raise NotByToken
        new = create_token(request.user, **self.sent(TokenInput), now=timezone.now())
        new.token.token = new.secret
        self.serializer_class = NewTokenSerializer
        return self.created(new.token, self.address(new.token))

    @extend_schema(summary="Revoke a token")
    def destroy(self, request: Request, pk: int) -> Response:
        """The token stops working immediately. Its row is kept, with the time of revocation."""
        revoke_token(self.named(), timezone.now(), request.user)
        return self.deleted()


class ProjectTokenSerializer(TokenSerializer):
    user = serializers.CharField(source="user.username")

    class Meta(TokenSerializer.Meta):
        fields = ["user", *TokenSerializer.Meta.fields]


class RevokedSerializer(serializers.Serializer):
    n_revoked = serializers.IntegerField(help_text="Number of revoked tokens.")


@extend_schema_view(list=extend_schema(operation_id="project_tokens_list"))
class ProjectTokenViewSet(PagedList, ProjectPartViewSet):
    """API tokens of all users that are bound to a project, newest first. Only owners of the project have access."""

    access = Action.MANAGE
    serializer_class = ProjectTokenSerializer

    def get_queryset(self) -> QuerySet:
        return self.project.api_tokens.select_related("project", "user")

    @extend_schema(operation_id="project_tokens_destroy", summary="Revoke a token of a project")
    def destroy(self, request: Request, slug: str, pk: int) -> Response:
        """The token stops working immediately."""
        revoke_token(self.named(), timezone.now(), request.user)
        return self.deleted()

    @operation("Revoke all tokens of a project", on_list=True, responses=RevokedSerializer)
    def revoke(self, request: Request, slug: str) -> Response:
        """Tokens of members that are not bound to the project keep working. To block them, remove the member."""
        return Response({"n_revoked": revoke_tokens(self.get_queryset(), timezone.now(), request.user)})
