"""Logging in and changing a password, both limited."""

from __future__ import annotations

import logging

from django.contrib.auth.views import LoginView, PasswordChangeView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from kgharvest.access import client_ip
from kgharvest.accounts.throttle import count_attempt, is_exhausted, network_of

logger = logging.getLogger(__name__)


def too_many(request: HttpRequest) -> HttpResponse:
    return render(request, "registration/locked_out.html", status=429)


class Login(LoginView):
    """Wrong passwords are limited by address, whatever the names; django-axes limits them by name and address.

    The log has a line for each, by which fail2ban can close the door; no names, in whose place people type passwords.
    """

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        network = network_of(request)
        if network and is_exhausted("wrong_passwords", network, timezone.now()):
            return too_many(request)
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form) -> HttpResponse:
        network = network_of(self.request)
        if network and form.non_field_errors():  # not for a field that was left empty
            count_attempt("wrong_passwords", network, timezone.now())
        logger.warning("failed login from %s", client_ip(self.request))
        return super().form_invalid(form)


class PasswordChange(PasswordChangeView):
    """Whoever sits down at an open session must not guess the old password."""

    def post(self, request: HttpRequest, *args, **kwargs) -> HttpResponse:
        if is_exhausted("old_passwords", str(request.user.pk), timezone.now()):
            return too_many(request)
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form) -> HttpResponse:
        if "old_password" in form.errors:
            count_attempt("old_passwords", str(self.request.user.pk), timezone.now())
        return super().form_invalid(form)
