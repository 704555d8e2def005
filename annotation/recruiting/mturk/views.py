"""The one page that Mechanical Turk shows in its frame: instructions and consent, statements one by one, the end.

It sets and needs no cookie: whoever judges is known by a signed token in the form, so that no other site can send one
in their name. Each answer is stored first; the form at the end goes to MTurk itself.
"""

from __future__ import annotations

from functools import wraps
from typing import Any
from uuid import uuid4

from csp.constants import SELF
from csp.decorators import csp_replace
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_exempt
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from rest_framework.serializers import ValidationError

from annotation.judging.assignment import next_batch
from annotation.judging.judgments import reassign_skipped, skip_task, submit_judgment
from annotation.judging.serializers import TaskSerializer, answer_of, checked_answer, statements_of
from annotation.models import LONGEST_COMMENT, Annotator, JudgmentTask, Label, Panel, Platform, Round, Submission
from annotation.recruiting.access import throttled
from annotation.recruiting.mturk.entries import HOSTS, BadEntry, Entry, entry_of, entry_of_token, is_preview
from annotation.recruiting.panels.identifiers import digest
from annotation.recruiting.panels.services import enter, has_judged_here, join
from annotation.recruiting.services import ConsentMissing
from annotation.rounds.instructions import instructions_html, markdown_html
from kgharvest.accounts.throttle import network_of
from kgharvest.errors import DomainError

FOLDER = "annotation/recruiting/mturk"


def shown_by_mturk(view):
    """Let MTurk's hosts, and no others, show the answers of a view in a frame, and take the form at the end."""
    view = csp_replace({"frame-ancestors": HOSTS, "form-action": [SELF, *HOSTS]})(view)
    return xframe_options_exempt(csrf_exempt(view))


def refusals_in_words(view):
    @wraps(view)
    def told(request: HttpRequest, token: str) -> HttpResponse:
        try:
            return view(request, token)
        except DomainError as refusal:
            status = 400 if isinstance(refusal, BadEntry) else 409
            return render(request, f"{FOLDER}/refused.html", {"reason": refusal}, status=status)

    return told


@shown_by_mturk
@never_cache
@sensitive_post_parameters()
@throttled
@refusals_in_words
@require_http_methods(["GET", "POST"])
def frame(request: HttpRequest, token: str) -> HttpResponse:
    panel = Panel.objects.select_related("round").filter(token=token, platform=Platform.MTURK).first()
    if panel is None:
        return render(request, f"{FOLDER}/refused.html", {"reason": "There is no HIT of ours here."}, status=404)
    if request.method == "GET":
        entry = None if is_preview(request.GET) else entry_of(panel, request.GET)
        return _beginning(request, panel, entry)
    entry = entry_of_token(panel, request.POST.get("entry", ""))
    if "start" in request.POST:
        return _start(request, panel, entry)
    submission = _active(panel, entry)
    error = _take(request, submission.annotator) if submission.annotator else None
    return _statement(request, submission, entry, error)


def _beginning(
    request: HttpRequest, panel: Panel, entry: Entry | None, error: str = "", status: int = 200
) -> HttpResponse:
    """Show instructions and consent; to whoever has accepted the HIT, with a button that starts or goes on."""
    context = {
        "panel": panel,
        "entry": entry,
        "error": error,
        "instructions": instructions_html(panel.round),
        "consent": markdown_html(panel.round.consent),
    }
    return render(request, f"{FOLDER}/beginning.html", context, status=status)


def _start(request: HttpRequest, panel: Panel, entry: Entry) -> HttpResponse:
    came_at, address = timezone.now(), network_of(request)
    submission = enter(panel, entry.worker, entry.assignment, came_at, study=panel.external_id, address=address)
    try:
        submission.annotator = join(submission, agrees="agrees" in request.POST)
    except ConsentMissing as refusal:
        return _beginning(request, panel, entry, str(refusal), 400)
    return _statement(request, submission, entry)


def _active(panel: Panel, entry: Entry) -> Submission:
    """Raises BadEntry where nobody has started with this entry, or their part has ended."""
    submissions = panel.submissions.select_related("annotator__round")
    theirs = submissions.filter(participant_digest=digest(entry.worker), status=Submission.Status.ACTIVE).first()
    if theirs is None:
        raise BadEntry("Your part in this study has ended, or has not begun; reload the page.")
    return theirs


def _take(request: HttpRequest, annotator: Annotator) -> str:
    """Store an answer, or skip; return what is wrong with it, in words."""
    try:
        if "skip" in request.POST:
            skipped = TaskSerializer(data=request.POST)
            skipped.is_valid(raise_exception=True)
            skip_task(annotator, annotator.task_of(skipped.validated_data["task"]))
        else:
            submit_judgment(annotator, answer_of(annotator, checked_answer(request.POST)), timezone.now())
    except ValidationError:
        return "That answer was not complete, and nothing was stored of it; answer once more."
    except DomainError as refusal:
        return str(refusal)
    return ""


def _left_for(annotator: Annotator) -> list[JudgmentTask]:
    """Return the next statements. What was skipped comes again; whoever is at work when the round closes is done."""
    if annotator.round.status == Round.Status.CLOSED:
        return []
    tasks = next_batch(annotator, timezone.now(), few=1)
    if tasks or annotator.has_judged_share or not reassign_skipped(annotator):
        return tasks
    return next_batch(annotator, timezone.now(), few=1)


def _statement(request: HttpRequest, submission: Submission, entry: Entry, error: str | None = "") -> HttpResponse:
    """Show the next statement, and after the last the form that goes to MTurk."""
    annotator = Annotator.objects.select_related("round").get(pk=submission.annotator_id)
    tasks = _left_for(annotator)
    context: dict[str, Any] = {"panel": submission.panel, "annotator": annotator, "entry": entry, "error": error}
    if not tasks:
        context["has_judged"] = has_judged_here(submission)
        if context["has_judged"]:  # still active: only MTurk's word makes it completed, and owed
            Submission.objects.filter(pk=submission.pk, completed_at=None).update(completed_at=timezone.now())
        return render(request, f"{FOLDER}/end.html", context)
    context |= {
        "statement": statements_of(annotator, tasks[:1])[0],
        "client_uuid": uuid4(),
        "labels": Label,
        "longest_comment": LONGEST_COMMENT,
        "instructions": instructions_html(annotator.round),
        "n_left": max(annotator.most_to_judge - annotator.n_judged, 1),
    }
    return render(request, f"{FOLDER}/statement.html", context, status=409 if error else 200)
