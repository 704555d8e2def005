"""Reconciliation of a panel with its platform, in the API."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.models import Panel
from annotation.recruiting.panels.api import PanelOperations
from annotation.recruiting.reconciliation import ask_reconciliation
from kgharvest.api.views import operation

RECONCILIATION = {"panel": "prolific-1", "reconciled_at": "2026-11-22T09:00:00Z", "reconcile_error": ""}


@extend_schema_serializer(examples=[OpenApiExample("A panel that was compared", RECONCILIATION, response_only=True)])
class ReconciliationSerializer(serializers.ModelSerializer):
    """reconciled_at: when it was last compared; null: not yet, or a worker is about to. reconcile_error: why the
    platform could not be asked; empty where it could.
    """

    panel = serializers.CharField(source="name")

    class Meta:
        model = Panel
        fields = [*RECONCILIATION]


class ReconciliationViewSet(PanelOperations):
    """Comparison of a panel with its platform."""

    serializer_class = ReconciliationSerializer

    @operation("When a panel was compared with its platform", method="get")
    def reconciliation(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer(self.panel())

    @extend_schema(summary="Compare a panel with its platform", responses={202: ReconciliationSerializer})
    @reconciliation.mapping.post
    def reconcile(self, request: Request, round_id: int, name: str) -> Response:
        """Within seconds a worker reads all submissions of the platform and applies missed changes."""
        ask_reconciliation(self.panel(), request.user)
        return self.accepted(self.panel(), request.path)
