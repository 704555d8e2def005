"""What researchers fill in to draft a round: harvests sampled alike, or the whole description as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from django import forms
from django.db.models import QuerySet

from annotation.models import Layout, Round
from annotation.quality.forms import LimitFields
from annotation.rounds.instructions import DEFAULT_INSTRUCTIONS
from annotation.rounds.plan import ASSUMED_ACCURACY
from annotation.rounds.spec import LONGEST_INSTRUCTIONS, RoundSpec
from kgharvest.bulk.file_reading import parse_json
from kgharvest.models import HarvestJob

SHOWN_JOBS = 500
SAME = (
    "name", "study", "judgments_per_task", "third_only_if_split", "batch_size", "training_size", "max_per_annotator",
    "closes_when", "seed", "include_sensitive", "instructions", "takes_guests", "consent", "layout",
)  # fmt: skip
OF_CELLS = ("n", "cut", "strata", "allocation")
OF_LIMITS = ("gold_accuracy", "n_gold", "median_seconds", "longest_run")


class JobChoices(forms.ModelMultipleChoiceField):
    def label_from_instance(self, job: HarvestJob) -> str:
        return f"{job.relation.path} × {job.language_model.short_name} × {job.setting}"


class RoundForm(LimitFields):
    """A round on several harvests, sampled alike. GROUPS are folded; accuracy_percent is of the plan only.

    study: the usual one of whoever fills it in.
    """

    GROUPS = (
        ("Sample", ("cut", "strata", "allocation", "seed", "include_sensitive")),
        ("Judgments", ("judgments_per_task", "third_only_if_split", "layout", "batch_size")),
        ("Known answers", ("gold_percent", "training_size")),
        ("Instructions", ("instructions", "consent")),
        ("People", ("study", "takes_guests", "max_per_annotator", "dominance_percent")),
        ("Limits", ("gold_accuracy", "n_gold", "median_seconds", "longest_run")),
        ("Closing", ("closes_when", "closes_at")),
    )

    name = forms.SlugField(
        max_length=100, help_text="Letters, digits, - and _. Annotators see it: name no LM and no setting."
    )
    jobs = JobChoices(
        HarvestJob.objects.with_cell().succeeded().filter(n_tuples__gt=0).order_by("-pk"), label="Harvests"
    )
    n = forms.IntegerField(
        label="Statements per harvest", min_value=1, required=False, initial=20, help_text="Empty takes all of the cut."
    )

    cut = forms.CharField(
        max_length=50, required=False, help_text="The best part of each harvest: top:100, share:0.5, base:10, score:-9."
    )
    strata = forms.CharField(
        max_length=500,
        required=False,
        help_text="Empty draws from the whole cut alike. A number splits it into so many parts of equal size; ranks "
        "such as 1, 100, 1000 say where strata begin.",
    )
    allocation = forms.ChoiceField(
        choices=[("equal", "Equal"), ("proportional", "Proportional to their sizes")],
        required=False,
        initial="equal",
        label="Share of each stratum",
    )
    seed = forms.IntegerField(
        min_value=0, max_value=2**63 - 1, required=False, initial=0, help_text="The same seed draws the same sample."
    )
    include_sensitive = forms.BooleanField(label="Draw tuples with sensitive words too", required=False)

    judgments_per_task = forms.IntegerField(
        label="Judgments per statement", min_value=1, max_value=99, required=False, initial=3
    )
    third_only_if_split = forms.BooleanField(
        label="Ask two people first, a third only when they differ",
        required=False,
        help_text="The same verdicts from fewer judgments; with three per statement.",
    )
    layout = forms.ChoiceField(
        choices=Layout.choices, required=False, initial=Layout.ONE, help_text="Annotators may switch."
    )
    batch_size = forms.IntegerField(
        label="Statements in hand",
        min_value=1,
        max_value=100,
        required=False,
        initial=10,
        help_text="Reserved for one annotator at a time.",
    )

    gold_percent = forms.IntegerField(
        label="Gold, in percent",
        min_value=0,
        max_value=50,
        required=False,
        initial=0,
        help_text="Of what an annotator sees: statements with known answers, which look like the others and count "
        "nowhere.",
    )
    training_size = forms.IntegerField(
        label="Statements in training",
        min_value=0,
        max_value=20,
        required=False,
        initial=0,
        help_text="Answered before the first batch, each with the reason for the right answer.",
    )

    instructions = forms.CharField(
        max_length=LONGEST_INSTRUCTIONS,
        required=False,
        initial=DEFAULT_INSTRUCTIONS,
        widget=forms.Textarea(attrs={"rows": 8}),
        help_text="Markdown. What a relation means and examples of it follow by themselves; on the page of the draft "
        "you can word that, too.",
    )
    consent = forms.CharField(
        max_length=LONGEST_INSTRUCTIONS,
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="What annotators must agree to before they join; the time and the text are recorded.",
    )

    study = forms.CharField(
        max_length=100,
        required=False,
        help_text="Its members see the round and its reports. A new name makes a study of your own.",
    )
    takes_guests = forms.BooleanField(
        label="The join link works without an account",
        required=False,
        help_text="Whoever has it gives a name or code. Links for one person each are made once the round is open.",
    )
    max_per_annotator = forms.IntegerField(
        label="Statements that one annotator may judge", min_value=1, required=False, help_text="Empty is no limit."
    )
    dominance_percent = forms.IntegerField(
        label="Largest share of one annotator, in percent",
        min_value=1,
        max_value=100,
        required=False,
        help_text="Of all judgments of the round. Empty is no limit.",
    )

    n_gold = forms.IntegerField(
        label="after so many gold statements", min_value=1, max_value=32767, required=False, initial=10
    )

    closes_when = forms.ChoiceField(
        label="Closes when", choices=Round.ClosesWhen.choices, required=False, initial=Round.ClosesWhen.MANUAL
    )
    closes_at = forms.DateTimeField(
        label="Date",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="Goes with “a date has come”.",
    )

    accuracy_percent = forms.IntegerField(
        label="Accuracy to expect, in percent",
        min_value=1,
        max_value=99,
        required=False,
        initial=round(100 * ASSUMED_ACCURACY),
        help_text="For the widths of intervals below only; 50 gives the widest.",
    )

    def __init__(self, *args, study: str = "", **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["study"].initial = study

    def groups(self) -> Iterator[tuple[str, list[forms.BoundField], bool]]:
        """Yield the folded groups: heading, fields, and whether one of them is wrong or not as usual."""
        for heading, names in self.GROUPS:
            bound = [self[name] for name in names]
            yield heading, bound, any(field.errors or is_unusual(field) for field in bound)

    def clean_instructions(self) -> str:
        """Return "" for the usual instructions: they are what a round has that says nothing of its own."""
        text = with_line_feeds(self.cleaned_data["instructions"])
        return "" if text == DEFAULT_INSTRUCTIONS else text

    def clean_strata(self) -> int | list[int] | None:
        text = self.cleaned_data["strata"]
        try:
            ranks = [int(part) for part in text.replace(",", " ").split()]
        except ValueError:
            raise forms.ValidationError("Give a number of parts, or ranks such as 1, 100, 1000.") from None
        return (ranks[0] if len(ranks) == 1 else ranks) if ranks else None

    def document(self) -> dict[str, Any]:
        """Return what `create_draft` takes, once the form is valid."""
        asked = self.cleaned_data
        cell = {key: asked[key] for key in OF_CELLS if asked[key] is not None and asked[key] != ""}
        document = {key: asked[key] for key in SAME if asked[key] is not None and asked[key] != ""}
        if asked["gold_percent"]:
            document["gold_share"] = asked["gold_percent"] / 100
        if asked["dominance_percent"]:
            document["dominance_cap"] = asked["dominance_percent"] / 100
        limits = {key: asked[key] for key in OF_LIMITS if asked[key] is not None}
        if limits.keys() - {"n_gold"}:
            document["limits"] = limits
        if asked["closes_at"]:
            document["closes_at"] = asked["closes_at"].isoformat()
        return document | {"cells": [{"n": None} | cell | {"job": job.pk} for job in asked["jobs"]]}

    def accuracy(self) -> float:
        return (self.cleaned_data["accuracy_percent"] or 100 * ASSUMED_ACCURACY) / 100


def is_unusual(field: forms.BoundField) -> bool:
    """Return whether the form shows something else than it does at first."""
    value = field.value()
    return field.field.has_changed(field.field.initial, with_line_feeds(value) if isinstance(value, str) else value)


def with_line_feeds(text: str) -> str:
    """Return text as it was before a browser sent it, which ends lines with CRLF."""
    return text.replace("\r\n", "\n")


def form_values(spec: RoundSpec) -> dict[str, Any] | None:
    """Return what RoundForm shows of a description, None if it says more than the form can."""
    samples = {(cell.n, cell.cut, cell.strata, cell.allocation) for cell in spec.cells}
    if len(samples) > 1 or spec.source != Round.Source.PEOPLE:
        return None
    if not all(cell.job for cell in spec.cells):
        return None
    n, cut, strata, allocation = samples.pop()
    values = {key: getattr(spec, key) for key in SAME} | {"n": n, "cut": cut, "allocation": allocation}
    return values | {
        **spec.limits,
        "instructions": spec.instructions or DEFAULT_INSTRUCTIONS,
        "jobs": [cell.job for cell in spec.cells],
        "strata": strata if isinstance(strata, int) else ", ".join(map(str, strata or ())),
        "gold_percent": round(100 * spec.gold_share),
        "dominance_percent": spec.dominance_cap and round(100 * spec.dominance_cap),
        "closes_at": spec.closing_time(),
    }


def job_choices(asked: Mapping[str, str], chosen: set[str]) -> tuple[list[HarvestJob], int]:
    """Return the jobs to choose from, those chosen first, and how many there are; of each cell the newest, filtered."""
    jobs = RoundForm.base_fields["jobs"].queryset
    newest = {(job["relation"], job["language_model"], job["setting"]): job["pk"] for job in _cells(jobs)}
    wanted = _filtered(jobs.filter(pk__in=newest.values()), asked).exclude(pk__in=chosen)
    first = list(jobs.filter(pk__in=chosen))
    return first + list(wanted[: max(SHOWN_JOBS - len(first), 0)]), len(first) + wanted.count()


def _cells(jobs: QuerySet) -> QuerySet:
    return jobs.order_by("pk").values("pk", "relation", "language_model", "setting")


def _filtered(jobs: QuerySet, asked: Mapping[str, str]) -> QuerySet:
    named = {
        "find": "relation__name__icontains",
        "set": "relation__relation_set__name",
        "lm": "language_model__name",
        "setting": "setting",
    }
    return jobs.filter(**{named[key]: value for key, value in asked.items() if value})


class RelationInstructionsForm(forms.Form):
    instructions = forms.CharField(
        max_length=LONGEST_INSTRUCTIONS,
        required=False,
        widget=forms.Textarea(attrs={"rows": 10}),
        help_text="Markdown. Name no LM and no setting.",
    )

    def clean_instructions(self) -> str:
        return with_line_feeds(self.cleaned_data["instructions"])


class DescriptionForm(forms.Form):
    """The description of a round as JSON."""

    description = forms.CharField(
        label="Description",
        max_length=1_000_000,
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false", "class": "mono"}),
        help_text="The JSON of open_round.",
    )

    def clean_description(self) -> Any:
        try:
            return parse_json(self.cleaned_data["description"])
        except json.JSONDecodeError as error:
            raise forms.ValidationError(
                f"Line {error.lineno}, column {error.colno}: this is no JSON ({error.msg})."
            ) from None

    def document(self) -> Any:
        return self.cleaned_data["description"]
