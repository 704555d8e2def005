"""Account page, two-factor authentication, and login at an OpenID provider."""

from urllib.parse import urlsplit

import pyotp
import segno
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from kgharvest.accounts.sign_in import second_factor
from kgharvest.accounts.throttle import TooManyAttempts, count_attempt, is_exhausted, remember_device
from kgharvest.errors import DomainError

# Session keys
NEW_SECRET = "second_factor_new_secret"  # noqa: S105 - of the app being set up
EXPECTED = "openid_expected"
MAY_LINK = "openid_may_link_until"  # seconds since 1970

LINK_TIMEOUT_S = 300  # maximum time between the password and the redirect to the provider


DIGITS = {"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false", "autofocus": True}


class CodeForm(forms.Form):
    code = forms.CharField(
        max_length=40,
        help_text="Six digits from your authenticator app, or a recovery code.",
        widget=forms.TextInput(attrs=DIGITS),
    )


class PasswordForm(forms.Form):
    """Password confirmation. It prevents people with access to an open session from changing how the user logs in.

    Attempts count towards the limit `old_passwords`, as on the password change page.
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
            raise forms.ValidationError("Too many wrong passwords. Wait 15 minutes.")
        if not self.user.check_password(self.cleaned_data["password"]):
            count_attempt("old_passwords", who, now)
            raise forms.ValidationError("Wrong password.")
        return self.cleaned_data["password"]


class SetUpForm(PasswordForm):
    code = forms.CharField(
        label="Authentication code",
        max_length=10,
        widget=forms.TextInput(attrs={**DIGITS, "inputmode": "numeric"}),
    )
    field_order = ["code", "password"]


@login_required
@require_safe
def account(request: HttpRequest) -> HttpResponse:
    factor = getattr(request.user, "second_factor", None)
    context = {
        "factor": factor,
        "n_recovery_codes": factor.recovery_codes.filter(used_at=None).count() if factor else 0,
        "is_required": second_factor.is_required(request.user),
        "has_password": request.user.has_usable_password(),
        "provider": settings.OPENID and settings.OPENID["name"],
        "identities": request.user.openid_identities.order_by("pk"),
        "may_link": _may_link(request),
    }
    return render(request, "kgharvest/accounts/sign_in/account.html", context)


# Second factor


@sensitive_post_parameters()
def second_factor_code(request: HttpRequest) -> HttpResponse:
    """Ask for a code after a correct password."""
    now = timezone.now()
    login = second_factor.pending_login(request, now)
    if login is None:
        messages.error(request, "The login timed out. Log in again.")
        return redirect("login")
    user, address = login
    form = CodeForm(request.POST or None)
    status = 200
    if form.is_valid():
        try:
            second_factor.check_code(user, form.cleaned_data["code"], now)
        except DomainError as refusal:
            form.add_error("code", str(refusal))
            status = 429 if isinstance(refusal, TooManyAttempts) else 200
        else:
            second_factor.log_in(request, user)
            response = redirect(address)
            remember_device(request, response, user)
            return response
    return render(request, "kgharvest/accounts/sign_in/second_factor.html", {"form": form}, status=status)


@login_required
@sensitive_post_parameters()
def second_factor_set_up(request: HttpRequest) -> HttpResponse:
    """Show a new secret until the user enters a valid code. Then show the recovery codes once."""
    if not request.user.has_usable_password():
        raise Http404  # two-factor authentication is up to the OpenID provider
    secret = request.session.setdefault(NEW_SECRET, pyotp.random_base32())
    form = SetUpForm(request.user, request.POST or None)
    if form.is_valid():
        try:
            codes = second_factor.set_up(request.user, secret, form.cleaned_data["code"], timezone.now())
        except DomainError as refusal:
            form.add_error("code", str(refusal))
        else:
            for key in (NEW_SECRET, second_factor.MUST_SET_UP):
                request.session.pop(key, None)
            request.session.cycle_key()
            return render(request, "kgharvest/accounts/sign_in/recovery_codes.html", {"codes": codes})
    issuer = f"kgharvest at {urlsplit(settings.ORIGIN).hostname}"
    address = pyotp.TOTP(secret).provisioning_uri(name=request.user.get_username(), issuer_name=issuer)
    context = {
        "form": form,
        "qr_code": segno.make(address, error="m").svg_data_uri(scale=5, border=4, light="white"),
        "address": address,
        "secret": " ".join(secret[start : start + 4] for start in range(0, len(secret), 4)),
        "is_required": request.session.get(second_factor.MUST_SET_UP, False),
    }
    return render(request, "kgharvest/accounts/sign_in/set_up.html", context)


@login_required
@sensitive_post_parameters()
def recovery_codes(request: HttpRequest) -> HttpResponse:
    """Replace the recovery codes after password confirmation."""
    if not second_factor.has_second_factor(request.user):
        raise Http404
    form = PasswordForm(request.user, request.POST or None)
    if form.is_valid():
        codes = second_factor.replace_recovery_codes(request.user)
        return render(request, "kgharvest/accounts/sign_in/recovery_codes.html", {"codes": codes})
    context = {"form": form, "title": "Create new recovery codes", "effect": "Your current codes become invalid."}
    return render(request, "kgharvest/accounts/sign_in/confirm.html", context)


@login_required
@sensitive_post_parameters()
def second_factor_remove(request: HttpRequest) -> HttpResponse:
    if not second_factor.has_second_factor(request.user) or second_factor.is_required(request.user):
        raise Http404
    form = PasswordForm(request.user, request.POST or None)
    if form.is_valid():
        second_factor.remove(request.user, request.user)
        messages.success(request, "Two-factor authentication removed. You now log in with your password only.")
        return redirect("account")
    effect = "You will log in with your password only."
    context = {"form": form, "title": "Remove two-factor authentication", "effect": effect}
    return render(request, "kgharvest/accounts/sign_in/confirm.html", context)


# OpenID providers


@require_safe
def openid_begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider. `?link=1` links an identity to a user who has just confirmed the password."""
    from kgharvest.accounts.sign_in import openid_connect  # imports Authlib

    _check_provider()
    linking_user = None
    if "link" in request.GET and request.user.is_authenticated:
        if not _may_link(request):
            return redirect("openid_link")
        del request.session[MAY_LINK]
        linking_user = request.user.pk
    try:
        address, expected = openid_connect.begin(settings.ORIGIN + reverse("openid_callback"))
    except openid_connect.LoginRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("login")
    request.session[EXPECTED] = {**expected, "next": request.GET.get("next", ""), "links": linking_user}
    return redirect(address)


@require_safe
def openid_callback(request: HttpRequest) -> HttpResponse:
    """Handle the provider's response.

    The response is accepted only once, and only in the browser that started the login.
    """
    from kgharvest.accounts.sign_in import openid_connect  # imports Authlib

    _check_provider()
    expected = request.session.pop(EXPECTED, {})
    linking_user = expected.get("links")
    try:
        callback = settings.ORIGIN + reverse("openid_callback")
        claims, id_token = openid_connect.finish(expected, request.GET.dict(), callback)
        if linking_user is not None:
            if request.user.pk != linking_user:
                raise openid_connect.LoginRefused("Another user logged in with this browser. Log in again.")
            openid_connect.link(request.user, claims)
            messages.success(request, f"Account linked. You can now log in with {settings.OPENID['name']}.")
            return redirect("account")
        user = openid_connect.account_of(claims, timezone.now())
        openid_connect.set_group_roles(user, claims)
    except openid_connect.LoginRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("account" if linking_user else "login")
    second_factor.log_in(request, user, id_token)
    is_local = url_has_allowed_host_and_scheme(expected["next"], {request.get_host()}, request.is_secure())
    return redirect(expected["next"] if is_local else "home")


@login_required
@sensitive_post_parameters()
def openid_link(request: HttpRequest) -> HttpResponse:
    """Ask for the password before linking an identity: an open session or a link from another site is not enough.

    The account page then shows a link to the provider, because the CSP forbids form redirects to another site.
    """
    _check_provider()
    if not request.user.has_usable_password():
        raise Http404
    form = PasswordForm(request.user, request.POST or None)
    if form.is_valid():
        request.session[MAY_LINK] = timezone.now().timestamp() + LINK_TIMEOUT_S
        return redirect("account")
    effect = f"You will also be able to log in with your account at {settings.OPENID['name']}."
    context = {"form": form, "title": "Link your account", "effect": effect}
    return render(request, "kgharvest/accounts/sign_in/confirm.html", context)


def _may_link(request: HttpRequest) -> bool:
    return timezone.now().timestamp() < request.session.get(MAY_LINK, 0)


@login_required
@require_POST
def openid_unlink(request: HttpRequest, pk: int) -> HttpResponse:
    from kgharvest.accounts.sign_in import openid_connect  # imports Authlib

    identity = get_object_or_404(request.user.openid_identities, pk=pk)
    try:
        openid_connect.unlink(request.user, identity)
        messages.success(request, "Account unlinked. It can no longer be used to log in.")
    except openid_connect.LoginRefused as refusal:
        messages.error(request, str(refusal))
    return redirect("account")


def _check_provider() -> None:
    if not settings.OPENID:
        raise Http404
