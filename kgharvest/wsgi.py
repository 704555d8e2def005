"""What gunicorn serves: `gunicorn kgharvest.wsgi`."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.utils.http import parse_header_parameters

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
        start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(reason)))])
        return [reason.encode()]

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


application = refuse_unreadable(get_wsgi_application())
