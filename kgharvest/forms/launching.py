"""What researchers fill in to launch harvests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from django import forms
from django.db.models import Q

from kgharvest.embedded_lm import MODELS
from kgharvest.engine.types import SETTINGS, HarvestParams
from kgharvest.models import LanguageModel, Relation, RelationSet
from kgharvest.services.harvests import MIN_SEED_TUPLES, HarvestRequest
from kgharvest.services.language_models import get_language_model

DEFAULTS = HarvestParams()
SETTING_NAMES = {
    "human": "human: the initial prompts",
    "top1": "top1: the prompt with the largest weight",
    "multi": "multi: all prompts, weighted",
    "lpaqa": "lpaqa: all prompts, weights learned from the seed tuples",
    "autoprompt": "autoprompt: trigger tokens learned from the seed tuples",
    "soft": "soft: all prompts, their words learned as vectors from the seed tuples",
}
PARAMS = ("max_tuples", "candidates", "max_entity_tokens")


class RelationChoice(NamedTuple):
    relation: Relation
    is_ready: bool
    is_chosen: bool


class SetChoice(NamedTuple):
    """A set with its relations; `is_chosen` if it is wanted as a whole."""

    relation_set: RelationSet
    relations: list[RelationChoice]
    is_chosen: bool

    @property
    def n_ready(self) -> int:
        return sum(choice.is_ready for choice in self.relations)

    @property
    def is_open(self) -> bool:
        return not self.is_chosen and any(choice.is_chosen for choice in self.relations)


class LaunchForm(forms.Form):
    """Relations x LMs x settings, and the parameters that all of the harvests share."""

    relations = forms.ModelMultipleChoiceField(Relation.objects, required=False)
    sets = forms.ModelMultipleChoiceField(RelationSet.objects, required=False)
    models = forms.MultipleChoiceField(
        label="LMs",
        initial=[next(iter(MODELS))],
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
        choices=[(setting, SETTING_NAMES.get(setting, setting)) for setting in SETTINGS],
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
    again = forms.BooleanField(
        label="Harvest again",
        required=False,
        help_text="Also the cells that were harvested before with the same parameters.",
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        used = LanguageModel.objects.filter(jobs__origin="harvested", revision="").values_list("name", flat=True)
        self.fields["models"].choices = [(name, name) for name in dict.fromkeys([*MODELS, *used.distinct()])]
        self.fields["models"].required = not self.data.get("other_models", "").strip()

    def rest(self) -> list[forms.BoundField]:
        """Return the fields that need no template of their own."""
        return [self[name] for name in self.fields if name not in ("relations", "sets")]

    def clean(self) -> dict[str, Any]:
        asked = super().clean()
        if not asked.get("relations") and not asked.get("sets") and not {"relations", "sets"} & set(self.errors):
            self.add_error("relations", "Choose at least one relation, or a whole set.")
        return asked

    def choices_by_set(self) -> list[SetChoice]:
        """Return every relation that can be chosen, in the sets, with what was chosen before."""
        chosen_sets = {str(value) for value in self["sets"].value() or ()}
        chosen = {str(value) for value in self["relations"].value() or ()}
        choices: dict[RelationSet, list[RelationChoice]] = {}
        columns = ("name", "statement", "seed_tuples", "relation_set")
        for relation in Relation.objects.select_related("relation_set").only(*columns, "relation_set__name"):
            choice = RelationChoice(relation, is_ready(relation), str(relation.pk) in chosen)
            choices.setdefault(relation.relation_set, []).append(choice)
        return [SetChoice(its_set, relations, str(its_set.pk) in chosen_sets) for its_set, relations in choices.items()]

    def requests(self) -> Iterator[HarvestRequest]:
        """Yield what was asked for, once the form is valid; of whole sets, the relations that can be harvested.

        Raises NotFound if there is no such LM.
        """
        asked = self.cleaned_data
        params = HarvestParams(**{name: asked[name] for name in PARAMS})
        names = dict.fromkeys([*asked["models"], *asked["other_models"].split("\n")])
        language_models = [get_language_model(name.strip()) for name in names if name.strip()]
        for relation, language_model, setting in product(self._relations(), language_models, asked["settings"]):
            yield HarvestRequest(relation, language_model, setting, params)

    def _relations(self) -> list[Relation]:
        named, sets = self.cleaned_data["relations"], self.cleaned_data["sets"]
        wanted = Relation.objects.filter(Q(pk__in=named) | Q(relation_set__in=sets)).select_related("relation_set")
        return [relation for relation in wanted if relation.relation_set not in sets or is_ready(relation)]


def is_ready(relation: Relation) -> bool:
    """Return whether the relation has the seed tuples that a harvest needs."""
    return len(relation.seed_tuples) >= MIN_SEED_TUPLES
