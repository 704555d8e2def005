"""What every request goes through."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse

NUL = "\x00"


def refuse_nul(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answer 400 to an address with a NUL: no text of ours has one, and PostgreSQL fails when asked for it.

    What is posted is left to the forms, which say it in words.
    """

    def guarded(request: HttpRequest) -> HttpResponse:
        if NUL in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            raise BadRequest("There is a NUL in the address.")
        return get_response(request)

    return guarded
