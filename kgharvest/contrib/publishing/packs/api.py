"""API of replication packages: request, status, cancel, and download."""

from django.db.models import QuerySet
from django.http import FileResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.reports.api import ReportPartViewSet
from kgharvest.api.views import PagedList, file_operation, operation
from kgharvest.contrib.publishing.models import PaperPack
from kgharvest.contrib.publishing.packs.pack_jobs import queue_pack
from kgharvest.contrib.publishing.packs.views import pack_download
from kgharvest.jobs import ledger
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES


class PaperPackSerializer(serializers.ModelSerializer):
    """Status of a replication package. sha256, n_bytes: hash and size of the file of a finished package."""

    is_unfinished = serializers.BooleanField()

    class Meta:
        model = PaperPack
        fields = ["id", "report", *JOB_FIELDS, *JOB_TIMES, "sha256", "n_bytes"]


class PackViewSet(PagedList, ReportPartViewSet):
    """Replication packages of a report, newest first, including unfinished and failed ones."""

    serializer_class = PaperPackSerializer

    def get_queryset(self) -> QuerySet:
        packs = self.report().packs
        return packs.all() if self.action == "list" else packs.select_related("report__round__project")

    @extend_schema(summary="Request the replication package of a report", responses={202: PaperPackSerializer})
    def create(self, request: Request, report_id: int) -> Response:
        """A worker creates the package. If a requested package is unfinished, returns that package instead."""
        pack = queue_pack(self.report(), request.user)
        return self.accepted(pack, self.address(pack))

    @extend_schema(summary="Status of a replication package")
    def retrieve(self, request: Request, report_id: int, pk: int) -> Response:
        return self.answer(self.get_object())

    @operation("Cancel a replication package")
    def cancel(self, request: Request, report_id: int, pk: int) -> Response:
        return self.changed(ledger.cancel)

    @file_operation("Download a replication package", "pack.zip", "application/zip")
    def file(self, request: Request, report_id: int, pk: int) -> FileResponse:
        return pack_download(self.get_object())
