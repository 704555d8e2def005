"""Round forms: one for harvests that share their sampling options, and one for the entire description as JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from annotation.judges.cost import WANTED_HALF_WIDTH, Wish
from annotation.models import Limits, Round
from annotation.rounds.instructions import DEFAULT_INSTRUCTIONS
from annotation.rounds.models import DEFAULT_SAMPLE_SIZE, LONGEST_INSTRUCTIONS, OPTIONS
from annotation.rounds.plan import ASSUMED_ACCURACY
from annotation.rounds.serializers import cells_of
from kgharvest.accounts.forms import ProjectField
from kgharvest.bulk.file_reading import parse_json
from kgharvest.models import HarvestJob

SHOWN_JOBS = 500
# Options for special cases. The form keeps their values in a draft, but does not show them.
NOT_ON_PAGE = ("seed", "allocation", "dominance_cap", "n_gold", "longest_run")
# Fields of the form in addition to the options of the round, by group
MORE = {"Sample": ("cut", "strata"), "People": ("project", *Limits.OPTIONS)}


class PercentField(forms.IntegerField):
    """A share in [0, 1], entered in percent."""

    def __init__(self, *, min_value: float, max_value: float, **kwargs):
        kwargs["label"] = f"{kwargs['label']} (%)"
        super().__init__(min_value=round(100 * min_value), max_value=round(100 * max_value), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        return round(100 * value) if isinstance(value, float) else value

    def clean(self, value: Any) -> float | None:
        percent = super().clean(value)
        return None if percent is None else percent / 100


def option_field(option: models.Field, **kwargs: Any) -> forms.Field | None:
    """Return the form field of an option with the limits set by its validators."""
    for validator in option.validators:
        if isinstance(validator, MinValueValidator):
            kwargs.setdefault("min_value", validator.limit_value)
        elif isinstance(validator, MaxValueValidator):
            kwargs.setdefault("max_value", validator.limit_value)
    if isinstance(option, models.SlugField):
        kwargs["error_messages"] = {"invalid": "Use only letters from a to z, digits, hyphens, and underscores."}
    return option.formfield(required=option.name in ("name", "who_can_join"), **kwargs)


class RoundForm(forms.ModelForm):
    """Form for rounds that sample all harvests with the same options.

    GROUPS: collapsed fields. PLAN: fields that only the plan uses.
    """

    GROUPS = {
        heading: [name for name in (*MORE.get(heading, ()), *names) if name not in (*NOT_ON_PAGE, "who_can_join")]
        for heading, names in Round.OPTIONS.items()
    }
    CELL_FIELDS = ("n", "cut", "strata", "allocation")
    PLAN = ("accuracy_percent", "wished_points", "pay_per_hour")

    jobs = forms.ModelMultipleChoiceField(
        HarvestJob.objects.with_cell().succeeded().filter(n_tuples__gt=0).order_by("-pk"), label="Harvests"
    )
    n = forms.IntegerField(
        label="Statements per harvest",
        min_value=1,
        required=False,
        initial=DEFAULT_SAMPLE_SIZE,
        help_text="Size of the random sample. Leave empty to use all tuples.",
    )
    cut = forms.CharField(
        max_length=50,
        required=False,
        help_text="Limits the sample to the best tuples of each harvest, for example top:100, share:0.5, base:10, or "
        "score:-9.",
    )
    strata = forms.CharField(
        max_length=500,
        required=False,
        help_text="Number of equally sized strata, or the first rank of each stratum, for example 1, 100, 1000. Leave "
        "empty for simple random sampling.",
    )
    project = ProjectField("Project whose members can see the round and its reports.")
    accuracy_percent = forms.IntegerField(
        label="Expected accuracy (%)",
        min_value=1,
        max_value=99,
        required=False,
        initial=round(100 * ASSUMED_ACCURACY),
        help_text="Used only for the interval widths in the plan. 50 gives the widest intervals.",
    )
    wished_points = forms.FloatField(
        label="Target half-width per cell (percentage points)",
        min_value=0.1,
        max_value=50,
        required=False,
        initial=100 * WANTED_HALF_WIDTH,
        help_text="Used only for the cost estimates in the plan.",
    )
    pay_per_hour = forms.FloatField(label="Hourly rate", min_value=0, max_value=10_000, required=False)
    confirm_noise = forms.BooleanField(required=False)  # rendered by drafts/_confirm_noise.html

    class Meta:
        model = Round
        fields = [name for name in OPTIONS if name not in (*NOT_ON_PAGE, "source")]
        field_classes = {"gold_share": PercentField, "closes_at_half_width": PercentField}
        formfield_callback = option_field
        widgets = {
            "reference_links": forms.Textarea(attrs={"rows": 3}),
            "who_can_join": forms.RadioSelect,
            "instructions": forms.Textarea(attrs={"rows": 8}),
            "consent": forms.Textarea(attrs={"rows": 4}),
            "check_questions": forms.Textarea(attrs={"rows": 5}),
            "own_questions": forms.Textarea(attrs={"rows": 5}),
            "closes_at": forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        }

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        limits = [name for name in Limits.OPTIONS if name not in NOT_ON_PAGE]
        self.fields |= forms.fields_for_model(Limits, limits, formfield_callback=option_field)
        self.fields["instructions"].initial = DEFAULT_INSTRUCTIONS

    def groups(self) -> Iterator[tuple[str, list[forms.BoundField], bool]]:
        """Yield (heading, fields, has_errors_or_changes) for each collapsed group."""
        for heading, names in self.GROUPS.items():
            bound = [self[name] for name in names]
            yield heading, bound, any(field.errors or is_changed(field) for field in bound)

    def plan_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.PLAN]

    def clean_instructions(self) -> str:
        """Return "" for the default instructions."""
        text = with_line_feeds(self.cleaned_data["instructions"])
        return "" if text == DEFAULT_INSTRUCTIONS else text

    def clean_strata(self) -> int | list[int] | None:
        text = self.cleaned_data["strata"]
        try:
            ranks = [int(part) for part in text.replace(",", " ").split()]
        except ValueError:
            raise forms.ValidationError(
                "Enter a number of strata, or the first rank of each stratum, for example 1, 100, 1000."
            ) from None
        return (ranks[0] if len(ranks) == 1 else ranks) if ranks else None

    def clean(self) -> None:
        """Skip the uniqueness check of ModelForm, because the services raise NameTaken."""

    def document(self, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the description for `create_draft`. The form must be valid.

        spec: description of the edited draft. Its options that are not on the page are kept.
        """
        spec = spec or {"cells": [{}]}
        values = {key: value for key, value in self.cleaned_data.items() if value is not None and value != ""}
        document = {key: value for key, value in spec.items() if key not in (*self.fields, "takes_guests")}
        document |= {key: values[key] for key in self._meta.fields if key in values}
        if values["confirm_noise"]:
            document["confirm_noise"] = True
        if project := values.get("project"):
            document["project"] = project.slug
        if closes_at := values.get("closes_at"):
            document["closes_at"] = closes_at.isoformat()
        limits = {key: value for key, value in spec.get("limits", {}).items() if key not in self.fields}
        document["limits"] = limits | {key: values[key] for key in Limits.OPTIONS if key in values}
        cell = {key: value for key, value in spec["cells"][0].items() if key not in (*self.fields, "job")}
        cell |= {"n": None} | {key: values[key] for key in self.CELL_FIELDS if key in values}
        return document | {"cells": [cell | {"job": job.pk} for job in values["jobs"]]}

    def accuracy(self) -> float:
        return (self.cleaned_data["accuracy_percent"] or 100 * ASSUMED_ACCURACY) / 100

    def wish(self) -> Wish:
        points = self.cleaned_data["wished_points"] or 100 * WANTED_HALF_WIDTH
        return Wish(points / 100, self.cleaned_data["pay_per_hour"])


def is_changed(field: forms.BoundField) -> bool:
    """Return whether a visible field differs from its initial value."""
    value = field.value()
    if field.is_hidden:
        return False
    return field.field.has_changed(field.field.initial, with_line_feeds(value) if isinstance(value, str) else value)


def with_line_feeds(text: str) -> str:
    """Replace CRLF, which browsers submit, with LF."""
    return text.replace("\r\n", "\n")


def form_values(draft: Round) -> dict[str, Any] | None:
    """Return the values of RoundForm for a draft, or None if the form cannot represent its description."""
    cells = cells_of(draft)
    first = cells[0]
    if draft.source != Round.Source.PEOPLE or not all(cell.job for cell in cells):
        return None
    if any(getattr(cell, name) != getattr(first, name) for cell in cells for name in RoundForm.CELL_FIELDS):
        return None
    return forms.model_to_dict(draft, RoundForm._meta.fields) | {
        **draft.spec.get("limits", {}),
        "instructions": draft.instructions or DEFAULT_INSTRUCTIONS,
        "project": draft.project.slug,
        "jobs": [cell.job for cell in cells],
        "n": first.n,
        "cut": first.cut,
        "strata": ", ".join(map(str, first.strata)) if isinstance(first.strata, list) else first.strata or "",
    }


def job_choices(filters: Mapping[str, str], chosen: set[str], user) -> tuple[list[HarvestJob], int]:
    """Return the jobs to list, with selected jobs first, and the number of all matching jobs.

    A job that is not selected matches only if it is the newest job of its cell.
    """
    jobs = RoundForm.base_fields["jobs"].queryset.visible_to(user)
    by_age = jobs.order_by("pk").values_list("relation", "language_model", "setting", "pk")
    newest = {row[:3]: row[3] for row in by_age}
    lookups = {
        "find": "relation__name__icontains",
        "set": "relation__relation_set__name",
        "lm": "language_model__name",
        "setting": "setting",
    }
    filters = {**filters, "find": filters.get("find", "").replace(" ", "_")}  # pages show names with spaces
    matching = jobs.filter(
        pk__in=newest.values(), **{lookups[key]: value for key, value in filters.items() if value}
    ).exclude(pk__in=chosen)
    first = list(jobs.filter(pk__in=chosen))
    return first + list(matching[: max(SHOWN_JOBS - len(first), 0)]), len(first) + matching.count()


class RelationInstructionsForm(forms.Form):
    instructions = forms.CharField(
        max_length=LONGEST_INSTRUCTIONS,
        required=False,
        widget=forms.Textarea(attrs={"rows": 10}),
        help_text="Markdown. Do not mention LMs or settings.",
    )

    def clean_instructions(self) -> str:
        return with_line_feeds(self.cleaned_data["instructions"])


class DescriptionForm(forms.Form):
    description = forms.CharField(
        label="Description",
        max_length=1_000_000,
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false", "class": "mono"}),
        help_text="JSON description of the round, as read by the command open_round.",
    )

    def clean_description(self) -> Any:
        try:
            return parse_json(self.cleaned_data["description"])
        except json.JSONDecodeError as error:
            raise forms.ValidationError(
                f"Invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}."
            ) from None
