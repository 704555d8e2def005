"""Login, and two-factor authentication of local accounts: authenticator app (TOTP, RFC 6238) and recovery codes.

The app and the server derive a code of six digits from a shared secret and the time. The code changes every 30 seconds.
Codes of the previous and next step are also accepted, because clocks differ. No code is accepted twice. Ten single-use
recovery codes replace a lost app. If they are lost, too, the operator can remove the second factor
(`remove_second_factor`).
"""

import base64
import logging
import secrets
from datetime import datetime

import pyotp
from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare, salted_hmac

from kgharvest.accounts.models import Role
from kgharvest.accounts.sign_in.models import RecoveryCode, SecondFactor
from kgharvest.accounts.throttle import check_attempt, forget_attempts
from kgharvest.audit.tables import sha256
from kgharvest.errors import DomainError
from kgharvest.events.recording import record

logger = logging.getLogger(__name__)

STEP_S = 30
N_DIGITS = 6
STEPS_APART = 1  # accepted difference between the clocks of app and server
N_RECOVERY_CODES = 10
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # without characters that look alike
TOO_MANY_CODES = "Too many wrong codes for this account. Wait 15 minutes, then try again."


def is_required(user: AbstractBaseUser) -> bool:
    """Return whether the installation requires a second factor for `user` (settings.SECOND_FACTOR_FOR)."""
    if settings.SECOND_FACTOR_FOR == "owners" and user.memberships.filter(role=Role.OWNER).exists():
        return True
    if settings.SECOND_FACTOR_FOR in {"staff", "owners"}:
        return user.is_staff or user.is_superuser
    return settings.SECOND_FACTOR_FOR == "everybody"


def set_up(user: AbstractBaseUser, secret: str, code: str, now: datetime) -> list[str]:
    """Set or replace the user's authenticator app; return new recovery codes.

    Raises TooManyAttempts, or WrongCode if `code` is not a current code of `secret`.
    """
    check_attempt("second_factors", str(user.pk), now, TOO_MANY_CODES)
    step = _step_of(secret, code, now)
    if step is None:
        raise DomainError("WrongCode", "Wrong code. Check that the clock of the device with the app is correct.")
    with transaction.atomic():
        factor, _ = SecondFactor.objects.update_or_create(
            user=user, defaults={"secret": _cipher().encrypt(secret.encode()).decode(), "last_step": step}
        )
        codes = _new_recovery_codes(factor)
        record("second_factor.set_up", factor, user)
    forget_attempts("second_factors", str(user.pk))
    return codes


def replace_recovery_codes(user: AbstractBaseUser) -> list[str]:
    """Return new recovery codes; earlier codes become invalid."""
    with transaction.atomic():
        factor = SecondFactor.objects.select_for_update().get(user=user)
        codes = _new_recovery_codes(factor)
        record("second_factor.new_recovery_codes", factor, user)
    return codes


@transaction.atomic
def remove(user: AbstractBaseUser, by: AbstractBaseUser | None) -> None:
    """Remove the second factor and its recovery codes, if there are any. by: None for the operator."""
    factor = SecondFactor.objects.select_for_update().filter(user=user).first()
    if factor is not None:
        removed = SecondFactor(pk=factor.pk)  # delete() clears the primary key
        factor.delete()
        record("second_factor.removed", removed, by)


def has_second_factor(user: AbstractBaseUser) -> bool:
    return SecondFactor.objects.filter(user=user).exists()


def check_code(user: AbstractBaseUser, code: str, now: datetime) -> None:
    """Accept and use up `code`, a code from the app or a recovery code. Raises WrongCode or TooManyAttempts.

    If several simultaneous requests contain the same code, only one succeeds.
    """
    check_attempt("second_factors", str(user.pk), now, TOO_MANY_CODES)
    code = "".join(code.split()).lower()
    if len(code) == N_DIGITS:
        factor = SecondFactor.objects.filter(user=user).first()
        secret = factor and _decrypted(factor)
        step = _step_of(secret, code, now) if secret else None
        unused_step = SecondFactor.objects.filter(user=user, last_step__lt=step or 0)
        is_correct = step is not None and bool(unused_step.update(last_step=step))
    else:
        digest = sha256(code.replace("-", ""))
        unused = RecoveryCode.objects.filter(second_factor__user=user, digest=digest, used_at=None)
        is_correct = bool(unused.update(used_at=now))
    if not is_correct:
        raise DomainError("WrongCode", "This code is wrong or was already used. Wait for the next code in the app.")
    forget_attempts("second_factors", str(user.pk))


def _step_of(secret: str, code: str, now: datetime) -> int | None:
    """Return the latest step near `now` that has this code, or None."""
    totp = pyotp.TOTP(secret, interval=STEP_S)
    current = int(now.timestamp()) // STEP_S
    steps = range(current - STEPS_APART, current + STEPS_APART + 1)
    matching = [step for step in steps if constant_time_compare(totp.generate_otp(step), "".join(code.split()))]
    return max(matching, default=None)


def _new_recovery_codes(factor: SecondFactor) -> list[str]:
    """Replace the recovery codes with ten new codes of about 50 bits, such as "abcde-fghjk", and return them."""
    codes = ["".join(secrets.choice(ALPHABET) for _ in range(10)) for _ in range(N_RECOVERY_CODES)]
    factor.recovery_codes.all().delete()
    RecoveryCode.objects.bulk_create(RecoveryCode(second_factor=factor, digest=sha256(code)) for code in codes)
    return [f"{code[:5]}-{code[5:]}" for code in codes]


def _cipher() -> Fernet:
    key = salted_hmac("kgharvest.accounts.sign_in.second_factor", "secrets of apps", algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(key))


def _decrypted(factor: SecondFactor) -> str | None:
    """Return the secret, or None if SECRET_KEY has changed. Recovery codes remain valid."""
    try:
        return _cipher().decrypt(factor.secret.encode()).decode()
    except InvalidToken:
        logger.error("Cannot decrypt the secret of %s: SECRET_KEY has changed since it was stored.", factor)
        return None


# Session login by password and second factor, or by an OpenID provider

CODE_TIMEOUT_S = 300  # maximum time between the password and the second factor
BACKEND = "django.contrib.auth.backends.ModelBackend"
# Session keys
AWAITED = "second_factor_awaited"  # a login with a correct password and a pending code
MUST_SET_UP = "second_factor_must_be_set_up"
ID_TOKEN = "openid_id_token"  # noqa: S105 - required to log out at the provider


def log_in_with_password(request: HttpRequest, user: AbstractBaseUser, address: str, now: datetime) -> bool:
    """Log in `user` after a correct password. Return True, without logging in, if a code is required first."""
    if has_second_factor(user):
        request.session[AWAITED] = {
            "user": user.pk,
            "hash": user.get_session_auth_hash(),
            "address": address,
            "until": now.timestamp() + CODE_TIMEOUT_S,
        }
        return True
    auth.login(request, user, backend=BACKEND)
    if is_required(user):
        request.session[MUST_SET_UP] = True
    return False


def pending_login(request: HttpRequest, now: datetime) -> tuple[AbstractBaseUser, str] | None:
    """Return the account that must still enter a code, and the URL to open after the login.

    Returns None if no code is pending, after a timeout, or if the password has changed or the account is closed.
    """
    login = request.session.get(AWAITED)
    if not login or now.timestamp() > login["until"]:
        return None
    user = auth.get_user_model().objects.filter(pk=login["user"], is_active=True).first()
    if user is None or not constant_time_compare(login["hash"], user.get_session_auth_hash()):
        return None
    return user, login["address"]


def log_in(request: HttpRequest, user: AbstractBaseUser, id_token: str = "") -> None:
    """Log in `user` after a correct password and code, or after login at the provider. The session gets a new key.

    id_token: ID token from the provider. With an ID token, no second factor is required, because the provider is
    responsible for it.
    """
    request.session.pop(AWAITED, None)
    auth.login(request, user, backend=BACKEND)
    if id_token:
        request.session.pop(MUST_SET_UP, None)
        request.session[ID_TOKEN] = id_token
