"""Pages of the own account, of the second factor, and of login at an OpenID provider."""

from __future__ import annotations

import pyotp
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from kgharvest.accounts.sign_in import identities, openid_connect, second_factor, sessions
from kgharvest.accounts.sign_in.forms import CodeForm, PasswordForm, SetUpForm
from kgharvest.accounts.sign_in.password_attempts import remember_device
from kgharvest.accounts.throttle import TooManyAttempts
from kgharvest.errors import DomainError

# Keys of sessions.
NEW_SECRET = "second_factor_new_secret"  # noqa: S105 - of the app that is being set up
EXPECTED = "openid_expected"
MAY_LINK = "openid_may_link_until"  # seconds since 1970

LINKS_S = 300  # between the password and the redirect to the provider


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
    """Ask for a code after the right password."""
    now = timezone.now()
    awaited = sessions.awaited(request, now)
    if awaited is None:
        messages.error(request, "The log-in took too long; begin again.")
        return redirect("login")
    user, address = awaited
    form = CodeForm(request.POST or None)
    status = 200
    if form.is_valid():
        try:
            second_factor.check_code(user, form.cleaned_data["code"], now)
        except DomainError as refusal:
            form.add_error("code", str(refusal))
            status = 429 if isinstance(refusal, TooManyAttempts) else 200
        else:
            sessions.log_in_with_code(request, user)
            response = redirect(address)
            remember_device(request, response, user)
            return response
    return render(request, "kgharvest/accounts/sign_in/second_factor.html", {"form": form}, status=status)


@login_required
@sensitive_post_parameters()
def second_factor_set_up(request: HttpRequest) -> HttpResponse:
    """Show a new secret until one of its codes is entered, then the recovery codes once."""
    if not request.user.has_usable_password():
        raise Http404  # the OpenID provider has the second factor
    secret = request.session.setdefault(NEW_SECRET, pyotp.random_base32())
    form = SetUpForm(request.user, request.POST or None)
    if form.is_valid():
        try:
            codes = second_factor.set_up(request.user, secret, form.cleaned_data["code"], timezone.now())
        except DomainError as refusal:
            form.add_error("code", str(refusal))
        else:
            for key in (NEW_SECRET, sessions.MUST_SET_UP):
                request.session.pop(key, None)
            request.session.cycle_key()
            return _recovery_codes(request, codes)
    address = second_factor.address_for_apps(secret, request.user)
    context = {
        "form": form,
        "qr_code": second_factor.qr_code(address),
        "address": address,
        "secret": " ".join(secret[start : start + 4] for start in range(0, len(secret), 4)),
        "is_required": request.session.get(sessions.MUST_SET_UP, False),
    }
    return render(request, "kgharvest/accounts/sign_in/set_up.html", context)


@login_required
@sensitive_post_parameters()
def recovery_codes(request: HttpRequest) -> HttpResponse:
    """Create new recovery codes after the password was confirmed."""
    if not second_factor.has_second_factor(request.user):
        raise Http404
    form = PasswordForm(request.user, request.POST or None)
    if form.is_valid():
        return _recovery_codes(request, second_factor.replace_recovery_codes(request.user))
    context = {"form": form, "act": "Make new recovery codes", "what": "Those that you have hold no longer then."}
    return render(request, "kgharvest/accounts/sign_in/confirm.html", context)


@login_required
@sensitive_post_parameters()
def second_factor_remove(request: HttpRequest) -> HttpResponse:
    if not second_factor.has_second_factor(request.user) or second_factor.is_required(request.user):
        raise Http404
    form = PasswordForm(request.user, request.POST or None)
    if form.is_valid():
        second_factor.remove(request.user, request.user)
        messages.success(request, "The second factor is removed: your password alone logs you in.")
        return redirect("account")
    context = {"form": form, "act": "Remove the second factor", "what": "Your password alone logs you in then."}
    return render(request, "kgharvest/accounts/sign_in/confirm.html", context)


def _recovery_codes(request: HttpRequest, codes: list[str]) -> HttpResponse:
    return render(request, "kgharvest/accounts/sign_in/recovery_codes.html", {"codes": codes})


# OpenID providers


@require_safe
def openid_begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider. `?link=1` adds a way to log in for a user who has just confirmed the password."""
    _check_provider()
    links = None
    if "link" in request.GET and request.user.is_authenticated:
        if not _may_link(request):
            return redirect("openid_link")
        del request.session[MAY_LINK]
        links = request.user.pk
    try:
        address, expected = openid_connect.begin(_callback())
    except openid_connect.LoginRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("login")
    request.session[EXPECTED] = {**expected, "next": request.GET.get("next", ""), "links": links}
    return redirect(address)


@require_safe
def openid_callback(request: HttpRequest) -> HttpResponse:
    """Accept the provider's answer, which is valid once and in the browser that asked."""
    _check_provider()
    expected = request.session.pop(EXPECTED, {})
    links = expected.get("links")
    try:
        claims, id_token = openid_connect.finish(expected, request.GET.dict(), _callback())
        if links is not None:
            if request.user.pk != links:
                raise openid_connect.LoginRefused("Somebody else has logged in here meanwhile; begin again.")
            identities.link(request.user, claims)
            messages.success(request, f"You can log in with {settings.OPENID['name']} from now on.")
            return redirect("account")
        user = identities.account_of(claims, timezone.now())
        identities.set_group_roles(user, claims)
    except openid_connect.LoginRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("account" if links else "login")
    sessions.log_in_at_provider(request, user, id_token)
    is_ours = url_has_allowed_host_and_scheme(expected["next"], {request.get_host()}, request.is_secure())
    return redirect(expected["next"] if is_ours else "home")


@login_required
@sensitive_post_parameters()
def openid_link(request: HttpRequest) -> HttpResponse:
    """Ask for the password before a second way to log in is added, so that no open session or foreign link adds one.

    The account page then shows a link to the provider: browsers let no form redirect to another site.
    """
    _check_provider()
    if not request.user.has_usable_password():
        raise Http404
    form = PasswordForm(request.user, request.POST or None)
    if form.is_valid():
        request.session[MAY_LINK] = timezone.now().timestamp() + LINKS_S
        return redirect("account")
    name = settings.OPENID["name"]
    context = {"form": form, "act": "Link your account", "what": f"Your account at {name} logs you in then, too."}
    return render(request, "kgharvest/accounts/sign_in/confirm.html", context)


def _may_link(request: HttpRequest) -> bool:
    return timezone.now().timestamp() < request.session.get(MAY_LINK, 0)


@login_required
@require_POST
def openid_unlink(request: HttpRequest, pk: int) -> HttpResponse:
    identity = get_object_or_404(request.user.openid_identities, pk=pk)
    try:
        identities.unlink(request.user, identity)
        messages.success(request, "That account logs in as you no longer.")
    except openid_connect.LoginRefused as refusal:
        messages.error(request, str(refusal))
    return redirect("account")


def _callback() -> str:
    return settings.ORIGIN + reverse("openid_callback")


def _check_provider() -> None:
    if not settings.OPENID:
        raise Http404
