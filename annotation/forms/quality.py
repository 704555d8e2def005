"""What researchers fill in to watch over a round's judgments."""

from __future__ import annotations

from django import forms

from annotation.models import Label, Limits


class LimitsForm(forms.ModelForm):
    class Meta:
        model = Limits
        fields = ("gold_accuracy", "n_gold", "median_seconds", "longest_run")
        labels = {
            "gold_accuracy": "Least gold accuracy",
            "n_gold": "after so many gold statements",
            "median_seconds": "Least median of seconds",
            "longest_run": "Most equal labels in a row",
        }
        help_texts = {
            "gold_accuracy": "A share from 0 to 1, such as 0.7. Empty: no such limit.",
            "median_seconds": "Such as 1.5; looked at from the twentieth judgment on. Empty: no such limit.",
            "longest_run": "Such as 40. Where nearly everything is true, long runs are honest. Empty: no such limit.",
        }


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
