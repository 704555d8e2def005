"""Rate-limited pages for login, logout, passwords, and API tokens."""

import logging
from collections.abc import Callable
from datetime import datetime
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import forms as auth_forms
from django.contrib.auth import views as auth
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.decorators import login_required
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.core.exceptions import PermissionDenied
from django.core.mail import send_mail
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import get_script_prefix, reverse, reverse_lazy, set_script_prefix
from django.utils import timezone
from django.utils.http import urlsafe_base64_encode
from django.views.decorators.http import require_POST

from kgharvest.access import client_ip
from kgharvest.accounts.sign_in import second_factor
from kgharvest.accounts.throttle import (
    LoginForm,
    TooManyAttempts,
    count_attempt,
    count_right_password,
    is_exhausted,
    network_of,
    remember_device,
)
from kgharvest.accounts.tokens import LONGEST_DAYS, NewToken, Scope, create_token, revoke_token, revoke_tokens
from kgharvest.audit.tables import sha256
from kgharvest.bulk.pagination import page_of
from kgharvest.models import Project
from kgharvest.pages.refusals import refusal_in_form

logger = logging.getLogger(__name__)

WELCOME_TIMEOUT_S = 7 * 24 * 3600  # number of seconds for which the link to a new account is valid
FAILED_LOGIN = "failed login from %s"  # read by fail2ban


def too_many(request: HttpRequest) -> HttpResponse:
    return render(request, "registration/locked_out.html", status=429)


def check_local_login() -> None:
    if not settings.LOCAL_LOGIN:
        raise PermissionDenied(f"Password login is disabled. Log in with {settings.OPENID['name']}.")


class Login(auth.LoginView):
    """Login page. Logs each failure for fail2ban, without the name, because people type passwords into that field."""

    authentication_form = LoginForm

    def get_context_data(self, **kwargs) -> dict[str, Any]:
        return {
            **super().get_context_data(**kwargs),
            "is_local": settings.LOCAL_LOGIN,
            "provider": settings.OPENID and settings.OPENID["name"],
        }

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        check_local_login()
        try:
            return super().post(request, *args, **kwargs)
        except TooManyAttempts:
            logger.warning(FAILED_LOGIN, client_ip(request))
            return too_many(request)

    def form_valid(self, form) -> HttpResponse:
        # get_success_url does not allow redirects to other sites.
        address, user = self.get_success_url(), form.get_user()
        count_right_password(self.request, user)
        if second_factor.log_in_with_password(self.request, user, address, timezone.now()):
            return redirect("second_factor")
        response = redirect(address)
        remember_device(self.request, response, user)
        return response

    def form_invalid(self, form) -> HttpResponse:
        network = network_of(self.request)
        if network and form.non_field_errors():  # wrong password or unknown name, not an empty field
            count_attempt("wrong_passwords", network, timezone.now())
        logger.warning(FAILED_LOGIN, client_ip(self.request))
        return super().form_invalid(form)


class Logout(auth.LogoutView):
    """Log out. If the user logged in at an OpenID provider, show a link that ends the session there."""

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        id_token = request.session.get(second_factor.ID_TOKEN)
        response = super().post(request, *args, **kwargs)
        if not id_token or not settings.OPENID:
            return response
        from kgharvest.accounts.sign_in import openid_connect  # imports Authlib

        address = openid_connect.logout_address(id_token, settings.ORIGIN + reverse("login"))
        context = {"provider": settings.OPENID["name"], "logout_address": address}
        return render(request, "registration/logged_out.html", context)


class TokenRevocation(forms.Form):
    """Part of a password form that offers to revoke the user's API tokens. Subclasses also inherit a form with `user`.

    Tokens keep working after a password change, which does not help a user whose tokens were stolen.
    """

    revoke_tokens = forms.BooleanField(
        label="Revoke API tokens",
        required=False,
        initial=True,
        help_text="All your API tokens stop working immediately.",
    )

    def __init__(self, user, *args: Any, **kwargs: Any):
        super().__init__(user, *args, **kwargs)
        if user is None or not user.api_tokens.valid(timezone.now()).exists():
            del self.fields["revoke_tokens"]

    @transaction.atomic
    def save(self, commit: bool = True):
        user = super().save(commit)
        if self.cleaned_data.get("revoke_tokens"):
            revoke_tokens(user.api_tokens.all(), timezone.now(), user)
        return user


class PasswordChangeForm(TokenRevocation, auth_forms.PasswordChangeForm):
    field_order = ["old_password", "new_password1", "new_password2", "revoke_tokens"]


class SetPasswordForm(TokenRevocation, auth_forms.SetPasswordForm):
    field_order = ["new_password1", "new_password2", "revoke_tokens"]


class PasswordChange(auth.PasswordChangeView):
    """Password change. Attempts are limited, so that an open session cannot be used to guess the old password."""

    form_class = PasswordChangeForm

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        if is_exhausted("old_passwords", str(request.user.pk), timezone.now()):
            return too_many(request)
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form) -> HttpResponse:
        if "old_password" in form.errors:
            count_attempt("old_passwords", str(self.request.user.pk), timezone.now())
        return super().form_invalid(form)


class PasswordReset(auth.PasswordResetView):
    """Password reset by email. Neither the response nor its timing reveals whether an account exists.

    The email is sent in a new thread. Only this thread takes longer if an account exists.
    """

    success_url = reverse_lazy("password_reset_done")

    def get_context_data(self, **kwargs) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "has_mail": bool(settings.EMAIL_URL), "contact": settings.CONTACT}

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        check_local_login()
        network, now = network_of(request), timezone.now()
        if network and count_attempt("reset_requests", network, now) > settings.LIMITS["reset_requests"][0]:
            return too_many(request)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form) -> HttpResponse:
        prefix, origin = get_script_prefix(), urlsplit(settings.ORIGIN)

        def send() -> None:
            set_script_prefix(prefix)  # thread-local
            try:
                most, _ = settings.LIMITS["reset_mails"]
                who = sha256(form.cleaned_data["email"].strip().casefold())  # email addresses are not stored
                if count_attempt("reset_mails", who, timezone.now()) <= most:
                    form.save(
                        domain_override=origin.netloc,
                        use_https=origin.scheme == "https",
                        email_template_name="registration/password_reset_email.txt",
                    )
            finally:
                connection.close()

        if settings.EMAIL_URL:
            in_background(send)
        return redirect(self.success_url)


def in_background(call: Callable[[], None]) -> None:
    Thread(target=call, name="password-reset").start()


class WelcomeTokens(PasswordResetTokenGenerator):
    """Tokens of links that set the first password of an account. Like reset tokens, each works once."""

    key_salt = "kgharvest.accounts.WelcomeTokens"

    def _num_seconds(self, dt: datetime) -> int:
        return super()._num_seconds(dt) * settings.PASSWORD_RESET_TIMEOUT // WELCOME_TIMEOUT_S


welcome_tokens = WelcomeTokens()


def welcome_link(request: HttpRequest, user: AbstractBaseUser) -> str:
    """Return the link with which the owner of a new account sets a password; send it if the account has an address."""
    uid = urlsafe_base64_encode(str(user.pk).encode())
    link = request.build_absolute_uri(reverse("account_welcome", args=[uid, welcome_tokens.make_token(user)]))
    if user.email and settings.EMAIL_URL:
        text = render_to_string("registration/welcome_email.txt", {"user": user, "link": link})
        in_background(lambda: send_mail("Your account for kgharvest", text, None, [user.email]))
    return link


class PasswordResetConfirm(auth.PasswordResetConfirmView):
    """Password reset page.

    Remembers the device, so the user can log in even if other people used up the login attempts.
    """

    form_class = SetPasswordForm

    def form_valid(self, form) -> HttpResponse:
        response = super().form_valid(form)
        remember_device(self.request, response, form.user)
        return response


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="Purpose, for example <code>nightly harvest</code>.")
    scope = forms.ChoiceField(choices=Scope.choices, widget=forms.RadioSelect, initial=Scope.READ)
    days = forms.IntegerField(
        label="Valid for", min_value=1, max_value=LONGEST_DAYS, initial=90, help_text=f"Days, at most {LONGEST_DAYS}."
    )
    project = forms.ModelChoiceField(
        Project.objects.none(),
        required=False,
        empty_label="all your projects",
        help_text="The only project that the token can access.",
    )

    def __init__(self, user, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        projects = Project.objects.visible_to(user)
        self.fields["project"].queryset = projects
        if not projects.exists():
            del self.fields["project"]


@login_required
def token_list(request: HttpRequest) -> HttpResponse:
    """List the user's tokens and create new ones. A secret is shown only in the response that creates the token."""
    form = TokenForm(request.user, request.POST or None)
    new: NewToken | None = None
    if form.is_valid():
        with refusal_in_form(form):
            new = create_token(request.user, **form.cleaned_data, now=timezone.now())
            form = TokenForm(request.user)
    now = timezone.now()
    tokens = page_of(request, request.user.api_tokens.select_related("project"))
    context = {"form": form, "new": new, "page_obj": tokens, "now": now}
    return render(request, "kgharvest/accounts/token_list.html", context)


@login_required
@require_POST
def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(request.user.api_tokens, pk=pk)
    revoke_token(token, timezone.now(), request.user)
    messages.success(request, f"Token {token.name} revoked.")
    return redirect("kgharvest:token_list")
