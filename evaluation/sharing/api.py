"""API of share links to frozen reports."""

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

STATEMENTS = ReportShare._meta.get_field("with_statements")


class ReportShareSerializer(serializers.ModelSerializer):
    """A share link. has_password: True if it requires a password."""

    status = serializers.SerializerMethodField()
    has_password = serializers.BooleanField(source="password", read_only=True)

    class Meta:
        model = ReportShare
        fields = ["id", "name", "status", "has_password", "with_statements", "created_at", "expires_at", "revoked_at"]

    @extend_schema_field(serializers.ChoiceField(["open", "revoked", "over"]))
    def get_status(self, share: ReportShare) -> str:
        return share.status(timezone.now())


class NewReportShareSerializer(ReportShareSerializer):
    link = serializers.URLField(help_text="Shown only once; only its hash is stored.")

    class Meta(ReportShareSerializer.Meta):
        fields = [*ReportShareSerializer.Meta.fields, "link"]


class ShareInput(StrictSerializer):
    name = serializers.CharField(max_length=100, help_text="Recipient, visible to project members only.")
    days = serializers.IntegerField(min_value=1, max_value=LONGEST_DAYS, default=90, help_text="Days until expiry.")
    password = serializers.CharField(
        max_length=LONGEST_PASSWORD, required=False, default="", allow_blank=True, trim_whitespace=False
    )
    with_statements = serializers.BooleanField(default=False, help_text=STATEMENTS.help_text)


class ShareViewSet(PagedList, ReportPartViewSet):
    """Links that give access to a report without an account. Only members who work in the project can manage them."""

    access = Action.WORK
    is_keyed = False  # the response of `create` contains a secret, which must not be stored
    serializer_class = ReportShareSerializer

    def get_queryset(self) -> QuerySet:
        shares = self.report().shares
        return shares.all() if self.action == "list" else shares.select_related("report__round__project")

    @extend_schema(summary="Share a report", request=ShareInput, responses={201: NewReportShareSerializer})
    def create(self, request: Request, report_id: int) -> Response:
        share = share_report(self.report(), **self.sent(ShareInput), now=timezone.now(), by=request.user)
        share.link = link_of(request, share)
        self.serializer_class = NewReportShareSerializer
        return self.created(share, self.address(share))

    @extend_schema(summary="Get a link to a report")
    def retrieve(self, request: Request, report_id: int, pk: int) -> Response:
        return self.answer(self.get_object())

    @extend_schema(summary="Revoke a link to a report")
    def destroy(self, request: Request, report_id: int, pk: int) -> Response:
        revoke_share(self.get_object(), timezone.now(), request.user)
        return self.deleted()
