"""Relations and sets by the names that people write."""

import pytest

from kgharvest.errors import NotFound
from kgharvest.models import Relation
from kgharvest.names import UnresolvedName, short_name
from kgharvest.relations.names import resolve_relation
from tests import factories

pytestmark = pytest.mark.django_db


def test_a_bare_name_means_the_users_own_relation_before_a_shipped_one():
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
def test_a_short_name_is_what_people_call_it(full_name, expected):
    assert short_name(full_name) == expected


def test_a_shipped_relation_is_found_when_there_is_no_other():
    relation = factories.make_relation("prevent", relation_set=factories.make_relation_set(is_shipped=True))

    assert resolve_relation("prevent") == relation


def test_of_shipped_relations_the_demos_is_meant_and_the_choice_is_said(caplog):
    for name in ("another", "demo"):
        factories.make_relation("prevent", relation_set=factories.make_relation_set(name, is_shipped=True))

    assert resolve_relation("prevent").path == "demo/prevent"
    assert caplog.messages == [
        "'prevent' is taken to mean demo/prevent, not another/prevent; name the set for another."
    ]


def test_a_relation_named_with_its_set_is_taken_without_a_word(caplog):
    for name in ("another", "demo"):
        factories.make_relation("prevent", relation_set=factories.make_relation_set(name, is_shipped=True))

    assert resolve_relation("another/prevent").path == "another/prevent"
    assert caplog.messages == []


def test_a_name_in_several_shipped_sets_without_the_demos_asks_for_the_set():
    for name in ("a", "b"):
        factories.make_relation("prevent", relation_set=factories.make_relation_set(name, is_shipped=True))

    with pytest.raises(UnresolvedName, match=r"'prevent' is .* 2 relations; write one of a/prevent, b/prevent"):
        resolve_relation("prevent")


def test_a_name_in_several_own_sets_asks_for_the_set():
    for name in ("a", "b"):
        factories.make_relation("prevent", relation_set=factories.make_relation_set(name))

    with pytest.raises(UnresolvedName, match=r"'prevent' is .* 2 relations; write one of a/prevent, b/prevent"):
        resolve_relation("prevent")


def test_an_unknown_relation_is_answered_with_the_known_ones():
    factories.make_relation("prevent")

    with pytest.raises(NotFound, match="There is no relation 'preventt'; choose one of prevent"):
        resolve_relation("preventt")


def test_of_other_projects_no_relation_is_meant_and_none_is_told():
    ours = factories.make_relation("prevent")
    foreign = factories.make_relation_set(project=factories.make_project())
    theirs = factories.make_relation("prevent", relation_set=foreign)
    among = Relation.objects.visible_to(factories.make_researcher())

    assert resolve_relation("prevent", among=among) == ours
    with pytest.raises(NotFound, match="import some"):
        resolve_relation(theirs.path, among=among)
