"""Forms of the KG import: upload, and mapping of relations."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet

from kgharvest.accounts.forms import ProjectField
from kgharvest.bulk.file_reading import upload_limit
from kgharvest.contrib.knowledge_graphs.imports.mapping import (
    BadMapping,
    Target,
    default_name,
    existing_target,
    new_target,
    targets_by_name,
)
from kgharvest.contrib.knowledge_graphs.imports.staging import FileRelation
from kgharvest.contrib.knowledge_graphs.imports.statements import FORMAT_LABELS
from kgharvest.models import Relation
from kgharvest.relations.forms import DatalistInput

MOST_OPTIONS = 1000  # suggestions per field
check_file_size = upload_limit("import it with the command import_kg")


class UploadForm(forms.Form):
    file = forms.FileField(
        validators=[check_file_size], help_text="TSV or CSV with head, relation, and tail; N-Triples; or JSON Lines."
    )
    system = forms.CharField(
        label="Source system", max_length=500, help_text="Source system, for example GPTKB. Shown in the LM column."
    )
    file_format = forms.ChoiceField(
        label="Format", choices=[("auto", "detect automatically"), *FORMAT_LABELS.items()], initial="auto"
    )
    labels = forms.FileField(
        required=False,
        validators=[check_file_size],
        help_text="Labels of the ids in the file. One id and label per line, separated by a tab.",
    )
    project = ProjectField()


class MappingForm(forms.Form):
    """Two fields per relation of the file: an existing relation or a template. Relations with neither are ignored."""

    def __init__(self, relations: Sequence[FileRelation], existing: QuerySet[Relation], *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._relations, self._existing = relations, existing
        paths = existing.order_by("relation_set__name", "name").values_list("relation_set__name", "name")
        options = tuple("/".join(path) for path in paths[:MOST_OPTIONS])
        suggested_targets = targets_by_name([relation.name for relation in relations], existing)
        for number, relation in enumerate(relations):
            widget = DatalistInput()
            widget.options = options
            target = suggested_targets.get(relation.name)
            self.fields[f"relation_{number}"] = forms.CharField(
                label="Target relation",
                required=False,
                max_length=201,
                widget=widget,
                initial=target.name if target else "",
            )
            self.fields[f"template_{number}"] = forms.CharField(
                label="New relation template",
                required=False,
                max_length=1000,
                widget=forms.TextInput(attrs={"placeholder": "[HEAD] … [TAIL].", "size": 40}),
            )

    def rows(self) -> list[tuple[FileRelation, forms.BoundField, forms.BoundField, str]]:
        """Return each relation with its two fields and the slots available besides [HEAD] and [TAIL]."""
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
        """Return the targets by relation of the file. The form must be valid. Adds errors to the fields."""
        targets: dict[str, Target] = {}
        for number, relation in enumerate(self._relations):
            name, template = (self.cleaned_data[f"{field}_{number}"].strip() for field in ("relation", "template"))
            try:
                if name and template:
                    raise BadMapping("Enter a target relation or a template, not both.")
                if name:
                    targets[relation.name] = self._existing_target(name, relation.others)
                elif template:
                    targets[relation.name] = new_target(default_name(relation.name), template)
            except BadMapping as error:
                self.add_error(f"{'template' if template else 'relation'}_{number}", str(error))
        return targets

    def _existing_target(self, name: str, others: Sequence[str]) -> Target:
        """Return the relation. If the file lacks a value ENT2, ENT3, ..., slots take `others` in order."""
        target = existing_target(name, self._existing)
        _, _, *slots = target.slots
        if set(slots) <= set(others):
            return target
        values = [value for value in others if not value.startswith("ENT")][: len(slots)]
        return existing_target(name, self._existing, values) if len(values) == len(slots) else target
