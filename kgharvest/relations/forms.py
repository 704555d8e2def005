"""Forms for relations and relation sets: editing, importing files, importing prompts, and picking relations."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django import forms
from django.db.models import Q, QuerySet

from kgharvest.accounts.forms import ProjectField
from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB, upload_limit
from kgharvest.engine.settings import SETTINGS
from kgharvest.models import Relation, RelationSet
from kgharvest.relations.checks import LONGEST_EXPLANATION, LONGEST_SENTENCE, SEED_COLUMNS, RelationEntry, one_line
from kgharvest.relations.prompt_files import ORIGIN_CHOICES
from kgharvest.relations.services import is_in_use, validate_relation

SEPARATOR = "|"
INITIAL_PROMPT_SETTINGS = " and ".join(
    f"<code>{name}</code>" for name, setting in SETTINGS.items() if not setting.takes_ready_prompts
)


def non_blank_lines(text: str) -> list[str]:
    """Return the lines of `text` that are not blank, stripped."""
    return [line.strip() for line in text.splitlines() if line.strip()]


class DatalistInput(forms.TextInput):
    """Text input that suggests `options` but accepts any text."""

    template_name = "kgharvest/relations/_datalist_input.html"
    options: tuple[str, ...] = ()

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        attrs = {**(attrs or {}), "list": f"{attrs['id']}_options"}
        return {**super().get_context(name, value, attrs), "options": self.options}


class RelationForm(forms.Form):
    """Form for a new relation or for changes to `relation`. Name and set are read-only if the relation is in use.

    sets: sets to suggest; by default all sets that are not built-in.
    """

    name = forms.CharField(
        max_length=100, help_text="Short name without spaces and /, for example <code>place_for</code>."
    )
    set_name = forms.CharField(
        label="Set",
        max_length=100,
        widget=DatalistInput,
        help_text="Name of one of your sets or of a new set. Letters, digits, -, and _.",
    )
    project = ProjectField("Project of a new set.")
    statement = forms.CharField(
        max_length=LONGEST_SENTENCE,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="Sentence that annotators judge. Use each slot <code>&lt;ENT0&gt;</code>, "
        "<code>&lt;ENT1&gt;</code>, ... once: <code>&lt;ENT0&gt; prevents &lt;ENT1&gt;.</code>",
    )
    explanation = forms.CharField(
        max_length=LONGEST_EXPLANATION,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "short"}),
        help_text="Criteria for judging the statement.",
    )
    seed_tuples = forms.CharField(
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="At least two true examples, one per line. Enter the entities in slot order, separated by "
        "<code>|</code> (<code>vaccine | measles</code>), or paste them from a spreadsheet.",
    )
    negative_seed_tuples = forms.CharField(
        max_length=100_000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="False examples that show the limits of the relation, one per line, for causal LMs and chat models. "
        "Other LMs ignore them.",
    )
    initial_prompts = forms.CharField(
        max_length=100_000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Prompts from which further prompts are created, one per line, with the same slots. "
        "Default: the statement.",
    )
    prompts = forms.CharField(
        label="Predefined prompts",
        max_length=100_000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=f"Prompts for all settings except {INITIAL_PROMPT_SETTINGS}, one per line. Default: paraphrases of "
        "the initial prompts.",
    )

    def __init__(self, *args, relation: Relation | None = None, sets: QuerySet[RelationSet] | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.relation = relation
        sets = RelationSet.objects.filter(is_shipped=False) if sets is None else sets
        self.fields["set_name"].widget.options = tuple(sets.values_list("name", flat=True))
        self.is_in_use = relation is not None and is_in_use(relation)
        for name in ("name", "set_name"):
            self.fields[name].disabled = self.is_in_use

    @property
    def has_details(self) -> bool:
        """True if a field of the folded part has a value or an error."""
        details = ("explanation", "negative_seed_tuples", "initial_prompts", "prompts")
        return any(self[name].value() or self[name].errors for name in details)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        invalid = set(self.errors)
        unseparated = [
            (column, number)
            for column in SEED_COLUMNS
            for number, entities in enumerate(parse_seed_tuples(cleaned.get(column, "")), start=1)
            if len(entities) == 1
        ]
        for column, number in unseparated:
            self.add_error(
                column,
                f"Seed tuple {number} has no {SEPARATOR} between its entities. "
                f"Write, for example, vaccine {SEPARATOR} measles.",
            )
        # If there are no initial prompts, the statement is used as the prompt, so the error belongs to the statement
        # field.
        has_prompts = non_blank_lines(cleaned.get("initial_prompts", ""))
        for error in validate_relation(self.entry(), cleaned.get("set_name", ""), self.relation):
            field = "statement" if error.field == "initial_prompts" and not has_prompts else error.field
            if field not in invalid and (field, error.seed_number) not in unseparated:
                self.add_error(field, f"{str(error)[:1].upper()}{str(error)[1:]}.")
        return cleaned

    def entry(self) -> RelationEntry:
        """Return the entered relation, with "" for invalid fields."""
        text = {name: self.cleaned_data.get(name, "") for name in self.fields if name != "project"}
        statement = " ".join(text["statement"].split())
        return RelationEntry(
            where="",
            name=text["name"],
            statement=statement,
            explanation=text["explanation"],
            initial_prompts=non_blank_lines(text["initial_prompts"]) or [statement],
            prompts=non_blank_lines(text["prompts"]),
            **{column: parse_seed_tuples(text[column]) for column in SEED_COLUMNS},
        )


def initial_values(relation: Relation) -> dict[str, str]:
    """Return the form values of a relation. Submitting them unchanged saves the same relation."""
    return {
        "name": relation.name,
        "set_name": relation.relation_set.name,
        "statement": relation.statement,
        "explanation": relation.explanation,
        **{column: "\n".join(map(seed_line, getattr(relation, column))) for column in SEED_COLUMNS},
        "initial_prompts": "\n".join(map(one_line, relation.initial_prompts)),
        "prompts": "\n".join(map(one_line, relation.prompts)),
    }


def seed_line(entities: Sequence[str]) -> str:
    return ("\t" if SEPARATOR in "".join(entities) else f" {SEPARATOR} ").join(entities)


def parse_seed_tuples(text: str) -> list[list[str]]:
    """Return the entities of each line. Lines with tabs are split only at tabs, other lines at the separator."""
    # Do not use splitlines: entities may contain other line separators.
    lines = [line for line in text.split("\n") if line.strip()]
    return [[entity.strip() for entity in line.split("\t" if "\t" in line else SEPARATOR)] for line in lines]


class ImportForm(forms.Form):
    file = forms.FileField(
        validators=[upload_limit("split it and import the parts")],
        help_text="kgharvest JSON, <code>relation_info</code> JSON of the BertNet code, or JSON Lines of LAMA or "
        "E-KAR.",
    )
    set_name = forms.CharField(
        label="Set", max_length=100, required=False, help_text="Set name. Default: the name in the file."
    )
    project = ProjectField("Project of a new set.")


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    widget = FilesInput

    def clean(self, data, initial=None):
        files = data if isinstance(data, list) else [data]
        return [super(FilesField, self).clean(file, initial) for file in files or [None]]


class PromptsForm(forms.Form):
    files = FilesField(
        help_text="One or more files <code>RELATION.jsonl</code> in the LPAQA format, with lines such as "
        '<code>{"template": "[X] was born in [Y] .", "weight": 0.31}</code>.'
    )
    origin = forms.ChoiceField(choices=[(origin, origin) for origin in ORIGIN_CHOICES])
    least_weight = forms.FloatField(
        label="Minimum weight",
        required=False,
        min_value=0,
        help_text="Prompts with smaller weights are skipped. Leave empty to import all prompts.",
    )

    def clean_files(self):
        files = self.cleaned_data["files"]
        if sum(file.size for file in files) > LARGEST_FILE:
            raise forms.ValidationError(
                f"The files are larger than {LARGEST_FILE_MB} MB in total. Import fewer files at a time."
            )
        return files


class SetForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="Letters, digits, -, and _.")
    description = forms.CharField(
        max_length=LONGEST_EXPLANATION, required=False, widget=forms.Textarea(attrs={"rows": 3, "class": "short"})
    )


class DuplicateSetForm(forms.Form):
    name = forms.CharField(label="Name of the copy", max_length=100, help_text="Letters, digits, -, and _.")
    project = ProjectField()


class RelationChoice(NamedTuple):
    relation: Relation
    is_ready: bool
    is_chosen: bool


class SetChoice(NamedTuple):
    """A relation set with its relations. is_chosen: True if the whole set is chosen."""

    relation_set: RelationSet
    relations: list[RelationChoice]
    is_chosen: bool

    @property
    def n_ready(self) -> int:
        return sum(choice.is_ready for choice in self.relations)

    @property
    def is_open(self) -> bool:
        return not self.is_chosen and any(choice.is_chosen for choice in self.relations)


class RelationPickerForm(forms.Form):
    """Form to choose relations and whole sets, rendered by `kgharvest/relations/_relation_picker.html`.

    Subclasses add the fields of their action and set three attributes. is_ready: function that returns whether the
    action is possible for a relation. ready: label of the relations that are ready. not_ready: reason shown next to
    other relations.
    """

    is_ready: Callable[[Relation], bool]
    ready: str
    not_ready: str

    relations = forms.ModelMultipleChoiceField(Relation.objects, required=False)
    sets = forms.ModelMultipleChoiceField(RelationSet.objects, required=False)

    def offer_relations(self, user) -> None:
        """Limit the choices to the relations and sets visible to `user`."""
        self.fields["relations"].queryset = Relation.objects.visible_to(user)
        self.fields["sets"].queryset = RelationSet.objects.visible_to(user)

    def other_fields(self) -> list[forms.BoundField]:
        """Return all fields except relations and sets."""
        return [self[name] for name in self.fields if name not in ("relations", "sets")]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not cleaned.get("relations") and not cleaned.get("sets") and not {"relations", "sets"} & set(self.errors):
            self.add_error("relations", "Choose at least one relation or set.")
        return cleaned

    def choices_by_set(self) -> list[SetChoice]:
        """Return the available relations by set, with the submitted choices."""
        chosen_sets = {str(value) for value in self["sets"].value() or ()}
        chosen_relations = {str(value) for value in self["relations"].value() or ()}
        choices: dict[RelationSet, list[RelationChoice]] = {}
        columns = ("name", "statement", "arity", "seed_tuples", "relation_set")
        relations = self.fields["relations"].queryset.select_related("relation_set")
        for relation in relations.only(*columns, "relation_set__name", "relation_set__is_shipped"):
            choice = RelationChoice(relation, self.is_ready(relation), str(relation.pk) in chosen_relations)
            choices.setdefault(relation.relation_set, []).append(choice)
        return [
            SetChoice(relation_set, relations, str(relation_set.pk) in chosen_sets)
            for relation_set, relations in choices.items()
        ]

    def chosen_relations(self) -> list[Relation]:
        """Return the chosen relations and the ready relations of chosen sets. The form must be valid."""
        relations, sets = self.cleaned_data["relations"], self.cleaned_data["sets"]
        chosen = Relation.objects.filter(Q(pk__in=relations) | Q(relation_set__in=sets)).select_related("relation_set")
        return [relation for relation in chosen if relation.relation_set not in sets or self.is_ready(relation)]
