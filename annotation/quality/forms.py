"""What researchers fill in to watch over a round's judgments."""

from __future__ import annotations

from django import forms

from annotation.models import Label, Limits


class LimitFields(forms.Form):
    """The limits of a round; whoever crosses one is paused."""

    gold_accuracy = forms.FloatField(
        label="Least gold accuracy",
        min_value=0,
        max_value=1,
        required=False,
        help_text="A share from 0 to 1, such as 0.7. Whoever crosses a limit is paused until somebody has looked. "
        "Empty: no such limit.",
    )
    median_seconds = forms.FloatField(
        label="Least median of seconds",
        min_value=0,
        required=False,
        help_text="Such as 1.5; looked at from the twentieth judgment on. Empty: no such limit.",
    )
    longest_run = forms.IntegerField(
        label="Most equal labels in a row",
        min_value=2,
        max_value=32767,
        required=False,
        help_text="Such as 40. Where nearly everything is true, long runs are honest. Empty: no such limit.",
    )


class LimitsForm(LimitFields, forms.ModelForm):
    class Meta:
        model = Limits
        fields = ("gold_accuracy", "n_gold", "median_seconds", "longest_run")
        labels = {"n_gold": "after so many gold statements"}


class ExclusionForm(forms.Form):
    reason = forms.CharField(
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Kept with the decision, for those who read the report. The annotator does not see it.",
    )


class AdjudicationForm(forms.Form):
    """client_uuid: made with the page, so that a double click is one adjudication."""

    task = forms.IntegerField(min_value=1, max_value=2**63 - 1)
    client_uuid = forms.UUIDField()
    label = forms.ChoiceField(choices=Label.choices)
    comment = forms.CharField(max_length=2000, required=False)
