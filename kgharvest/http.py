"""HTTP as every page and the JSON interface share it: what is refused, hashed static files, the shape of errors."""

from __future__ import annotations

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
TOO_LARGE_A_NUMBER = "There is a number larger than what the database holds."
NO_ID = re.compile(r"/\d{19,}(?=[/.]|$)")  # larger than what databases number

MALFORMED = {
    BadRequest: "The form is not in UTF-8.",
    MultiPartParserError: "The form ends too early, or its boundary is missing.",
    RequestDataTooBig: "The form is larger than any of ours; put long texts into a file.",
    TooManyFieldsSent: "The form has more fields than any of ours.",
    TooManyFilesSent: "The form has more files than any of ours takes.",
    SuspiciousMultipartForm: "The form has parts that stand for nothing.",
    UnreadablePostError: "The form ends too early.",
}


class RefuseMalformed:
    """Answer 400 to an address with a NUL, which PostgreSQL fails on, and to forms that cannot be parsed.

    Forms are parsed here, before anything else does: where that fails, the CSRF check and Django's error pages would
    parse them again and fail, too. A NUL in a form is left to the form, which says it in words. Numbers that no
    database gives name nothing: 404 in an address, 400 anywhere else where SQLite fails on them.
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
    """Return whether the database refused a number that it cannot hold."""
    if isinstance(error, DataError):
        return getattr(error.__cause__, "sqlstate", "") == "22003"
    return isinstance(error, OverflowError) and "SQLite" in str(error)


def _malformed(request: HttpRequest, reason: str) -> HttpResponse:
    if is_api(request):
        return JsonResponse(refusal("Malformed", reason), status=400)
    return HttpResponseBadRequest(render_to_string("400.html", {"reason": reason}))


def why_malformed(request: HttpRequest) -> str:
    """Return what is wrong with the address or the form as a sentence, or nothing."""
    if NUL in request.path or "%00" in request.META.get("QUERY_STRING", ""):
        return "There is a NUL in the address."
    try:
        request.POST  # noqa: B018 - parses the form
    except tuple(MALFORMED) as error:
        return next(reason for kind, reason in MALFORMED.items() if isinstance(error, kind))
    return ""


def store_nothing(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Keep pages and files out of browsers' and proxies' caches, but for those that say themselves how to be kept.

    Nearly all have evidence or names; what is static does not come this way.
    """

    def stored_nowhere(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return stored_nowhere


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Names with hashes, in the imports of scripts as well, so that a browser never mixes two versions of them."""

    support_js_module_import_aggregation = True


# -- the API's errors --------------------------------------------------------------------------------------------------


def is_api(request: HttpRequest) -> bool:
    """Return whether a program asks, which wants errors in JSON."""
    return request.path_info.startswith("/api/")


def refusal(code: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the one shape that errors of the API have."""
    return {"error": {"code": code, "message": message, **more}}


REFUSALS = {  # by the first that fits
    NotAllowed: status.HTTP_403_FORBIDDEN,
    FilesUnavailable: status.HTTP_503_SERVICE_UNAVAILABLE,
    DomainError: status.HTTP_409_CONFLICT,
    EngineError: status.HTTP_409_CONFLICT,
}


def error_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return {"error": {"code", "message"}}, with "fields" for invalid input; None leaves a bug to Django's 500."""
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
        return Response(refusal("Malformed", "The body ends too early."), status.HTTP_400_BAD_REQUEST)
    response = exception_handler(error, context)
    if response is None:
        return None
    if isinstance(error, exceptions.ValidationError):
        fields = response.data if isinstance(response.data, dict) else {"non_field_errors": response.data}
        response.data = refusal("Invalid", "The input is not valid.", fields=fields)
    else:
        code = "NotFound" if isinstance(error, Http404) else type(error).__name__
        response.data = refusal(code, str(response.data.get("detail", error)))
    return response


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what no URL or row is there for."""
    if is_api(request):
        return JsonResponse(refusal("NotFound", "There is nothing at this address."), status=404)
    return page_not_found(request, exception)


def failed(request: HttpRequest) -> HttpResponse:
    """Answer after a bug, of which the log tells more; or while the database is away, which is none."""
    if is_database_away(sys.exception()):
        return database_is_away(request)
    if is_api(request):
        return JsonResponse(refusal("Failed", "The server failed; its log says why."), status=500)
    return server_error(request)


# -- while the database is away ----------------------------------------------------------------------------------------

DATABASE_IS_AWAY = (
    "The database does not answer. Everything that was confirmed is stored; what was sent just now may not be, so "
    "send it again in a moment."
)
RETRY_AFTER_S = 5
SLOW_S = 1.0  # a database that refuses at once costs nobody anything; one that is silent costs a thread for seconds
LOOK_AFTER_S = 1.0
LOOK_TAKES_S = 10.0


class DatabaseIsAway(HttpResponse):
    """The answer to a request that needs the database while it is away."""

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
    """Middleware: while a database is silent, let one request at a time wait for it, and answer the others at once.

    Else all threads would wait, and nobody would answer probes and send static files, which come before this.
    """
    look_again_at: float | None = None  # None: the database answers

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
