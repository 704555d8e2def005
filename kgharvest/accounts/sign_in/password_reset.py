"""Password reset by email. Neither the response nor its timing reveals whether an account exists."""

import hashlib
from collections.abc import Callable
from threading import Thread
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.forms import PasswordResetForm
from django.db import connection
from django.urls import get_script_prefix, set_script_prefix
from django.utils import timezone

from kgharvest.accounts.throttle import count_attempt


def send_link(address: str) -> None:
    """Email a reset link to all accounts with this email address, in a new thread.

    The response does not wait for the thread, which takes longer if an account exists.
    """
    prefix = get_script_prefix()

    def send() -> None:
        set_script_prefix(prefix)  # thread-local
        try:
            _send_link(address)
        finally:
            connection.close()

    in_background(send)


def in_background(call: Callable[[], None]) -> None:
    Thread(target=call, name="password-reset").start()


def _send_link(address: str) -> None:
    most, _ = settings.LIMITS["reset_mails"]
    who = hashlib.sha256(address.strip().casefold().encode()).hexdigest()  # email addresses are not stored
    form = PasswordResetForm({"email": address})
    if count_attempt("reset_mails", who, timezone.now()) > most or not form.is_valid():
        return
    origin = urlsplit(settings.ORIGIN)
    form.save(
        domain_override=origin.netloc,
        use_https=origin.scheme == "https",
        subject_template_name="registration/password_reset_subject.txt",
        email_template_name="registration/password_reset_email.txt",
    )
