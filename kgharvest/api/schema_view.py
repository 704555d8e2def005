"""View of the OpenAPI description. DRF imports `schema` before its views, so `schema` cannot contain this view."""

from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class SchemaView(SpectacularAPIView):
    """Serves the OpenAPI description.

    The description is the same for all users and takes seconds to create, so each process caches it.
    """

    schema = None  # exclude this view from the description

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        response = HttpResponse(rendered_schema(type(renderer)), content_type=renderer.media_type)
        response["Content-Disposition"] = f'inline; filename="{self._get_filename(request, None)}"'
        return response


@cache
def rendered_schema(renderer: type[BaseRenderer]) -> bytes:
    """Return the description as YAML or JSON, depending on the renderer."""
    return renderer().render(SchemaGenerator().get_schema(public=True), renderer_context={})
