"""What makes two entities of a set one, as people fill it in."""

from __future__ import annotations

from django import forms

from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB
from kgharvest.entities.models import EntityTable
from kgharvest.webhooks.addresses import LONGEST_URL


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


class LookupForm(forms.Form):
    url = forms.CharField(
        label="Address of the service",
        max_length=LONGEST_URL,
        widget=forms.URLInput(attrs={"placeholder": "https://wikidata.reconci.link/en/api"}),
        help_text="Any service of the Reconciliation API (W3C), such as Wikidata's.",
    )
    type = forms.CharField(
        label="Type",
        required=False,
        max_length=200,
        help_text="Id that the service has for what the entities are, as Q6256 for countries; empty for anything.",
    )
