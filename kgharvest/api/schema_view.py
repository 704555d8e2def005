"""The page of the API's description, as YAML or JSON."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class SchemaView(SpectacularAPIView):
    """The description is the same for everybody and takes seconds, so a process makes it once."""

    schema = None  # it does not describe itself

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        response = HttpResponse(rendered_schema(type(renderer)), content_type=renderer.media_type)
        response["Content-Disposition"] = f'inline; filename="{self._get_filename(request, None)}"'
        return response


@cache
def rendered_schema(renderer: type[BaseRenderer]) -> bytes:
    """Return the description in the form of a renderer of drf_spectacular, YAML or JSON."""
    return renderer().render(SchemaGenerator().get_schema(public=True), renderer_context={})
