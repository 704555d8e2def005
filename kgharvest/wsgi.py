"""WSGI application: `gunicorn kgharvest.wsgi`."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.utils.http import parse_header_parameters
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kgharvest.settings")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def refuse_unreadable(application: Application) -> Application:
    """Answer 400 or 413 to requests with invalid headers or too large bodies, before Django parses them.

    Django decodes URLs and forms with any Python codec that the client names, including `hex` and `punycode`. The
    resulting errors occur outside Django's middleware.
    """

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, reason = "400 Bad Request", why_unreadable(environ)
        if not reason:
            has_files = environ.get("CONTENT_TYPE", "").lower().startswith("multipart/")
            largest = settings.LARGEST_UPLOAD if has_files else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
            if int(environ.get("CONTENT_LENGTH") or 0) <= largest:
                return application(environ, start_response)
            status = "413 Content Too Large"
            reason = f"The request is larger than {largest >> 20} MB. Send less data at a time."
        media_type, body = "text/plain", reason.encode()
        if environ.get("PATH_INFO", "").startswith("/api/"):
            error = {"error": {"code": "Unreadable", "message": reason}}
            media_type, body = "application/json", json.dumps(error).encode()
        start_response(status, [("Content-Type", media_type), ("Content-Length", str(len(body)))])
        return [body]

    return guarded


def why_unreadable(environ: dict[str, Any]) -> str:
    """Return a sentence about an invalid URL or invalid content headers, or "" if they are valid."""
    try:
        parameters = parse_header_parameters(environ.get("CONTENT_TYPE", ""))[1]
    except ValueError:
        return "Invalid Content-Type header. Send it without encoded parameters."
    if parameters.get("charset", "utf-8").lower() not in {"utf-8", "utf8"}:
        return "Unsupported charset in the Content-Type header. Send the request in UTF-8."
    if environ.get("QUERY_STRING", "").count("&") >= settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:
        return "The URL has too many query parameters."
    length = environ.get("CONTENT_LENGTH") or "0"
    if not (length.isascii() and length.isdigit()):
        return "Invalid Content-Length header. Send the length of the body in bytes."
    return ""


def below(prefix: str, application: Application) -> Application:
    """Strip `prefix` from paths, so that proxies can forward paths unchanged. Paths without the prefix also work.

    The prefix without a trailing slash is redirected to the home page with a slash, which is the path of the cookies.
    """

    def stripped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == prefix:
            start_response("308 Permanent Redirect", [("Location", f"{prefix}/"), ("Content-Length", "0")])
            return []
        if path.startswith(f"{prefix}/"):
            environ = {**environ, "PATH_INFO": path.removeprefix(prefix)}
        return application(environ, start_response)

    return stripped if prefix else application


application = below(settings.FORCE_SCRIPT_NAME or "", refuse_unreadable(get_wsgi_application()))
# Imported here because it requires a configured Django.
import_string("kgharvest.operations.metrics.forget_dead_processes")()
