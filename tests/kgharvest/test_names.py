"""Which thing a name means, and what to call things shortly."""

import pytest

from kgharvest.names import UnresolvedName, resolve_name, shortest_names

HUB, BARE, LAB = "FacebookAI/roberta-large", "roberta-large", "lab/roberta-large"


def test_a_full_name_is_never_taken_for_the_short_name_of_another():
    assert resolve_name(BARE, [HUB, BARE, LAB], "LM") == BARE


def test_a_short_name_means_the_only_one_that_bears_it():
    assert resolve_name(BARE, [HUB, "bert-base"], "LM") == HUB


def test_a_short_name_of_several_is_refused_with_all_of_them():
    with pytest.raises(UnresolvedName, match=f"2 LMs; write one of {HUB}, {LAB}") as refusal:
        resolve_name(BARE, [LAB, HUB], "LM")
    assert refusal.value.is_ambiguous


def test_an_unknown_name_is_refused_with_what_is_known():
    with pytest.raises(UnresolvedName, match=f"There is no LM 'roberta-larg'; choose one of {BARE}") as refusal:
        resolve_name("roberta-larg", [BARE], "LM")
    assert not refusal.value.is_ambiguous


def test_things_are_called_by_their_short_names_where_these_differ():
    assert shortest_names([HUB, LAB, "hub/bert"]) == {HUB: HUB, LAB: LAB, "hub/bert": "bert"}


def test_a_full_name_without_slash_keeps_others_from_being_called_so():
    assert shortest_names([HUB, BARE]) == {HUB: HUB, BARE: BARE}
