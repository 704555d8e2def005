"""Lookup of relations and relation sets by name."""

import pytest

from kgharvest.errors import NotFound
from kgharvest.models import Relation
from kgharvest.names import UnresolvedName, short_name
from kgharvest.relations.names import resolve_relation
from tests import factories

pytestmark = pytest.mark.django_db


def test_bare_name_selects_project_relations_first():
    shipped = factories.make_relation_set(is_shipped=True)
    factories.make_relation("prevent", relation_set=shipped)
    own = factories.make_relation("prevent")

    assert resolve_relation("prevent") == own
    assert resolve_relation(f"{shipped.name}/prevent").relation_set == shipped
    assert resolve_relation("prevent", shipped.name).relation_set == shipped


@pytest.mark.parametrize(
    ("full_name", "expected"),
    [
        ("demo/prevent", "prevent"),
        ("FacebookAI/roberta-large", "roberta-large"),
        ("/models/mine/", "mine"),
        ("http://127.0.0.1:8000/v1#gpt2", "gpt2"),
        ("http://127.0.0.1:8000/v1#lab/llama@/models/tokenizer", "llama"),
    ],
)
def test_the_short_name_is_the_last_part_of_the_full_name(full_name, expected):
    assert short_name(full_name) == expected


def test_bare_name_selects_a_built_in_relation_as_fallback():
    relation = factories.make_relation("prevent", relation_set=factories.make_relation_set(is_shipped=True))

    assert resolve_relation("prevent") == relation


def test_demo_relation_precedes_other_built_in_relations_with_a_warning(caplog):
    for name in ("another", "demo"):
        factories.make_relation("prevent", relation_set=factories.make_relation_set(name, is_shipped=True))

    assert resolve_relation("prevent").path == "demo/prevent"
    [message] = caplog.messages
    assert "demo/prevent" in message
    assert "another/prevent" in message


def test_relation_named_with_its_set_is_selected_without_warning(caplog):
    for name in ("another", "demo"):
        factories.make_relation("prevent", relation_set=factories.make_relation_set(name, is_shipped=True))

    assert resolve_relation("another/prevent").path == "another/prevent"
    assert caplog.messages == []


def test_an_ambiguous_name_in_built_in_sets_requires_the_set():
    for name in ("a", "b"):
        factories.make_relation("prevent", relation_set=factories.make_relation_set(name, is_shipped=True))

    with pytest.raises(UnresolvedName, match=r"'prevent' is .* 2 relations; write one of a/prevent, b/prevent"):
        resolve_relation("prevent")


def test_an_ambiguous_name_in_project_sets_requires_the_set():
    for name in ("a", "b"):
        factories.make_relation("prevent", relation_set=factories.make_relation_set(name))

    with pytest.raises(UnresolvedName, match=r"'prevent' is .* 2 relations; write one of a/prevent, b/prevent"):
        resolve_relation("prevent")


def test_an_unknown_name_lists_the_existing_names():
    factories.make_relation("prevent")

    with pytest.raises(NotFound, match=r"There is no relation 'preventt'; .* prevent"):
        resolve_relation("preventt")


def test_relations_of_other_projects_are_neither_selected_nor_listed():
    relation = factories.make_relation("prevent")
    foreign_set = factories.make_relation_set(project=factories.make_project())
    foreign_relation = factories.make_relation("prevent", relation_set=foreign_set)
    among = Relation.objects.visible_to(factories.make_researcher())

    assert resolve_relation("prevent", among=among) == relation
    with pytest.raises(NotFound, match="import relations first"):
        resolve_relation(foreign_relation.path, among=among)
