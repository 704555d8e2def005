"""What researchers fill in to open a round."""

from __future__ import annotations

from typing import Any

from django import forms

from annotation.instructions import DEFAULT_INSTRUCTIONS
from annotation.models import Layout, Round
from kgharvest.models import HarvestJob


class JobChoices(forms.ModelMultipleChoiceField):
    def label_from_instance(self, job: HarvestJob) -> str:
        cell = f"{job.relation.path} × {job.language_model.short_name} × {job.setting}"
        return f"{cell}: {job.n_tuples} tuples (job {job.pk})"


class RoundForm(forms.Form):
    """A round on several harvests, sampled alike."""

    name = forms.SlugField(
        max_length=100, help_text="Letters, digits, - and _. Annotators see it: name no LM and no setting."
    )
    study = forms.CharField(
        max_length=100, help_text="Its members see the round and its reports. A new name makes a study of your own."
    )
    jobs = JobChoices(
        HarvestJob.objects.with_cell().succeeded().filter(n_tuples__gt=0).order_by("-pk"),
        label="Harvests",
        help_text="Finished ones, each cell once. Hold Ctrl to choose several.",
    )
    n = forms.IntegerField(
        label="Statements per harvest", min_value=1, required=False, initial=20, help_text="Empty takes all of the cut."
    )
    cut = forms.CharField(
        max_length=50,
        required=False,
        help_text="Sample from the best part only: top:100, share:0.5, base:10, score:-9.",
    )
    judgments_per_task = forms.IntegerField(label="Judgments per statement", min_value=1, max_value=99, initial=3)
    batch_size = forms.IntegerField(
        label="Statements in hand",
        min_value=1,
        max_value=100,
        initial=10,
        help_text="Reserved for one annotator at a time.",
    )
    seed = forms.IntegerField(min_value=0, initial=0, help_text="The same seed draws the same sample.")
    instructions = forms.CharField(
        max_length=20_000, required=False, initial=DEFAULT_INSTRUCTIONS, widget=forms.Textarea(attrs={"rows": 7})
    )

    layout = forms.ChoiceField(
        choices=Layout.choices, required=False, initial=Layout.ONE, help_text="Annotators may switch."
    )
    takes_guests = forms.BooleanField(
        label="The join link works without an account",
        required=False,
        help_text="Whoever has it gives a name or code. Links for one person each are made once the round is open.",
    )
    consent = forms.CharField(
        max_length=20_000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="What annotators must agree to before they join; the time and the text are recorded.",
    )

    def document(self) -> dict[str, Any]:
        """Return what `open_round` takes, once the form is valid."""
        asked = self.cleaned_data
        cells = [{"job": job.pk, "n": asked["n"], "cut": asked["cut"]} for job in asked["jobs"]]
        same = ("name", "study", "judgments_per_task", "batch_size", "seed", "instructions", "takes_guests", "consent")
        chosen = {"cells": cells, "layout": asked["layout"] or str(Layout.ONE), "source": str(Round.Source.PEOPLE)}
        return {name: asked[name] for name in same} | chosen
