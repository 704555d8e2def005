"""Paper packs in the API: asked for, watched, cancelled, downloaded."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import FileResponse
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.models import PaperPack, Report
from evaluation.paper.pack_jobs import queue_pack
from evaluation.paper.views import pack_download
from kgharvest.access import Action, visible_or_404
from kgharvest.api.views import AnyRenderer, ApiView, ListView, files_of
from kgharvest.jobs import ledger
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES


class PaperPackSerializer(serializers.ModelSerializer):
    """A pack and how far it is. sha256, n_bytes: of its file, once it has succeeded."""

    is_unfinished = serializers.BooleanField()

    class Meta:
        model = PaperPack
        fields = ["id", "report", *JOB_FIELDS, *JOB_TIMES, "sha256", "n_bytes"]


class PackView(ApiView):
    serializer_class = PaperPackSerializer

    def report(self, action: Action = Action.VIEW) -> Report:
        return visible_or_404(self.request.user, Report.objects.for_list(), action, pk=self.kwargs["report_id"])

    def pack(self, action: Action = Action.VIEW) -> PaperPack:
        return self.row(self.report(action).packs.select_related("report__round__project"))


class PackList(PackView, ListView):
    """The paper packs of a report, the newest first: one that can be had, and those that are under way or failed."""

    def get_queryset(self) -> QuerySet:
        return self.report().packs.all()

    @extend_schema(
        summary="Ask for the paper pack of a report",
        request=None,
        responses={202: PaperPackSerializer},
    )
    def post(self, request: Request, report_id: int) -> Response:
        """A worker makes it; one that is under way already is not asked for twice."""

        def queue() -> Response:
            pack = queue_pack(self.report(Action.WORK), request.user)
            return self.accepted(pack, reverse("evaluation:api_pack", args=[report_id, pack.pk]))

        return self.once(queue)


class PackDetail(PackView):
    @extend_schema(summary="A paper pack and how far it is")
    def get(self, request: Request, report_id: int, pk: int) -> Response:
        return self.answer(self.pack())


class PackCancel(PackView):
    @extend_schema(summary="Cancel a paper pack", request=None)
    def post(self, request: Request, report_id: int, pk: int) -> Response:
        def cancel() -> Response:
            ledger.cancel(self.pack(Action.WORK), request.user)
            return self.answer(self.pack())

        return self.once(cancel)


class PackFileView(PackView):
    renderer_classes = (AnyRenderer,)

    @extend_schema(summary="A paper pack as a ZIP file", responses=files_of(["application/zip"]))
    def get(self, request: Request, report_id: int, pk: int) -> FileResponse:
        return pack_download(self.pack())
