"""How a browser's session becomes somebody's: by password and second factor, or at an OpenID provider."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from django.contrib import auth
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.crypto import constant_time_compare

from kgharvest.accounts.sign_in import second_factor

AWAITS_S = 300  # between the password and the second factor
PROVIDERS_BACKEND = "django.contrib.auth.backends.ModelBackend"
# Keys of sessions.
AWAITED = "second_factor_awaited"  # whose password was right, and who has still to give a code
MUST_SET_UP = "second_factor_must_be_set_up"
ID_TOKEN = "openid_id_token"  # noqa: S105 - with which the session at the provider is ended


class Awaited(NamedTuple):
    user: AbstractBaseUser
    backend: str
    address: str  # where the person goes on


def log_in_with_password(request: HttpRequest, user: AbstractBaseUser, address: str, now: datetime) -> bool:
    """Log `user` in, whose password was right; or remember that, and return True if a code is to be given first."""
    if second_factor.has_second_factor(user):
        request.session[AWAITED] = {
            "user": user.pk,
            "hash": user.get_session_auth_hash(),
            "backend": user.backend,
            "address": address,
            "until": now.timestamp() + AWAITS_S,
        }
        return True
    auth.login(request, user)
    if second_factor.is_required(user):
        request.session[MUST_SET_UP] = True
    return False


def awaited(request: HttpRequest, now: datetime) -> Awaited | None:
    """Return whose code this browser has still to give; nobody's once it took too long or the password changed."""
    known = request.session.get(AWAITED)
    if not known or now.timestamp() > known["until"]:
        return None
    user = auth.get_user_model().objects.filter(pk=known["user"], is_active=True).first()
    if user is None or not constant_time_compare(known["hash"], user.get_session_auth_hash()):
        return None
    return Awaited(user, known["backend"], known["address"])


def log_in_with_code(request: HttpRequest, awaited: Awaited) -> None:
    """Log in who has given both. The session gets a new key and forgets what it waited for."""
    request.session.pop(AWAITED, None)
    auth.login(request, awaited.user, backend=awaited.backend)


def log_in_at_provider(request: HttpRequest, user: AbstractBaseUser, id_token: str) -> None:
    """Log in whom the provider knows. Second factors are the provider's business then."""
    request.session.pop(AWAITED, None)
    auth.login(request, user, backend=PROVIDERS_BACKEND)
    request.session.pop(MUST_SET_UP, None)
    request.session[ID_TOKEN] = id_token


def require_second_factor(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: lead who must set up a second factor to where it is done, from every page but the log-out."""

    def guarded(request: HttpRequest) -> HttpResponse:
        if request.session.get(MUST_SET_UP):
            allowed = {reverse("second_factor_set_up"), reverse("logout")}
            if request.path not in allowed:
                return redirect("second_factor_set_up")
        return get_response(request)

    return guarded
