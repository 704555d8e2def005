"""HTTP as every page and the JSON interface share it: what is refused, hashed static files, the shape of errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.core.exceptions import (
    BadRequest,
    RequestDataTooBig,
    SuspiciousMultipartForm,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.template.loader import render_to_string
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler
from whitenoise.storage import CompressedManifestStaticFilesStorage

from kgharvest.errors import DomainError

NUL = "\x00"
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
            return _malformed(reason)
        if NO_ID.search(request.path):
            raise Http404
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        is_too_large = isinstance(error, OverflowError) and "SQLite" in str(error)
        return _malformed("There is a number larger than what the database holds.") if is_too_large else None


def _malformed(reason: str) -> HttpResponse:
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
