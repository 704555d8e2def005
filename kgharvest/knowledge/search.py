"""Search in the knowledge base: its filters, and the form whose fields choose among them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from django import forms
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Concat
from django.db.models.lookups import Contains, Lookup
from django.http import QueryDict

from kgharvest.bulk.pagination import ROWS_PER_PAGE, Filtered, SearchFilter, apply_filters, keyset_page
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.knowledge.models import KEY_SEPARATOR
from kgharvest.models import EntityOccurrence, HarvestedTuple, HarvestJob, KnowledgeTuple, LanguageModel, Relation
from kgharvest.registries import hook

STATES = [("hidden", "hidden"), ("corrected", "corrected"), ("sensitive", "sensitive")]
ANY = ("", "all")


class RelationChoice(forms.ModelChoiceField):
    def label_from_instance(self, relation: Relation) -> str:
        return relation.path


class KnowledgeSearch(forms.Form):
    """The filters of the knowledge base; all are optional. Its `filtered` tuples are those that fit.

    harvests: by whose LM and setting one may search; by default all.
    """

    entity = forms.CharField(
        required=False,
        max_length=LONGEST_ENTITY,
        strip=True,
        widget=forms.TextInput(attrs={"type": "search", "placeholder": "any slot", "dir": "auto"}),
    )
    match = forms.ChoiceField(required=False, label="Match", choices=[("", "starts with"), ("whole", "is exactly")])
    relation = RelationChoice(Relation.objects.none(), required=False, empty_label="all")
    slot = forms.IntegerField(required=False, min_value=0, max_value=99, widget=forms.HiddenInput)
    model = forms.ModelChoiceField(LanguageModel.objects.none(), required=False, label="LM", empty_label="all")
    setting = forms.ChoiceField(required=False)
    verdict = forms.ChoiceField(required=False)
    state = forms.ChoiceField(required=False, label="Marked", choices=[ANY, *STATES])
    score_from = forms.FloatField(required=False, label="Best score from")
    score_to = forms.FloatField(required=False, label="to")

    def __init__(self, address, verdicts: TupleVerdicts, harvests: QuerySet | None = None, **kwargs: Any):
        super().__init__(address, **kwargs)
        self.verdicts = verdicts
        every = HarvestJob.objects.filter(n_tuples__gt=0)
        harvested = self._harvested = every if harvests is None else harvests.filter(n_tuples__gt=0)
        relations = Relation.objects.filter(Exists(every.filter(relation=OuterRef("pk"))))
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

    def filtered(self) -> Filtered:
        """Return the tuples that fit, in no order; none if a field makes no sense."""
        if not self.is_valid():
            return Filtered(KnowledgeTuple.objects.none())
        columns = {"relation": "relation", "score_from": "best_score__gte", "score_to": "best_score__lte"}
        values = {column: self.cleaned_data[name] for name, column in columns.items()}
        conditions = {column: value for column, value in values.items() if value is not None}
        tuples = KnowledgeTuple.objects.harvested().with_relation().filter(**conditions)
        return apply_filters(tuples, self._filters(self.cleaned_data))

    def _filters(self, cleaned: dict[str, Any]) -> Iterator[SearchFilter]:
        if cleaned["entity"]:
            named = has_entity if cleaned["match"] else has_entity_starting_with
            yield named(cleaned["entity"], cleaned["relation"], cleaned["slot"])
        if cleaned["model"] or cleaned["setting"]:
            cell = {"language_model": cleaned["model"], "setting": cleaned["setting"], "relation": cleaned["relation"]}
            parts = {part: value for part, value in cell.items() if value}
            yield was_found_by(self._harvested.filter(**parts))
        if cleaned["state"]:
            columns = {"is_sensitive": True} if cleaned["state"] == "sensitive" else {"curation": cleaned["state"]}
            yield is_marked(**columns)
        if cleaned["verdict"]:
            rows = self.verdicts.with_verdict(cleaned["verdict"])
            yield SearchFilter(_tuple_ids(rows), Exists(rows.filter(knowledge_tuple=OuterRef("pk"))))


# -- filters -----------------------------------------------------------------------------------------------------------


def has_entity(entity: str, relation: Relation | None = None, slot: int | None = None) -> SearchFilter:
    """The tuple has `entity`, in `slot` if that is given."""
    folded = entity.casefold()
    condition = _key_contains(f"{KEY_SEPARATOR}{folded}{KEY_SEPARATOR}")
    if slot is not None:
        condition &= Q(**{f"entities__{slot}": folded})
    return SearchFilter(_ids_at(EntityOccurrence.objects.of(entity), relation, slot), condition)


def has_entity_starting_with(prefix: str, relation: Relation | None = None, slot: int | None = None) -> SearchFilter:
    """The tuple has an entity that starts with `prefix`, in `slot` if that is given."""
    folded = prefix.casefold()
    condition = _key_contains(f"{KEY_SEPARATOR}{folded}")
    if slot is not None:
        condition &= Q(**{f"entities__{slot}__startswith": folded})
    return SearchFilter(_ids_at(EntityOccurrence.objects.starting_with(prefix), relation, slot), condition)


def _ids_at(occurrences: QuerySet, relation: Relation | None, slot: int | None) -> QuerySet:
    if relation is not None:
        occurrences = occurrences.filter(relation=relation)
    if slot is not None:
        occurrences = occurrences.filter(slot=slot)
    return _tuple_ids(occurrences)


def _tuple_ids(rows: QuerySet) -> QuerySet:
    return rows.order_by().values("knowledge_tuple")


def _key_contains(text: str) -> Q:
    bounded = Concat(Value(KEY_SEPARATOR), F("key"), Value(KEY_SEPARATOR), output_field=TextField())
    return Q(Contains(bounded, text))


def is_marked(**columns: Any) -> SearchFilter:
    """The tuple has these values in columns with a partial index, which the order of a list would keep from use."""
    return SearchFilter(KnowledgeTuple.objects.filter(**columns).order_by().values("pk"), Q(**columns))


class IsOneOf(Lookup):
    """A whole number is one of many, which are one parameter: PostgreSQL takes 65,535 of them."""

    lookup_name = "is_one_of"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        number, parameters = self.process_lhs(compiler, connection)
        if connection.vendor == "postgresql":
            return f"{number} = ANY(%s::bigint[])", [*parameters, list(self.rhs)]
        listed = "SELECT value FROM json_each(%s)"
        return f"{number} IN ({listed})", [*parameters, json.dumps(list(self.rhs))]


def was_found_by(jobs: QuerySet) -> SearchFilter:
    """The tuple was found by one of these harvests."""
    job_ids = list(jobs.order_by().values_list("pk", flat=True))
    # As a sum, the number of the job is in no index: the tuple's few rows are looked at, not one range for each job.
    findings = HarvestedTuple.objects.filter(IsOneOf(F("job") + 0, job_ids))
    return SearchFilter(
        _tuple_ids(HarvestedTuple.objects.filter(job__in=jobs)),
        Exists(findings.filter(knowledge_tuple=OuterRef("pk"))),
    )


# -- verdicts ----------------------------------------------------------------------------------------------------------


class TupleVerdicts(Protocol):
    """The judged tuples that one user may know of. choices: verdicts with their names."""

    choices: list[tuple[str, str]]

    def __init__(self, user) -> None: ...

    def with_verdict(self, verdict: str) -> QuerySet:
        """Return rows with a `knowledge_tuple`, those that got the verdict in some round."""

    def of(self, tuple_ids: Iterable[int]) -> dict[int, list[Any]]:
        """Return the tasks of each tuple, with `round`, `verdict`, `n_true`, `n_false` and `n_unjudgeable`."""


def verdicts_known_to(user) -> TupleVerdicts:
    return hook("tuple_verdicts")(user)


# -- entities ----------------------------------------------------------------------------------------------------------


def best_tuples_of(entity: str) -> Sequence[KnowledgeTuple]:
    """Return a page of the tuples that have the entity in any slot, those with the best scores first."""
    filtered = apply_filters(KnowledgeTuple.objects.harvested().with_relation(), [has_entity(entity)])
    return keyset_page(filtered, "-best_score", QueryDict(), ROWS_PER_PAGE).rows


def roles_of(entity: str) -> list[dict[str, Any]]:
    """Return the relations and slots that the entity occurs in, with the number of tuples, most first."""
    occurrences = EntityOccurrence.objects.of(entity).order_by().values("relation", "slot").annotate(n=Count("*"))
    roles = sorted(occurrences, key=lambda role: (-role["n"], role["relation"], role["slot"]))
    relations = Relation.objects.select_related("relation_set").in_bulk({role["relation"] for role in roles})
    return [role | {"relation": relations[role["relation"]]} for role in roles]
