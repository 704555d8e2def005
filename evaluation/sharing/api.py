"""Links to frozen reports in the API."""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.models import ReportShare
from evaluation.reports.api import ReportPartViewSet
from evaluation.sharing.services import LONGEST_DAYS, LONGEST_PASSWORD, revoke_share, share_report
from evaluation.sharing.views import link_of
from kgharvest.access import Action
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import PagedList


class ReportShareSerializer(serializers.ModelSerializer):
    """A link to a report. has_password: whether one is asked for."""

    status = serializers.SerializerMethodField()
    has_password = serializers.SerializerMethodField()

    class Meta:
        model = ReportShare
        fields = ["id", "name", "status", "has_password", "created_at", "expires_at", "revoked_at"]

    @extend_schema_field(serializers.ChoiceField(["open", "revoked", "over"]))
    def get_status(self, share: ReportShare) -> str:
        return share.status(timezone.now())

    def get_has_password(self, share: ReportShare) -> bool:
        return bool(share.password)


class NewReportShareSerializer(ReportShareSerializer):
    link = serializers.URLField(help_text="Shown now and never again: only its hash is kept.")

    class Meta(ReportShareSerializer.Meta):
        fields = [*ReportShareSerializer.Meta.fields, "link"]


class ShareInput(StrictSerializer):
    name = serializers.CharField(max_length=100, help_text="For whom; only members see it.")
    days = serializers.IntegerField(min_value=1, max_value=LONGEST_DAYS, default=90, help_text="Until it ends.")
    password = serializers.CharField(
        max_length=LONGEST_PASSWORD, required=False, default="", allow_blank=True, trim_whitespace=False
    )


class ShareViewSet(PagedList, ReportPartViewSet):
    """Links to read a report without an account. For members who work in its project."""

    access = Action.WORK
    is_keyed = False  # the answer to `create` has a secret
    serializer_class = ReportShareSerializer

    def get_queryset(self) -> QuerySet:
        shares = self.report().shares
        return shares.all() if self.action == "list" else shares.select_related("report__round__project")

    @extend_schema(summary="Share a report", request=ShareInput, responses={201: NewReportShareSerializer})
    def create(self, request: Request, report_id: int) -> Response:
        made = share_report(self.report(), **self.sent(ShareInput), now=timezone.now(), by=request.user)
        made.share.link = link_of(request, made)
        self.serializer_class = NewReportShareSerializer
        return self.created(made.share, self.address(made.share))

    @extend_schema(summary="A link to a report")
    def retrieve(self, request: Request, report_id: int, pk: int) -> Response:
        return self.answer(self.get_object())

    @extend_schema(summary="Revoke a link to a report")
    def destroy(self, request: Request, report_id: int, pk: int) -> Response:
        revoke_share(self.get_object(), timezone.now(), request.user)
        return self.deleted()
