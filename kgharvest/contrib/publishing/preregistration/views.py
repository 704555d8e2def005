"""Form, pages, and files of preregistrations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from annotation.models import Round
from annotation.rounds.views import visible_round
from evaluation.rendering.documents import lm_and_setting
from kgharvest.access import Action, researcher_required
from kgharvest.audit.tables import canonical_json
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.plan import (
    LONGEST_HYPOTHESIS,
    SIDES,
    TEXTS,
    Expects,
    HypothesisSerializer,
    PlanSerializer,
    pairs_compared,
    whole_hypothesis,
)
from kgharvest.contrib.publishing.preregistration.report_section import in_words
from kgharvest.contrib.publishing.preregistration.services import check_unjudged, freeze_preregistration, parts_of
from kgharvest.errors import DomainError
from kgharvest.pages.refusals import refusal_in_form
from kgharvest.statistics.paired_tests import Pair, Side
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import markdown_text

FILE_FORMATS = ("json", "md")
MOST_ROWS = 60  # maximum in the form; further comparisons can be planned through the API
NO_LIMITS = "none"  # annotation.models.Limits.sentence if there are no limits


def first_words(round: Round, limits: str) -> dict[str, str]:
    """Return the form's initial texts, based on the options of the round."""
    excluded = "No annotator is excluded."
    if limits != NO_LIMITS:
        excluded = f"Only annotators whom a limit of the round pauses ({limits}) are excluded, if two of us agree."
    return {
        "primary_outcome": "Accuracy of each LM and setting, averaged over relations.",
        "exclusion_rules": excluded,
        "stopping_rule": f"Judging ends {round.get_closes_when_display()}. Accuracies are not viewed before then.",
        "analysis": "The method stated in every report. Analyses that are not planned here are exploratory.",
    }


class PlanForm(forms.Form):
    """Form for a plan. `document()` returns the input for PlanSerializer.

    pairs: pairs of sides that reports compare.
    """

    def __init__(self, sent: Any = None, *, pairs: Sequence[Pair], initial: Mapping[str, Any]) -> None:
        super().__init__(sent, initial=dict(initial))
        self.pairs = pairs[:MOST_ROWS]
        self.n_left_out = len(pairs) - len(self.pairs)
        texts = PlanSerializer().fields
        for name in TEXTS:
            options = {option: getattr(texts[name], option) for option in ("label", "help_text", "max_length")}
            self.fields[name] = forms.CharField(**options, widget=forms.Textarea(attrs={"rows": 3}))
        margin = HypothesisSerializer().fields["margin"]
        for number, pair in enumerate(self.pairs):
            first, second = pair.names
            labels = {Expects.FIRST: f"{first} is more accurate", Expects.SECOND: f"{second} is more accurate"}
            choices = [(expects.value, labels.get(expects, expects.label)) for expects in Expects]
            names = " and ".join(lm_and_setting(_side(side)) for side in (pair.a, pair.b))
            self.fields |= {
                f"planned_{number}": forms.BooleanField(required=False, label=f"Plan {names}"),
                f"expects_{number}": forms.ChoiceField(
                    choices=[("", "no hypothesis"), *choices], required=False, label=f"Hypothesis on {names}"
                ),
                f"margin_{number}": forms.FloatField(
                    required=False,
                    min_value=margin.min_value,
                    max_value=margin.max_value,
                    label=f"Margin for {names} (percentage points)",
                ),
                f"words_{number}": forms.CharField(
                    required=False,
                    max_length=LONGEST_HYPOTHESIS,
                    label=f"Wording of the hypothesis on {names}",
                    widget=forms.TextInput(attrs={"size": 36}),
                ),
            }

    def texts(self) -> Iterator[forms.BoundField]:
        return (self[name] for name in TEXTS)

    def rows(self) -> Iterator[dict[str, Any]]:
        for number, pair in enumerate(self.pairs):
            fields = {name: self[f"{name}_{number}"] for name in ("planned", "expects", "margin", "words")}
            yield {"common": pair.common, "names": pair.names, **fields}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        for number in range(len(self.pairs)):
            expects, margin = cleaned.get(f"expects_{number}"), cleaned.get(f"margin_{number}")
            if expects == Expects.ALIKE and margin is None and f"margin_{number}" not in self.errors:
                self.add_error(f"margin_{number}", "Enter a margin in percentage points.")
            elif not expects and cleaned.get(f"words_{number}"):
                self.add_error(f"expects_{number}", "Select a hypothesis for this wording.")
        return cleaned

    def document(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        comparisons, hypotheses = [], []
        for number, pair in enumerate(self.pairs):
            sides = {"first": _side(pair.a), "second": _side(pair.b)}
            if cleaned[f"planned_{number}"]:
                comparisons.append(sides)
            if expects := cleaned[f"expects_{number}"]:
                margin = cleaned[f"margin_{number}"] if expects == Expects.ALIKE else None
                hypotheses.append({**sides, "expects": expects, "margin": margin, "words": cleaned[f"words_{number}"]})
        return {"hypotheses": hypotheses, "comparisons": comparisons, **{name: cleaned[name] for name in TEXTS}}


def _side(side: Side) -> dict[str, str]:
    return {"model": str(side.model), "setting": str(side.setting)}


@researcher_required
def preregister(request: HttpRequest, path: str) -> HttpResponse:
    """Freeze the current state of the round with the user's plan. Rejected after the first judgment."""
    round = visible_round(request, path, Action.WORK)
    try:
        check_unjudged(round)
        parts = parts_of(round, request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(round)
    last = round.preregistrations.order_by("-version").first()
    words = first_words(round, parts.limits.sentence)
    if last:
        words |= {name: last.document["plan"][name] for name in TEXTS}
    form = PlanForm(request.POST or None, pairs=pairs_compared(parts.cells), initial=words)
    if form.is_valid():
        with refusal_in_form(form):
            plan = PlanSerializer(data=form.document())
            if not plan.is_valid():
                raise DomainError("BadPlan", f"Invalid plan: {plan.errors}")
            frozen = freeze_preregistration(round, plan.validated_data, timezone.now(), request.user)
            messages.success(request, "Preregistration frozen. Cite its SHA-256 when you announce the study.")
            return redirect(frozen)
    return render(request, "publishing/preregistration/preregister.html", {"round": round, "form": form, "last": last})


def find_preregistration(request: HttpRequest, path: str, version: int) -> Preregistration:
    versions = visible_round(request, path).preregistrations.select_related("round__project")
    return get_object_or_404(versions, version=version)


@researcher_required
def preregistration(request: HttpRequest, path: str, version: int) -> HttpResponse:
    frozen = find_preregistration(request, path, version)
    context = {
        "frozen": frozen,
        "round": frozen.round,
        "document": frozen.document,
        "versions": frozen.round.preregistrations.defer("document"),
        **parts_in_words(frozen.document),
    }
    return render(request, "publishing/preregistration/preregistration.html", context)


@researcher_required
def preregistration_file(request: HttpRequest, path: str, version: int, file_format: str) -> HttpResponse:
    return preregistration_download(find_preregistration(request, path, version), file_format)


def preregistration_download(frozen: Preregistration, file_format: str) -> HttpResponse:
    """Return a file of the preregistration. Raises Http404 for an unknown format.

    The SHA-256 of the JSON file equals the recorded hash.
    """
    if file_format not in FILE_FORMATS:
        raise Http404(f"Unknown format {file_format!r:.20}. Available: {', '.join(FILE_FORMATS)}.")
    text = canonical_json(frozen.document) if file_format == "json" else as_markdown(frozen)
    name = f"{frozen.round.name}-preregistration-{frozen.version}.{file_format}"
    return download(text, name)


def parts_in_words(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as text: hypotheses, comparisons, titled texts, and frozen values by path as in deviations."""
    plan, fields = document["plan"], PlanSerializer().fields
    return {
        "hypotheses": [whole_hypothesis(entry) for entry in plan["hypotheses"]],
        "comparisons": [" and ".join(lm_and_setting(entry[side]) for side in SIDES) for entry in plan["comparisons"]],
        "texts": [(str(fields[name].label), plan[name]) for name in TEXTS],
        "values": list(values_of(document["state"])),
    }


def values_of(state: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in sorted(state.items()):
        below = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from values_of(value, below)
        elif (text := in_words(value)) is not None:
            yield below, text


def as_markdown(frozen: Preregistration) -> str:
    """Return the whole document as Markdown."""
    document, parts = frozen.document, parts_in_words(frozen.document)
    lines = [
        f"# Preregistration of {markdown_text(document['round']['name'])}, version {document['version']}",
        "",
        f"Frozen {document['frozen_at']} by the {document['written_by']}, before the first judgment.",
        "",
        f"SHA-256 of the JSON file: `{frozen.sha256}`",
    ]
    for title, key in (("Hypotheses", "hypotheses"), ("Planned comparisons", "comparisons")):
        sentences = [f"- {markdown_text(sentence)}" for sentence in parts[key]]
        lines += ["", f"## {title}", "", *(sentences or ["None."])]
    for title, text in parts["texts"]:
        lines += ["", f"## {title}", "", *(markdown_text(line) for line in text.split("\n"))]
    values = [f"- `{path.replace('`', '')}`: {markdown_text(text)}" for path, text in parts["values"]]
    lines += ["", "## The round", "", *values, "", "## Method of every report", "", markdown_text(document["method"])]
    return "\n".join([*lines, ""])
