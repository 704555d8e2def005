"""Forms for the curation of a tuple and for the list of sensitive words."""

from typing import Any

from django import forms

from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.knowledge import curation
from kgharvest.models import Curation, KnowledgeTuple

Decision = Curation.Decision


class CurationForm(forms.Form):
    """Form for a decision to hide, correct, or restore a tuple. The entity fields are used only for corrections."""

    decision = forms.ChoiceField(widget=forms.RadioSelect)
    reason = forms.CharField(
        max_length=curation.LONGEST_REASON,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="The reason is stored with the decision and your name.",
    )

    def __init__(self, knowledge_tuple: KnowledgeTuple, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.knowledge_tuple = knowledge_tuple
        choices = {
            Decision.HIDE: "Hide: exclude the tuple from rounds and exports",
            Decision.CORRECT: "Correct: export the corrected entities",
            Decision.RESTORE: "Restore: use the original tuple",
        }
        if knowledge_tuple.curation is None:
            del choices[Decision.RESTORE]
        if knowledge_tuple.curation == KnowledgeTuple.Curation.HIDDEN:
            del choices[Decision.HIDE]
        self.fields["decision"].choices = [(decision.value, name) for decision, name in choices.items()]
        for slot, entity in enumerate(knowledge_tuple.corrected_entities or knowledge_tuple.entities):
            self.fields[f"entity_{slot}"] = forms.CharField(
                label=f"Corrected entity {slot}",
                required=False,
                initial=entity,
                max_length=LONGEST_ENTITY,
                widget=forms.TextInput(attrs={"dir": "auto"}),
            )
        self.order_fields(["decision", *(name for name in self.fields if name.startswith("entity_")), "reason"])

    def decide(self, by) -> Curation:
        """Record the decision. The form must be valid. Raises BadCuration."""
        cleaned, entities = self.cleaned_data, None
        if cleaned["decision"] == Decision.CORRECT:
            entities = [cleaned[f"entity_{slot}"] for slot in range(len(self.knowledge_tuple.entities))]
        return curation.curate(self.knowledge_tuple, cleaned["decision"], cleaned["reason"], by, entities)


class SensitiveWordsForm(forms.Form):
    words = forms.CharField(
        required=False,
        label="Words and phrases",
        widget=forms.Textarea(attrs={"rows": 16, "spellcheck": "false"}),
        help_text="One entry per line. Entries match whole words of an entity, ignoring case.",
    )
