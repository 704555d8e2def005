"""Pages for inviting people, joining a round, returning from another device, and erasing accounts."""

from datetime import timedelta

import segno
from django import forms
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.views import redirect_to_login
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from annotation.invites import services
from annotation.invites.access import forget_guest, no_access, remember_guest, session_annotator, throttled
from annotation.invites.erasure import erase_account
from annotation.invites.services import BadReturnCode, join_round
from annotation.models import Invite, Round
from annotation.rounds.instructions import instructions_html, markdown_html
from annotation.rounds.services import set_who_can_join
from kgharvest.access import Action, allowed_actions, researcher_required, visible_or_404
from kgharvest.accounts.project_views import find_visible
from kgharvest.accounts.throttle import TooManyAttempts, network_of
from kgharvest.bulk.pagination import page_of
from kgharvest.errors import DomainError, NotFound
from kgharvest.pages.number_format import counted
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import csv_lines
from kgharvest.tables.table import table_of_records

COLUMNS = ("link", "status", "ends", "used", "annotator")
WRONG_LINK = "Invalid link. Check that you copied the complete link."


def managed_round(request: HttpRequest, path: str) -> Round:
    return visible_or_404(request.user, Round.objects.select_related("project").at(path), Action.WORK)


@never_cache
@researcher_required
def round_invites(request: HttpRequest, path: str) -> HttpResponse:
    """Show the join link and who can join, and list and create personal invites.

    Links are secret: only members with edit permission see them.
    """
    round = managed_round(request, path)
    form = InvitesForm(request.POST or None)
    if form.is_valid():
        expires_at = timezone.now() + timedelta(days=form.cleaned_data["days"])
        new_invites = services.make_invites(round, form.cleaned_data["n"], expires_at, request.user)
        n_new = counted(len(new_invites), "invite")
        messages.success(request, f"{n_new} created. Download the CSV file and send one link to each person.")
        return redirect("annotation:round_invites", round.path)
    page, now = page_of(request, round.invites.select_related("annotator").order_by("-pk")), timezone.now()
    join_url = request.build_absolute_uri(reverse("annotation:join", args=[round.join_token]))
    context = {
        "round": round,
        "joining_form": JoiningForm(initial={"who_can_join": round.who_can_join}),
        "join_url": join_url,
        "qr_code": segno.make(join_url, error="m").svg_data_uri(scale=3, border=4, light="white"),
        "may": allowed_actions(request.user, round.project),
        "form": form,
        "page_obj": page,
        "invites": [
            (invite, invite.status(now), request.build_absolute_uri(invite.get_absolute_url())) for invite in page
        ],
        "n_usable": round.invites.usable(now).count(),
    }
    return render(request, "annotation/invites/round_invites.html", context)


@researcher_required
@require_POST
def who_can_join(request: HttpRequest, path: str) -> HttpResponse:
    round, form = managed_round(request, path), JoiningForm(request.POST)
    if form.is_valid():
        with refusal_as_message(request):
            set_who_can_join(round, form.cleaned_data["who_can_join"], request.user)
            messages.success(request, f"{round.get_who_can_join_display()}.")
    return redirect("annotation:round_invites", round.path)


@researcher_required
def invites_revoke(request: HttpRequest, path: str) -> HttpResponse:
    round = managed_round(request, path)
    if request.method == "POST":
        n = services.revoke_invites(round, request.POST.getlist("token"), timezone.now(), request.user)
        messages.success(request, f"{counted(n, 'invite')} revoked.")
    return redirect("annotation:round_invites", round.path)


@never_cache
@researcher_required
def invites_csv(request: HttpRequest, path: str) -> HttpResponse:
    round, now = managed_round(request, path), timezone.now()
    rows = (
        {
            "link": request.build_absolute_uri(invite.get_absolute_url()),
            "status": invite.status(now),
            "ends": invite.expires_at.isoformat(),
            "used": invite.used_at.isoformat() if invite.used_at else "",
            "annotator": invite.annotator.code if invite.annotator else "",
        }
        for invite in round.invites.select_related("annotator").iterator(chunk_size=2000)
    )
    return download(csv_lines(table_of_records(COLUMNS, rows)), f"{round.name}-invites.csv")


@never_cache
@throttled
def join(request: HttpRequest, token: str) -> HttpResponse:
    round = Round.objects.exclude(status=Round.Status.DRAFT).filter(join_token=token).first()
    if round is None:
        return no_access(request, WRONG_LINK, 404)
    needs_account = round.who_can_join == Round.WhoCanJoin.ACCOUNT
    if request.user.is_anonymous and needs_account and not session_annotator(request, round.pk):
        return redirect_to_login(request.path)
    return _enter(request, round)


@never_cache
@throttled
def invite(request: HttpRequest, token: str) -> HttpResponse:
    invites = Invite.objects.exclude(round__status=Round.Status.DRAFT).select_related("round")
    invite = invites.filter(token=token).first()
    if invite is None:
        return no_access(request, WRONG_LINK, 404)
    return _enter(request, invite.round, invite)


def _enter(request: HttpRequest, round: Round, invite: Invite | None = None) -> HttpResponse:
    existing = session_annotator(request, round.pk)
    # On a shared device, an unused invite can be for a different person than the guest of this browser.
    is_unused = invite is not None and invite.annotator_id is None
    if existing and (existing.user_id or not is_unused):
        return redirect("annotation:judge", round.pk)
    try:
        services.check_can_join(round, None if request.user.is_anonymous else request.user, invite is not None)
    except DomainError as refusal:
        return no_access(request, str(refusal), 409)
    if invite is not None and (invite_status := invite.status(timezone.now())) in services.NOT_USABLE:
        return no_access(request, services.NOT_USABLE[invite_status], 410)
    asks_name = request.user.is_anonymous and invite is None
    form = JoinForm(request.POST if request.method == "POST" else None, asks_name=asks_name)
    if form.is_valid():
        try:
            user = None if request.user.is_anonymous else request.user
            annotator = join_round(round, user, **form.cleaned_data, invite=invite, address=network_of(request))
            if not annotator.user_id:
                remember_guest(request, annotator)
            return redirect("annotation:judge", round.pk)
        except TooManyAttempts as refusal:
            return no_access(request, str(refusal), 429)
        except DomainError as refusal:
            form.add_error(None, str(refusal))
    context = {"round": round, "form": form, "asks_name": asks_name, "existing": existing}
    context |= {"instructions": instructions_html(round), "consent": markdown_html(round.consent)}
    return render(request, "annotation/invites/join.html", context)


@never_cache
@sensitive_variables("code")
def device(request: HttpRequest, round_id: int) -> HttpResponse:
    """Show a guest's return link and code. A POST signs the guest out of this browser."""
    annotator = session_annotator(request, round_id)
    if annotator is not None and request.method == "POST":
        forget_guest(request, annotator)
    if annotator is None or request.method == "POST":
        return redirect("annotation:return_by_code")
    code = None if annotator.user_id else services.return_code(annotator)
    link = code and request.build_absolute_uri(reverse("annotation:return_by_code", args=[code]))
    return render(request, "annotation/invites/device.html", {"annotator": annotator, "code": code, "link": link})


@never_cache
@throttled
@sensitive_variables("code")
def return_by_code(request: HttpRequest, code: str = "") -> HttpResponse:
    """Let a guest continue with a return code.

    A return link shows a confirmation page first, so that a GET changes nothing.
    """
    form = ReturnForm(request.POST if request.method == "POST" else None, initial={"code": code})
    code = form.cleaned_data["code"] if form.is_valid() else code
    page = "annotation/invites/return_by_code.html"
    if not code:
        return render(request, page, {"form": form, "next": request.GET.get("next", "")})
    try:
        annotator = services.find_by_return_code(code)
    except BadReturnCode as refusal:
        form = ReturnForm({"code": code})
        form.add_error("code", str(refusal))
        return render(request, page, {"form": form}, status=404)
    if request.method == "POST":
        remember_guest(request, annotator)
        return redirect("annotation:judge", annotator.round_id)
    return render(request, page, {"form": form, "annotator": annotator})


@researcher_required
def person_erase(request: HttpRequest, slug: str) -> HttpResponse:
    """Let an owner erase the account of a member, or of an annotator in rounds of the project."""
    project = find_visible(request, slug, Action.MANAGE)
    form = ErasePersonForm(request.POST or None)
    if form.is_valid():
        name = form.cleaned_data["username"]
        people = get_user_model().objects.filter(
            Q(memberships__project=project) | Q(annotators__round__project=project)
        )
        person = people.filter(username=name).distinct().first()
        with refusal_in_form(form, "username"):
            if person is None:
                raise NotFound(f"No account {name!r:.60} in this project. Check the spelling of the username.")
            n_rounds = erase_account(person, request.user)
            messages.success(request, f"Account erased. Its judgments in {counted(n_rounds, 'round')} are kept.")
            return redirect(project)
    return render(request, "annotation/invites/person_erase.html", {"project": project, "form": form})


class JoiningForm(forms.Form):
    who_can_join = Round._meta.get_field("who_can_join").formfield(widget=forms.RadioSelect)


class InvitesForm(forms.Form):
    n = forms.IntegerField(label="Number of links", min_value=1, max_value=1000, initial=10)
    days = forms.IntegerField(label="Valid for (days)", min_value=1, max_value=366, initial=30)


class JoinForm(forms.Form):
    """Join form. Guests without an invite must enter a name."""

    name = forms.CharField(
        label="Your name or code",
        max_length=100,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "nickname", "autocapitalize": "off", "spellcheck": "false"}),
        help_text="Follow the instructions of the person who sent you the link. Only the researchers see the name.",
    )
    agrees = forms.BooleanField(label="I have read this and agree", required=False)

    def __init__(self, *args, asks_name: bool, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["name"].required = asks_name


class ReturnForm(forms.Form):
    code = forms.CharField(
        label="Return code",
        max_length=100,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false"}),
        help_text="For example 12-ABCD-EFGH-IJKL-MNOP.",
    )


class ErasePersonForm(forms.Form):
    """The username must be typed, to prevent accidental erasure."""

    username = forms.CharField(
        label="Username", max_length=150, widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"})
    )
