"""Main finding of a report."""

from __future__ import annotations

import pytest

from evaluation.reports.document import finding


def total(setting: str, accuracy: float | None, low: float | None = None, high: float | None = None, **fields) -> dict:
    interval = {"macro_accuracy_these_low": low, "macro_accuracy_these_high": high}
    return {"model": "big", "setting": setting, "macro_accuracy": accuracy, "n_relations": 12, **interval, **fields}


def document(*totals: dict, source: str = "people", comparisons=(), relations=(), **first_ranks: int) -> dict:
    sides = [{"model": "big", "setting": setting, "low": low} for setting, low in first_ranks.items()]
    ranks = {"sides": sides, "relations": []}
    cells = [{"relation": relation, "accuracy": 0.5} for relation in relations]
    parts = {"comparisons": list(comparisons), "cells": [*cells, {"relation": "no_verdict", "accuracy": None}]}
    return {"source": source, "totals": list(totals), "ranks": ranks, **parts}


def planned(sentence: str, p_holm: float = 0.01) -> dict:
    return {"planned": True, "sentence": sentence, "p_holm": p_holm}


HUMAN, MULTI = total("human", 0.71, 0.66, 0.75), total("multi", 0.84, 0.79, 0.88)
TOP1 = total("top1", 0.8, 0.75, 0.84)
BOTH = "Mean accuracy over these 12 relations: big · human .71 (.66 to .75); big · multi .84 (.79 to .88)."


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (document(total("human", None)), "No statement has a verdict yet."),
        (document(MULTI), "big · multi: .84 (.79 to .88) of the tuples are true, on average over these 12 relations."),
        (
            document({**MULTI, "n_relations": 1}, relations=["capital_of"]),
            "big · multi: .84 (.79 to .88) of the tuples of capital of are true.",
        ),
        (
            document(*({**side, "n_relations": 1} for side in (HUMAN, MULTI)), relations=["capital_of"] * 2),
            "2 LMs and settings were evaluated. Accuracy of capital of: big · human .71 (.66 to .75); big · multi .84 "
            "(.79 to .88).",
        ),
        (
            document({**MULTI, "model": None, "setting": None, "n_relations": 1}),
            ".84 (.79 to .88) of the tuples are true.",
        ),
        (document(HUMAN, MULTI), f"2 LMs and settings were evaluated. {BOTH}"),
        (document(HUMAN, MULTI, human=1, multi=1), f"2 LMs and settings are not distinguishable. {BOTH}"),
        (
            document(HUMAN, MULTI, TOP1, human=3, multi=1, top1=1),
            "The leading group contains 2 of 3 LMs and settings. Mean accuracy over these 12 relations: big · multi "
            ".84 (.79 to .88); big · top1 .80 (.75 to .84). The others are less accurate (95 %).",
        ),
        (
            document(HUMAN, MULTI, source="simulated"),
            f"Simulated, not people: 2 LMs and settings were evaluated. {BOTH}",
        ),
        (
            document(HUMAN, MULTI, comparisons=[planned("multi beats human."), {"sentence": "Not planned."}]),
            f"2 LMs and settings were evaluated. {BOTH} Preregistered: multi beats human.",
        ),
        (
            document(HUMAN, MULTI, comparisons=[planned("A beats B."), *[planned("Not.", 0.05)] * 5]),
            f"2 LMs and settings were evaluated. {BOTH} 1 of 6 preregistered comparisons are significant.",
        ),
    ],
)
def test_finding_gives_the_leading_group_without_a_winner(document, sentence):
    assert finding(document) == sentence


def test_finding_does_not_depend_on_the_order_of_estimates():
    """The sides are in the order of the report. If the best were first, the order would name a winner."""
    totals = [total(f"s{number}", 0.5 + number / 20) for number in range(6)]

    text = finding(document(*totals, **{f"s{number}": 1 for number in range(6)}))

    assert [text.find(f"big · s{number} ") > 0 for number in range(6)] == [True] * 4 + [False] * 2
    assert text.endswith("; and 2 others.")
