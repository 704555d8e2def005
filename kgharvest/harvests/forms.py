"""Forms to launch harvests."""

from collections.abc import Iterable
from typing import Any, get_args

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
from kgharvest.engine.types import (
    CANDIDATES_PER_KEPT,
    MIN_CANDIDATES,
    ORDER_HELP,
    EngineError,
    HarvestParams,
    TupleOrder,
)
from kgharvest.harvests.language_models import LM_NAMES_HELP
from kgharvest.harvests.launches import named_requests
from kgharvest.harvests.runner import MIN_SEED_TUPLES, HarvestRequest
from kgharvest.jobs.workers import devices_offered
from kgharvest.models import HarvestJob, Job, LanguageModel, Relation
from kgharvest.packaged_lms import installed_lms
from kgharvest.relations.forms import RelationPickerForm, SetChoice, non_blank_lines


class PlacementForm(forms.Form):
    """Form for the device and number format of an LM. It is rendered by `kgharvest/harvests/_placement.html`."""

    PLACEMENT = ("device", "dtype")

    device = forms.ChoiceField(initial=DEFAULT_DEVICE, required=False, help_text=f"Device of the LM: {DEVICE_HELP}.")
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
        """Return the device and dtype of the valid form."""
        return {name: self.cleaned_data[name] for name in self.PLACEMENT}

    def other_fields(self) -> list[forms.BoundField]:
        return [bound for bound in self if bound.name not in self.PLACEMENT]


class FirstSelect(forms.Select):
    """Select box for the first of several values. Checkboxes elsewhere on the page can submit the others."""

    value_from_datadict = forms.SelectMultiple.value_from_datadict


class LaunchForm(RelationPickerForm, PlacementForm):
    """Form for combinations of relations, LMs, and settings, and for parameters that apply to all harvests."""

    N_FIRST = 2  # relations of the user's projects that are offered first
    ESSENTIAL = ("models", "settings", "max_tuples")

    ready = "can be harvested"
    not_ready = "fewer than two seed tuples"

    models = forms.MultipleChoiceField(
        label="LM",
        initial=[installed_lms()[0]],
        widget=FirstSelect,
        help_text=f"{' and '.join(EMBEDDED_LMS)}: small built-in LMs for demonstrations. Their accuracy does not "
        "generalize to other LMs.",
        error_messages={"required": "Select at least one LM or enter an additional one."},
    )
    other_models = forms.CharField(
        label="Additional LMs",
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text=f"One per line: {LM_NAMES_HELP}.",
    )
    chat_models = forms.CharField(
        label="Chat models",
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="Model ids accepted by the endpoint, one per line. Used by the setting llm.",
    )
    settings = forms.MultipleChoiceField(
        choices=[(name, f"{name}: {setting.label}") for name, setting in SETTINGS.items()],
        initial=["multi"],
        label="Setting",
        widget=FirstSelect,
    )
    max_tuples = forms.IntegerField(
        label="Maximum tuples",
        min_value=1,
        required=False,
        help_text="Number of best tuples to store. Default: all.",
    )
    candidates = forms.IntegerField(
        min_value=1,
        required=False,
        help_text="Number of tuples that the search proposes for re-scoring, per combination of entity lengths. "
        f"Default: {CANDIDATES_PER_KEPT} times the maximum tuples, at least {MIN_CANDIDATES}.",
    )
    max_entity_tokens = forms.IntegerField(
        label="Maximum entity length",
        min_value=1,
        max_value=6,
        initial=HarvestParams.max_entity_tokens,
        help_text="Maximum length in tokens of the LM.",
    )
    order = forms.TypedChoiceField(
        choices=[(name, name) for name in get_args(TupleOrder)],
        initial=HarvestParams.order,
        required=False,
        empty_value=HarvestParams.order,
        help_text=f"{capfirst(ORDER_HELP)}.",
    )
    project = ProjectField()
    again = forms.BooleanField(
        label="Repeat finished harvests",
        required=False,
        help_text="By default, cells that were already harvested with the same parameters are skipped.",
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["models"].choices = [(name, name) for name in installed_lms()]
        self.fields.update(form_fields())
        chosen = self.data.getlist("settings") if hasattr(self.data, "getlist") else self.data.get("settings", ())
        needs_lm = not chosen or any(setting in PROMPT_SETTINGS for setting in chosen)
        self.fields["models"].required = needs_lm and not self.data.get("other_models", "").strip()

    def offer_relations(self, user) -> None:
        """Offer the user's relations, and the LMs of harvests in the user's projects."""
        super().offer_relations(user)
        jobs = HarvestJob.objects.visible_to(user).filter(origin="harvested", setting__in=list(PROMPT_SETTINGS))
        # If all harvests with an LM name failed, the name may be misspelled, so it is not offered. It can still be
        # entered as an additional LM.
        used_lms = LanguageModel.objects.filter(revision="", jobs__in=jobs.exclude(status=Job.Status.FAILED))
        names = dict.fromkeys([*installed_lms(), *used_lms.values_list("name", flat=True).distinct()])
        self.fields["models"].choices = [(name, name) for name in names]

    def chat_fields(self) -> list[forms.BoundField]:
        """Return the chat model fields, which are rendered separately."""
        return [self[name] for name in self.fields if name.startswith(PREFIX)]

    def other_fields(self) -> list[forms.BoundField]:
        rendered = {*self.ESSENTIAL, *(bound.name for bound in self.chat_fields())}
        return [bound for bound in super().other_fields() if bound.name not in {*rendered, *self.PLACEMENT}]

    def choices_by_set(self) -> list[SetChoice]:
        """Return the sets of projects before built-in sets. `first` contains the relations to offer first.

        These are the selected and the newest relations of projects. By default, the newest relation is selected.
        """
        sets = super().choices_by_set()
        is_chosen = self.is_bound or any(each.is_chosen or each.is_open for each in sets)
        ready = [c for each in sets if not each.relation_set.is_shipped for c in each.relations if c.is_ready]
        self.first = sorted(ready, key=lambda choice: (not choice.is_chosen, -choice.relation.pk))[: self.N_FIRST]
        first = {choice.relation for choice in self.first}
        for each in sets:
            each.relations[:] = [c._replace(is_chosen=c.is_chosen and c.relation not in first) for c in each.relations]
        if self.first and not is_chosen:
            self.first[0] = self.first[0]._replace(is_chosen=True)
        return sorted(sets, key=lambda each: each.relation_set.is_shipped)

    def requests(self) -> Iterable[HarvestRequest]:
        """Return the harvests requested by a valid form.

        Of whole sets, only relations for which `is_ready` is true are included.

        Raises NotFound.
        """
        cleaned = self.cleaned_data
        chosen = ("max_tuples", "candidates", "max_entity_tokens", "order")
        params = HarvestParams(**{name: cleaned[name] for name in chosen})
        models = [*cleaned["models"], *non_blank_lines(cleaned["other_models"])]
        names = (models, non_blank_lines(cleaned["chat_models"]), cleaned["settings"])
        chat = from_arguments({**cleaned, "chat_models": None})
        return named_requests(self.chosen_relations(), *names, params, chat, **self.placement())

    def is_ready(self, relation: Relation) -> bool:
        return len(relation.seed_tuples) >= MIN_SEED_TUPLES
