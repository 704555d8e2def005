"""Form for the entity table of a relation set."""

from __future__ import annotations

from django import forms

from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB
from kgharvest.entities.models import EntityTable


class EntityTableForm(forms.ModelForm):
    file = forms.FileField(
        label="Labels",
        required=False,
        help_text="One entity a line: label, aliases separated by |, id, with tabs between them. Its names take the "
        "place of those there are; left empty, these stay.",
    )

    class Meta:
        model = EntityTable
        fields = ["without_articles", "in_singular"]

    def clean_file(self):
        file = self.cleaned_data["file"]
        if file and file.size > LARGEST_FILE:
            raise forms.ValidationError(
                f"The file is larger than {LARGEST_FILE_MB} MB; read it on the server with the command link_entities."
            )
        return file

    def named_file(self) -> tuple[str, bytes] | None:
        """Return name and content of the file, if there is one."""
        file = self.cleaned_data["file"]
        return (file.name, file.read()) if file else None
