"""What the address of the knowledge base asks for."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import Exists, OuterRef, QuerySet

from kgharvest.models import EntityOccurrence, HarvestedTuple, HarvestJob, KnowledgeTuple, LanguageModel, Relation
from kgharvest.services.reading import LONGEST_ENTITY
from kgharvest.services.verdicts import TupleVerdicts

STATES = [("hidden", "hidden"), ("corrected", "corrected"), ("sensitive", "sensitive")]
ANY = ("", "all")


class RelationChoice(forms.ModelChoiceField):
    def label_from_instance(self, relation: Relation) -> str:
        return relation.path


class KnowledgeSearch(forms.Form):
    """The filters of the knowledge base; all are optional. Its `tuples` are those that fit."""

    entity = forms.CharField(
        required=False,
        max_length=LONGEST_ENTITY,
        strip=True,
        widget=forms.TextInput(attrs={"type": "search", "placeholder": "any slot", "dir": "auto"}),
    )
    match = forms.ChoiceField(required=False, label="Entity", choices=[("", "starts with"), ("whole", "is exactly")])
    relation = RelationChoice(Relation.objects.none(), required=False, empty_label="all")
    slot = forms.IntegerField(required=False, min_value=0, max_value=99, widget=forms.HiddenInput)
    model = forms.ModelChoiceField(LanguageModel.objects.none(), required=False, label="LM", empty_label="all")
    setting = forms.ChoiceField(required=False)
    verdict = forms.ChoiceField(required=False)
    state = forms.ChoiceField(required=False, label="Marked", choices=[ANY, *STATES])
    score_from = forms.FloatField(required=False, label="Best score from")
    score_to = forms.FloatField(required=False, label="to")

    def __init__(self, address, verdicts: TupleVerdicts, **kwargs: Any):
        super().__init__(address, **kwargs)
        self.verdicts = verdicts
        harvested = HarvestJob.objects.filter(n_tuples__gt=0)
        relations = Relation.objects.filter(Exists(harvested.filter(relation=OuterRef("pk"))))
        named = relations.select_related("relation_set").only("name", "relation_set__name")
        self.fields["relation"].queryset = named.order_by("relation_set__name", "name")
        self.fields["model"].queryset = LanguageModel.objects.filter(
            Exists(harvested.filter(language_model=OuterRef("pk")))
        )
        settings = harvested.order_by("setting").values_list("setting", flat=True).distinct()
        self.fields["setting"].choices = [ANY, *((setting, setting) for setting in settings)]
        self.fields["verdict"].choices = [ANY, *verdicts.choices]

    @property
    def is_filtered(self) -> bool:
        return any(self.data.get(name) for name in self.fields)

    def tuples(self) -> QuerySet:
        """Return the tuples that fit, in no order; none if something asked for makes no sense."""
        if not self.is_valid():
            return KnowledgeTuple.objects.none()
        asked = self.cleaned_data
        tuples = _by_columns(KnowledgeTuple.objects.found(), asked)
        for rows in (self._occurrences(asked), _harvested(asked), self._judged(asked)):
            if rows is not None:
                tuples = tuples.named_by(rows)
        return tuples

    def _occurrences(self, asked: dict[str, Any]) -> QuerySet | None:
        if not asked["entity"]:
            return None
        occurrences = EntityOccurrence.objects
        found = occurrences.of(asked["entity"]) if asked["match"] else occurrences.starting_with(asked["entity"])
        if asked["relation"]:
            found = found.filter(relation=asked["relation"])
        return found if asked["slot"] is None else found.filter(slot=asked["slot"])

    def _judged(self, asked: dict[str, Any]) -> QuerySet | None:
        return self.verdicts.with_verdict(asked["verdict"]) if asked["verdict"] else None


def _by_columns(tuples: QuerySet, asked: dict[str, Any]) -> QuerySet:
    conditions = {
        "relation": asked["relation"],
        "best_score__gte": asked["score_from"],
        "best_score__lte": asked["score_to"],
    }
    if asked["state"] == "sensitive":
        conditions["is_sensitive"] = True
    elif asked["state"]:
        conditions["curation"] = asked["state"]
    return tuples.filter(**{column: value for column, value in conditions.items() if value is not None})


def _harvested(asked: dict[str, Any]) -> QuerySet | None:
    """Return what harvests of the LM, of the setting, or of both found; None if neither is asked for."""
    if not (asked["model"] or asked["setting"]):
        return None
    cell = {"language_model": asked["model"], "setting": asked["setting"], "relation": asked["relation"]}
    jobs = HarvestJob.objects.filter(n_tuples__gt=0, **{part: value for part, value in cell.items() if value})
    return HarvestedTuple.objects.filter(job__in=list(jobs.values_list("pk", flat=True)))
