"""What researchers fill in to probe an LM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms

from evaluation.scores.facts import BUILT_IN
from kgharvest.accounts.forms import ProjectField
from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB
from kgharvest.contrib.probing.probes.facts import (
    NotProbed,
    documents_of,
    probe_relations,
    read_facts,
    read_prompts,
    read_words,
)
from kgharvest.contrib.probing.probes.services import ProbeParams, ProbeRequest
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.prompt_learning.registry import (
    BUDGET_FIELDS,
    DEFAULT_METHODS,
    METHODS,
    PRESETS,
    preset_values,
    systems_with,
)
from kgharvest.errors import ImportRefused
from kgharvest.harvests.forms import PlacementForm
from kgharvest.harvests.language_models import PROBED_LM_NAMES_HELP, language_model_for_pages
from kgharvest.models import LanguageModel, Relation
from kgharvest.relations.forms import RelationPickerForm, non_blank_lines


def budget_field(name: str) -> forms.Field:
    """Return a field of the learning budget, whose default and bounds the registry of methods declares."""
    option = BUDGET_FIELDS[name]
    kind = forms.IntegerField if isinstance(option.metadata["min"], int) else forms.FloatField
    values = preset_values(name)
    return kind(
        min_value=option.metadata["min"],
        max_value=option.metadata["max"],
        initial=option.default,
        required=option.default is not None,
        help_text=f"Of {systems_with(name)}." + (f" If left empty, {values}." if values else ""),
    )


class ProbeForm(RelationPickerForm, PlacementForm):
    """Relations, an LM and methods; facts of the embedded LMs' world or of a file."""

    ready = "with a subject and an object"
    not_ready = "not binary"

    model = forms.ChoiceField(
        label="LM",
        initial=next(iter(EMBEDDED_LMS)),
        widget=forms.RadioSelect,
        error_messages={"required": "Choose an LM, or name another one."},
    )
    other_model = forms.CharField(
        label="Another LM",
        required=False,
        max_length=500,
        help_text=f"Instead: {PROBED_LM_NAMES_HELP}. Most methods need a masked one.",
    )
    methods = forms.MultipleChoiceField(
        choices=[(method.name, f"{method.name}: {method.help}") for method in METHODS.values()],
        initial=DEFAULT_METHODS,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one method."},
    )
    facts = forms.FileField(
        required=False,
        help_text="Without a file, those of the embedded LMs’ world, which they were trained on. A ZIP file of "
        'RELATION/{train,dev,test}.jsonl with lines {"sub", "obj"} as in LAMA; or one file of such lines, each with '
        '"part" and, if there are several, "relation".',
    )
    prompts = forms.FileField(
        label="More prompts",
        required=False,
        help_text='Besides the relations’ own: lines {"relation", "template": "[X] ... [Y]"}, such as LAMA’s file of '
        'relations, whose "type" is taken over; or a ZIP file of RELATION.jsonl.',
    )
    common_with = forms.CharField(
        label="Vocabulary in common with",
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="LMs, one a line: ranks are counted among the words that they, too, write as one token, so that "
        "probes of several LMs can be compared. Without, among the whole vocabulary.",
    )
    words = forms.FileField(
        label="Words", required=False, help_text="One a line: ranks are counted among these words alone."
    )
    with_control = forms.BooleanField(
        label="Control",
        required=False,
        initial=ProbeParams.with_control,
        help_text="Run every method on the same LM with random weights, too; it takes about as long again.",
    )
    project = ProjectField()
    preset = forms.ChoiceField(
        choices=[(name, name) for name in PRESETS],
        initial=ProbeParams.preset,
        required=False,
        help_text="The values of what is left empty: for small LMs and a hundred facts, or those of the papers.",
    )
    iterations = budget_field("iterations")
    epochs = budget_field("epochs")
    triggers = budget_field("triggers")
    batch_size = budget_field("batch_size")
    learning_rate = budget_field("learning_rate")
    distance_weight = budget_field("distance_weight")
    mask_weight = budget_field("mask_weight")
    seed = budget_field("seed")

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        used = LanguageModel.objects.filter(probes__isnull=False, revision="").values_list("name", flat=True)
        self.fields["model"].choices = [(name, name) for name in dict.fromkeys([*EMBEDDED_LMS, *used.distinct()])]
        self.fields["model"].required = not self.data.get("other_model", "").strip()

    def other_fields(self) -> list[forms.BoundField]:
        return [bound for bound in super().other_fields() if bound.name not in self.PLACEMENT]

    def is_ready(self, relation: Relation) -> bool:
        return relation.arity == 2

    def clean(self) -> dict[str, Any]:
        """Read the files, and say beside them what is wrong with them."""
        cleaned = super().clean()
        if not self.errors:
            self._read_facts_and_prompts()
        return cleaned

    def _read_facts_and_prompts(self) -> None:
        relations = self.chosen_relations()
        names = [relation.name for relation in relations]
        facts, prompts = (
            self._read(field, lambda *file, read=read: read(documents_of(*file), names))
            for field, read in (("facts", read_facts), ("prompts", read_prompts))
        )
        self.words = self._read("words", read_words) or []
        if self.errors:
            return
        try:
            self.probe_relations = probe_relations(relations, facts, prompts)
        except NotProbed as refusal:
            self.add_error("relations" if facts is None else "facts", str(refusal))

    def _read(self, name: str, read: Callable[[str, bytes], Any]) -> Any:
        """Return what `read` makes of an uploaded file, None without one; list its bad lines beside the field."""
        upload = self.cleaned_data[name]
        if not upload:
            return None
        if upload.size > LARGEST_FILE:
            self.add_error(name, f"{upload.name} has more than {LARGEST_FILE_MB} MB; give a part of it.")
            return None
        try:
            return read(upload.name, upload.read())
        except ImportRefused as refusal:
            self.add_error(name, [f"{entry.where}: {entry.reason}." for entry in refusal.entries])
            if refusal.n_entries > len(refusal.entries):
                self.add_error(name, f"{refusal.n_entries:,} lines in all are not as they should be.")
        except NotProbed as refusal:
            self.add_error(name, str(refusal))
        return None

    def request(self) -> ProbeRequest:
        """Return what was asked for, once the form is valid. Raises NotFound if there is no such LM."""
        cleaned = self.cleaned_data
        return ProbeRequest(
            language_model=language_model_for_pages(cleaned["other_model"].strip() or cleaned["model"]),
            relations=self.probe_relations,
            methods=cleaned["methods"],
            name=self._name(),
            facts=cleaned["facts"].name if cleaned["facts"] else BUILT_IN,
            params=ProbeParams(
                **{name: cleaned[name] for name in BUDGET_FIELDS},
                preset=cleaned["preset"] or ProbeParams.preset,
                **self.placement(),
                with_control=cleaned["with_control"],
                common_with=[str(language_model_for_pages(name)) for name in non_blank_lines(cleaned["common_with"])],
                words=self.words,
            ),
        )

    def _name(self) -> str:
        """Say in few words what is probed: whole sets, one relation, or how many."""
        if not self.cleaned_data["relations"]:
            return ", ".join(relation_set.name for relation_set in self.cleaned_data["sets"])
        relations = self.probe_relations
        return relations[0].name if len(relations) == 1 else f"{len(relations)} relations"
