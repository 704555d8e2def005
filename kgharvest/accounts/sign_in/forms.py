"""Forms of second factors."""

from __future__ import annotations

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone

from kgharvest.accounts.throttle import count_attempt, is_exhausted

DIGITS = {"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false", "autofocus": True}


class CodeForm(forms.Form):
    """Second step of a login."""

    code = forms.CharField(
        max_length=40,
        help_text="Six digits from your authenticator app, or one of your recovery codes.",
        widget=forms.TextInput(attrs=DIGITS),
    )


class PasswordForm(forms.Form):
    """Password confirmation: an open session alone must not change how its owner logs in.

    The password may be tried as often as when it is changed (`old_passwords`).
    """

    password = forms.CharField(
        label="Your password",
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, user: AbstractBaseUser, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.user = user

    def clean_password(self) -> str:
        who, now = str(self.user.pk), timezone.now()
        if is_exhausted("old_passwords", who, now):
            raise forms.ValidationError("A wrong password was tried too often; wait a quarter of an hour.")
        if not self.user.check_password(self.cleaned_data["password"]):
            count_attempt("old_passwords", who, now)
            raise forms.ValidationError("This is not your password.")
        return self.cleaned_data["password"]


class SetUpForm(PasswordForm):
    code = forms.CharField(
        label="Code that the app shows",
        max_length=10,
        widget=forms.TextInput(attrs={**DIGITS, "inputmode": "numeric"}),
    )
    field_order = ["code", "password"]
