"""The page on which people say what no record of a study tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from evaluation.models import Report
from kgharvest.access import allowed_actions, researcher_required, visible_or_404
from kgharvest.contrib.publishing.statements.questions import LONGEST_ANSWER, QUESTIONS, Answers, Question, groups
from kgharvest.contrib.publishing.statements.services import (
    BadStatement,
    proposed_on,
    save_statements,
    statements_on,
    unsaid_on,
)
from kgharvest.pages.number_format import counted


class StatementsForm(forms.Form):
    """A field for each question, by its key. None has to be filled in: what is not said yet is said later."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields |= {question.key: field_of(question) for question in QUESTIONS}

    def groups(self) -> Iterator[tuple[str, list[tuple[Question, forms.BoundField]]]]:
        for title, of_group in groups().items():
            yield title, [(question, self[question.key]) for question in of_group]


def field_of(question: Question) -> forms.Field:
    help_text = " ".join(
        filter(None, [question.help_text, question.places.in_words and f"{question.places.in_words}."])
    )
    options = {"label": question.label, "help_text": help_text, "required": False}
    if question.choices:
        return forms.ChoiceField(choices=[("", "not said yet"), *question.choices], **options)
    widget = forms.Textarea(attrs={"rows": question.n_rows}) if question.n_rows > 1 else forms.TextInput()
    return forms.CharField(max_length=LONGEST_ANSWER, widget=widget, **options)


@researcher_required
def statements(request: HttpRequest, pk: int) -> HttpResponse:
    """Who may only look reads what was said."""
    report = visible_or_404(request.user, Report.objects.for_list(), pk=pk)
    said = proposed_on(report) | statements_on(report.round)
    form = StatementsForm(request.POST if request.method == "POST" else None, initial=said)
    if form.is_bound and form.is_valid():
        try:
            sent = {key: answer for key, answer in form.cleaned_data.items() if key in request.POST}
            n_changed = len(save_statements(report.round, sent, by=request.user))
            messages.success(request, f"Saved: {counted(n_changed, 'statement')} changed.")
            return redirect("publishing:paper_statements", pk)
        except BadStatement as refusal:
            for key, reason in refusal.reasons.items():
                form.add_error(key, reason)
    return render(request, "publishing/statements/statements.html", page_of_statements(request, report, form, said))


def page_of_statements(request: HttpRequest, report: Report, form: StatementsForm, said: Answers) -> dict[str, Any]:
    unsaid = unsaid_on(report)
    may_write = allowed_actions(request.user, report.project)["work"]
    if not may_write:
        for field in form.fields.values():
            field.disabled = True
    return {
        "report": report,
        "form": form,
        "may_write": may_write,
        "unsaid": unsaid,
        "unsaid_keys": {question.key for question in unsaid},
        "n_questions": sum(not question.is_optional for question in QUESTIONS),
        "n_said": sum(not question.is_optional for question in QUESTIONS) - len(unsaid),
    }
