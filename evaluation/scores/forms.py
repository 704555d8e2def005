"""What researchers fill in to evaluate scores."""

from __future__ import annotations

from dataclasses import replace

from django import forms

from evaluation.scores.facts import facts_of_content
from evaluation.scores.score_jobs import STORED_SETTINGS, ScoreRequest
from kgharvest.engine.settings import SETTINGS, WITHOUT_LEARNING
from kgharvest.models import LanguageModel

LARGEST_FILE_MB = 10


class ScoreForm(forms.Form):
    model = forms.ModelChoiceField(LanguageModel.objects.all(), label="LM", empty_label=None)
    settings = forms.MultipleChoiceField(
        label="Prompts made for this",
        choices=[(setting, setting) for setting in SETTINGS],
        initial=WITHOUT_LEARNING,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="From the seed tuples, which are no facts here. lpaqa, autoprompt and soft are learned: up to "
        "minutes per relation, and with masked LMs only.",
    )
    harvested = forms.MultipleChoiceField(
        label="Prompts of finished harvests",
        choices=[(setting, setting) for setting in STORED_SETTINGS],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="With the weights that they had in the newest one. Only relations that were harvested so are scored.",
    )
    facts = forms.FileField(
        label="Facts of your own",
        required=False,
        help_text='JSONL, one {"relation": "set/name", "entities": ["...", "..."]} a line. Left empty: the facts of '
        "the embedded LMs' world, which they were trained on.",
    )

    def clean_facts(self):
        file = self.cleaned_data["facts"]
        if file and file.size > LARGEST_FILE_MB * 1024 * 1024:
            raise forms.ValidationError(
                f"The file is larger than {LARGEST_FILE_MB} MB; evaluate it on the server with evaluate_scores --facts."
            )
        return file

    def request(self) -> ScoreRequest:
        """Raises ImportRefused with what is wrong with the facts."""
        cleaned = self.cleaned_data
        request = ScoreRequest(cleaned["model"], cleaned["settings"], cleaned["harvested"])
        if not (file := cleaned["facts"]):
            return request
        return replace(request, facts=file.name, relations=facts_of_content(file.read(), file.name))
