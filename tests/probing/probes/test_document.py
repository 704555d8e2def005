"""Methods side by side: averages, differences from the manual prompts, parameters."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.statistics.paired_tests import NONE_DIFFERS
from probing.probes.document import summary


def record(method, relation, p1, n_test=10):
    measures = dict.fromkeys(("p10", "mrr", "nll", "dev_nll"), 0.5)
    costs = {"n_parameters": 2, "forwards": 3, "seconds": 0.5}
    return {"method": method, "relation": relation, "p1": p1, "n_test": n_test} | measures | costs


def test_a_relation_counts_once_in_the_macro_average_and_a_fact_once_in_the_micro_one():
    row = summary([record("manual", "a", 1.0, 1), record("manual", "b", 0.0, 3)])[0]

    assert (row["p1"], row["p1_micro"]) == (0.5, 0.25)
    assert (row["p1_low"], row["forwards"], row["p"]) == (None, 6, None)


def test_methods_are_compared_with_the_manual_prompts_by_relation():
    """By hand: of five relations all better; 2 of 32 sign patterns are as extreme."""
    manual = [record("manual", name, 0.1) for name in "abcde"]
    better = [record("soft", name, 0.1 + 0.1 * step) for step, name in enumerate("abcde", start=1)]

    row = {row["method"]: row for row in summary([*manual, *better])}["soft"]

    assert row["difference"] == pytest.approx(0.3)
    assert row["p"] == pytest.approx(2 / 32)
    assert row["p1_low"] < row["p1"] < row["p1_high"]
    assert np.isfinite([row["difference_low"], row["difference_high"]]).all()


def test_methods_that_tie_everywhere_differ_by_nothing_and_say_so():
    same = [record(method, name, 0.5) for method in ("manual", "lpaqa") for name in "abc"]

    row = summary(same)[1]

    assert (row["difference"], row["difference_low"], row["p_holm"]) == (0, None, 1)
    assert row["reason"] == NONE_DIFFERS


def test_one_rewriter_of_all_relations_counts_once():
    rows = summary([record(method, name, 0.5) for method in ("lpaqa", "bertese") for name in "abc"])

    assert [row["n_parameters"] for row in rows] == [6, 2]
