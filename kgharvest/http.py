"""HTTP handling shared by pages and API: static files, error responses, and database outages."""

import json
import sys
from typing import Any

from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.template.loader import render_to_string
from django.views.defaults import page_not_found, server_error
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler
from whitenoise.storage import CompressedManifestStaticFilesStorage

from kgharvest.access import NotAllowed
from kgharvest.engine.types import EngineError
from kgharvest.errors import DomainError, ImportRefused, is_database_away, is_disk_full
from kgharvest.operations.files import FilesUnavailable

TOO_LARGE_A_NUMBER = "The request contains a number too large for the database."


def is_too_large_a_number(error: Exception) -> bool:
    """Return whether the database rejected a number as too large."""
    if isinstance(error, DataError):
        return getattr(error.__cause__, "sqlstate", "") == "22003"
    return isinstance(error, OverflowError) and "SQLite" in str(error)


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Static files with hashed names.

    Imports in scripts use hashed names, too, so that browsers never mix two versions.
    """

    support_js_module_import_aggregation = True


def is_api(request: HttpRequest) -> bool:
    """Return whether the request is for the API, which returns errors as JSON."""
    return request.path_info.startswith("/api/")


def refusal(code: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the body of an API error."""
    return {"error": {"code": code, "message": message, **more}}


REFUSALS = {  # the first matching entry applies
    NotAllowed: status.HTTP_403_FORBIDDEN,
    FilesUnavailable: status.HTTP_503_SERVICE_UNAVAILABLE,
    DomainError: status.HTTP_409_CONFLICT,
    EngineError: status.HTTP_409_CONFLICT,
}


def error_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the response {"error": {"code", "message"}}, with "fields" for invalid input.

    Return None for bugs (500).
    """
    if isinstance(error, ImportRefused):
        fields = {"file": [f"{entry.where}: {entry.reason}" for entry in error.entries]}
        return Response(refusal(error.code, str(error), fields=fields), status.HTTP_400_BAD_REQUEST)
    for kind, status_code in REFUSALS.items():
        if isinstance(error, kind):
            code = error.code if isinstance(error, DomainError) else type(error).__name__
            return Response(refusal(code, str(error)), status_code)
    if is_too_large_a_number(error):
        return Response(refusal("Malformed", TOO_LARGE_A_NUMBER), status.HTTP_400_BAD_REQUEST)
    if isinstance(error, UnreadablePostError):
        return Response(refusal("Malformed", "The request body is truncated."), status.HTTP_400_BAD_REQUEST)
    response = exception_handler(error, context)
    if response is None:
        return None
    if isinstance(error, exceptions.ValidationError):
        fields = response.data if isinstance(response.data, dict) else {"non_field_errors": response.data}
        response.data = refusal("Invalid", "Invalid input.", fields=fields)
    else:
        code = "NotFound" if isinstance(error, Http404) else type(error).__name__
        response.data = refusal(code, str(response.data.get("detail", error)))
    return response


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_api(request):
        return JsonResponse(refusal("NotFound", "Nothing exists at this URL."), status=404)
    return page_not_found(request, exception)


def failed(request: HttpRequest) -> HttpResponse:
    """Answer 500 after a bug, or 503 while the database is unavailable or a disk is full."""
    if is_database_away(sys.exception()):
        return database_is_away(request)
    if is_disk_full(sys.exception()):
        return disk_is_full(request)
    if is_api(request):
        return JsonResponse(refusal("Failed", "Internal server error. See the server log."), status=500)
    return server_error(request)


DATABASE_IS_AWAY = (
    "The database is unavailable. All confirmed input is stored. Your last input may not be stored; submit it again in "
    "a moment."
)
RETRY_AFTER_S = 5


DISK_IS_FULL = (
    "The disk is full. All confirmed input is stored, but your last input is not. Ask the operator of this "
    "installation to free disk space, then submit it again."
)


class DatabaseIsAway(HttpResponse):
    """Response 503 while the database is unavailable."""

    status_code = 503


def database_is_away(request: HttpRequest) -> HttpResponse:
    if _expects_json(request):
        body = json.dumps(refusal("DatabaseAway", DATABASE_IS_AWAY))
        response = DatabaseIsAway(body, content_type="application/json")
    else:
        address = request.get_full_path() if request.method in {"GET", "HEAD"} else ""
        response = DatabaseIsAway(render_to_string("503.html", {"address": address}))
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    response.headers["Cache-Control"] = "no-store"
    return response


def disk_is_full(request: HttpRequest) -> HttpResponse:
    headers = {"Retry-After": "60", "Cache-Control": "no-store"}
    if _expects_json(request):
        return JsonResponse(refusal("DiskFull", DISK_IS_FULL), status=503, headers=headers)
    page = render_to_string("503.html", {"reason": DISK_IS_FULL})
    return HttpResponse(page, status=503, headers=headers)


def _expects_json(request: HttpRequest) -> bool:
    return is_api(request) or request.headers.get("Accept", "").startswith("application/json")
