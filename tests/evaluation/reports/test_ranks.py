"""Ranks in reports, compared with the significant differences of the same report."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from evaluation.evidence.evidence import Evidence, cells_of, drawn_verdicts
from evaluation.reports.document import build_document, finding, tables_to_read
from evaluation.reports.sections.comparisons import (
    NOTHING_RANKED,
    comparison_entries,
    rank_entry,
    rank_table,
    relation_rank_table,
)
from evaluation.reports.sections.rates import cell_entries
from kgharvest.statistics.paired_tests import CellKey
from tests.evaluation.evidence_factory import make_evidence

SETTINGS = ("human", "top1", "multi")


def evidence_of(n_relations: int, n_accepted, n: int = 20) -> Evidence:
    """n_accepted: function from relation number and setting to the number of accepted statements out of n."""
    cells = {
        CellKey(f"r{number:02}", "big", setting): (hits := n_accepted(number, setting), n - hits, 0, 0)
        for setting in SETTINGS
        for number in range(n_relations)
    }
    return make_evidence(cells)


def document_of(n_relations: int, n_accepted) -> dict:
    return build_document(evidence_of(n_relations, n_accepted))


def ranks(document: dict) -> dict[str, tuple[int, int]]:
    return {side["setting"]: (side["low"], side["high"]) for side in document["ranks"]["sides"]}


def test_clear_differences_give_single_ranks():
    document = document_of(12, lambda relation, setting: 16 - 6 * SETTINGS.index(setting) + relation % 3)

    assert ranks(document) == {"human": (1, 1), "top1": (2, 2), "multi": (3, 3)}
    assert finding(document).startswith("The leading group contains 1 of 3 LMs and settings")


def test_similar_settings_have_full_rank_range():
    document = document_of(12, lambda relation, setting: 10 + relation % 4)

    table = rank_table(document)
    assert ranks(document) == dict.fromkeys(SETTINGS, (1, 3))
    assert {row.values[-1] for row in table.rows} == {"all others"}
    assert any(note.startswith("No difference is significant") for note in table.notes)
    assert finding(document).startswith("3 LMs and settings are not distinguishable")
    assert not relation_rank_table(document).rows


@pytest.mark.parametrize("n_relations", [2, 4, 8])
def test_ranks_distinguish_only_significant_differences(n_relations):
    rng = np.random.default_rng(n_relations)
    for _ in range(5):
        evidence = evidence_of(n_relations, lambda *_: int(rng.integers(4, 20)), n=30)
        drawn = drawn_verdicts(evidence)
        cells = cells_of(evidence, drawn)

        compared = comparison_entries(evidence, cells, drawn)
        sides = rank_entry(evidence, cell_entries(cells), drawn)["sides"]

        significant = {frozenset((entry["a"], entry["b"])) for entry in compared if entry["p_holm"] < 0.05}
        tied = {side["setting"]: {other["setting"] for other in side["tied_with"]} for side in sides}
        distinguished = {frozenset(pair) for pair in combinations(SETTINGS, 2) if pair[1] not in tied[pair[0]]}
        assert distinguished <= significant


def test_relation_ranks_appear_if_some_are_distinguished():
    def accepted(relation: int, setting: str) -> int:
        return {"human": 19, "top1": 18, "multi": 2}[setting] if relation == 1 else 10

    document = document_of(3, accepted)

    [relation] = document["ranks"]["relations"]
    assert document["ranks"]["n_relations"] == 3
    assert relation["relation"] == "r01"
    assert [(side["low"], side["high"]) for side in relation["sides"]] == [(1, 2), (1, 2), (3, 3)]
    assert [row.values for row in relation_rank_table(document).rows] == [("r01", "1 to 2", "1 to 2", "3")]


def test_single_relation_ranks_cells_but_not_averages():
    document = document_of(1, lambda _, setting: {"human": 19, "top1": 18, "multi": 2}[setting])

    assert document["ranks"]["sides"] == []
    assert document["ranks"]["reason"] == NOTHING_RANKED
    assert len(document["ranks"]["relations"]) == 1


def test_single_setting_has_no_rank():
    document = build_document(make_evidence({CellKey("r", "big", "human"): (5, 5, 0, 0)}))

    assert document["ranks"] is None
    assert not {"ranks", "relation-ranks"} & {table.name for table in tables_to_read(document)}


def test_pairs_with_different_lm_and_setting_are_ranked():
    cells = {
        CellKey(f"r{number}", model, setting): (hits, 30 - hits, 0, 0)
        for model, setting, hits in (("big", "human", 28), ("small", "multi", 5))
        for number in range(8)
    }

    document = build_document(make_evidence(cells))

    assert document["comparisons"] == []
    assert [(side["low"], side["high"]) for side in document["ranks"]["sides"]] == [(1, 1), (2, 2)]


def test_side_without_common_relation_counts_as_tied():
    cells = {
        CellKey(relation, "big", setting): (hits, 30 - hits, 0, 0)
        for setting, hits, relations in (("human", 28, "abcdefgh"), ("top1", 5, "abcdefgh"), ("multi", 15, "xyz"))
        for relation in relations
    }

    document = build_document(make_evidence(cells))

    assert ranks(document) == {"human": (1, 2), "top1": (2, 3), "multi": (1, 3)}
    assert (document["ranks"]["n_pairs"], document["ranks"]["n_tested"]) == (3, 1)
    assert "2 pairs without two shared relations could not be compared and count as tied." in rank_table(document).notes
