"""Pages before the first statement (questionnaire, comprehension check), and the withdrawal page."""

from collections.abc import Sequence

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from annotation.invites.access import forget_guest, no_access
from annotation.invites.recruitment import recruitment
from annotation.judging.views import annotator_with_round, for_annotator
from annotation.models import Annotator, Round
from annotation.questionnaire import services
from annotation.questionnaire.models import MOST_TRIES
from annotation.questionnaire.questions import LONGEST_ANSWER, Question, check_questions, who_questions
from annotation.questionnaire.services import BadAnswers, Stage, n_tries_left, stage_of
from annotation.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds.instructions import instructions_html

MOST_RADIO_BUTTONS = 8
NOT_SAID = ("", "Prefer not to say")
FOLDER = "annotation/questionnaire"


class QuestionsForm(forms.Form):
    """Form with one field per question, named by its key. The form does not contain the correct answers of a check."""

    def __init__(self, *args, questions: Sequence[Question], **kwargs):
        super().__init__(*args, **kwargs)
        self.fields |= {question.key: _field_of(question) for question in questions}


def _field_of(question: Question) -> forms.Field:
    options = {"label": question.text, "required": False}  # the service validates the answer
    attributes = {"required": True} if question.is_required else {}
    if not question.choices:
        text = forms.TextInput({"maxlength": LONGEST_ANSWER, "autocomplete": "off", **attributes})
        help_text = "" if question.is_required else "Leave empty if you prefer not to say."
        field = forms.CharField(widget=text, help_text=help_text, **options)
    else:
        choices = [(choice, choice) for choice in question.choices]
        is_long = len(choices) > MOST_RADIO_BUTTONS
        if not question.is_required:
            choices = [NOT_SAID, *choices] if is_long else [*choices, NOT_SAID]
        elif is_long:
            choices = [("", "Choose"), *choices]
        widget = (forms.Select if is_long else forms.RadioSelect)(attributes, choices)
        field = forms.CharField(widget=widget, initial="", **options)
    field.is_optional = not question.is_required
    return field


@require_http_methods(["GET", "POST"])
@for_annotator
def questions(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    round = Round.objects.get(pk=annotator.round_id)
    stage = stage_of(annotator, round)
    if stage == Stage.DONE:
        return redirect("annotation:judge", round.pk)
    if stage == Stage.FAILED:
        if end_page := recruitment().end_page(annotator):
            # Since the check, the annotator may have joined another panel of the round.
            recruitment().screen_out(annotator, timezone.now())
            return redirect(end_page)
        return render(request, f"{FOLDER}/failed.html", {"round": round, "annotator": annotator})
    round.check_open()
    stage_questions = who_questions(round) if stage == Stage.WHO else check_questions(round)
    form = QuestionsForm(request.POST if request.method == "POST" else None, questions=stage_questions)
    if form.is_valid() and request.POST.get("stage") == stage:
        answer = services.answer_who_questions if stage == Stage.WHO else services.take_check
        try:
            answer(annotator, form.cleaned_data, timezone.now())
        except BadAnswers as refusal:
            for key, reason in refusal.reasons.items():
                form.add_error(key, reason)
        else:
            return redirect("annotation:questions", round.pk)
    is_stale = form.is_bound and not form.errors  # the answers belong to an earlier stage
    context = {
        "round": round,
        "form": QuestionsForm(questions=stage_questions) if is_stale else form,
        "stage": stage,
        "instructions": instructions_html(round),
        "n_tries_left": n_tries_left(annotator),
        "is_last_try": n_tries_left(annotator) < MOST_TRIES,
    }
    page = "who" if stage == Stage.WHO else "check"
    return render(request, f"{FOLDER}/{page}.html", context, status=400 if form.errors else 200)


@never_cache
@require_http_methods(["GET", "POST"])
def withdraw(request: HttpRequest, round_id: int) -> HttpResponse:
    """Show the confirmation page, or withdraw the annotator. The status of the round does not matter."""
    annotator = annotator_with_round(request, round_id)
    if annotator is None:
        return no_access(request, "You are not signed in to this round. Open your link or use your return code.", 404)
    context = {"round": annotator.round, "annotator": annotator}
    if request.method == "GET":
        return render(request, f"{FOLDER}/withdraw.html", context)
    reasons = withdraw_annotator(annotator)
    forget_guest(request, annotator)
    context |= {"reasons": reasons, "has_place": recruitment().end_page(annotator) is not None}
    return render(request, f"{FOLDER}/withdrawn.html", context)
