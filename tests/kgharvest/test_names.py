"""Resolution and abbreviation of names."""

import pytest

from kgharvest.names import UnresolvedName, resolve_name, shortest_names

HUB, BARE, LAB = "FacebookAI/roberta-large", "roberta-large", "lab/roberta-large"


def test_full_name_takes_precedence_over_equal_short_names():
    assert resolve_name(BARE, [HUB, BARE, LAB], "LM") == BARE


def test_unique_short_name_is_resolved():
    assert resolve_name(BARE, [HUB, "bert-base"], "LM") == HUB


def test_error_for_an_ambiguous_short_name_lists_all_matches():
    with pytest.raises(UnresolvedName, match=f"2 LMs; write one of {HUB}, {LAB}") as refusal:
        resolve_name(BARE, [LAB, HUB], "LM")
    assert refusal.value.is_ambiguous


def test_error_for_an_unknown_name_lists_existing_names():
    with pytest.raises(UnresolvedName, match=f"There is no LM 'roberta-larg'; choose one of {BARE}") as refusal:
        resolve_name("roberta-larg", [BARE], "LM")
    assert not refusal.value.is_ambiguous


def test_short_names_are_used_if_unique():
    assert shortest_names([HUB, LAB, "hub/bert"]) == {HUB: HUB, LAB: LAB, "hub/bert": "bert"}


def test_short_name_equal_to_another_full_name_is_not_used():
    assert shortest_names([HUB, BARE]) == {HUB: HUB, BARE: BARE}
