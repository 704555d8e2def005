"""Pages for login, logout, passwords and API tokens. Attempts are limited."""

from __future__ import annotations

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
        raise PermissionDenied(f"People log in with {settings.OPENID['name']} here.")


class Login(auth.LoginView):
    """The log has a line for each failure, by which fail2ban can close the door; no names, in whose place people type
    passwords.
    """

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
        # get_success_url lets nobody be sent to another site.
        address, user = self.get_success_url(), form.get_user()
        count_right_password(self.request, user)
        if sessions.log_in_with_password(self.request, user, address, timezone.now()):
            return redirect("second_factor")
        response = redirect(address)
        remember_device(self.request, response, user)
        return response

    def form_invalid(self, form) -> HttpResponse:
        if form.non_field_errors():  # not for a field that was left empty
            count_wrong_password(self.request, timezone.now())
        _log_failure(self.request)
        return super().form_invalid(form)


def _log_failure(request: HttpRequest) -> None:
    logger.warning("failed login from %s", client_ip(request))


class Logout(auth.LogoutView):
    """Ends the session here; who came from a provider is shown where the one there is ended."""

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        id_token = request.session.get(sessions.ID_TOKEN)
        response = super().post(request, *args, **kwargs)
        if not id_token or not settings.OPENID:
            return response
        address = openid_connect.logout_address(id_token, settings.ORIGIN + reverse("login"))
        context = {"provider": settings.OPENID["name"], "logout_address": address}
        return render(request, "registration/logged_out.html", context)


class PasswordChange(auth.PasswordChangeView):
    """Whoever sits down at an open session must not guess the old password."""

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        if is_exhausted("old_passwords", str(request.user.pk), timezone.now()):
            return too_many(request)
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form) -> HttpResponse:
        if "old_password" in form.errors:
            count_attempt("old_passwords", str(self.request.user.pk), timezone.now())
        return super().form_invalid(form)


class PasswordReset(auth.PasswordResetView):
    """The same answer for every mail address, at the same moment. Without mail: whom to ask."""

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
    """Whoever has just set a password by mail may log in here, though others have guessed too often."""

    def form_valid(self, form) -> HttpResponse:
        response = super().form_valid(form)
        remember_device(self.request, response, form.user)
        return response


# Tokens


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="What it is for, such as <code>nightly harvest</code>.")
    scope = forms.ChoiceField(choices=Scope.choices, widget=forms.RadioSelect, initial=Scope.READ)
    days = forms.IntegerField(
        label="Valid for", min_value=1, max_value=LONGEST_DAYS, initial=90, help_text=f"Days, at most {LONGEST_DAYS}."
    )
    project = forms.ModelChoiceField(
        Project.objects.none(), required=False, empty_label="all of yours", help_text="The only one that it reaches."
    )

    def __init__(self, user, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        projects = Project.objects.visible_to(user)
        self.fields["project"].queryset = projects
        if not projects.exists():
            del self.fields["project"]


@login_required
def token_list(request: HttpRequest) -> HttpResponse:
    """The tokens, and the form that makes one; the new one is shown in the answer to the form and never again."""
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
    messages.success(request, f"The token {token.name} is revoked; it opens nothing any more.")
    return redirect("kgharvest:token_list")
