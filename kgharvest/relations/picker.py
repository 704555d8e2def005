"""Relation picker: a form to choose relations, in whole sets or one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django import forms
from django.db.models import Q

from kgharvest.models import Relation, RelationSet


class RelationChoice(NamedTuple):
    relation: Relation
    is_ready: bool
    is_chosen: bool


class SetChoice(NamedTuple):
    """A set with its relations; `is_chosen` as a whole."""

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
    """Relations and sets, laid out by `kgharvest/relations/_relation_picker.html`; forms add what is done with them.

    is_ready: whether it can be done with a relation; ready: what can be done then; not_ready: why it cannot else.
    """

    is_ready: Callable[[Relation], bool]
    ready: str
    not_ready: str

    relations = forms.ModelMultipleChoiceField(Relation.objects, required=False)
    sets = forms.ModelMultipleChoiceField(RelationSet.objects, required=False)

    def offer_relations(self, user) -> None:
        """Let the form offer what the user sees, not all of the installation."""
        self.fields["relations"].queryset = Relation.objects.visible_to(user)
        self.fields["sets"].queryset = RelationSet.objects.visible_to(user)

    def other_fields(self) -> list[forms.BoundField]:
        """Return the fields that need no template of their own."""
        return [self[name] for name in self.fields if name not in ("relations", "sets")]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not cleaned.get("relations") and not cleaned.get("sets") and not {"relations", "sets"} & set(self.errors):
            self.add_error("relations", "Choose at least one relation, or a whole set.")
        return cleaned

    def choices_by_set(self) -> list[SetChoice]:
        """Return every relation that can be chosen, in the sets, with what was chosen before."""
        chosen_sets = {str(value) for value in self["sets"].value() or ()}
        chosen = {str(value) for value in self["relations"].value() or ()}
        choices: dict[RelationSet, list[RelationChoice]] = {}
        columns = ("name", "statement", "arity", "seed_tuples", "relation_set")
        relations = self.fields["relations"].queryset.select_related("relation_set")
        for relation in relations.only(*columns, "relation_set__name"):
            choice = RelationChoice(relation, self.is_ready(relation), str(relation.pk) in chosen)
            choices.setdefault(relation.relation_set, []).append(choice)
        return [
            SetChoice(relation_set, relations, str(relation_set.pk) in chosen_sets)
            for relation_set, relations in choices.items()
        ]

    def chosen_relations(self) -> list[Relation]:
        """Return the chosen relations, once the form is valid; of whole sets, those that are ready."""
        relations, sets = self.cleaned_data["relations"], self.cleaned_data["sets"]
        chosen = Relation.objects.filter(Q(pk__in=relations) | Q(relation_set__in=sets)).select_related("relation_set")
        return [relation for relation in chosen if relation.relation_set not in sets or self.is_ready(relation)]
