"""Middleware of the project, in the order of settings.MIDDLEWARE."""

import logging
import re
from collections.abc import Callable
from time import monotonic, perf_counter
from uuid import uuid4

from django.core.exceptions import (
    BadRequest,
    RequestDataTooBig,
    SuspiciousMultipartForm,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse

from kgharvest.accounts.account_events import acting_user, current_request
from kgharvest.accounts.sign_in.second_factor import MUST_SET_UP
from kgharvest.events.recording import record
from kgharvest.http import (
    TOO_LARGE_A_NUMBER,
    DatabaseIsAway,
    database_is_away,
    is_api,
    is_too_large_a_number,
    refusal,
)
from kgharvest.models import Project
from kgharvest.operations.logs import CLIENT_ID, request_id, route_of
from kgharvest.operations.metrics import METHODS, REQUEST_SECONDS, REQUESTS, create_metrics_folder
from kgharvest.operations.views import PROBES
from kgharvest.tables.formats import NDJSON

GetResponse = Callable[[HttpRequest], HttpResponse]

NO_ID = re.compile(r"/\d{19,}(?=[/.]|$)")  # number of digits of numbers that are too large for an id
requests_log = logging.getLogger("kgharvest.requests")


def observe_requests(get_response: GetResponse) -> GetResponse:
    """Middleware that answers probes, and logs, counts, and times all other requests. It must be the first middleware.

    Probes use plain HTTP and a hostname that is not configured, so later middleware would redirect or reject them.
    Other requests get an id, which appears in the response, the log, and the jobs of the request.
    """
    create_metrics_folder()

    def observed(request: HttpRequest) -> HttpResponse:
        if probe := PROBES.get(request.path_info[1:]):
            response = probe(request)
            response.headers["Cache-Control"] = "no-store"
            response.headers["X-Content-Type-Options"] = "nosniff"
            return response
        started, client_id = perf_counter(), request.headers.get("X-Request-ID", "")
        identifier = client_id if CLIENT_ID.fullmatch(client_id) else uuid4().hex
        token = request_id.set(identifier)
        try:
            response = get_response(request)
            seconds = perf_counter() - started
            response.headers["X-Request-ID"] = identifier
            view = request.resolver_match.view_name if request.resolver_match else "none"
            method = request.method if request.method in METHODS else "other"
            REQUESTS.labels(view or "none", method, str(response.status_code)).inc()
            REQUEST_SECONDS.labels(view or "none", method).observe(seconds)
            if requests_log.isEnabledFor(logging.INFO):
                facts = {"view": view, "status": response.status_code, "ms": round(1000 * seconds, 1)}
                requests_log.info(
                    "%s %s %s", request.method, route_of(request), response.status_code, extra={"facts": facts}
                )
            return response
        finally:
            request_id.reset(token)

    return observed


# If a failure takes longer, it blocks a thread: the database does not respond instead of refusing immediately.
SLOW_S = 1.0
LOOK_AFTER_S = 1.0
LOOK_TAKES_S = 10.0


def spare_threads(get_response: GetResponse) -> GetResponse:
    """Middleware that lets one request at a time try a database that does not respond. All others get 503 immediately.

    Otherwise, all threads would wait for the database, and none would serve probes and static files, which are handled
    before this middleware.
    """
    look_again_at: float | None = None  # None while the database responds

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
    """Middleware that answers 400 to malformed forms, and to URLs with a NUL, which PostgreSQL rejects.

    Forms are parsed here first, because otherwise the CSRF check and Django's error pages would parse them again and
    fail. The form itself reports a NUL in a field. A number that is too large for an id gives 404 in a URL path.
    Elsewhere, it gives 400 if the database rejects it.
    """

    def __init__(self, get_response: GetResponse):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "\x00" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return _malformed(request, "The URL contains a NUL character.")
        try:
            request.POST  # noqa: B018 - parses the form
        except tuple(MALFORMED) as error:
            return _malformed(request, next(text for kind, text in MALFORMED.items() if isinstance(error, kind)))
        if NO_ID.search(request.path):
            raise Http404
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        return _malformed(request, TOO_LARGE_A_NUMBER) if is_too_large_a_number(error) else None


def _malformed(request: HttpRequest, reason: str) -> HttpResponse:
    if is_api(request):
        return JsonResponse(refusal("Malformed", reason), status=400)
    return HttpResponseBadRequest(render_to_string("400.html", {"reason": reason}))


def require_second_factor(get_response: GetResponse) -> GetResponse:
    """Middleware that redirects users who must set up a second factor to the setup page. Logout is not redirected."""

    def guarded(request: HttpRequest) -> HttpResponse:
        if request.session.get(MUST_SET_UP):
            allowed = {reverse("second_factor_set_up"), reverse("logout")}
            if request.path not in allowed:
                return redirect("second_factor_set_up")
        return get_response(request)

    return guarded


def record_exports(get_response: GetResponse) -> GetResponse:
    """Middleware that records an event for each file that a user downloads from a page or the API.

    It also provides the current request to the events of accounts (accounts.account_events).
    """

    def recorded(request: HttpRequest) -> HttpResponse:
        token = current_request.set(request)
        try:
            response = get_response(request)
            disposition = response.headers.get("Content-Disposition", "")
            is_file = disposition.startswith("attachment") or response.headers.get("Content-Type") == NDJSON
            if is_file and response.status_code == 200 and (user := acting_user()):
                slug = request.resolver_match.kwargs.get("slug") or request.resolver_match.kwargs.get("path", "")
                project = Project.objects.filter(slug=str(slug).partition("/")[0]).values_list("pk", flat=True).first()
                name = disposition.partition('filename="')[2].rstrip('"') or "a list"
                record("export.made", ("file", name[:40]), user, project, file=name, page=request.path_info)
            return response
        finally:
            current_request.reset(token)

    return recorded


def store_nothing(get_response: GetResponse) -> GetResponse:
    """Middleware that forbids caching of responses without Cache-Control, because most contain evidence or names.

    Static files do not pass this middleware.
    """

    def with_cache_control(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return with_cache_control
