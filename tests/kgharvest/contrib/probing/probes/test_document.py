"""Summary of a probe by method: averages, differences from the manual prompts, parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from kgharvest.contrib.probing.models import ProbedRelation
from kgharvest.contrib.probing.probes.document import fact_comparisons, spread, statistics, summary
from kgharvest.contrib.probing.probes.tables import comparison_table, statistics_table
from kgharvest.statistics.paired_tests import NONE_DIFFERS


def record(method, relation, p1, n_test=10):
    measures = dict.fromkeys(("p10", "mrr", "nll", "dev_nll"), 0.5)
    costs = {"n_parameters": 2, "forwards": 3, "seconds": 0.5}
    return {"method": method, "relation": relation, "p1": p1, "n_test": n_test} | measures | costs


def test_macro_average_weights_relations_micro_average_weights_facts():
    row = summary([record("manual", "a", 1.0, 1), record("manual", "b", 0.0, 3)])[0]

    assert (row["p1"], row["p1_micro"]) == (0.5, 0.25)
    assert (row["forwards"], row["p"]) == (6, None)


def test_interval_of_average_is_student_t_over_relations():
    shares = [0.4, 0.5, 0.9]

    row = summary([record("manual", name, share) for name, share in zip("abc", shares, strict=True)])[0]

    low, high = stats.t.interval(0.95, 2, np.mean(shares), stats.sem(shares))
    assert (low < 0, high > 1) == (True, True)  # clipped to the range of shares
    assert (row["p1_low"], row["p1_high"]) == (0, 1)
    two = summary([record("manual", "a", 0.40), record("manual", "b", 0.42)])[0]
    assert (two["p1_low"], two["p1_high"]) == pytest.approx(stats.t.interval(0.95, 1, 0.41, 0.01))


def test_interval_over_three_relations_has_95_percent_coverage():
    """Sample accuracies from Beta(4, 2). The percentile bootstrap covers only three of four true means."""
    rng, n_covered = np.random.default_rng(0), 0
    for shares in rng.beta(4, 2, size=(400, 3)).tolist():
        row = summary([record("manual", name, share) for name, share in zip("abc", shares, strict=True)])[0]
        n_covered += row["p1_low"] <= 4 / 6 <= row["p1_high"]

    assert n_covered / 400 >= 0.925


def test_one_relation_or_equal_relations_have_no_interval():
    for names in ("a", "abc"):
        row = summary([record("manual", name, 0.5) for name in names])[0]
        assert (row["p1"], row["p1_low"], row["p1_high"]) == (0.5, None, None)


def test_methods_are_compared_with_manual_prompts_by_relation():
    """Computed by hand: all five relations improve, and 2 of 32 sign patterns are as extreme."""
    manual = [record("manual", name, 0.1) for name in "abcde"]
    better = [record("soft", name, 0.1 + 0.1 * step) for step, name in enumerate("abcde", start=1)]

    row = {row["method"]: row for row in summary([*manual, *better])}["soft"]

    assert row["difference"] == pytest.approx(0.3)
    assert row["p"] == pytest.approx(2 / 32)
    assert row["p1_low"] < row["p1"] < row["p1_high"]
    assert np.isfinite([row["difference_low"], row["difference_high"]]).all()


def test_tied_methods_have_zero_difference_and_a_reason():
    same = [record(method, name, 0.5) for method in ("manual", "lpaqa") for name in "abc"]

    row = summary(same)[1]

    assert (row["difference"], row["difference_low"], row["p_holm"]) == (0, None, 1)
    assert row["reason"] == NONE_DIFFERS


def test_shared_rewriter_parameters_count_once():
    rows = summary([record(method, name, 0.5) for method in ("lpaqa", "bertese") for name in "abc"])

    assert [row["n_parameters"] for row in rows] == [6, 2]


def ranks_of(method, **ranks):
    return [{"method": method, "relation": relation, "ranks": values} for relation, values in ranks.items()]


def test_methods_are_compared_by_sign_tests_over_facts():
    """Computed by hand. soft: 6 facts better and 1 worse than mixture, so p = 2 * (1 + 7) / 2^7."""
    manual = ranks_of("manual", b=[1, 9, 9], a=[9] * 6)
    initial = ranks_of("mixture", a=[9, 9, 9, 9, 9, 1], b=[1, 9, 9])
    soft = ranks_of("soft", a=[1, 1, 1, 1, 1, 9], b=[1, 1, 2])

    rows = {row["method"]: row for row in fact_comparisons([*manual, *initial, *soft])}

    counts = [rows["soft"][key] for key in ("baseline", "n_facts", "n_better", "n_worse", "difference", "p", "best")]
    assert counts == ["mixture", 9, 6, 1, pytest.approx(5 / 9), pytest.approx(2 * 8 / 2**7), "soft"]
    assert (rows["mixture"]["baseline"], rows["mixture"]["p"]) == ("manual", 1)  # one discordant fact
    assert rows["mixture"]["p_best"] == rows["soft"]["p"]
    assert rows["manual"]["baseline"] is None
    assert rows["manual"]["p_best"] == pytest.approx(2 / 2**6)  # 6 better, none worse
    assert rows["soft"]["p_best"] is None


def test_baseline_falls_back_to_manual_prompts_and_needs_the_same_facts():
    soft, manual = ranks_of("soft-mined", a=[1, 2]), ranks_of("manual", a=[2, 2])

    assert fact_comparisons([*manual, *soft])[1]["baseline"] == "manual"
    assert fact_comparisons([*ranks_of("manual", a=[2, 2, 2]), *soft])[1]["baseline"] is None
    alike = fact_comparisons([*ranks_of("manual", a=[1, 2]), *ranks_of("soft-mined", a=[1, 9])])
    assert [row["p_best"] for row in alike] == [None, 1]
    assert alike[1]["p"] == 1
    old = fact_comparisons([*ranks_of("manual", a=[]), *ranks_of("soft", a=[])])
    assert comparison_table({"summary": [], "comparisons": old}).rows == ()


def test_spread_of_no_values_is_undefined():
    row = spread("norm ratio", "soft words", [])

    assert row == {"name": "norm ratio", "of": "soft words", "n": 0, **dict.fromkeys(("mean", "sd", "min", "max"))}
    assert statistics_table({"statistics": [row]}).rows[0].values == ("norm ratio", "soft words", 0, *[None] * 4)


def test_statistics_describe_facts_prompts_and_weights():
    """Computed by hand, as in Tables 7, 8, and 10 of Qin & Eisner (2021)."""
    relations = [
        ProbedRelation(
            prompts=["<ENT0> is in <ENT1> .", "<ENT0> , <ENT1>"],
            origins={"mined": ["<ENT0> , <ENT1>"]},
            facts={"train": [["a", "x"], ["b", "x"]], "dev": [["a", "x"]], "test": [["c", "y"]]},
        ),
        ProbedRelation(prompts=["<ENT0> , <ENT1>"], origins={}, facts={"train": [["a", "x"]]}),
    ]
    records = [
        {"method": "soft", "relation": name, "is_control": False, "n_prompts": n, "effective_prompts": effective}
        for name, n, effective in (("a", 2, 1.5), ("b", 1, 1.0))
    ]

    rows = {row.pop("name"): tuple(row.values())[1:] for row in statistics(relations, records)}

    assert rows["facts"] == (2, 2, pytest.approx(2**0.5), 1, 3)
    assert (rows["subjects"][1], rows["objects"][1]) == (2, 1.5)
    assert rows["given prompts"] == (2, 1.5, pytest.approx(0.5**0.5), 1, 2)
    assert rows["words of given prompts"][:2] == (3, pytest.approx((5 + 3 + 3) / 3))
    assert rows["mined prompts"] == (1, 1, None, 1, 1)
    assert rows["effective prompts of soft"] == (2, 1.25, pytest.approx(0.125**0.5), 1, 1.5)
