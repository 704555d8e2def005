"""What gunicorn serves: `gunicorn kgharvest.wsgi`."""

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


def refuse_unreadable(served: Application) -> Application:
    """Answer 400 or 413 to what cannot be read by its headers or is too large, before Django makes a request of it.

    Django decodes addresses and forms with any codec of Python that a client names, `hex` and `punycode` among them,
    and fails where none of its middleware can answer.
    """

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, reason = "400 Bad Request", why_unreadable(environ)
        if not reason:
            status, reason = "413 Content Too Large", why_too_large(environ)
        if not reason:
            return served(environ, start_response)
        media_type, body = "text/plain", reason.encode()
        if environ.get("PATH_INFO", "").startswith("/api/"):
            media_type, body = (
                "application/json",
                json.dumps({"error": {"code": "Unreadable", "message": reason}}).encode(),
            )
        start_response(status, [("Content-Type", media_type), ("Content-Length", str(len(body)))])
        return [body]

    return guarded


def why_unreadable(environ: dict[str, Any]) -> str:
    """Return what is wrong with the address or the headers about the body as one sentence, or nothing."""
    try:
        parameters = parse_header_parameters(environ.get("CONTENT_TYPE", ""))[1]
    except ValueError:
        return "The Content-Type of the request cannot be read; send one without encoded parameters."
    if parameters.get("charset", "utf-8").lower() not in {"utf-8", "utf8"}:
        return "The Content-Type of the request names another charset than UTF-8; send it in UTF-8."
    if environ.get("QUERY_STRING", "").count("&") >= settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:
        return "The address of the request has more fields than any of ours."
    length = environ.get("CONTENT_LENGTH") or "0"
    if not (length.isascii() and length.isdigit()):
        return "The Content-Length of the request is no number; send the length of the body in bytes."
    return ""


def why_too_large(environ: dict[str, Any]) -> str:
    """Return that the body is larger than any that is taken as one sentence, or nothing. Nobody has read it yet."""
    has_files = environ.get("CONTENT_TYPE", "").lower().startswith("multipart/")
    largest = settings.LARGEST_UPLOAD if has_files else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if int(environ.get("CONTENT_LENGTH") or 0) > largest:
        return f"The request has more than {largest >> 20} MB; send less at a time."
    return ""


def below(prefix: str, served: Application) -> Application:
    """Take `prefix` off paths, so that a proxy may hand them on as they are; paths without it are served as well.

    Its own bare path is sent to the start page with a slash, below which the cookies are.
    """

    def stripped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == prefix:
            start_response("308 Permanent Redirect", [("Location", f"{prefix}/"), ("Content-Length", "0")])
            return []
        if path.startswith(f"{prefix}/"):
            environ = {**environ, "PATH_INFO": path.removeprefix(prefix)}
        return served(environ, start_response)

    return stripped if prefix else served


application = below(settings.FORCE_SCRIPT_NAME or "", refuse_unreadable(get_wsgi_application()))
import_string("kgharvest.operations.metrics.forget_dead_processes")()  # which needs Django to be set up
