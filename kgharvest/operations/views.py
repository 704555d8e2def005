"""Health and metrics probes, and logging and metrics of all requests.

Probes are answered before all other middleware, because probing machines use plain HTTP and no configured host name.
"""

import logging
from collections.abc import Callable
from ipaddress import ip_address
from time import perf_counter

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe

from kgharvest.access import client_ip
from kgharvest.operations import health, metrics
from kgharvest.operations.logs import id_of, logged_under, route_of

requests_log = logging.getLogger("kgharvest.requests")


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Liveness probe."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Readiness probe: database, migrations, broker, and file store. Only operators see the reasons for failures."""
    findings = health.readiness()
    is_ready = all(finding.is_well for name, finding in findings.items() if name not in health.OPTIONAL)
    shows_reason = _is_operator(request)
    checks = {
        name: "ok" if finding.is_well else finding.says if shows_reason else "down"
        for name, finding in findings.items()
    }
    return JsonResponse({"ready": is_ready, "checks": checks}, status=200 if is_ready else 503)


@require_safe
def metrics_page(request: HttpRequest) -> HttpResponse:
    if not _is_operator(request):
        return HttpResponseForbidden(
            "Access denied. Send KGHARVEST_METRICS_TOKEN as a bearer token or, if it is not set, connect locally.\n",
            content_type="text/plain",
        )
    return HttpResponse(metrics.exposition(), content_type=metrics.CONTENT_TYPE)


def _is_operator(request: HttpRequest) -> bool:
    """Return whether the request has the token or, if none is configured, comes from this machine."""
    token = settings.METRICS_TOKEN
    if token:
        return constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {token}")
    try:
        return ip_address(client_ip(request) or "").is_loopback
    except ValueError:
        return False


PROBES = {"healthz": healthz, "readyz": readyz, "metrics": metrics_page}


def answer_probes(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that must be first, so that probes are not redirected to TLS or rejected for their host."""

    def answered(request: HttpRequest) -> HttpResponse:
        probe = PROBES.get(request.path_info[1:])
        if probe is None:
            return get_response(request)
        response = probe(request)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    return answered


def observe_requests(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: assign the request an id for the response, the log and its jobs; count and time the request."""

    def observed(request: HttpRequest) -> HttpResponse:
        started, identifier = perf_counter(), id_of(request)
        with logged_under(identifier):
            response = get_response(request)
            seconds = perf_counter() - started
            response.headers["X-Request-ID"] = identifier
            view = request.resolver_match.view_name if request.resolver_match else "none"
            metrics.observe(view or "none", request.method, response.status_code, seconds)
            if requests_log.isEnabledFor(logging.INFO):
                facts = {"view": view, "status": response.status_code, "ms": round(1000 * seconds, 1)}
                requests_log.info(
                    "%s %s %s", request.method, route_of(request), response.status_code, extra={"facts": facts}
                )
        return response

    return observed
