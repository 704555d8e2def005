"""Participant pages of a panel: entry link, consent, and completion code.

No response contains the completion code before the participant's last judgment is stored.
"""

import secrets
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from annotation.invites.access import no_access, remember_guest, session_annotator, throttled
from annotation.invites.views import WRONG_LINK, JoinForm
from annotation.rounds.instructions import instructions_html, markdown_html
from kgharvest.accounts.throttle import TooManyAttempts, network_of
from kgharvest.contrib.recruiting.models import Panel, Platform, Submission
from kgharvest.contrib.recruiting.panels import services
from kgharvest.contrib.recruiting.panels.identifiers import Unreadable, digest
from kgharvest.contrib.recruiting.panels.links import BadEntryLink, Entry, read_entry, return_address
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.platforms import PlatformUnavailable, platform_of
from kgharvest.errors import DomainError
from kgharvest.pages.refusals import refusal_in_form

Status = Submission.Status
SENT_BY_PLATFORM = "sent_by_platform"  # key in the session: digest of the entry link whose signature was verified
# Cookie with a secret that binds a place to the browser, for longer than the session lasts.
BROWSER_COOKIE = "participant_browser"
BROWSER_COOKIE_AGE_S = 365 * 24 * 3600
HTTP_STATUSES = {BadEntryLink: 400, services.PlaceOfAnother: 403, TooManyAttempts: 429}


@dataclass(frozen=True)
class End:
    """Final page of a participant. kind: prefix of the panel's code and URL fields, as in `completion_code`."""

    heading: str
    lead: str
    kind: str = ""


COMPLETED = End("All statements judged. Thank you!", "All your answers are saved.", "completion")
QUOTA_FULL = End("All places are taken", "You cannot take part anymore. Thank you for your interest.", "quota_full")
RETURNED = End("Your place was returned", "Another participant can take it now. You can close this page.")
ENDED = End("Your participation has ended", "The recruitment platform ended your participation in this study.")
NOTHING_TO_DO = End(
    "No statements left to judge", "Other annotators have judged all statements. Return your place.", "quota_full"
)
ENDS = {
    Status.COMPLETED: COMPLETED,
    Status.APPROVED: COMPLETED,
    Status.SCREENED_OUT: End(
        "You cannot continue in this study", "Your answers to the initial questions do not qualify.", "screen_out"
    ),
    Status.RETURNED: RETURNED,
    Status.TIMED_OUT: ENDED,
    Status.REJECTED: ENDED,
}


@never_cache
@throttled
@require_http_methods(["GET", "POST"])
def panel_enter(request: HttpRequest, token: str) -> HttpResponse:
    """Handle an entry link: assign a place and ask for consent. On later visits, the same annotator continues."""
    secret = request.COOKIES.get(BROWSER_COOKIE) or secrets.token_urlsafe(32)
    response = _answer(request, token, digest(secret))
    response.set_cookie(
        BROWSER_COOKIE,
        secret,
        max_age=BROWSER_COOKIE_AGE_S,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


def _answer(request: HttpRequest, token: str, browser_digest: str) -> HttpResponse:
    panels = Panel.objects.exclude(status=Panel.Status.DRAFT).exclude(platform=Platform.MTURK)  # MTurk is closed
    panel = panels.select_related("round__project").filter(token=token).first()
    if panel is None:
        return no_access(request, WRONG_LINK, 404)
    try:
        entry = read_entry(panel, request.GET)
        guest = session_annotator(request, panel.round_id)
        browser = services.Browser(browser_digest, guest and guest.pk, _is_signed(request, panel, entry))
        now, address = timezone.now(), network_of(request)
        submission = services.enter(panel, entry.participant, entry.session, now, entry.study, address, browser)
        return _start_or_resume(request, submission, entry, browser)
    except PlatformUnavailable:
        return no_access(request, "Your link cannot be verified at the moment. Open it again in a minute.", 503)
    except services.QuotaFull:
        return show_end(request, QUOTA_FULL, panel, entry, 409)
    except DomainError as refusal:
        return no_access(request, str(refusal), HTTP_STATUSES.get(type(refusal), 409))


def _is_signed(request: HttpRequest, panel: Panel, entry: Entry) -> bool:
    """Return whether the platform signed the link.

    Because the signature expires, verified links are stored in the session.

    Raises BadEntryLink or PlatformUnavailable.
    """
    link_digest = digest(f"{panel.pk} {entry.participant} {entry.session}")
    if request.session.get(SENT_BY_PLATFORM) == link_digest:
        return True
    if not platform_of(panel).check_entry(request.GET):
        return False
    request.session[SENT_BY_PLATFORM] = link_digest
    return True


def _start_or_resume(
    request: HttpRequest, submission: Submission, entry: Entry, browser: services.Browser
) -> HttpResponse:
    """Redirect to judging, or show the consent page to a participant who has not joined. Raises PlaceOfAnother."""
    if request.method == "POST" and "decline" in request.POST:
        services.leave(submission, Status.RETURNED, timezone.now())
        return show_end(request, RETURNED, submission.panel, entry)
    round = submission.panel.round
    current = session_annotator(request, round.pk)
    if current is not None and current.user_id:
        sentence = f"You are logged in as {current.user}, an annotator of this round. Log out or use another browser."
        return no_access(request, sentence, 409)
    annotator = submission.annotator
    form = JoinForm(request.POST if request.method == "POST" else None, asks_name=False)
    if annotator is None and form.is_valid():
        with refusal_in_form(form):
            annotator = services.join(submission, agrees=form.cleaned_data["agrees"], browser=browser)
    if annotator is not None:
        remember_guest(request, annotator)
        return redirect("annotation:judge" if submission.status == Status.ACTIVE else "recruiting:panel_done", round.pk)
    panel = submission.panel
    if submission.status not in Submission.HOLDING:
        return show_end(request, ENDS[submission.status], panel, entry)
    context = {
        "panel": panel,
        "round": round,
        "form": form,
        "reward": money(panel.reward, panel.currency) if panel.reward else "",
        "instructions": instructions_html(round),
        "consent": markdown_html(round.consent),
    }
    return render(request, "recruiting/panels/panel_join.html", context)


@never_cache
@require_http_methods(["GET"])
def panel_done(request: HttpRequest, round_id: int) -> HttpResponse:
    """Complete the submission of an annotator who has judged all statements, and only then show the code."""
    annotator = session_annotator(request, round_id)
    submission = annotator and annotator.submissions.select_related("panel__round").order_by("-pk").first()
    if submission is None or not services.finish(submission, timezone.now()):
        return redirect("annotation:judge", round_id)
    end = ENDS[submission.status]
    if submission.status == Status.RETURNED and not (annotator.n_judged or submission.platform_status):
        end = NOTHING_TO_DO
    try:
        entry = Entry(submission.participant_id, submission.study, submission.session_id)
    except Unreadable:  # participants must see their code even if SECRET_KEY has changed
        entry = Entry("", submission.study, "")
    return show_end(request, end, submission.panel, entry)


def show_end(request: HttpRequest, end: End, panel: Panel, entry: Entry, status: int = 200) -> HttpResponse:
    code, address = (getattr(panel, f"{end.kind}_{part}") if end.kind else "" for part in ("code", "url"))
    context = {"end": end, "round": panel.round, "code": code, "address": return_address(address, code, entry)}
    return render(request, "recruiting/panels/panel_end.html", context, status=status)
