"""Form for new text tasks."""

from typing import Any

from django import forms

from kgharvest.accounts.forms import ProjectField
from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB
from kgharvest.contrib.probing.models import TextTask
from kgharvest.contrib.probing.text_tasks.options import LISTS, METHODS_OF, NUMBERS
from kgharvest.contrib.probing.text_tasks.services import TextTaskRequest
from kgharvest.harvests.forms import PlacementForm
from kgharvest.harvests.language_models import PROBED_LM_NAMES_HELP, language_model_for_pages
from kgharvest.models import Relation, RelationSet
from kgharvest.packaged_lms import installed_lms

METHOD_CHOICES = {name: f"{name}: {text}" for methods in METHODS_OF.values() for name, text in methods.items()}


class TextTaskForm(PlacementForm):
    """Task, LM, file, and options. Empty options have the defaults of the task."""

    task = forms.ChoiceField(choices=TextTask.Task.choices, widget=forms.RadioSelect, initial=TextTask.Task.CLASSIFY)
    model = forms.CharField(
        label="Masked LM", max_length=500, initial=installed_lms()[0], help_text=f"Name: {PROBED_LM_NAMES_HELP}."
    )
    lines = forms.FileField(
        label="Texts or facts",
        help_text='JSON lines with "part" (train, dev, or test): texts with "label" and text columns, or facts with '
        '"sub", "obj", and "context" or "evidences".',
    )
    sets = forms.ModelMultipleChoiceField(
        RelationSet.objects.none(),
        label="Relation sets",
        required=False,
        help_text="For facts. Relations without facts in the file are skipped.",
    )
    methods = forms.MultipleChoiceField(
        choices=list(METHOD_CHOICES.items()),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Default: majority, manual, and autoprompt.",
    )
    template = forms.CharField(
        required=False,
        max_length=500,
        help_text="Words, {column} for texts, [T] for triggers, and [P] for the mask. Default: by the columns.",
    )
    manual = forms.CharField(
        label="Manual template", required=False, max_length=500, help_text="Default: the template without triggers."
    )
    label_words = forms.CharField(
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="One label per line, for example positive=good,great. Default: tokens selected by the LM.",
    )
    only_labels = forms.CharField(
        required=False, max_length=1000, help_text="Labels of the texts to use, separated by commas. Default: all."
    )
    balance = forms.BooleanField(required=False, help_text="Sample equally many texts of each label in each part.")
    perturbed = forms.BooleanField(required=False, help_text="For facts: also use contexts with replaced objects.")
    with_control = forms.BooleanField(label="Random-weights control", required=False, initial=True)
    project = ProjectField()

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for name, number in NUMBERS.items():
            kind = forms.FloatField if isinstance(number.minimum, float) else forms.IntegerField
            default = f"{number.default:g}" + (f"; for facts {number.extract}" if number.extract else "")
            self.fields[name] = kind(
                min_value=number.minimum,
                max_value=number.maximum,
                required=False,
                help_text=f"{number.help.capitalize()}. Default: {default}.",
            )
        for name, help_text in LISTS.items():
            self.fields[name] = forms.CharField(
                required=False, max_length=200, help_text=f"{help_text.capitalize()}, separated by commas."
            )

    def offer_sets(self, user: Any) -> None:
        self.fields["sets"].queryset = RelationSet.objects.visible_to(user)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        for name in LISTS:
            parts = items(cleaned.get(name, ""))
            if not all(part.isdecimal() and 0 < int(part) <= 10**6 for part in parts):
                self.add_error(name, "Enter whole numbers above 0, separated by commas.")
            else:
                cleaned[name] = [int(part) for part in parts]
        words = [line.partition("=") for line in cleaned.get("label_words", "").splitlines() if line.strip()]
        if not all(name.strip() and items(text) for name, _, text in words):
            self.add_error("label_words", "Enter each label as NAME=WORD,WORD.")
        cleaned["label_words"] = {name.strip(): items(text) for name, _, text in words}
        cleaned["only_labels"] = items(cleaned.get("only_labels", ""))
        upload = cleaned.get("lines")
        if upload and upload.size > LARGEST_FILE:
            self.add_error("lines", f"{upload.name} is larger than {LARGEST_FILE_MB} MB. Upload a smaller file.")
        elif upload:
            try:
                self.text = upload.read().decode()
            except UnicodeDecodeError:
                self.add_error("lines", f"{upload.name} is not UTF-8. Save it as UTF-8.")
        return cleaned

    def request(self) -> TextTaskRequest:
        """Return the request of a valid form. Raises NotFound for an unknown LM."""
        cleaned = self.cleaned_data
        texts = ("template", "manual", "label_words", "only_labels", "balance", "perturbed", "methods")
        options = {
            name: cleaned[name] for name in (*texts, *NUMBERS, *LISTS) if cleaned[name] not in (None, "", [], {})
        }
        return TextTaskRequest(
            cleaned["task"],
            language_model_for_pages(cleaned["model"].strip()),
            cleaned["lines"].name,
            self.text,
            list(Relation.objects.filter(relation_set__in=cleaned["sets"])),
            options,
            cleaned["with_control"],
            **self.placement(),
        )


def items(text: str) -> list[str]:
    """Return the non-empty items of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]
