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
        if any(NUL in text for name, values in request.GET.lists() for text in (name, *values)):
            raise BadRequest("The address has a NUL.")
        return get_response(request)

    return guarded
