"""Sections of report documents, checked against hand-calculated values on small evidence."""

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evaluation.evidence.evidence import Judgments, SampledHarvest, StratumKey, cells_of, drawn_verdicts
from evaluation.reports.document import build_document
from evaluation.reports.sections.annotators import (
    ONE_ANNOTATOR,
    agreement_parts_table,
    agreement_table,
    fit_model,
    panel_table,
)
from evaluation.reports.sections.comparisons import comparison_entries
from evaluation.reports.sections.rates import ALL_JUDGED, similar_table, total_entries
from evaluation.reports.sections.sensitivity import sensitivity_entry
from kgharvest.pages.number_format import rounded, with_rounded_numbers
from kgharvest.statistics.agreement import FEW_ANNOTATORS
from kgharvest.statistics.arrays import ACCEPTED, FALSE, INCOMPLETE, REJECTED, TRUE, UNDECIDED
from kgharvest.statistics.paired_tests import FEW_RELATIONS, CellKey, Side, bootstrap_t_interval
from kgharvest.statistics.rates import Rate, difference_interval, population_rate, simple_interval
from tests.evaluation.evidence_factory import NOBODY, make_evidence

T, F, U = range(3)


def evidence_of(*patterns: str):
    """Create evidence for one cell from label strings per statement, such as "TTF" or "T.U". A dot means no label."""
    labels = label_rows(patterns)
    counts = np.zeros((len(patterns), 3), dtype=int)
    for task, _, label in labels:
        counts[task, label] += 1
    k = max(map(len, patterns))
    verdict = np.select(
        [counts.sum(axis=1) == 0, 2 * counts[:, T] > counts.sum(axis=1), 2 * counts[:, F] > counts.sum(axis=1)],
        [INCOMPLETE, ACCEPTED, REJECTED],
        UNDECIDED,
    )
    base = make_evidence({CellKey("r", "lm", "multi"): (len(patterns),)}, annotators="abcdefgh"[:k])
    judgments = Judgments(*np.array(labels, dtype=np.int64).reshape(-1, 3).T, np.full(len(labels), np.nan))
    return replace(base, verdict=verdict, judgments=judgments, wanted=counts.sum(axis=1))


def label_rows(patterns, first: int = 0) -> list[tuple[int, int, int]]:
    """Return (statement, annotator, label) of each judgment, with statements numbered from `first`."""
    rows = [(task, who, letter) for task, row in enumerate(patterns, first) for who, letter in enumerate(row)]
    return [(task, who, "TFU".index(letter)) for task, who, letter in rows if letter != "."]


def entry_of(entries, **fields):
    [entry] = [entry for entry in entries if all(entry[key] == value for key, value in fields.items())]
    return entry


# Rates


def stratified(first=(9, 1), second=(5, 5), verdict=None):
    """Return evidence on one cell with two strata, ranks 1-100 and 101-1000, and ten draws each by default."""
    verdict = np.repeat([ACCEPTED, REJECTED, ACCEPTED, REJECTED], [*first, *second]) if verdict is None else verdict
    evidence = make_evidence({CellKey("r", "lm", "multi"): (len(verdict),)}, verdict=verdict)
    draws = evidence.draws._replace(stratum=np.repeat([0, 1], [sum(first), sum(second)]))
    strata = [StratumKey(0, 1, 100, 100), StratumKey(0, 101, 1000, 900)]
    return replace(evidence, draws=draws, strata=strata)


def interval_of(cell):
    return cell["accuracy"], cell["accuracy_low"], cell["accuracy_high"]


def test_stratified_cell_is_weighted_by_strata():
    [cell] = build_document(stratified())["cells"]

    assert list(interval_of(cell)) == with_rounded_numbers(population_rate([9, 5], [10, 10], [100, 900])[:3])
    assert cell["accuracy"] == pytest.approx(0.54)  # not 14 of 20
    assert (cell["weighting"], cell["population"], cell["n"]) == ("stratified", 1000, 20)
    assert [stratum["accepted"] for stratum in cell["strata"]] == [9, 5]


def test_cell_with_unjudged_stratum_has_no_accuracy_but_reason():
    [cell] = build_document(stratified(verdict=np.repeat([ACCEPTED, INCOMPLETE], 10)))["cells"]

    assert cell["accuracy"] is None
    assert "stratum has no verdict" in cell["reason"]


def test_simple_cell_has_exact_interval():
    [cell] = build_document(make_evidence({CellKey("r", "lm", "multi"): (7, 3)}))["cells"]

    assert interval_of(cell) == pytest.approx((0.7, *simple_interval(7, 10, 100)))
    assert (cell["weighting"], cell["population"]) == ("simple", 100)


def test_small_stratum_without_errors_keeps_wide_interval():
    evidence = stratified((28, 2), (5, 0))

    [cell], [total] = (build_document(evidence)[key] for key in ("cells", "totals"))

    assert cell["accuracy"] == pytest.approx(0.1 * 28 / 30 + 0.9)
    # The exact interval of the large stratum, with five hits, starts at .57.
    assert cell["accuracy_low"] == pytest.approx(0.56, abs=0.01)
    assert cell["accuracy_high"] == pytest.approx(0.998)  # two of 1,000 tuples are known to be false
    for average in ("", "weighted_", "macro_"):
        assert total[f"{average}accuracy"] == pytest.approx(cell["accuracy"])
    for average in ("accuracy", "weighted_accuracy", "macro_accuracy_these"):
        assert (total[f"{average}_low"], total[f"{average}_high"]) == interval_of(cell)[1:]


def test_census_interval_has_zero_width():
    key = CellKey("r", "lm", "multi")

    [cell] = build_document(make_evidence({key: (7, 3)}, strata=[StratumKey(0, 1, 10, 10)]))["cells"]

    assert interval_of(cell) == (0.7, 0.7, 0.7)
    assert (cell["rejection_low"], cell["rejection_high"]) == (0.3, 0.3)


def test_incomplete_statements_bound_cell_accuracy():
    evidence = make_evidence({CellKey("r", "lm", "multi"): (6, 2, 0, 2), CellKey("s", "lm", "multi"): (6, 2)})

    bounded, complete = build_document(evidence)["cells"]

    assert bounded["accuracy"] == pytest.approx(6 / 8)
    assert (bounded["accuracy_if_rejected"], bounded["accuracy_if_accepted"]) == pytest.approx((0.6, 0.8))
    assert "accuracy_if_rejected" not in complete


def test_averages_over_these_relations_use_harvest_sizes():
    strata = [StratumKey(0, 1, 20, 20), StratumKey(1, 1, 1000, 1000)]
    cells = {CellKey("census", "lm", "multi"): (15, 5), CellKey("sample", "lm", "multi"): (12, 8)}

    [total] = build_document(make_evidence(cells, strata=strata))["totals"]

    low, high = simple_interval(12, 20, 1000)
    these = total["macro_accuracy_these_low"], total["macro_accuracy_these_high"]
    assert these == pytest.approx(((0.75 + low) / 2, (0.75 + high) / 2))
    expected = population_rate([15, 12], [20, 20], [20, 1000])
    assert (total["weighted_accuracy"], total["weighted_accuracy_low"]) == pytest.approx(expected[:2])
    assert (total["accuracy"], total["accuracy_low"], total["accuracy_high"]) == (27 / 40, None, None)


@pytest.mark.slow
def test_unknown_harvest_size_is_treated_as_infinite():
    cells = {CellKey(relation, None, None): (15, 5) for relation in "rs"}
    known = [StratumKey(number, 1, 10**6, 10**6) for number in (0, 1)]
    unknown = [StratumKey(number, None, None, None) for number in (0, 1)]

    [[expected], [total]] = (
        build_document(make_evidence(cells, strata=strata))["totals"] for strata in (known, unknown)
    )

    for key in ("macro_accuracy_these_low", "macro_accuracy_these_high"):
        assert total[key] == pytest.approx(expected[key], abs=5e-5)  # about twice sample size / population


def test_total_has_three_averages():
    cells = {CellKey("large", "lm", "multi"): (30, 10), CellKey("small", "lm", "multi"): (1, 9)}

    [total] = build_document(make_evidence(cells))["totals"]

    assert total["accuracy"] == pytest.approx(31 / 50)  # all statements alike
    assert total["macro_accuracy"] == pytest.approx((0.75 + 0.1) / 2)  # all relations alike
    assert total["weighted_accuracy"] == pytest.approx(0.8 * 0.75 + 0.2 * 0.1)  # all harvested tuples alike


def test_interval_of_average_is_for_these_relations():
    cells = {CellKey(f"r{number}", "lm", "multi"): (hits, 20 - hits) for number, hits in enumerate((19, 18, 20, 5, 19))}

    [total] = build_document(make_evidence(cells))["totals"]

    exact = population_rate([19, 18, 20, 5, 19], [20] * 5, [200] * 5, [0.2] * 5)
    for name, expected in (("accuracy", exact), ("rejection", Rate(1 - exact.value, 1 - exact.high, 1 - exact.low))):
        shown = tuple(total[f"macro_{name}{end}"] for end in ("", "_low", "_high"))
        assert shown == pytest.approx(expected[:3], abs=1e-4)
    assert (total["macro_accuracy_low"], total["macro_accuracy_high"]) == (
        total["macro_accuracy_these_low"],
        total["macro_accuracy_these_high"],
    )
    assert total["similar_relations"] == {"low": None, "high": None, "reason": FEW_RELATIONS}


def test_interval_for_another_panel_is_wider_if_an_annotator_is_strict():
    # Annotators 0 and 1 always answer True, 2 to 4 alternate. Each statement has three annotators in turn.
    n = 40
    task, annotator = np.repeat(np.arange(n), 3), (np.arange(n)[:, None] + [0, 1, 2]).ravel() % 5
    label = np.where((annotator > 1) & (task % 2 == 1), FALSE, TRUE)
    n_true = np.bincount(task, label == TRUE)
    order = np.lexsort((annotator, task))
    judgments = Judgments(task, annotator[order], label[order], np.full(len(task), np.nan))
    accepted = 2 * n_true > 3
    cells = {CellKey("r1", "lm", "multi"): (accepted.sum(), n - accepted.sum())}
    fields = {"verdict": np.where(accepted, ACCEPTED, REJECTED), "judgments": judgments}

    five = build_document(make_evidence(cells, "abcde", **fields))
    fields["judgments"] = judgments._replace(annotator=judgments.annotator % 4)
    four = build_document(make_evidence(cells, "abcd", **fields))

    [total] = five["totals"]
    panel = total["another_panel"]
    assert panel["low"] < total["macro_accuracy_low"] <= total["macro_accuracy_high"] <= panel["high"]
    [row] = panel_table(five).rows
    assert row.values[1:] == (total["macro_accuracy"], panel["low"], panel["high"])
    assert four["totals"][0]["another_panel"] == {"low": None, "high": None, "reason": FEW_ANNOTATORS}
    assert not panel_table(four).rows


def test_interval_for_similar_relations_needs_six_relations():
    hits = (19, 18, 20, 5, 19, 17)
    cells = {CellKey(f"r{number}", "lm", "multi"): (count, 20 - count) for number, count in enumerate(hits)}

    document = build_document(make_evidence(cells))

    [total] = document["totals"]
    low, high, _ = bootstrap_t_interval(np.array(hits) / 20, np.random.default_rng(document["seed"]))
    assert low < 0  # one relation is much worse than the others
    assert total["similar_relations"] == {"low": 0, "high": rounded(high), "reason": None}
    [row] = similar_table(document).rows
    assert row.values[1:] == (total["macro_accuracy"], 0, rounded(high), 6)
    assert not similar_table(build_document(make_evidence(dict(list(cells.items())[:5])))).rows


def test_imported_statements_have_no_weighted_accuracy():
    evidence = make_evidence({CellKey("r", None, None): (3, 1)}, strata=[StratumKey(0, None, None, None)])

    document = build_document(evidence)

    assert document["totals"][0]["weighted_accuracy"] is None
    assert "unknown" in document["totals"][0]["reason"]
    assert document["curves"] == [] or all(not curve["sizes"] for curve in document["curves"])


def test_curve_ends_at_cell_accuracy():
    curve = entry_of(build_document(stratified())["curves"], relation="r")

    assert curve["sizes"][-1]["size"] == 1000
    assert curve["sizes"][-1]["accuracy"] == pytest.approx(0.54)


def test_census_with_incomplete_statements_has_consistent_accuracy():
    # All 60 tuples are drawn and 40 of them are incomplete, mostly at lower ranks.
    verdict = np.array([ACCEPTED] * 4 + [REJECTED] * 2 + ([INCOMPLETE] * 2 + [REJECTED]) * 14 + [INCOMPLETE] * 12)
    strata = [StratumKey(0, 1, 60, 60, 1)]
    evidence = make_evidence({CellKey("r", "lm", "multi"): (60,)}, verdict=verdict, strata=strata)
    draws = evidence.draws._replace(rank=np.arange(1, 61))
    evidence = replace(evidence, draws=draws, harvests=[SampledHarvest(1, Side("lm", "multi"), 60, {})])

    document = build_document(evidence)

    [cell], [total] = document["cells"], document["totals"]
    assert cell["accuracy"] == pytest.approx(4 / 20)
    for curve in document["curves"]:
        last = curve["sizes"][-1]
        assert (last["accuracy"], last["low"], last["high"]) == interval_of(cell)
    cut = entry_of(document["cuts"], cut="all")
    assert (cut["accuracy"], cut["low"], cut["high"]) == interval_of(cell) == interval_of(total)


def test_unjudged_stratum_leaves_curve_and_cut_without_accuracy():
    evidence = stratified(verdict=np.repeat([ACCEPTED, INCOMPLETE], 10))
    strata = [key._replace(job=1) for key in evidence.strata]
    draws = evidence.draws._replace(rank=np.concatenate([np.arange(10, 101, 10), np.arange(190, 1001, 90)]))
    harvests = [SampledHarvest(1, Side("lm", "multi"), 1000, {10: 100})]

    document = build_document(replace(evidence, strata=strata, draws=draws, harvests=harvests))

    assert document["cells"][0]["accuracy"] is None
    for curve in document["curves"]:
        # Only the judged stratum has points. Curves over all relations have half as many points.
        assert [point["share"] for point in curve["sizes"]] == ([0.05, 0.1] if curve["relation"] else [0.1])
    whole, base = entry_of(document["cuts"], cut="all"), entry_of(document["cuts"], cut="base:10")
    assert (whole["accuracy"], whole["reason"]) == (None, document["cells"][0]["reason"])
    assert (base["accuracy"], base["reason"]) == (1, None)


def test_score_bins_are_in_ascending_order():
    curve = entry_of(build_document(make_evidence({CellKey("r", "lm", "multi"): (10, 10)}))["curves"], relation="r")

    assert [(point["n"], point["accepted"]) for point in curve["scores"]] == [(5, 0), (5, 0), (5, 5), (5, 5)]


# Agreement


def test_agreement_is_reported_per_relation_and_setting():
    cells = {CellKey(relation, "lm", setting): (4, 2) for relation in "rs" for setting in ("human", "multi")}

    parts = build_document(make_evidence(cells))["agreement"]

    assert [(part["by"], part["relation"], part["setting"], part["n_tasks"]) for part in parts] == [
        ("relation", "r", None, 12),
        ("relation", "s", None, 12),
        ("side", None, "human", 12),
        ("side", None, "multi", 12),
    ]


def test_optional_third_judgment_has_note():
    evidence = replace(evidence_of("TT.", "FF.", "TT.", "TFT"), has_thirds=True)

    document = build_document(evidence)

    assert any("third judgment" in note for note in document["notes"])


def test_ac1_is_defined_when_alpha_is_undefined():
    document = build_document(evidence_of("TTT", "TTT", "TTT"))

    rows = {row.values[0]: row.values[1:] for row in agreement_table(document).rows}
    assert rows["Krippendorff's alpha"][0] is None
    assert rows["Gwet's AC1"][:3] == (1, document["gwet_ac1"]["low"], 1)
    assert {part["gwet_ac1"]["value"] for part in document["agreement"]} == {1}
    assert any("prevalence paradox" in note for note in agreement_table(document).notes)


def test_alpha_has_interval_over_annotators():
    patterns = ["TTF..", ".FFT.", "..TTT", "F..FF", "TT..F", "TTT..", ".FFF."]

    alpha = build_document(evidence_of(*patterns))["alpha"]

    assert alpha["annotators"]["low"] <= alpha["low"] < alpha["high"] <= alpha["annotators"]["high"]
    assert "at least 5 annotators" in build_document(evidence_of("TTF", "FFT"))["alpha"]["annotators"]["reason"]


def test_agreement_tables_support_reports_without_ac1():
    document = build_document(evidence_of("TTF", "FFT"))
    parts = [{key: part[key] for key in part if key != "gwet_ac1"} for part in document["agreement"]]
    old = {key: document[key] for key in document if key != "gwet_ac1"} | {"agreement": parts}

    assert "Gwet's AC1" not in [row.values[0] for row in agreement_table(old).rows]
    assert len(agreement_parts_table(old).rows) == len(parts)


def test_agreement_ignores_tie_breaking_third_judgments():
    patterns = ["TT.", "FF.", "TT.", "TFT", "FTT"]
    thirds = replace(evidence_of(*patterns), has_thirds=True, third=np.array([-1, -1, -1, 2, 2]))

    document, two = build_document(thirds), build_document(evidence_of("TT", "FF", "TT", "TF", "FT"))

    assert document["alpha"] == two["alpha"]
    assert document["alpha"]["value"] < build_document(evidence_of(*patterns))["alpha"]["value"]
    assert document["gwet_ac1"] == two["gwet_ac1"]
    assert document["percent_agreement"] == 0.6  # three of five
    assert document["fleiss_kappa"]["value"] == two["fleiss_kappa"]["value"]
    assert [(pair["a"], pair["b"], pair["agreement"]) for pair in document["annotator_pairs"]] == [("a", "b", 0.6)]
    assert document["n_judgments"] == sum(part["n_judgments"] for part in document["agreement"][:1]) == 12
    assert any("first two judgments" in note for note in document["notes"])


def test_single_imported_judgments_are_noted_as_undecided():
    evidence = evidence_of("T..", "TTF", "F..")
    imported = replace(
        evidence, source="imported", quorum=2, verdict=np.array([UNDECIDED, ACCEPTED, UNDECIDED], dtype=np.int64)
    )

    assert build_document(imported)["notes"][1].startswith("2 of 3 statements have a single judgment.")
    assert build_document(evidence)["notes"] == []


# Sensitivity


def test_each_rule_has_its_own_verdict_counts():
    rules = build_document(evidence_of("TTT", "TTF", "TUU", "FFU", "TFU"))["sensitivity"]["rules"]

    counts = {rule["title"]: (rule["accepted"], rule["rejected"], rule["undecided"]) for rule in rules}
    assert counts["Majority"] == (2, 1, 2)
    assert counts["Unanimous"] == (1, 0, 4)
    assert counts["Unjudgeable as False"] == (2, 3, 0)


def test_adjudicated_rule_replaces_crowd_verdicts():
    evidence = replace(
        evidence_of("TTT", "TTF", "TFU", "..."),
        adjudicated=np.array([INCOMPLETE, REJECTED, ACCEPTED, ACCEPTED]),  # the last one has no verdict to replace
    )

    document = build_document(evidence)

    rule = entry_of(document["sensitivity"]["rules"], rule="adjudicated")
    assert (rule["accepted"], rule["rejected"], rule["undecided"]) == (2, 1, 0)
    assert document["n_adjudicated"] == 2
    assert document["cells"][0]["accepted"] == 2  # the report keeps the crowd's verdicts
    rules = build_document(evidence_of("TTT"))["sensitivity"]["rules"]
    assert all(rule["rule"] != "adjudicated" for rule in rules)


def test_each_annotator_is_omitted_in_turn():
    left_out = build_document(evidence_of("TTT", "TTF", "TUU", "FFU", "TFU"))["sensitivity"]["left_out"]

    counts = {entry["annotator"]: (entry["accepted"], entry["rejected"], entry["undecided"]) for entry in left_out}
    # Remaining labels: TT, TF, UU, FU, FU without a, and TT, TF, TU, FU, TU without b.
    assert counts == {"a": (1, 0, 1), "b": (1, 0, 0), "c": (2, 1, 0)}
    assert all(0 < entry["n_changed"] <= 5 - sum(counts[entry["annotator"]]) for entry in left_out)


letters = st.text("TFU.", min_size=4, max_size=4)


@settings(max_examples=8)  # each builds several documents
@given(st.lists(letters, min_size=12, max_size=12))
@example(["F..."] * 2 + ["FFFF"] * 10)  # without the first annotator a side's first cell has no verdict
def test_leave_one_out_equals_report_without_the_annotator(patterns):
    cells = [CellKey(relation, "lm", setting) for relation in "rst" for setting in ("human", "multi")]
    evidence = evidence_of(*patterns)

    sensitivity = parts_of(spread(evidence, cells), "sensitivity")["sensitivity"]
    for position, left_out in enumerate(sensitivity["left_out"]):
        omitted = "abcd".index(left_out["annotator"])
        others = [row[:omitted] + "." + row[omitted + 1 :] for row in patterns]
        # The required number of judgments is unchanged, so omitted judgments count as missing.
        reduced = parts_of(
            spread(replace(evidence_of(*others), wanted=evidence.wanted), cells), "totals", "comparisons"
        )
        decided = [verdict_of(other, len(row.replace(".", ""))) for other, row in zip(others, patterns, strict=True)]
        assert [left_out[key] for key in (*VERDICTS, "n")] == [*map(decided.count, VERDICTS), 12 - decided.count(None)]
        accuracies = [total["macro_accuracy"] for total in reduced["totals"]]
        assert [total["left_out"]["macro_accuracy"][position] for total in sensitivity["totals"]] == approx(accuracies)
        by_sides = {(comparison["a"], comparison["b"]): comparison for comparison in reduced["comparisons"]}
        for comparison in sensitivity["comparisons"]:
            nothing = {"difference": None, "p_holm": None}
            compared = by_sides.get((comparison["a"], comparison["b"]), nothing)
            assert comparison["left_out"]["difference"][position] == approx(compared["difference"])
            assert comparison["left_out"]["p_holm"][position] == approx(compared["p_holm"])


VERDICTS = ("accepted", "rejected", "undecided")


def parts_of(evidence, *names: str) -> dict:
    """Return the named sections of the report document. Building all sections takes ten times as long."""
    drawn = drawn_verdicts(evidence)
    cells = cells_of(evidence, drawn)
    parts = {
        "totals": lambda: total_entries(evidence, cells),
        "comparisons": lambda: comparison_entries(evidence, cells, drawn),
        "sensitivity": lambda: sensitivity_entry(evidence, drawn, fit_model(evidence)),
    }
    return {name: parts[name]() for name in names}


def test_sections_equal_those_of_document():
    evidence = evidence_of("TTF", "TUF", "FF.", "TTT")

    parts = parts_of(evidence, "totals", "comparisons", "sensitivity")

    document = build_document(evidence)
    assert document["comparisons"] == with_rounded_numbers(parts["comparisons"])
    assert document["sensitivity"] == with_rounded_numbers(parts["sensitivity"])
    assert [total["macro_accuracy"] for total in document["totals"]] == with_rounded_numbers(
        [total["macro_accuracy"] for total in parts["totals"]]
    )


def test_numbers_have_no_digits_beyond_the_precision_of_the_methods():
    """Labels of incomplete statements are completed by EM, which stops within 1e-9 of its limit."""
    document = build_document(evidence_of("TTF", "TUF", "FF.", "TTT", "T..", "TT.", ".UT"))

    for number in numbers_in(document):
        assert number == rounded(number)
    assert [rounded(x) for x in (0.9666666669331297, 1e-17, 0.25)] == [0.966667, 0, 0.25]
    assert [rounded(p) for p in (0.00012345678, 3.0517578125e-05)] == [0.000123, 3.05e-05]


def numbers_in(value) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from numbers_in(part)


def verdict_of(labels: str, n_required: int) -> str | None:
    """Return the verdict if missing labels cannot change it, and None otherwise."""
    n_missing = n_required - len(labels.replace(".", ""))
    n_true, n_false = labels.count("T"), labels.count("F")
    if 2 * n_true > n_required or 2 * n_false > n_required:
        return "accepted" if n_true > n_false else "rejected"
    return "undecided" if 2 * (max(n_true, n_false) + n_missing) <= n_required and n_missing < n_required else None


def approx(expected):
    return pytest.approx(expected, abs=1e-12)


def spread(evidence, cells):
    """Distribute the statements evenly over several cells."""
    stratum = np.sort(np.arange(evidence.n_tasks) % len(cells))
    return replace(
        evidence,
        cells=cells,
        strata=[StratumKey(number, 1, 30, 30) for number in range(len(cells))],
        draws=evidence.draws._replace(stratum=stratum),
    )


def test_first_sensitivity_rule_equals_report_comparison():
    cells = {CellKey(f"r{n:02}", "lm", s): (n % 7 + (s == "multi"), 5) for n in range(25) for s in ("human", "multi")}

    document = build_document(make_evidence(cells))

    [comparison], [under_rules] = document["comparisons"], document["sensitivity"]["comparisons"]
    assert (under_rules["difference"][0], under_rules["p_holm"][0]) == (comparison["difference"], comparison["p_holm"])


def test_rules_that_reverse_comparison_are_marked():
    # In both relations, human is ahead by majority and multi by unanimity.
    patterns = ["TTF", "TTF", "FFF", "TTT", "FFF", "FFF"] * 2
    cells = [CellKey(relation, "lm", setting) for relation in "rs" for setting in ("human", "multi")]

    sensitivity = build_document(spread(evidence_of(*patterns), cells))["sensitivity"]

    titles = [rule["title"] for rule in sensitivity["rules"]]
    [compared] = sensitivity["comparisons"]
    assert compared["difference"][0] == pytest.approx(1 / 3)
    assert compared["difference"][titles.index("Unanimous")] == pytest.approx(-1 / 3)
    assert titles.index("Unanimous") in compared["sign_changes"]
    human = entry_of(sensitivity["totals"], setting="human")
    assert (human["rank"][0], human["rank"][titles.index("Unanimous")]) == (1, 2)
    assert titles.index("Unanimous") in human["changes"]


def test_inapplicable_rule_has_reason():
    sensitivity = build_document(evidence_of("T", "F"))["sensitivity"]

    rule = entry_of(sensitivity["rules"], rule="dawid_skene")
    assert (rule["n"], rule["reason"]) == (None, ONE_ANNOTATOR)
    assert sensitivity["cells"][0]["accuracy"][3] is None


# Annotators


def with_gold(evidence, *patterns: str):
    """Append gold statements, all of them true, to the evidence."""
    rows = label_rows(patterns, first=evidence.n_tasks)
    gold = Judgments(*np.array(rows, dtype=np.int64).T, np.full(len(rows), np.nan))
    return replace(evidence, gold=gold, gold_truth=np.full(len(patterns), T))


def test_gold_is_reported_per_annotator_and_excluded_from_rates():
    document = build_document(with_gold(evidence_of("TTF", "FFF", "TTT"), "TTF", "TUF"))

    assert [(annotator["gold"]["correct"], annotator["gold"]["n"]) for annotator in document["annotators"]] == [
        (2, 2),
        (1, 2),
        (0, 2),
    ]
    assert document["n_judgments"] == 9
    assert document["cells"][0]["n"] == 3


def test_annotator_models_are_not_ranked_without_gold():
    for model in build_document(evidence_of("TTF", "FFT", "TTT", "FTF", "TFT"))["annotator_models"]:
        assert "better" not in model["sentence"]
        assert "without gold" in model["sentence"]


def test_model_is_better_only_with_gold_evidence():
    # b and c always answer False, and a answers correctly. Only a model that trusts a is correct on gold.
    patterns = ["TFF", "FFF"] * 30
    few, many = (build_document(with_gold(evidence_of(*patterns), *["TFF"] * n))["annotator_models"] for n in (3, 40))

    assert all("better" not in model["sentence"] for model in few)
    for model in many:
        gold = model["gold"]
        is_better = gold["model_correct"] > gold["majority_correct"] and gold["p"] < 0.05
        assert ("is better" in model["sentence"]) == (is_better or gold["majority_correct"] > gold["model_correct"])


def test_median_time_ignores_missing_values():
    evidence = evidence_of("TT", "FF", "TF")
    seconds = np.array([1.0, np.nan, 3.0, np.nan, 8.0, np.nan])

    annotators = build_document(replace(evidence, judgments=evidence.judgments._replace(seconds=seconds)))["annotators"]

    assert [annotator["median_seconds"] for annotator in annotators] == [3.0, None]


def test_annotator_model_treats_unjudgeable_as_missing():
    evidence = evidence_of("TTUU", "FFUU", "TTUU", "TFUU")

    without = fit_model(evidence_of("TT", "FF", "TT", "TF"))

    assert fit_model(evidence).fit.labels == pytest.approx(without.fit.labels, abs=1e-4)


# Comparisons and plans


def test_comparison_has_difference_interval_per_relation():
    cells = {CellKey("r", "lm", "human"): (48, 32), CellKey("r", "lm", "multi"): (56, 14)}
    cells |= {CellKey("s", "lm", "human"): (5, 5), CellKey("s", "lm", "multi"): (6, 4)}

    [compared] = build_document(make_evidence(cells))["comparisons"]

    relation = entry_of(compared["relations"], relation="r")
    # Newcombe's method 10 with Wilson intervals and an infinite population gives .0524 to .3339.
    assert (-relation["high"], -relation["low"]) == pytest.approx((0.0524, 0.3339), abs=0.005)
    human, multi = (population_rate([n_true], [n], [10 * n]) for n_true, n in ((48, 80), (56, 70)))
    assert (relation["low"], relation["high"]) == pytest.approx(difference_interval(human, multi), abs=1e-6)
    assert compared["these_low"] < compared["difference"] < compared["these_high"]


def test_halving_interval_accounts_for_finite_harvest():
    cells = {CellKey(relation, "lm", "multi"): (12, 8) for relation in "rstuv"}
    evidence = make_evidence(cells)

    [plan] = build_document(evidence)["planner"]["totals"]

    # 20 of 200: 1 / 20 - 1 / 200 is four times 1 / 61.5 - 1 / 200.
    assert (plan["statements"], plan["judgments"]) == (5 * 62, 5 * 62 * 3)
    wider = replace(make_evidence(dict.fromkeys(cells, (37, 25))), strata=evidence.strata)
    [reached] = build_document(wider)["planner"]["totals"]
    assert reached["half_width"] == pytest.approx(plan["target"], rel=0.05)


def test_plan_uses_observed_judgments_per_statement():
    thirds = replace(evidence_of("TT.", "FF.", "TT.", "TFT"), has_thirds=True)

    [plan] = build_document(thirds)["planner"]["totals"]

    assert (plan["statements"], plan["judgments"]) == (13, 29)  # 4 of 40 statements had 9 judgments
    assert "29 judgments, 2.25 per statement" in plan["sentence"]


def test_plan_statements_do_not_exceed_population():
    evidence = make_evidence({CellKey("r", "lm", "multi"): (12, 8)})

    [plan] = build_document(replace(evidence, strata=[StratumKey(0, 1, 40, 40)]))["planner"]["totals"]

    assert (plan["statements"], plan["judgments"]) == (32, 96)


def test_census_has_no_plan():
    evidence = make_evidence({CellKey("r", "lm", "multi"): (12, 8)})

    [plan] = build_document(replace(evidence, strata=[StratumKey(0, 1, 20, 20)]))["planner"]["totals"]

    assert plan["statements"] is None
    assert plan["reason"] == ALL_JUDGED


def test_plan_states_minimum_number_of_relations():
    cells = {
        CellKey(relation, "lm", setting): (n_true + 3 * (setting == "multi") + (relation == "r"), 10 - n_true)
        for relation, n_true in (("r", 3), ("s", 5), ("t", 6))
        for setting in ("human", "multi", "top1")
    }

    [plan, *_] = build_document(make_evidence(cells))["planner"]["comparisons"]

    assert (plan["n_comparisons"], plan["fewest_relations"]) == (3, 7)
    assert plan["relations"] is None or plan["relations"] >= 7
    assert "Holm-adjusted for 3 comparisons" in plan["sentence"]
    assert "fewer than 7 relations" in plan["sentence"]


# Degenerate rounds


@pytest.mark.parametrize(
    "patterns",
    [
        ["T", "F"],
        ["TTT", "TTT"],
        ["UUU", "UUU"],
        ["TFU", "TFU"],
        ["TF", "FT"],
        ["TTFF", "TTTF", "UUUU"],
        ["TTFFU", "TTTFF"],
        ["...", "..."],
        ["T..", ".F."],
        ["TTT"],
    ],
    ids="".join,
)
def test_degenerate_round_has_reasons_for_undefined_values(patterns):
    document = build_document(evidence_of(*patterns))

    assert "NaN" not in json.dumps(document)
    for block in (document["alpha"], document["fleiss_kappa"]):
        assert bool(block["reason"]) or block["value"] is not None
    for model in document["annotator_models"]:
        assert model["reason"] or model["sentence"]


@pytest.mark.parametrize(
    ("patterns", "sentence"),
    [
        (["T", "F"], "Every statement has a single judgment"),
        (["UUU", "UUU"], "Every judgment is Unjudgeable"),
        (["TF", "TT"], "1 of 2 statements are tied"),
        (["TTFF", "TTUU", "TTTF"], "2 of 3 statements are tied"),
    ],
    ids=["one judgment", "all unjudgeable", "two", "four"],
)
def test_notes_name_degenerate_rounds(patterns, sentence):
    assert any(note.startswith(sentence) for note in build_document(evidence_of(*patterns))["notes"])


def test_odd_number_of_judgments_has_no_tie_note():
    assert build_document(evidence_of("TTF", "FFU", "TFU"))["notes"] == []
    assert build_document(evidence_of("TTTFF", "TTFFU"))["notes"] == []


def test_single_annotator_is_not_omitted():
    assert build_document(evidence_of("T", "F"))["sensitivity"]["left_out"] == []


def test_round_without_statements_has_document():
    evidence = replace(
        make_evidence({CellKey("r", "lm", "multi"): (1,)}),
        verdict=np.zeros(0, dtype=np.int64), judgments=NOBODY, cells=[], strata=[], annotators=[],
        draws=make_evidence({CellKey("r", "lm", "multi"): (1,)}).draws._replace(
            **{name: np.zeros(0, dtype=np.int64) for name in ("task", "stratum", "rank", "score")}
        ),
    )  # fmt: skip

    document = build_document(evidence)

    assert (document["n_tasks"], document["cells"], document["totals"]) == (0, [], [])


# Regressions in unusual rounds


def test_accuracy_of_fully_accepted_strata_does_not_exceed_one():
    """The sum 90 / 1090 + 1000 / 1090 exceeds 1 in floating point, which led to the root of a negative number."""
    cells = [CellKey(relation, "lm", setting) for relation in "rst" for setting in ("human", "multi")]
    verdict = [
        verdict
        for key in cells
        for verdict in ([ACCEPTED] * 20 if key.setting == "human" else ([ACCEPTED] * 8 + [REJECTED] * 2) * 2)
    ]
    strata = [
        StratumKey(number, *ranks) for number in range(6) for ranks in ((1, 90, 90), (91, 1090, 1000))
    ]  # fmt: skip
    evidence = make_evidence(dict.fromkeys(cells, (20,)), verdict=verdict, strata=strata)
    evidence = replace(evidence, draws=evidence.draws._replace(stratum=np.repeat(np.arange(12), 10)))

    document = build_document(evidence)

    assert {cell["accuracy"] for cell in document["cells"] if cell["setting"] == "human"} == {1.0}
    assert all(cell["accuracy_high"] <= 1 for cell in document["cells"])


def test_kg_size_counts_only_visible_tuples():
    strata = [StratumKey(0, 1, 100, 60, 1)]
    evidence = make_evidence({CellKey("r", "lm", "multi"): (6, 4)}, strata=strata)
    evidence = replace(evidence, harvests=[SampledHarvest(1, Side("lm", "multi"), 100, {})])

    sizes = {cut["cut"]: cut["size"] for cut in build_document(evidence)["cuts"]}

    assert sizes == {"share:0.5": 30, "all": 60}


def test_planner_counts_statements_with_decisive_labels():
    evidence = evidence_of(*["TTT", "FFF"] * 4, *["TT."] * 32)
    verdict = np.where(evidence.counts.sum(axis=1) == 3, evidence.verdict, INCOMPLETE)
    evidence = replace(
        evidence, wanted=np.full(40, 3), verdict=verdict, strata=[StratumKey(0, 1, 4000, 4000)]
    )  # fmt: skip

    [plan] = build_document(evidence)["planner"]["totals"]

    assert plan["statements"] == 156  # 1 / (1/4 (1/40 - 1/4000) + 1/4000): 40 draws, not 8


def test_missing_judgments_do_not_change_certain_verdicts():
    evidence = evidence_of("TT.", "TT.", "FF.", "TF.")
    evidence = replace(evidence, wanted=np.full(4, 3), verdict=np.full(4, INCOMPLETE))

    [cell] = build_document(evidence)["cells"]

    assert (cell["accuracy_if_rejected"], cell["accuracy_if_accepted"]) == (0.5, 0.75)


def test_unanimous_rule_supports_optional_third_judgment():
    evidence = replace(evidence_of("TT.", "TT.", "TFT", "FF."), has_thirds=True, wanted=np.full(4, 3))

    sensitivity = build_document(evidence)["sensitivity"]

    unanimous = entry_of(sensitivity["rules"], rule="unanimous")
    position = [rule["rule"] for rule in sensitivity["rules"]].index("unanimous")
    assert sensitivity["cells"][0]["accuracy"][position] == unanimous["accepted"] / unanimous["n"] == 0.5
