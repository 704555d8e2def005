"""Forms of second factors."""

from __future__ import annotations

from django import forms
from django.contrib.auth.models import AbstractBaseUser

DIGITS = {"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false", "autofocus": True}


class CodeForm(forms.Form):
    """The second step of a log-in."""

    code = forms.CharField(
        max_length=40,
        help_text="Six digits from your authenticator app, or one of your recovery codes.",
        widget=forms.TextInput(attrs=DIGITS),
    )


class PasswordForm(forms.Form):
    """Asks once more for the password: whoever sits down at an open session must not change how its owner logs in."""

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
        password = self.cleaned_data["password"]
        if not self.user.check_password(password):
            raise forms.ValidationError("This is not your password.")
        return password


class SetUpForm(PasswordForm):
    code = forms.CharField(
        label="Code that the app shows",
        max_length=10,
        widget=forms.TextInput(attrs={**DIGITS, "inputmode": "numeric"}),
    )
    field_order = ["code", "password"]
