"""Forms of relations and their sets: write, import, add prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet

from kgharvest.accounts.forms import ProjectField
from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB, upload_limit
from kgharvest.engine.settings import SETTINGS
from kgharvest.models import Project, Relation, RelationSet
from kgharvest.relations.checks import LONGEST_EXPLANATION, LONGEST_SENTENCE, RelationEntry, one_line
from kgharvest.relations.files import RelationFile, read_relation_file
from kgharvest.relations.prompt_files import IMPORTED, ORIGINS, PromptFile
from kgharvest.relations.services import is_in_use, save_relation, validate_relation

SEPARATOR = "|"
FROM_INITIAL_PROMPTS = " and ".join(
    f"<code>{name}</code>" for name, setting in SETTINGS.items() if not setting.takes_ready_prompts
)


def non_blank_lines(text: str) -> list[str]:
    """Return the lines that are not blank, without spaces around them."""
    return [line.strip() for line in text.splitlines() if line.strip()]


class DatalistInput(forms.TextInput):
    """A text input that suggests `options` and takes anything."""

    template_name = "kgharvest/relations/_datalist_input.html"
    options: tuple[str, ...] = ()

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        listed = {**(attrs or {}), "list": f"{attrs['id']}_options"}
        return {**super().get_context(name, value, listed), "options": self.options}


class RelationForm(forms.Form):
    """A relation; `relation` is the one to change, None writes a new one. Name and set of one in use are fixed.

    sets: to suggest; by default all that are not shipped.
    """

    name = forms.CharField(max_length=100, help_text="Short and without spaces, such as <code>place_for</code>.")
    set_name = forms.CharField(
        label="Set", max_length=100, widget=DatalistInput, help_text="One of your sets, or the name of a new one."
    )
    project = ProjectField("Of a set that is new.")
    statement = forms.CharField(
        max_length=LONGEST_SENTENCE,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="What people judge, with <code>&lt;ENT0&gt;</code>, <code>&lt;ENT1&gt;</code>, ... once each: "
        "<code>&lt;ENT0&gt; prevents &lt;ENT1&gt;.</code>",
    )
    explanation = forms.CharField(
        max_length=LONGEST_EXPLANATION,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="What counts and what does not.",
    )
    seed_tuples = forms.CharField(
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="True examples, at least two: one a line, the entities in the order of the slots, separated by "
        "<code>|</code> or pasted from a spreadsheet: <code>vaccine | measles</code>",
    )
    initial_prompts = forms.CharField(
        max_length=100_000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="How an LM is asked, one a line, with the same slots. Left empty: the statement.",
    )
    prompts = forms.CharField(
        label="Ready prompts",
        max_length=100_000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=f"For every setting but {FROM_INITIAL_PROMPTS}, one a line. Left empty: they are paraphrases of the "
        "initial ones.",
    )

    def __init__(
        self,
        *args: Any,
        relation: Relation | None = None,
        sets: QuerySet[RelationSet] | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.relation = relation
        own = RelationSet.objects.filter(is_shipped=False) if sets is None else sets
        self.fields["set_name"].widget.options = tuple(own.values_list("name", flat=True))
        self.is_in_use = relation is not None and is_in_use(relation)
        for name in ("name", "set_name"):
            self.fields[name].disabled = self.is_in_use

    def clean_seed_tuples(self) -> str:
        text = self.cleaned_data["seed_tuples"]
        for number, entities in enumerate(parse_seed_tuples(text), start=1):
            if len(entities) == 1:
                raise forms.ValidationError(
                    f"Seed tuple {number} has no {SEPARATOR} between its entities; write vaccine {SEPARATOR} measles."
                )
        return text

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not self.errors:
            # Where the statement is the only prompt too, that is where an error of the prompts is mended.
            has_prompts = non_blank_lines(cleaned["initial_prompts"])
            for error in validate_relation(self.entry(), cleaned["set_name"], self.relation):
                field = "statement" if error.field == "initial_prompts" and not has_prompts else error.field
                reason = f"Seed tuple {error.seed_number} {error.reason}" if error.seed_number else error.reason
                self.add_error(field, f"{reason[:1].upper()}{reason[1:]}.")
        return cleaned

    def entry(self) -> RelationEntry:
        """Return what was written, once every field alone is valid."""
        cleaned = self.cleaned_data
        statement = " ".join(cleaned["statement"].split())
        return RelationEntry(
            where="",
            name=cleaned["name"],
            statement=statement,
            explanation=cleaned["explanation"],
            initial_prompts=non_blank_lines(cleaned["initial_prompts"]) or [statement],
            prompts=non_blank_lines(cleaned["prompts"]),
            seed_tuples=parse_seed_tuples(cleaned["seed_tuples"]),
        )

    def save(self, by, project: Project | None = None) -> Relation:
        return save_relation(self.entry(), self.cleaned_data["set_name"], self.relation, by, project)


def initial_values(relation: Relation) -> dict[str, str]:
    """Return what a form shows of a relation; it reads as the same relation."""
    return {
        "name": relation.name,
        "set_name": relation.relation_set.name,
        "statement": relation.statement,
        "explanation": relation.explanation,
        "seed_tuples": "\n".join(map(_seed_line, relation.seed_tuples)),
        "initial_prompts": "\n".join(map(one_line, relation.initial_prompts)),
        "prompts": "\n".join(map(one_line, relation.prompts)),
    }


def _seed_line(entities: Sequence[str]) -> str:
    is_ambiguous = any(SEPARATOR in entity for entity in entities)
    return ("\t" if is_ambiguous else f" {SEPARATOR} ").join(entities)


def parse_seed_tuples(text: str) -> list[list[str]]:
    """Return the entities of each line; a line with tabs is split there and nowhere else."""
    lines = [line for line in text.split("\n") if line.strip()]  # other ends of lines may stand in an entity
    return [[entity.strip() for entity in line.split("\t" if "\t" in line else SEPARATOR)] for line in lines]


class ImportForm(forms.Form):
    file = forms.FileField(
        validators=[upload_limit("split it and import the parts")],
        help_text="This project's JSON, the BertNet code's <code>relation_info</code> JSON, or LAMA's JSON lines.",
    )
    set_name = forms.CharField(
        label="Set", max_length=100, required=False, help_text="Left empty: the name that the file has."
    )
    project = ProjectField("Of a set that is new.")

    def relation_file(self) -> RelationFile:
        """Return what the file says. Raises ImportRefused."""
        file = self.cleaned_data["file"]
        return read_relation_file(file.name, file.read())


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Several files at once."""

    widget = FilesInput

    def clean(self, data, initial=None):
        files = data if isinstance(data, list) else [data]
        return [super(FilesField, self).clean(file, initial) for file in files or [None]]


class PromptsForm(forms.Form):
    """Files of prompts for a set's relations."""

    files = FilesField(
        help_text="<code>RELATION.jsonl</code>, as LPAQA released them, with lines "
        '<code>{"template": "[X] was born in [Y] .", "weight": 0.31}</code>; several at once if you like.'
    )
    origin = forms.ChoiceField(
        label="How they came to be",
        choices=[(origin, origin) for origin in (*dict.fromkeys(ORIGINS.values()), IMPORTED)],
    )
    least_weight = forms.FloatField(
        required=False, min_value=0, help_text="Prompts of a smaller weight are left out. Left empty: all are taken."
    )

    def clean_files(self):
        files = self.cleaned_data["files"]
        if sum(file.size for file in files) > LARGEST_FILE:
            raise forms.ValidationError(f"The files are larger than {LARGEST_FILE_MB} MB; import fewer at a time.")
        return files

    def prompt_files(self) -> list[PromptFile]:
        """Raises ImportRefused."""
        files, origin = self.cleaned_data["files"], self.cleaned_data["origin"]
        return [PromptFile(file.name, origin, file.read()) for file in files]


class SetForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="Letters, digits, - and _.")
    description = forms.CharField(
        max_length=LONGEST_EXPLANATION, required=False, widget=forms.Textarea(attrs={"rows": 3, "class": "short"})
    )


class DuplicateSetForm(forms.Form):
    name = forms.CharField(label="Name of the copy", max_length=100, help_text="Letters, digits, - and _.")
    project = ProjectField()
