"""Projects, their members and invites in the API."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import OuterRef, QuerySet, Subquery
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action, check_may
from kgharvest.accounts.projects import (
    LONGEST_NAME,
    MOST_DAYS,
    create_invite,
    create_project,
    remove_member,
    rename_project,
    revoke_invite,
    set_role,
)
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import ApiView, ListView
from kgharvest.models import Project, ProjectInvite, ProjectMember, Role

PROJECT = {"slug": "default", "name": "Default", "created_at": "2026-11-22T09:00:00Z", "role": "owner"}


@extend_schema_serializer(examples=[OpenApiExample("A project", PROJECT, response_only=True)])
class ProjectSerializer(serializers.ModelSerializer):
    role = serializers.ChoiceField(
        Role.choices, allow_null=True, help_text="Yours; null for a superuser who is no member."
    )

    class Meta:
        model = Project
        fields = [*PROJECT]


class ProjectInput(StrictSerializer):
    name = serializers.CharField(max_length=LONGEST_NAME)


def projects_of(request: Request) -> QuerySet:
    role = ProjectMember.objects.filter(project=OuterRef("pk"), user=request.user).values("role")
    return Project.objects.visible_to(request.user).annotate(role=Subquery(role))


class ProjectView(ApiView):
    """What is below a project's address, which has its slug."""

    serializer_class = ProjectSerializer

    @property
    def project(self) -> Project:
        return get_object_or_404(projects_of(self.request), slug=self.kwargs["slug"])


class ProjectList(ListView):
    """Your projects, the newest first."""

    serializer_class = ProjectSerializer

    def get_queryset(self) -> QuerySet:
        return projects_of(self.request)

    @extend_schema(request=ProjectInput, responses={201: ProjectSerializer}, summary="Make a project")
    def post(self, request: Request) -> Response:
        """You are its owner. Requires the role of owner or researcher in any project."""

        def make() -> Response:
            made = create_project(self.sent(ProjectInput)["name"], request.user)
            project = projects_of(request).get(pk=made.pk)
            return self.created(project, self.location("kgharvest:api_project", project.slug))

        return self.once(make)


class ProjectDetail(ProjectView):
    """A project of yours."""

    def get(self, request: Request, slug: str) -> Response:
        return self.answer(self.project)

    @extend_schema(request=ProjectInput, summary="Rename a project")
    def patch(self, request: Request, slug: str) -> Response:
        """Its slug, and so its addresses, stay."""
        rename_project(self.project, self.sent(ProjectInput)["name"], request.user)
        return self.answer(self.project)


class ProjectMemberSerializer(serializers.ModelSerializer):
    user = serializers.CharField(source="user.username")

    class Meta:
        model = ProjectMember
        fields = ["user", "role"]


class RoleInput(StrictSerializer):
    role = serializers.ChoiceField(Role.choices)


class MemberList(ProjectView, ListView):
    """Members of a project. New ones come by invite."""

    serializer_class = ProjectMemberSerializer

    def get_queryset(self) -> QuerySet:
        return self.project.members.select_related("user")

    @extend_schema(operation_id="project_members_list")
    def get(self, request: Request, slug: str) -> Response:
        return self.list(request)


class MemberDetail(ProjectView):
    """A member of a project, by the name of the account."""

    serializer_class = ProjectMemberSerializer

    @property
    def member(self) -> ProjectMember:
        members = self.project.members.select_related("user", "project")
        return get_object_or_404(members, user__username=self.kwargs["username"])

    def get(self, request: Request, slug: str, username: str) -> Response:
        return self.answer(self.member)

    @extend_schema(request=RoleInput, summary="Give a member another role")
    def patch(self, request: Request, slug: str, username: str) -> Response:
        member = self.member
        set_role(member.project, member.user, self.sent(RoleInput)["role"], request.user)
        return self.answer(self.member)

    @extend_schema(responses={204: None}, summary="Remove a member")
    def delete(self, request: Request, slug: str, username: str) -> Response:
        """An owner removes anybody, everybody may leave; the last owner stays."""
        member = self.member
        remove_member(member.project, member.user, request.user)
        return self.deleted()


class ProjectInviteSerializer(serializers.ModelSerializer):
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)
    used_by = serializers.CharField(source="used_by.username", default=None, allow_null=True)

    class Meta:
        model = ProjectInvite
        fields = ["id", "role", "created_by", "created_at", "expires_at", "used_by", "used_at", "revoked_at"]


class NewProjectInviteSerializer(ProjectInviteSerializer):
    link = serializers.CharField(help_text="What the person opens. It is shown now and never again.")

    class Meta(ProjectInviteSerializer.Meta):
        fields = [*ProjectInviteSerializer.Meta.fields, "link"]


class InviteInput(StrictSerializer):
    role = serializers.ChoiceField(Role.choices)
    days = serializers.IntegerField(min_value=1, max_value=MOST_DAYS, default=14)


class InviteList(ProjectView, ListView):
    """Invites to a project, for its owners."""

    serializer_class = ProjectInviteSerializer
    is_keyed = False  # its answer has a secret

    def get_queryset(self) -> QuerySet:
        check_may(self.request.user, Action.MANAGE, self.project)
        return self.project.invites.select_related("created_by", "used_by")

    @extend_schema(operation_id="project_invites_list")
    def get(self, request: Request, slug: str) -> Response:
        return self.list(request)

    @extend_schema(
        request=InviteInput, responses={201: NewProjectInviteSerializer}, summary="Invite somebody by a link"
    )
    def post(self, request: Request, slug: str) -> Response:
        """The link lets one person in, once."""
        asked = self.sent(InviteInput)
        expires_at = timezone.now() + timedelta(days=asked["days"])
        invite, secret = create_invite(self.project, asked["role"], expires_at, request.user)
        invite.link = request.build_absolute_uri(self.location("kgharvest:project_join", secret))
        self.serializer_class = NewProjectInviteSerializer
        return self.created(invite, self.location("kgharvest:api_project_invite", slug, invite.pk))


class InviteDetail(ProjectView):
    """An invite to a project, for its owners."""

    serializer_class = ProjectInviteSerializer

    @property
    def invite(self) -> ProjectInvite:
        check_may(self.request.user, Action.MANAGE, self.project)
        return self.row(self.project.invites.select_related("project", "created_by", "used_by"))

    def get(self, request: Request, slug: str, pk: int) -> Response:
        return self.answer(self.invite)

    @extend_schema(responses={204: None}, summary="Revoke an invite")
    def delete(self, request: Request, slug: str, pk: int) -> Response:
        revoke_invite(self.invite, timezone.now(), request.user)
        return self.deleted()
