"""What only Prolific asks for: how participants see the study, and who of them does."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from annotation.models import Panel
from annotation.recruiting.prolific.study import (
    CONTENT_WARNINGS,
    DEVICES,
    LONGEST_ALLOWED,
    MOST_SLOTS,
    filter_problems,
    least_allowed_minutes,
)
from kgharvest.pages.number_format import counted

OF_THE_FORM = ("age", "approval_rate")  # filters that have fields of their own
EXAMPLE = '[{"filter_id": "fluent-languages", "selected_values": ["19"]}]'


class StudyForm(forms.Form):
    """The options of a study; `options` are those that panel.platform_options keep."""

    title = forms.CharField(
        max_length=120, help_text="Participants see it in the list of studies: what they will do, in plain words."
    )
    description = forms.CharField(
        max_length=6000,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="What they read before they begin. Simple HTML is shown: p, b, i, ul, ol, li, h1, h2.",
    )
    devices = forms.MultipleChoiceField(
        choices=list(DEVICES.items()), widget=forms.CheckboxSelectMultiple, initial=list(DEVICES)
    )
    content_warning = forms.ChoiceField(
        choices=list(CONTENT_WARNINGS.items()),
        required=False,
        help_text="Statements come from a language model: some may be sensitive.",
    )
    content_warning_details = forms.CharField(max_length=500, required=False)
    youngest = forms.IntegerField(min_value=18, max_value=100, required=False, label="Youngest age")
    oldest = forms.IntegerField(min_value=18, max_value=100, required=False, label="Oldest age")
    least_approved = forms.IntegerField(
        min_value=0,
        max_value=100,
        required=False,
        label="Least approval rate",
        help_text="In percent of what somebody has submitted before.",
    )
    filters = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        label="More filters",
        help_text=f"As JSON, in the names and values that Prolific's list of filters has: {EXAMPLE}",
    )
    maximum_minutes = forms.IntegerField(
        min_value=1,
        max_value=LONGEST_ALLOWED,
        required=False,
        label="Minutes that people may take",
        help_text="Then their place goes to somebody else. Empty: as few as Prolific allows for the estimated time.",
    )
    screen_out_slots = forms.IntegerField(
        min_value=1,
        max_value=MOST_SLOTS,
        required=False,
        label="Most paid screen-outs",
        help_text="So many are paid for being turned away by a check before Prolific pauses the study. Empty: as many "
        "as there are places.",
    )
    project = forms.CharField(
        max_length=50, required=False, help_text="Id of the project at Prolific; empty for the account's first one."
    )
    signs_entry = forms.BooleanField(
        required=False,
        label="Prolific signs the entry link",
        help_text="Only for workspaces that have it. Nobody comes in by a link that Prolific has not signed.",
    )

    def __init__(self, panel: Panel, data: Any = None):
        self.panel = panel
        super().__init__(data, initial=_initial(panel))

    def clean_filters(self) -> list[dict[str, Any]]:
        return read_filters(self.cleaned_data["filters"])

    def clean_maximum_minutes(self) -> int | None:
        minutes, least = self.cleaned_data["maximum_minutes"], least_allowed_minutes(self.panel.estimated_minutes)
        if minutes is not None and minutes < least:
            raise ValidationError(f"Prolific lets people have {least} minutes or more for this.")
        return minutes

    def clean(self) -> dict[str, Any]:
        youngest, oldest = self.cleaned_data.get("youngest"), self.cleaned_data.get("oldest")
        if youngest and oldest and youngest > oldest:
            self.add_error("oldest", "The oldest age is below the youngest.")
        return self.cleaned_data

    @property
    def options(self) -> dict[str, Any]:
        """What the form says, as panel.platform_options keep it. Of a valid form."""
        options = {name: value for name, value in self.cleaned_data.items() if value not in (None, "", [], False)}
        youngest, oldest, least = (options.pop(name, None) for name in ("youngest", "oldest", "least_approved"))
        filters = options.pop("filters", [])
        if youngest or oldest:
            filters = [*filters, _range("age", youngest, oldest)]
        if least is not None:
            filters = [*filters, _range("approval_rate", least, 100)]
        return options | ({"filters": filters} if filters else {})


def _range(name: str, lower: int | None, upper: int | None) -> dict[str, Any]:
    bounds = {"lower": lower, "upper": upper}
    selected = {end: bound for end, bound in bounds.items() if bound is not None}
    return {"filter_id": name, "selected_range": selected}


def _initial(panel: Panel) -> dict[str, Any]:
    options = dict(panel.platform_options)
    filters = options.pop("filters", [])
    ranges = {each["filter_id"]: each["selected_range"] for each in filters if "selected_range" in each}
    ranges = {name: ranges[name] for name in OF_THE_FORM if name in ranges}
    more = [each for each in filters if each["filter_id"] not in ranges]
    n, minutes = counted(panel.statements_per_place, "short statement"), counted(panel.estimated_minutes, "minute")
    return {
        "title": f"Say whether {n} are true",
        "description": f"<p>You read {n}, one at a time, and say of each whether it is true. It takes about {minutes}. "
        "Instructions come first.</p>",
        **options,
        "youngest": ranges.get("age", {}).get("lower"),
        "oldest": ranges.get("age", {}).get("upper"),
        "least_approved": ranges.get("approval_rate", {}).get("lower"),
        "filters": json.dumps(more) if more else "",
    }


def read_filters(text: str) -> list[dict[str, Any]]:
    """Return the filters in a JSON text, an empty one for none. Raises ValidationError."""
    if not text.strip():
        return []
    try:
        filters = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"This is no JSON ({error}). Write them as {EXAMPLE}") from None
    for problem in filter_problems(filters):
        raise ValidationError(f"{problem} Write them as {EXAMPLE}")
    return filters
