"""API of the audit logs. Owners of a project can read the project's log, and superusers the log of the installation."""

from django.db.models import OuterRef, QuerySet, Subquery
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer, extend_schema_view
from rest_framework import serializers

from kgharvest.access import Action, check_may
from kgharvest.accounts.api import ProjectPartViewSet
from kgharvest.api.input import Filters
from kgharvest.api.views import ApiViewSet, PagedList
from kgharvest.bulk.pagination import LARGEST_ID
from kgharvest.events.models import LONGEST_NAME, Actor, Event
from kgharvest.events.types import event_types
from kgharvest.models import Project

ENTRY = {
    "number": 57,
    "at": "2026-11-22T09:00:00.000000Z",
    "project": "default",
    "actor": "p-3f0c9a1b2d",
    "who": "ada",
    "action": "annotator.excluded",
    "sentence": "excluded a-1f2e3d4c from the round pilot: 40 judgments",
    "subject_type": "exclusion",
    "subject_id": "3",
    "facts": {"annotator": "a-1f2e3d4c", "round": "pilot", "n_judgments": 40},
    "previous_hash": "9f2c" + "0" * 60,
    "hash": "51ab" + "0" * 60,
}


@extend_schema_serializer(examples=[OpenApiExample("An entry", ENTRY, response_only=True)])
class EntrySerializer(serializers.ModelSerializer):
    """An entry of the audit log.

    To get the text from which an entry's hash is computed, use the command `audit export`.
    """

    number = serializers.IntegerField(min_value=0, max_value=LARGEST_ID)
    project = serializers.CharField(source="slug", allow_null=True, help_text="Slug; null for the installation.")
    actor = serializers.CharField(allow_blank=True, help_text="Account code; empty for workers and the operator.")
    who = serializers.CharField(allow_null=True, help_text="Username; null if deleted.")
    sentence = serializers.CharField(help_text="Description of the action, without the actor.")
    facts = serializers.DictField(source="known_facts")
    previous_hash = serializers.CharField(max_length=64)
    hash = serializers.CharField(max_length=64)

    class Meta:
        model = Event
        fields = [*ENTRY]


class EntryFilters(Filters):
    action = serializers.ChoiceField(list(event_types()), required=False)
    who = serializers.CharField(
        required=False, max_length=LONGEST_NAME, help_text='Username, account code, or "system".'
    )
    since = serializers.DateField(required=False, help_text="First day (UTC).")
    until = serializers.DateField(required=False, help_text="Last day (UTC).")

    def narrow(self, rows: QuerySet) -> QuerySet:
        return rows.narrowed(**self.validated_data)


class TrailViewSet(PagedList, ApiViewSet):
    """The audit log of the installation, newest entry first, for superusers."""

    serializer_class = EntrySerializer
    filters = EntryFilters
    order = ("-number",)

    def entries(self) -> QuerySet[Event]:
        check_may(self.request.user, Action.MANAGE, None)
        return Event.objects.all()

    def get_queryset(self) -> QuerySet[Event]:
        slug = Project.objects.filter(pk=OuterRef("project_id")).values("slug")
        name = Actor.objects.filter(code=OuterRef("actor")).values("user__username")
        return self.entries().sealed().annotate(slug=Subquery(slug), who=Subquery(name)).defer("row_hashes")


@extend_schema_view(list=extend_schema(operation_id="project_audit_list"))
class ProjectTrailViewSet(TrailViewSet, ProjectPartViewSet):
    """The audit log of a project, newest entry first, for its owners."""

    access = Action.MANAGE

    def entries(self) -> QuerySet[Event]:
        return Event.objects.filter(project_id=self.project.pk)
