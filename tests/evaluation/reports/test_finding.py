"""Main finding of a report."""

from __future__ import annotations

import pytest

from evaluation.reports.document import finding


def total(setting: str, accuracy: float | None, **fields) -> dict:
    return {"model": "big", "setting": setting, "macro_accuracy": accuracy, "n_relations": 12, **fields}


def document(*totals: dict, p: float | None = None, source: str = "people") -> dict:
    compared = {"kind": "settings", "model": "big", "a": "human", "b": "multi", "p_holm": p}
    return {"source": source, "totals": list(totals), "comparisons": [] if p is None else [compared]}


HUMAN = total("human", 0.71)
MULTI = total("multi", 0.84, macro_accuracy_low=0.79, macro_accuracy_high=0.88)
SINGLE = MULTI | {"n_relations": 1, "macro_accuracy_these_low": 0.62, "macro_accuracy_these_high": 0.95}
BEST = (
    "big · multi is the most accurate of 2 in the sample: .84 (.79 to .88) of its tuples are true, on average over 12 "
    "relations. "
    "Next is big · human with .71"
)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (document(total("human", None)), "No statement has a verdict yet."),
        (document(MULTI), "big · multi: .84 (.79 to .88) of its tuples are true, on average over 12 relations."),
        (document(SINGLE), "big · multi: .84 (.62 to .95) of its tuples are true, on average over 1 relation."),
        (document(HUMAN, MULTI), f"{BEST}."),
        (document(HUMAN, MULTI, p=0.012), f"{BEST}; the difference is significant (Holm-adjusted p: .012)."),
        (document(HUMAN, MULTI, p=0.05), f"{BEST}; the difference is not significant (Holm-adjusted p: .050)."),
        (document(HUMAN, MULTI, source="simulated"), f"Simulated, not people: {BEST}."),
    ],
)
def test_finding_names_best_setting_and_significance(document, sentence):
    assert finding(document) == sentence
