"""HTTP handling shared by pages and API: malformed requests, static files, error responses, database outages."""

import json
import re
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

from django.core.exceptions import (
    BadRequest,
    RequestDataTooBig,
    SuspiciousMultipartForm,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.template.loader import render_to_string
from django.views.defaults import page_not_found, server_error
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler
from whitenoise.storage import CompressedManifestStaticFilesStorage

from kgharvest.access import NotAllowed
from kgharvest.engine.types import EngineError
from kgharvest.errors import DomainError, ImportRefused, is_database_away
from kgharvest.operations.files import FilesUnavailable

NUL = "\x00"
TOO_LARGE_A_NUMBER = "The request contains a number too large for the database."
NO_ID = re.compile(r"/\d{19,}(?=[/.]|$)")  # too large for an id

MALFORMED = {
    BadRequest: "The form is not valid UTF-8.",
    MultiPartParserError: "The form is truncated or its boundary is missing.",
    RequestDataTooBig: "The form is too large. Upload long texts as a file.",
    TooManyFieldsSent: "The form has too many fields.",
    TooManyFilesSent: "The form has too many files.",
    SuspiciousMultipartForm: "The form has invalid parts.",
    UnreadablePostError: "The form is truncated.",
}


class RefuseMalformed:
    """Middleware: answer 400 to URLs with a NUL, which PostgreSQL rejects, and to malformed forms.

    Forms are parsed here first, because otherwise the CSRF check and Django's error pages would parse them again and
    fail. The form itself reports a NUL in a field. Numbers too large for an id: 404 in a URL path, otherwise 400 if the
    database rejects them.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if reason := why_malformed(request):
            return _malformed(request, reason)
        if NO_ID.search(request.path):
            raise Http404
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        return _malformed(request, TOO_LARGE_A_NUMBER) if is_too_large_a_number(error) else None


def is_too_large_a_number(error: Exception) -> bool:
    """Return whether the database rejected a number as too large."""
    if isinstance(error, DataError):
        return getattr(error.__cause__, "sqlstate", "") == "22003"
    return isinstance(error, OverflowError) and "SQLite" in str(error)


def _malformed(request: HttpRequest, reason: str) -> HttpResponse:
    if is_api(request):
        return JsonResponse(refusal("Malformed", reason), status=400)
    return HttpResponseBadRequest(render_to_string("400.html", {"reason": reason}))


def why_malformed(request: HttpRequest) -> str:
    """Return a sentence about a malformed URL or form, or an empty string."""
    if NUL in request.path or "%00" in request.META.get("QUERY_STRING", ""):
        return "The URL contains a NUL character."
    try:
        request.POST  # noqa: B018 - parses the form
    except tuple(MALFORMED) as error:
        return next(reason for kind, reason in MALFORMED.items() if isinstance(error, kind))
    return ""


def store_nothing(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: forbid caching of responses without Cache-Control, as most contain evidence or names.

    Static files do not pass this middleware.
    """

    def with_cache_control(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return with_cache_control


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Static files with hashed names, also in imports of scripts, so that browsers never mix two versions."""

    support_js_module_import_aggregation = True


def is_api(request: HttpRequest) -> bool:
    """Return whether the request is for the API, whose errors are JSON."""
    return request.path_info.startswith("/api/")


def refusal(code: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the body of an API error."""
    return {"error": {"code": code, "message": message, **more}}


REFUSALS = {  # the first match applies
    NotAllowed: status.HTTP_403_FORBIDDEN,
    FilesUnavailable: status.HTTP_503_SERVICE_UNAVAILABLE,
    DomainError: status.HTTP_409_CONFLICT,
    EngineError: status.HTTP_409_CONFLICT,
}


def error_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return {"error": {"code", "message"}}, with "fields" for invalid input; None for bugs (500)."""
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
    """Answer 500 after a bug, or 503 while the database is unavailable."""
    if is_database_away(sys.exception()):
        return database_is_away(request)
    if is_api(request):
        return JsonResponse(refusal("Failed", "Internal server error. See the server log."), status=500)
    return server_error(request)


DATABASE_IS_AWAY = (
    "The database is unavailable. All confirmed input is stored. Your last input may not be stored; submit it again in "
    "a moment."
)
RETRY_AFTER_S = 5
SLOW_S = 1.0  # slower failures block threads: an unresponsive database rather than a refusing one
LOOK_AFTER_S = 1.0
LOOK_TAKES_S = 10.0


class DatabaseIsAway(HttpResponse):
    """Response 503 while the database is unavailable."""

    status_code = 503


def database_is_away(request: HttpRequest) -> HttpResponse:
    if is_api(request) or request.headers.get("Accept", "").startswith("application/json"):
        body = json.dumps(refusal("DatabaseAway", DATABASE_IS_AWAY))
        response = DatabaseIsAway(body, content_type="application/json")
    else:
        address = request.get_full_path() if request.method in {"GET", "HEAD"} else ""
        response = DatabaseIsAway(render_to_string("503.html", {"address": address}))
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    response.headers["Cache-Control"] = "no-store"
    return response


def spare_threads(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: while the database does not respond, one request at a time tries it; all others get 503 immediately.

    Otherwise all threads would wait, and none would serve probes and static files, which precede this middleware.
    """
    look_again_at: float | None = None  # None: the database responds

    def spared(request: HttpRequest) -> HttpResponse:
        nonlocal look_again_at
        started = monotonic()
        was_away = look_again_at is not None
        if was_away:
            if started < look_again_at:
                return database_is_away(request)
            look_again_at = started + LOOK_TAKES_S
        response = get_response(request)
        if isinstance(response, DatabaseIsAway) and (was_away or monotonic() - started > SLOW_S):
            look_again_at = monotonic() + LOOK_AFTER_S
        elif not isinstance(response, DatabaseIsAway):
            look_again_at = None
        return response

    return spared
