"""What annotators send in training."""

from __future__ import annotations

from django import forms

from annotation.models import Label


class TrainingAnswerForm(forms.Form):
    position = forms.IntegerField(min_value=0, max_value=1000)
    label = forms.ChoiceField(choices=Label.choices)
