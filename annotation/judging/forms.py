"""What annotators choose on the pages; answers are in annotation.judging.api."""

from __future__ import annotations

from django import forms

from annotation.models import LONGEST_COMMENT, Label, Layout, StatementReport


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
