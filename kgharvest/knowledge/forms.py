"""The form in which a researcher decides about a tuple."""

from __future__ import annotations

from typing import Any

from django import forms

from kgharvest.bulk.file_reading import LONGEST_ENTITY
from kgharvest.knowledge import curation
from kgharvest.models import Curation, KnowledgeTuple

Decision = Curation.Decision


class CurationForm(forms.Form):
    """Hide, correct or restore `known`. The entities are those of a correction; other decisions leave them alone."""

    decision = forms.ChoiceField(widget=forms.RadioSelect)
    reason = forms.CharField(
        max_length=curation.LONGEST_REASON,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Kept with the decision and your name.",
    )

    def __init__(self, known: KnowledgeTuple, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.known = known
        choices = {
            Decision.HIDE: "Hide: keep it out of rounds and exports",
            Decision.CORRECT: "Correct: export other entities in its place",
            Decision.RESTORE: "Restore: take it as the LM said it",
        }
        if known.curation is None:
            del choices[Decision.RESTORE]
        if known.curation == KnowledgeTuple.Curation.HIDDEN:
            del choices[Decision.HIDE]
        self.fields["decision"].choices = [(decision.value, name) for decision, name in choices.items()]
        for slot, entity in enumerate(known.corrected_entities or known.entities):
            self.fields[f"entity_{slot}"] = forms.CharField(
                label=f"Corrected entity {slot}",
                required=False,
                initial=entity,
                max_length=LONGEST_ENTITY,
                widget=forms.TextInput(attrs={"dir": "auto"}),
            )
        self.order_fields(["decision", *(name for name in self.fields if name.startswith("entity_")), "reason"])

    def decide(self, by) -> Curation:
        """Record the decision, once the form is valid. Raises BadCuration."""
        reason = self.cleaned_data["reason"]
        match self.cleaned_data["decision"]:
            case Decision.HIDE:
                return curation.hide(self.known, reason, by)
            case Decision.RESTORE:
                return curation.restore(self.known, reason, by)
        entities = [self.cleaned_data[f"entity_{slot}"] for slot in range(len(self.known.entities))]
        return curation.correct(self.known, entities, reason, by)
