"""What researchers fill in to launch harvests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from django import forms

from kgharvest.accounts.forms import ProjectField
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.settings import SETTINGS
from kgharvest.engine.types import CANDIDATES_PER_KEPT, MIN_CANDIDATES, HarvestParams
from kgharvest.harvests.language_models import language_model_for_pages
from kgharvest.harvests.runner import MIN_SEED_TUPLES, HarvestRequest
from kgharvest.models import LanguageModel, Relation
from kgharvest.relations.picker import RelationPickerForm

DEFAULTS = HarvestParams()
PARAMS = ("max_tuples", "candidates", "max_entity_tokens")


class LaunchForm(RelationPickerForm):
    """Relations x LMs x settings, and the parameters that all of the harvests share."""

    ready = "can be harvested"
    not_ready = "fewer than two seed tuples"

    models = forms.MultipleChoiceField(
        label="LMs",
        initial=[next(iter(EMBEDDED_LMS))],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one LM, or name another one."},
    )
    other_models = forms.CharField(
        label="Other LMs",
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="One a line: a folder on the server with a model, or a hub id.",
    )
    settings = forms.MultipleChoiceField(
        choices=[(name, f"{name}: {setting.label}") for name, setting in SETTINGS.items()],
        initial=["multi"],
        widget=forms.CheckboxSelectMultiple,
    )
    max_tuples = forms.IntegerField(
        label="Tuples to keep", min_value=1, required=False, help_text="After re-scoring; all if left empty."
    )
    candidates = forms.IntegerField(
        min_value=1,
        required=False,
        help_text="Tuples proposed for re-scoring, for each combination of entity lengths. "
        f"{MIN_CANDIDATES}, or {CANDIDATES_PER_KEPT} for each tuple to keep, if left empty.",
    )
    max_entity_tokens = forms.IntegerField(
        label="Longest entity",
        min_value=1,
        max_value=6,
        initial=DEFAULTS.max_entity_tokens,
        help_text="In tokens of the LM.",
    )
    project = ProjectField()
    again = forms.BooleanField(
        label="Harvest again",
        required=False,
        help_text="Also the cells that were harvested before with the same parameters.",
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        used = LanguageModel.objects.filter(jobs__origin="harvested", revision="").values_list("name", flat=True)
        self.fields["models"].choices = [(name, name) for name in dict.fromkeys([*EMBEDDED_LMS, *used.distinct()])]
        self.fields["models"].required = not self.data.get("other_models", "").strip()

    def requests(self) -> Iterator[HarvestRequest]:
        """Yield the harvests that a valid form asks for; of whole sets, the relations that can be harvested.

        Raises NotFound if there is no such LM.
        """
        cleaned = self.cleaned_data
        params = HarvestParams(**{name: cleaned[name] for name in PARAMS})
        names = dict.fromkeys([*cleaned["models"], *cleaned["other_models"].split("\n")])
        language_models = [language_model_for_pages(name.strip()) for name in names if name.strip()]
        for relation, language_model, setting in product(self.chosen_relations(), language_models, cleaned["settings"]):
            yield HarvestRequest(relation, language_model, setting, params)

    def is_ready(self, relation: Relation) -> bool:
        return len(relation.seed_tuples) >= MIN_SEED_TUPLES
