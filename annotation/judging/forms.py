"""What annotators send."""

from __future__ import annotations

from django import forms

from annotation.judging.models import SIXTEEN_HEX_DIGITS
from annotation.models import LONGEST_COMMENT, Label, Layout, StatementReport


class TaskForm(forms.Form):
    """task: the annotator's token of it."""

    task = forms.RegexField(f"^{SIXTEEN_HEX_DIGITS}$", error_messages={"invalid": "This is no statement of yours."})


class AnswerForm(TaskForm):
    """One answer.

    seconds: how long the statement was actively in sight, if the page could tell. more: whether the reply is to bring
    the next statements.
    """

    label = forms.ChoiceField(choices=Label.choices)
    client_uuid = forms.UUIDField()
    seconds = forms.FloatField(min_value=0, required=False)
    comment = forms.CharField(required=False)  # its length is the service's rule, told in its own words
    more = forms.BooleanField(required=False)


class ReportForm(forms.Form):
    reason = forms.ChoiceField(label="What is wrong?", choices=StatementReport.Reason.choices, widget=forms.RadioSelect)
    comment = forms.CharField(
        label="In your words",
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "maxlength": LONGEST_COMMENT}),
    )


class LayoutForm(forms.Form):
    layout = forms.ChoiceField(choices=Layout.choices)


class TrainingAnswerForm(forms.Form):
    position = forms.IntegerField(min_value=0, max_value=1000)
    label = forms.ChoiceField(choices=Label.choices)
