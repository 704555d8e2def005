"""What annotators send."""

from __future__ import annotations

from django import forms

from annotation.models import Label
from annotation.services.judgments import Answer


class AnswerForm(forms.Form):
    """One answer. seconds: how long the statement was in sight, if the page could tell."""

    task = forms.IntegerField(min_value=1, max_value=2**63 - 1)
    label = forms.ChoiceField(choices=Label.choices)
    client_uuid = forms.UUIDField()
    seconds = forms.FloatField(min_value=0, max_value=24 * 3600, required=False)

    def answer(self) -> Answer:
        asked = self.cleaned_data
        return Answer(asked["task"], asked["label"], asked["client_uuid"], asked["seconds"])
