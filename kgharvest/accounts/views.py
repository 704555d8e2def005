"""Rate-limited pages for login, logout, passwords, and API tokens."""

import logging
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import views as auth
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.views.decorators.http import require_POST

from kgharvest.access import client_ip
from kgharvest.accounts.sign_in import openid_connect, password_reset, sessions
from kgharvest.accounts.sign_in.password_attempts import (
    LoginForm,
    count_right_password,
    count_wrong_password,
    remember_device,
)
from kgharvest.accounts.throttle import TooManyAttempts, count_attempt, is_exhausted, network_of
from kgharvest.accounts.tokens import LONGEST_DAYS, NewToken, Scope, create_token, revoke_token
from kgharvest.bulk.pagination import page_of
from kgharvest.models import Project
from kgharvest.pages.refusals import refusal_in_form

logger = logging.getLogger(__name__)


def too_many(request: HttpRequest) -> HttpResponse:
    return render(request, "registration/locked_out.html", status=429)


def _check_local_login() -> None:
    if not settings.LOCAL_LOGIN:
        raise PermissionDenied(f"Password login is disabled. Log in with {settings.OPENID['name']}.")


class Login(auth.LoginView):
    """Login page. Logs each failure for fail2ban, without the name, as people type passwords into that field."""

    authentication_form = LoginForm

    def get_context_data(self, **kwargs) -> dict[str, Any]:
        return {
            **super().get_context_data(**kwargs),
            "is_local": settings.LOCAL_LOGIN,
            "provider": settings.OPENID and settings.OPENID["name"],
        }

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        _check_local_login()
        try:
            return super().post(request, *args, **kwargs)
        except TooManyAttempts:
            _log_failure(request)
            return too_many(request)

    def form_valid(self, form) -> HttpResponse:
        # get_success_url allows no redirect to another site.
        address, user = self.get_success_url(), form.get_user()
        count_right_password(self.request, user)
        if sessions.log_in_with_password(self.request, user, address, timezone.now()):
            return redirect("second_factor")
        response = redirect(address)
        remember_device(self.request, response, user)
        return response

    def form_invalid(self, form) -> HttpResponse:
        if form.non_field_errors():  # not for empty fields
            count_wrong_password(self.request, timezone.now())
        _log_failure(self.request)
        return super().form_invalid(form)


def _log_failure(request: HttpRequest) -> None:
    logger.warning("failed login from %s", client_ip(request))


class Logout(auth.LogoutView):
    """Log out; show a link that ends the session at the OpenID provider, if any."""

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        id_token = request.session.get(sessions.ID_TOKEN)
        response = super().post(request, *args, **kwargs)
        if not id_token or not settings.OPENID:
            return response
        address = openid_connect.logout_address(id_token, settings.ORIGIN + reverse("login"))
        context = {"provider": settings.OPENID["name"], "logout_address": address}
        return render(request, "registration/logged_out.html", context)


class PasswordChange(auth.PasswordChangeView):
    """Password change. Wrong old passwords are limited, so that an open session does not allow guessing it."""

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        if is_exhausted("old_passwords", str(request.user.pk), timezone.now()):
            return too_many(request)
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form) -> HttpResponse:
        if "old_password" in form.errors:
            count_attempt("old_passwords", str(self.request.user.pk), timezone.now())
        return super().form_invalid(form)


class PasswordReset(auth.PasswordResetView):
    """Password reset by email. Response and timing are the same for all email addresses."""

    success_url = reverse_lazy("password_reset_done")

    def get_context_data(self, **kwargs) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "has_mail": bool(settings.EMAIL_URL), "contact": settings.CONTACT}

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        _check_local_login()
        network, now = network_of(request), timezone.now()
        if network and count_attempt("reset_requests", network, now) > settings.LIMITS["reset_requests"][0]:
            return too_many(request)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form) -> HttpResponse:
        if settings.EMAIL_URL:
            password_reset.send_link(form.cleaned_data["email"])
        return redirect(self.success_url)


class PasswordResetConfirm(auth.PasswordResetConfirmView):
    """Password reset page. Remembers the device, so login works even if other people used up the attempts."""

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
        help_text="Only project that the token can access.",
    )

    def __init__(self, user, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        projects = Project.objects.visible_to(user)
        self.fields["project"].queryset = projects
        if not projects.exists():
            del self.fields["project"]


@login_required
def token_list(request: HttpRequest) -> HttpResponse:
    """List the user's tokens and create new ones. A secret is shown only in the response that creates it."""
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
    revoke_token(token, timezone.now())
    messages.success(request, f"Token {token.name} revoked.")
    return redirect("kgharvest:token_list")
