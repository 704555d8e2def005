"""Session login by password and second factor, or by an OpenID provider."""

from datetime import datetime

from django.contrib import auth
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from kgharvest.accounts.sign_in import second_factor

CODE_TIMEOUT_S = 300  # between the password and the second factor
BACKEND = "django.contrib.auth.backends.ModelBackend"
# Session keys
AWAITED = "second_factor_awaited"  # a login with a correct password and a pending code
MUST_SET_UP = "second_factor_must_be_set_up"
ID_TOKEN = "openid_id_token"  # noqa: S105 - required to log out at the provider


def log_in_with_password(request: HttpRequest, user: AbstractBaseUser, address: str, now: datetime) -> bool:
    """Log in `user` after a correct password. Return True, without logging in, if a code is required first."""
    if second_factor.has_second_factor(user):
        request.session[AWAITED] = {
            "user": user.pk,
            "hash": user.get_session_auth_hash(),
            "address": address,
            "until": now.timestamp() + CODE_TIMEOUT_S,
        }
        return True
    auth.login(request, user, backend=BACKEND)
    if second_factor.is_required(user):
        request.session[MUST_SET_UP] = True
    return False


def pending_login(request: HttpRequest, now: datetime) -> tuple[AbstractBaseUser, str] | None:
    """Return the account with a pending code, and the URL to open after the login.

    Returns None without a pending code, after a timeout, or if the password has changed or the account is closed.
    """
    login = request.session.get(AWAITED)
    if not login or now.timestamp() > login["until"]:
        return None
    user = auth.get_user_model().objects.filter(pk=login["user"], is_active=True).first()
    if user is None or not constant_time_compare(login["hash"], user.get_session_auth_hash()):
        return None
    return user, login["address"]


def log_in_with_code(request: HttpRequest, user: AbstractBaseUser) -> None:
    """Log in `user` after a correct password and code. The session gets a new key."""
    request.session.pop(AWAITED, None)
    auth.login(request, user, backend=BACKEND)


def log_in_at_provider(request: HttpRequest, user: AbstractBaseUser, id_token: str) -> None:
    """Log in `user`, identified by the provider. No second factor is required here; the provider has its own."""
    request.session.pop(AWAITED, None)
    auth.login(request, user, backend=BACKEND)
    request.session.pop(MUST_SET_UP, None)
    request.session[ID_TOKEN] = id_token
