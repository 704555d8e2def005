"""Shipped copy of the paper's Table 5: its numbers are consistent with each other and with the report tests."""

import pytest

from evaluation.comparisons.report_comparison import load_table5
from evaluation.reports.sections.comparisons import compare_sides
from kgharvest.statistics.paired_tests import Side
from kgharvest.statistics.rates import macro_average

TABLE = load_table5()
COMPARED = compare_sides({key: accepted for key, (accepted, _) in TABLE.cells.items()}, {}, seed=0)


def settings_of_roberta(a: str, b: str) -> dict:
    [comparison] = [
        comparison
        for comparison in COMPARED
        if comparison.get("model") == "roberta-large" and {comparison["a"], comparison["b"]} == {a, b}
    ]
    return comparison


def test_table_has_fourteen_relations_and_eight_columns():
    assert len({key.relation for key in TABLE.cells}) == 14
    assert len(TABLE.averages) == 8
    assert len(TABLE.cells) == 14 * 8


def test_table_names_its_source():
    assert "as printed in the paper" in TABLE.source
    assert "BertNet" in TABLE.source


@pytest.mark.parametrize("side", TABLE.averages, ids=lambda side: "-".join(side))
@pytest.mark.parametrize("column", [0, 1], ids=["accepted", "rejected"])
def test_printed_averages_match_printed_cells(side, column):
    shares = [pair[column] for key, pair in TABLE.cells.items() if (key.model, key.setting) == side]

    # The average of Multi Prompts is .725, printed as .73.
    assert macro_average(shares) == pytest.approx(TABLE.averages[side][column], abs=0.005 + 1e-9)


def test_bert_large_is_seven_points_better_than_base():
    assert TABLE.averages[Side("bert-large", "multi")][0] - TABLE.averages[Side("bert-base", "multi")][0] == (
        pytest.approx(0.07)
    )


@pytest.mark.parametrize(
    ("other", "difference", "p"),
    [("human", 0.126, 0.019), ("autoprompt", 0.394, 0.0001), ("top1", 0.035, 0.322)],
)
def test_multi_prompts_differ_from_other_settings_as_computed(other, difference, p):
    compared = settings_of_roberta("multi", other)
    sign = 1 if compared["a"] == "multi" else -1

    assert sign * compared["difference"] == pytest.approx(difference, abs=5e-4)
    assert compared["p_sign_flip"] == pytest.approx(p, abs=6e-4 if other != "autoprompt" else 5e-5)
    assert compared["n_relations"] == 14


def test_only_autoprompt_comparisons_are_significant_after_holm():
    significant = [comparison for comparison in COMPARED if comparison["p_holm"] < 0.05]

    assert {frozenset((comparison["a"], comparison["b"])) for comparison in significant} == {
        frozenset((other, "autoprompt")) for other in ("human", "top1", "multi")
    }


def test_all_settings_and_all_lms_are_compared():
    assert [comparison["kind"] for comparison in COMPARED] == ["settings"] * 6 + ["models"] * 10
