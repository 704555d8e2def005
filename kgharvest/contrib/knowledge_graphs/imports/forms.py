"""Forms of the KG import: the upload and the mapping of its relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet

from kgharvest.accounts.forms import ProjectField
from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB
from kgharvest.contrib.knowledge_graphs.imports.mapping import (
    BadMapping,
    Target,
    known_target,
    names_that_fit,
    new_target,
    usual_name,
)
from kgharvest.contrib.knowledge_graphs.imports.staging import FileRelation
from kgharvest.contrib.knowledge_graphs.imports.statements import FORMAT_LABELS
from kgharvest.models import Relation
from kgharvest.relations.forms import DatalistInput

MOST_OPTIONS = 1000  # suggestions per field


class UploadForm(forms.Form):
    file = forms.FileField(help_text="TSV or CSV with head, relation and tail; N-Triples; JSON Lines.")
    system = forms.CharField(
        label="System", max_length=500, help_text="What made it, such as GPTKB. It stands where LMs do."
    )
    file_format = forms.ChoiceField(
        label="Format", choices=[("auto", "by its content"), *FORMAT_LABELS.items()], initial="auto"
    )
    labels = forms.FileField(required=False, help_text="Where the file has ids: a line each with id, tab and label.")
    project = ProjectField()

    def clean(self) -> dict[str, Any]:
        for name in ("file", "labels"):
            file = self.cleaned_data.get(name)
            if file and file.size > LARGEST_FILE:
                self.add_error(
                    name, f"The file is larger than {LARGEST_FILE_MB} MB; import it with the command import_kg."
                )
        return self.cleaned_data


class MappingForm(forms.Form):
    """Two fields per relation of the file: an existing relation or a template. Relations with neither are ignored."""

    def __init__(self, relations: Sequence[FileRelation], known: QuerySet[Relation], *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._relations, self._known = relations, known
        paths = known.order_by("relation_set__name", "name").values_list("relation_set__name", "name")
        options = tuple("/".join(path) for path in paths[:MOST_OPTIONS])
        fitting = names_that_fit([relation.name for relation in relations], known)
        for number, relation in enumerate(relations):
            widget = DatalistInput()
            widget.options = options
            target = fitting.get(relation.name)
            self.fields[f"relation_{number}"] = forms.CharField(
                label="Relation here",
                required=False,
                max_length=201,
                widget=widget,
                initial=target.name if target else "",
            )
            self.fields[f"template_{number}"] = forms.CharField(
                label="or template of a new one",
                required=False,
                max_length=1000,
                widget=forms.TextInput(attrs={"placeholder": "[HEAD] … [TAIL].", "size": 40}),
            )

    def rows(self) -> list[tuple[FileRelation, forms.BoundField, forms.BoundField, str]]:
        """Return each relation with its two fields and the slots its template can use besides [HEAD] and [TAIL]."""
        return [
            (
                relation,
                self[f"relation_{number}"],
                self[f"template_{number}"],
                ", ".join(f"[{name}]" for name in relation.others),
            )
            for number, relation in enumerate(self._relations)
        ]

    def targets(self) -> dict[str, Target]:
        """Return the targets of a valid form. Adds errors to the fields."""
        targets: dict[str, Target] = {}
        for number, relation in enumerate(self._relations):
            known, template = (self.cleaned_data[f"{what}_{number}"].strip() for what in ("relation", "template"))
            try:
                if known and template:
                    raise BadMapping("Give a relation here or a template, not both.")
                if known:
                    targets[relation.name] = self._known_target(known, relation.others)
                elif template:
                    targets[relation.name] = new_target(usual_name(relation.name), template)
            except BadMapping as bad:
                self.add_error(f"{'template' if template else 'relation'}_{number}", str(bad))
        return targets

    def _known_target(self, name: str, others: Sequence[str]) -> Target:
        """Return the relation. If the file lacks a value ENT2, ENT3, ..., slots take `others` in order."""
        target = known_target(name, self._known)
        _, _, *slots = target.slots
        if set(slots) <= set(others):
            return target
        own = [name for name in others if not name.startswith("ENT")][: len(slots)]
        return known_target(name, self._known, own) if len(own) == len(slots) else target
