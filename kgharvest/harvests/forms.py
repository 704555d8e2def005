"""What researchers fill in to launch harvests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.text import capfirst

from kgharvest.accounts.forms import ProjectField
from kgharvest.chat_models.options import PREFIX, form_fields, from_arguments
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.networks.placement import (
    DEFAULT_DEVICE,
    DEFAULT_DTYPE,
    DEVICE_HELP,
    DTYPE_HELP,
    DTYPES,
    check_placement,
)
from kgharvest.engine.settings import PROMPT_SETTINGS, SETTINGS
from kgharvest.engine.types import CANDIDATES_PER_KEPT, MIN_CANDIDATES, EngineError, HarvestParams
from kgharvest.harvests.language_models import LM_NAMES_HELP
from kgharvest.harvests.launches import named_requests
from kgharvest.harvests.runner import MIN_SEED_TUPLES, HarvestRequest
from kgharvest.jobs.workers import devices_offered
from kgharvest.models import Job, LanguageModel, Relation
from kgharvest.relations.forms import RelationPickerForm, non_blank_lines

DEFAULTS = HarvestParams()
PARAMS = ("max_tuples", "candidates", "max_entity_tokens")


class PlacementForm(forms.Form):
    """Where an LM runs and in which number format, laid out by `kgharvest/harvests/_placement.html`."""

    PLACEMENT = ("device", "dtype")

    device = forms.ChoiceField(initial=DEFAULT_DEVICE, required=False, help_text=f"Where the LM runs: {DEVICE_HELP}.")
    dtype = forms.ChoiceField(
        label="Number format",
        choices=[(name, name) for name in DTYPES],
        initial=DEFAULT_DTYPE,
        required=False,
        help_text=f"{capfirst(DTYPE_HELP)}.",
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["device"].choices = [(name, name) for name in devices_offered(timezone.now())]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not {*self.PLACEMENT} & set(self.errors):
            for name in self.PLACEMENT:
                cleaned[name] = cleaned[name] or self.fields[name].initial
            try:
                check_placement(cleaned["device"], cleaned["dtype"])
            except EngineError as refusal:
                self.add_error("dtype", str(refusal))
        return cleaned

    def placement(self) -> dict[str, str]:
        """Return device and dtype, once the form is valid."""
        return {name: self.cleaned_data[name] for name in self.PLACEMENT}

    def placement_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.PLACEMENT]

    def says_placement(self) -> bool:
        """Return whether something of it is chosen, or wrong."""
        return any(bound.value() not in ("", bound.field.initial) or bound.errors for bound in self.placement_fields())

    def other_fields(self) -> list[forms.BoundField]:
        return [bound for bound in self if bound.name not in self.PLACEMENT]


class LaunchForm(RelationPickerForm, PlacementForm):
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
        help_text=f"One a line: {LM_NAMES_HELP}.",
    )
    chat_models = forms.CharField(
        label="Chat models",
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="One a line, as the endpoint knows them; for the setting llm.",
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
        prompted = {"jobs__origin": "harvested", "jobs__setting__in": list(PROMPT_SETTINGS)}
        # A name of which every harvest failed may be a slip; who means it writes it among the other LMs.
        prompted["jobs__status__in"] = [status for status in Job.Status if status != Job.Status.FAILED]
        used = LanguageModel.objects.filter(revision="", **prompted).values_list("name", flat=True)
        self.fields["models"].choices = [(name, name) for name in dict.fromkeys([*EMBEDDED_LMS, *used.distinct()])]
        self.fields.update(form_fields())
        chosen = self.data.getlist("settings") if hasattr(self.data, "getlist") else self.data.get("settings", ())
        prompts_an_lm = not chosen or any(setting in PROMPT_SETTINGS for setting in chosen)
        self.fields["models"].required = prompts_an_lm and not self.data.get("other_models", "").strip()

    def chat_fields(self) -> list[forms.BoundField]:
        """Return the fields of the chat model, which stand apart."""
        return [self[name] for name in self.fields if name.startswith(PREFIX)]

    def says_chat(self) -> bool:
        """Return whether something of the chat model is filled in, or wrong."""
        return any(bound.value() or bound.errors for bound in self.chat_fields())

    def other_fields(self) -> list[forms.BoundField]:
        apart = {*self.PLACEMENT, *(name for name in self.fields if name.startswith(PREFIX))}
        return [bound for bound in super().other_fields() if bound.name not in apart]

    def requests(self) -> Iterable[HarvestRequest]:
        """Return the harvests that a valid form asks for; of whole sets, the relations that can be harvested.

        Raises NotFound if there is no such LM.
        """
        cleaned = self.cleaned_data
        params = HarvestParams(**{name: cleaned[name] for name in PARAMS})
        models = [*cleaned["models"], *non_blank_lines(cleaned["other_models"])]
        names = (models, non_blank_lines(cleaned["chat_models"]), cleaned["settings"])
        chat = from_arguments({**cleaned, "chat_models": None})
        return named_requests(self.chosen_relations(), *names, params, chat, **self.placement())

    def is_ready(self, relation: Relation) -> bool:
        return len(relation.seed_tuples) >= MIN_SEED_TUPLES
