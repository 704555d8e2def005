"""Page of the paper metadata."""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from evaluation.models import Report
from kgharvest.access import allowed_actions, researcher_required, visible_or_404
from kgharvest.contrib.publishing.statements import services
from kgharvest.pages.number_format import counted


class StatementsForm(forms.Form):
    """Form with one field per question, named by the question's key.

    All fields are optional, so that answers can be added later.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for question in services.QUESTIONS:
            places = question.places.in_words and f"{question.places.in_words}."
            help_text = " ".join(filter(None, [question.help_text, places]))
            described = {"label": question.label, "help_text": help_text, "required": False}
            if question.choices:
                field = forms.ChoiceField(choices=[("", "no answer"), *question.choices], **described)
            else:
                widget = forms.Textarea(attrs={"rows": question.n_rows}) if question.n_rows > 1 else forms.TextInput()
                field = forms.CharField(max_length=services.LONGEST_ANSWER, widget=widget, **described)
            self.fields[question.key] = field

    def groups(self) -> Iterator[tuple[str, list[tuple[services.Question, forms.BoundField]]]]:
        for title, questions in groupby(services.QUESTIONS, attrgetter("group")):
            yield title, [(question, self[question.key]) for question in questions]


@researcher_required
def statements(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and store the answers. Users without write access see a disabled form."""
    report = visible_or_404(request.user, Report.objects.for_list(), pk=pk)
    answers = services.proposed_on(report) | services.statements_on(report.round)
    form = StatementsForm(request.POST if request.method == "POST" else None, initial=answers)
    if form.is_bound and form.is_valid():
        try:
            sent = {key: answer for key, answer in form.cleaned_data.items() if key in request.POST}
            n_changed = len(services.save_statements(report.round, sent, by=request.user))
            messages.success(request, f"{counted(n_changed, 'answer')} changed.")
            return redirect("publishing:paper_statements", pk)
        except services.BadStatement as refusal:
            for key, reason in refusal.reasons.items():
                form.add_error(key, reason)
    unsaid = services.unsaid_on(report)
    n_required = sum(not question.is_optional for question in services.QUESTIONS)
    may_write = allowed_actions(request.user, report.project)["work"]
    if not may_write:
        for field in form.fields.values():
            field.disabled = True
    context = {
        "report": report,
        "form": form,
        "may_write": may_write,
        "unsaid": unsaid,
        "unsaid_keys": {question.key for question in unsaid},
        "n_questions": n_required,
        "n_said": n_required - len(unsaid),
    }
    return render(request, "publishing/statements/statements.html", context)
