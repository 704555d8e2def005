"""Slow down whoever tries out links and codes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps

from axes.helpers import get_client_ip_address
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

FAILURES = 30  # as many as a class of mistyping people behind one address may have
WINDOW_S = 15 * 60


def limited(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answer 429 to addresses that lately got too many 404s here. Each server process counts by itself."""

    @wraps(view)
    def guarded(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        key = f"wrong-links:{get_client_ip_address(request)}"
        if cache.get(key, 0) >= FAILURES:
            return no_entry(request, "Too many wrong links or codes came from here; wait a quarter of an hour.", 429)
        response = view(request, *args, **kwargs)
        if response.status_code == 404:
            _note_failure(key)
        return response

    return guarded


def _note_failure(key: str) -> None:
    cache.add(key, 0, WINDOW_S)
    with suppress(ValueError):  # it ended in this very moment
        cache.incr(key)


def no_entry(request: HttpRequest, reason: str, status: int) -> HttpResponse:
    """Say in one sentence why somebody cannot come in."""
    return render(request, "annotation/recruiting/no_entry.html", {"reason": reason}, status=status)
