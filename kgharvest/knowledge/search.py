"""Knowledge base search: filters, the search form, and tuples by entity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Protocol

from django import forms
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Concat
from django.db.models.lookups import Contains
from django.http import QueryDict

from kgharvest.access import visible
from kgharvest.bulk.pagination import ROWS_PER_PAGE, Filtered, SearchFilter, apply_filters, keyset_page
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.knowledge.models import KEY_SEPARATOR
from kgharvest.knowledge.visibility import VisibleTuples, was_found_by
from kgharvest.models import EntityOccurrence, HarvestedTuple, HarvestJob, KnowledgeTuple, LanguageModel, Relation
from kgharvest.registries import hook

STATES = [("hidden", "hidden"), ("corrected", "corrected"), ("sensitive", "sensitive")]
ANY = ("", "all")
SORT_COLUMNS = {"score": "best_score", "harvests": "n_harvests", "age": "pk"}
MOST_FINDINGS = 200  # maximum number of harvests listed for a tuple


class KnowledgeSearch(forms.Form):
    """Optional filters of the tuples that a user can see. The LM and setting filters apply to the user's harvests."""

    entity = forms.CharField(
        required=False,
        max_length=LONGEST_ENTITY,
        strip=True,
        widget=forms.TextInput(attrs={"type": "search", "placeholder": "any slot", "dir": "auto"}),
    )
    match = forms.ChoiceField(required=False, label="Match", choices=[("", "starts with"), ("whole", "is exactly")])
    relation = forms.ModelChoiceField(Relation.objects.none(), required=False, empty_label="all")
    slot = forms.IntegerField(required=False, min_value=0, max_value=99, widget=forms.HiddenInput)
    model = forms.ModelChoiceField(LanguageModel.objects.none(), required=False, label="LM", empty_label="all")
    setting = forms.ChoiceField(required=False)
    verdict = forms.ChoiceField(required=False)
    state = forms.ChoiceField(required=False, label="Flags", choices=[ANY, *STATES])
    score_from = forms.FloatField(required=False, label="Minimum best score")
    score_to = forms.FloatField(required=False, label="Maximum best score")

    def __init__(self, query, user, **kwargs: Any):
        super().__init__(query, **kwargs)
        self.verdicts, self.visible = verdicts_visible_to(user), VisibleTuples(user)
        self._harvests = HarvestJob.objects.visible_to(user).filter(n_tuples__gt=0)
        relations = self.visible.relations().select_related("relation_set").only("name", "relation_set__name")
        self.fields["relation"].label_from_instance = attrgetter("path")
        self.fields["relation"].queryset = relations.order_by("relation_set__name", "name")
        self.fields["model"].queryset = LanguageModel.objects.filter(
            Exists(self._harvests.filter(language_model=OuterRef("pk")))
        )
        settings = self._harvests.order_by("setting").values_list("setting", flat=True).distinct()
        self.fields["setting"].choices = [ANY, *((setting, setting) for setting in settings)]
        self.fields["verdict"].choices = [ANY, *self.verdicts.choices]

    @property
    def n_more(self) -> int:
        """Number of filters that are set, except for entity and relation."""
        return sum(bool(self.data.get(name)) for name in self.fields.keys() - {"entity", "relation"})

    @property
    def is_filtered(self) -> bool:
        return any(self.data.get(name) for name in self.fields)

    def filtered(self) -> Filtered:
        """Return the matching tuples, unordered. An invalid form matches no tuples."""
        if not self.is_valid():
            return Filtered(KnowledgeTuple.objects.none())
        columns = {"relation": "relation", "score_from": "best_score__gte", "score_to": "best_score__lte"}
        values = {column: self.cleaned_data[name] for name, column in columns.items()}
        conditions = {column: value for column, value in values.items() if value is not None}
        tuples = KnowledgeTuple.objects.harvested().with_relation().filter(**conditions)
        visible = self.visible.filters(self.cleaned_data["relation"])
        return apply_filters(tuples, [*visible, *self._filters(self.cleaned_data)])

    def _filters(self, cleaned: dict[str, Any]) -> Iterator[SearchFilter]:
        if cleaned["entity"]:
            is_prefix = not cleaned["match"]
            yield has_entity(cleaned["entity"], cleaned["relation"], cleaned["slot"], is_prefix=is_prefix)
        if cleaned["model"] or cleaned["setting"]:
            cell = {"language_model": cleaned["model"], "setting": cleaned["setting"], "relation": cleaned["relation"]}
            yield was_found_by(self._harvests.filter(**{part: value for part, value in cell.items() if value}))
        if cleaned["state"]:
            columns = {"is_sensitive": True} if cleaned["state"] == "sensitive" else {"curation": cleaned["state"]}
            # These columns have partial indexes, which the database would not use for an ordered list.
            yield SearchFilter(KnowledgeTuple.objects.filter(**columns).order_by().values("pk"), Q(**columns))
        if cleaned["verdict"]:
            rows = self.verdicts.with_verdict(cleaned["verdict"])
            yield SearchFilter(_tuple_ids(rows), Exists(rows.filter(knowledge_tuple=OuterRef("pk"))))


def has_entity(
    entity: str, relation: Relation | None = None, slot: int | None = None, is_prefix: bool = False
) -> SearchFilter:
    """Match tuples with `entity` in `slot`, or in any slot if it is None.

    is_prefix: match entities that start with `entity`.
    """
    folded = entity.casefold()
    bounded_key = Concat(Value(KEY_SEPARATOR), F("key"), Value(KEY_SEPARATOR), output_field=TextField())
    condition = Q(Contains(bounded_key, f"{KEY_SEPARATOR}{folded}{'' if is_prefix else KEY_SEPARATOR}"))
    occurrences = EntityOccurrence.objects.starting_with(entity) if is_prefix else EntityOccurrence.objects.of(entity)
    if relation is not None:
        occurrences = occurrences.filter(relation=relation)
    if slot is not None:
        occurrences = occurrences.filter(slot=slot)
        condition &= Q(**{f"entities__{slot}{'__startswith' if is_prefix else ''}": folded})
    return SearchFilter(_tuple_ids(occurrences), condition)


def _tuple_ids(rows: QuerySet) -> QuerySet:
    return rows.order_by().values("knowledge_tuple")


class TupleVerdicts(Protocol):
    """The verdicts that are visible to one user. choices: values of verdicts with their labels.

    tasks: rows with a `knowledge_tuple`, one for each verdict or missing verdict.
    """

    choices: list[tuple[str, str]]
    tasks: QuerySet

    def __init__(self, user) -> None: ...

    def with_verdict(self, verdict: str) -> QuerySet:
        """Return rows whose `knowledge_tuple` has this verdict in a round."""

    def of(self, tuple_ids: Iterable[int]) -> dict[int, list[Any]]:
        """Return the tasks of each tuple, with `round`, `verdict`, `n_true`, `n_false`, and `n_unjudgeable`."""


def verdicts_visible_to(user) -> TupleVerdicts:
    return hook("tuple_verdicts")(user)


def findings_of(knowledge_tuple: KnowledgeTuple, user) -> QuerySet[HarvestedTuple]:
    """Return at most MOST_FINDINGS harvested tuples in the user's projects, largest score first."""
    harvested = visible(knowledge_tuple.harvested_tuples, user, "job__project").defer("job__payload")
    return harvested.select_related("job__language_model", "job__relation").order_by("-score", "pk")[:MOST_FINDINGS]


def best_tuples_of(entity: str, visible: VisibleTuples) -> Sequence[KnowledgeTuple]:
    """Return one page of the visible tuples that have the entity in any slot, largest score first."""
    filters = [has_entity(entity), *visible.filters()]
    filtered = apply_filters(KnowledgeTuple.objects.harvested().with_relation(), filters)
    rows = keyset_page(filtered, "-best_score", QueryDict(), ROWS_PER_PAGE).rows
    visible.count_harvests(rows)
    return rows


def roles_of(entity: str, visible: VisibleTuples) -> list[dict[str, Any]]:
    """Return the relations and slots of the entity in visible tuples, with the numbers of tuples, largest first."""
    occurrences = visible.occurrences(EntityOccurrence.objects.of(entity)).order_by().values("relation", "slot")
    roles = sorted(occurrences.annotate(n=Count("*")), key=lambda role: (-role["n"], role["relation"], role["slot"]))
    relations = Relation.objects.select_related("relation_set").in_bulk({role["relation"] for role in roles})
    return [role | {"relation": relations[role["relation"]]} for role in roles]
