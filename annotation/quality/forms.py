"""Forms of limits, exclusions and adjudications."""

from __future__ import annotations

from django import forms

from annotation.models import Label, Limits


class LimitsForm(forms.ModelForm):
    """The limits of a round; whoever crosses one is paused."""

    class Meta:
        model = Limits
        fields = Limits.OPTIONS


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
