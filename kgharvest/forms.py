"""What researchers fill in to harvest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms

from kgharvest.embedded_lm import MODELS
from kgharvest.engine.types import HarvestParams
from kgharvest.models import LanguageModel, Relation
from kgharvest.services.harvests import SETTINGS, HarvestRequest
from kgharvest.services.language_models import get_language_model

DEFAULTS = HarvestParams()
SETTING_NAMES = {
    "human": "human: the initial prompts",
    "top1": "top1: the prompt with the largest weight",
    "multi": "multi: all prompts, weighted",
}


class RelationChoices(forms.ModelMultipleChoiceField):
    def label_from_instance(self, relation: Relation) -> str:
        return f"{relation.path}: {relation.statement}"


class DatalistInput(forms.TextInput):
    """A text input that suggests `options` and takes anything."""

    template_name = "kgharvest/_datalist_input.html"
    options: tuple[str, ...] = ()

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        listed = {**(attrs or {}), "list": f"{attrs['id']}_options"}
        return {**super().get_context(name, value, listed), "options": self.options}


class HarvestForm(forms.Form):
    """One harvest for each relation and setting."""

    relations = RelationChoices(
        Relation.objects.select_related("relation_set"),
        help_text="Hold Ctrl to choose several.",
        widget=forms.SelectMultiple,
    )
    model = forms.CharField(
        label="LM",
        initial=next(iter(MODELS)),
        max_length=500,
        widget=DatalistInput,
        help_text="An embedded one, a folder on the server with a model, or a hub id.",
    )
    settings = forms.MultipleChoiceField(
        choices=[(setting, SETTING_NAMES[setting]) for setting in SETTINGS],
        initial=["multi"],
        widget=forms.CheckboxSelectMultiple,
    )
    max_tuples = forms.IntegerField(
        label="Tuples to keep", min_value=1, required=False, help_text="After re-scoring; all if left empty."
    )
    candidates = forms.IntegerField(
        min_value=1,
        initial=DEFAULTS.candidates,
        help_text="Tuples proposed for re-scoring, for each combination of entity lengths.",
    )
    max_entity_tokens = forms.IntegerField(
        label="Longest entity",
        min_value=1,
        max_value=6,
        initial=DEFAULTS.max_entity_tokens,
        help_text="In tokens of the LM.",
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        used = LanguageModel.objects.filter(jobs__origin="harvested").distinct().values_list("name", flat=True)
        self.fields["model"].widget.options = tuple(dict.fromkeys([*MODELS, *used]))

    def requests(self) -> Iterator[HarvestRequest]:
        """Yield what was asked for, once the form is valid. Raises NotFound if there is no such LM."""
        asked = self.cleaned_data
        language_model = get_language_model(asked["model"])
        params = HarvestParams(**{name: asked[name] for name in ("max_tuples", "candidates", "max_entity_tokens")})
        for relation in asked["relations"]:
            for setting in asked["settings"]:
                yield HarvestRequest(relation, language_model, setting, params)
