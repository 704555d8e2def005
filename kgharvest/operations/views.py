"""Views for health probes and metrics. kgharvest.middleware.observe_requests calls them."""

from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe

from kgharvest.access import client_ip
from kgharvest.operations import health, metrics


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Liveness probe."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Readiness probe, which checks the database, migrations, broker, and file store.

    Only operators see the reasons for failures.
    """
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
