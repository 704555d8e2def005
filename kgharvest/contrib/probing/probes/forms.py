"""Form for new probes."""

from collections.abc import Callable
from typing import Any

from django import forms

from evaluation.scores.facts import BUILT_IN
from kgharvest.accounts.forms import ProjectField
from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB
from kgharvest.contrib.probing.models import Probe
from kgharvest.contrib.probing.probes.facts import (
    SPLITS,
    NotProbed,
    documents_of,
    probe_relations,
    read_facts,
    read_prompts,
    read_words,
)
from kgharvest.contrib.probing.probes.services import ProbeParams, ProbeRequest
from kgharvest.contrib.probing.prompt_learning.registry import (
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
from kgharvest.packaged_lms import installed_lms
from kgharvest.relations.forms import RelationPickerForm, non_blank_lines


class ProbeForm(RelationPickerForm, PlacementForm):
    """Relations, LM, methods, and facts from the embedded LMs' world or a file."""

    ready = "with a subject and an object"
    not_ready = "not binary"

    model = forms.ChoiceField(
        label="LM",
        initial=installed_lms()[0],
        widget=forms.RadioSelect,
        error_messages={"required": "Select an LM or enter another LM."},
    )
    other_model = forms.CharField(
        label="Another LM",
        required=False,
        max_length=500,
        help_text=f"Replaces the selection: {PROBED_LM_NAMES_HELP}. Most methods require an LM with a mask token.",
    )
    methods = forms.MultipleChoiceField(
        choices=[(method.name, f"{method.name}: {method.help}") for method in METHODS.values()],
        initial=DEFAULT_METHODS,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Select at least one method."},
    )
    facts = forms.FileField(
        required=False,
        help_text='ZIP file of RELATION/{train,dev,test}.jsonl with lines {"sub", "obj"} as in LAMA. Alternatively, '
        'one file of such lines that also contain "part" and, for several relations, "relation". Default: facts of the '
        "embedded LMs’ world, on which these LMs were trained.",
    )
    split = forms.ChoiceField(
        choices=[("", "parts of the file"), *((name, f"{name}: {help_text}") for name, help_text in SPLITS.items())],
        required=False,
        help_text="Random split of the facts, drawn with the seed. Facts then need no part.",
    )
    prompts = forms.FileField(
        label="Additional prompts",
        required=False,
        help_text='JSON lines {"relation", "template": "[X] ... [Y]"}, for example LAMA’s relations file (its "type" '
        "is also used), or a ZIP file of RELATION.jsonl. Added to the prompts of the relations. Folders named "
        "mined and paraphrased state the origin of their prompts.",
    )
    common_with = forms.CharField(
        label="Shared vocabulary",
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="LMs, one per line. Ranks are counted among words that are single tokens in all these LMs, so that "
        "probes of several LMs are comparable. Leave empty for the whole vocabulary.",
    )
    words = forms.FileField(
        label="Vocabulary",
        required=False,
        help_text="Words among which ranks are counted, one per line. Default: the whole vocabulary.",
    )
    with_control = forms.BooleanField(
        label="Random-weights control",
        required=False,
        initial=ProbeParams.with_control,
        help_text="Also run every method on the same LM with random weights. This doubles the run time.",
    )
    project = ProjectField()
    preset = forms.ChoiceField(
        choices=[(name, name) for name in PRESETS],
        initial=ProbeParams.preset,
        required=False,
        help_text="Defaults for empty fields: tuned for small LMs and about 100 facts, or the published settings.",
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["model"].choices = [(name, name) for name in installed_lms()]
        self.fields["model"].required = not self.data.get("other_model", "").strip()
        for name, option in BUDGET_FIELDS.items():
            least, values = option.metadata["min"], preset_values(name)
            kind = forms.IntegerField if isinstance(least, int) else forms.FloatField
            self.fields[name] = kind(
                min_value=least,
                max_value=option.metadata["max"],
                initial=option.default,
                required=option.default is not None,
                help_text=f"For {systems_with(name)}." + (f" Default: {values}." if values else ""),
            )
        self.fields["seed"] = self.fields.pop("seed")  # last

    def offer_relations(self, user) -> None:
        """Offer the user's relations, and the LMs of probes in the user's projects."""
        super().offer_relations(user)
        probed_lms = LanguageModel.objects.filter(revision="", probes__in=Probe.objects.visible_to(user))
        names = dict.fromkeys([*installed_lms(), *probed_lms.values_list("name", flat=True).distinct()])
        self.fields["model"].choices = [(name, name) for name in names]

    def other_fields(self) -> list[forms.BoundField]:
        return [bound for bound in super().other_fields() if bound.name not in self.PLACEMENT]

    def is_ready(self, relation: Relation) -> bool:
        return relation.arity == 2

    def clean(self) -> dict[str, Any]:
        """Read the files. Problems are added as errors of the file fields."""
        cleaned = super().clean()
        if self.errors:
            return cleaned
        relations = self.chosen_relations()
        names = [relation.name for relation in relations]
        split, seed = cleaned["split"], cleaned["seed"]
        facts = self._read("facts", lambda *file: read_facts(documents_of(*file), names, split=split))
        prompts = self._read("prompts", lambda *file: read_prompts(documents_of(*file), names))
        self.words = self._read("words", read_words) or []
        if not self.errors:
            try:
                self.probe_relations = probe_relations(relations, facts, prompts, split, seed)
            except NotProbed as refusal:
                self.add_error("relations" if facts is None else "facts", str(refusal))
        return cleaned

    def _read(self, name: str, read: Callable[[str, bytes], Any]) -> Any:
        """Return the result of `read` for an uploaded file, or None without one. Add invalid lines as field errors."""
        upload = self.cleaned_data[name]
        if not upload:
            return None
        if upload.size > LARGEST_FILE:
            self.add_error(name, f"{upload.name} is larger than {LARGEST_FILE_MB} MB. Upload a smaller file.")
            return None
        try:
            return read(upload.name, upload.read())
        except ImportRefused as refusal:
            self.add_error(name, [f"{entry.where}: {entry.reason}." for entry in refusal.entries])
            if refusal.n_entries > len(refusal.entries):
                self.add_error(name, f"{refusal.n_entries:,} invalid lines in total.")
        except NotProbed as refusal:
            self.add_error(name, str(refusal))
        return None

    def request(self) -> ProbeRequest:
        """Return the request of a valid form. Raises NotFound for an unknown LM."""
        cleaned = self.cleaned_data
        names = [relation.name for relation in self.probe_relations]
        if cleaned["relations"]:
            name = names[0] if len(names) == 1 else f"{len(names)} relations"
        else:
            name = ", ".join(relation_set.name for relation_set in cleaned["sets"])
        return ProbeRequest(
            language_model=language_model_for_pages(cleaned["other_model"].strip() or cleaned["model"]),
            relations=self.probe_relations,
            methods=cleaned["methods"],
            name=name,
            facts=cleaned["facts"].name if cleaned["facts"] else BUILT_IN,
            params=ProbeParams(
                **{name: cleaned[name] for name in BUDGET_FIELDS},
                preset=cleaned["preset"] or ProbeParams.preset,
                **self.placement(),
                with_control=cleaned["with_control"],
                split=cleaned["split"],
                common_with=[str(language_model_for_pages(name)) for name in non_blank_lines(cleaned["common_with"])],
                words=self.words,
            ),
        )
