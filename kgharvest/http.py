"""HTTP as every page and the JSON interface share it: addresses refused, hashed static files, the shape of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler
from whitenoise.storage import CompressedManifestStaticFilesStorage

from kgharvest.errors import DomainError

NUL = "\x00"


def refuse_nul(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answer 400 to an address with a NUL: no text of ours has one, and PostgreSQL fails when asked for it.

    What is posted is left to the forms, which say it in words.
    """

    def guarded(request: HttpRequest) -> HttpResponse:
        if NUL in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            raise BadRequest("There is a NUL in the address.")
        return get_response(request)

    return guarded


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Names with hashes, in the imports of scripts as well, so that a browser never mixes two versions of them."""

    support_js_module_import_aggregation = True


def error_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return {"error": {"code", "message"}}, with "fields" for invalid input; None leaves a bug to Django's 500."""
    if isinstance(error, DomainError):
        return Response({"error": {"code": error.code, "message": str(error)}}, status.HTTP_409_CONFLICT)
    response = exception_handler(error, context)
    if response is None:
        return None
    if isinstance(error, exceptions.ValidationError):
        response.data = {"error": {"code": "Invalid", "message": "The input is not valid.", "fields": response.data}}
    else:
        response.data = {"error": {"code": type(error).__name__, "message": str(response.data.get("detail", error))}}
    return response
