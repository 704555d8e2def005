"""Links to frozen reports in the API."""

from __future__ import annotations

from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.models import Report, ReportShare
from evaluation.sharing.services import LONGEST_DAYS, LONGEST_PASSWORD, revoke_share, share_report
from evaluation.sharing.views import link_of
from kgharvest.access import Action, visible_or_404
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import ApiView, ListView


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


class ShareView(ApiView):
    is_keyed = False  # what is made has a secret
    serializer_class = ReportShareSerializer

    def report(self) -> Report:
        return visible_or_404(self.request.user, Report.objects.for_list(), Action.WORK, pk=self.kwargs["report_id"])


class ShareList(ShareView, ListView):
    """Links by which others read a report without an account, for those who work in its project."""

    def get_queryset(self) -> QuerySet:
        return self.report().shares.all()

    @extend_schema(summary="Share a report", request=ShareInput, responses={201: NewReportShareSerializer})
    def post(self, request: Request, report_id: int) -> Response:
        report = self.report()
        made = share_report(report, **self.sent(ShareInput), now=timezone.now(), by=request.user)
        made.share.link = link_of(request, made)
        self.serializer_class = NewReportShareSerializer
        return self.created(made.share, reverse("evaluation:api_share", args=[report.pk, made.share.pk]))


class ShareDetail(ShareView):
    def share(self) -> ReportShare:
        return self.row(self.report().shares.select_related("report__round__project"))

    @extend_schema(summary="A link to a report")
    def get(self, request: Request, report_id: int, pk: int) -> Response:
        return self.answer(self.share())

    @extend_schema(summary="Revoke a link to a report", responses={204: None})
    def delete(self, request: Request, report_id: int, pk: int) -> Response:
        revoke_share(self.share(), timezone.now(), request.user)
        return self.deleted()
