"""Storage of harvested tuples: denormalized columns and entity index."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.db import IntegrityError, transaction

from kgharvest.models import EntityOccurrence, HarvestedTuple, KnowledgeTuple, SensitiveWord
from tests import factories

pytestmark = pytest.mark.django_db


def stored_counts(key: str) -> tuple[int, float | None]:
    return KnowledgeTuple.objects.values_list("n_harvests", "best_score").get(key=key.replace("|", "\x1f"))


def occurrences() -> set[tuple[str, int]]:
    return set(EntityOccurrence.objects.values_list("entity", "slot"))


def test_a_tuple_counts_its_harvests_and_keeps_its_best_score():
    relation = factories.make_relation()
    factories.make_harvest([["a", "b"], ["Dam", "Flood"]], relation=relation)
    factories.make_harvest([["dam", "flood"], ["c", "d"], ["A", "B"]], relation=relation)

    assert stored_counts("dam|flood") == (2, -1.0)
    assert stored_counts("a|b") == (2, -1.0)
    assert stored_counts("c|d") == (1, -2.0)


def test_every_entity_is_indexed_once_per_slot_and_tuple():
    relation = factories.make_relation(arity=3)
    for _ in range(2):
        factories.make_harvest([["Straße", "b", "b"]], relation=relation)

    assert occurrences() == {("strasse", 0), ("b", 1), ("b", 2)}
    assert EntityOccurrence.objects.count() == 3


@pytest.mark.parametrize(
    ("prefix", "entities"),
    [("do", {"dog", "dome"}), ("DOG", {"dog"}), ("ÉT", {"été"}), ("100%", {"100% wool"}), ("x", set())],
)
def test_entity_prefix_search_ignores_case(prefix, entities):
    factories.make_harvest([["Dog", "Été"], ["dome", "100% wool"], ["1000", "elm"]])

    occurrences = EntityOccurrence.objects.starting_with(prefix)

    assert set(occurrences.values_list("entity", flat=True)) == entities


def test_stored_tuple_with_a_sensitive_word_is_marked():
    SensitiveWord.objects.all().delete()
    SensitiveWord.objects.bulk_create([SensitiveWord(word="nude"), SensitiveWord(word="mass shooting")])
    factories.make_harvest([["Nude", "a"], ["denuded", "b"], ["c", "the mass shooting"], ["mass", "shooting"]])

    marked = KnowledgeTuple.objects.filter(is_sensitive=True).values_list("key", flat=True)

    # Only whole words match, and a phrase must lie within one entity.
    assert {key.split("\x1f")[0] for key in marked} == {"nude", "c"}


def test_rounds_and_exports_exclude_hidden_and_sensitive_tuples_by_default():
    factories.make_harvest([["a", "b"], ["c", "d"], ["e", "f"]])
    KnowledgeTuple.objects.filter(key__startswith="a").update(curation="hidden")
    KnowledgeTuple.objects.filter(key__startswith="c").update(is_sensitive=True)

    def ranks(**options):
        return set(HarvestedTuple.objects.presentable(**options).values_list("rank", flat=True))

    assert ranks() == {3}
    assert ranks(include_hidden=True) == {1, 3}
    assert ranks(include_sensitive=True) == {2, 3}
    assert ranks(include_hidden=True, include_sensitive=True) == {1, 2, 3}


def test_a_correction_without_entities_is_not_stored():
    factories.make_harvest([["a", "b"]])

    with pytest.raises(IntegrityError), transaction.atomic():
        KnowledgeTuple.objects.update(curation="corrected")
    with pytest.raises(IntegrityError), transaction.atomic():
        KnowledgeTuple.objects.update(corrected_entities=["a", "c"])


def test_migration_fills_the_columns_of_existing_tuples():
    relation = factories.make_relation()
    for tuples in ([["a", "b"], ["Nazi", "c"]], [["nazi", "c"]]):
        factories.make_harvest(tuples, relation=relation)
    KnowledgeTuple.objects.create(relation=relation, entities=["only", "judged"], key="only\x1fjudged")
    expected = list(KnowledgeTuple.objects.order_by("pk").values())
    indexed = occurrences()
    KnowledgeTuple.objects.update(n_harvests=0, best_score=None, is_sensitive=False)
    EntityOccurrence.objects.all().delete()

    import_module("kgharvest.migrations.0004_fill_knowledge").fill_tuples(apps, None)

    assert list(KnowledgeTuple.objects.order_by("pk").values()) == expected
    assert occurrences() == indexed


def test_a_new_installation_has_the_default_words():
    assert SensitiveWord.objects.filter(word="genocide").exists()
