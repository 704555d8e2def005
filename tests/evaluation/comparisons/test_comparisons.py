"""Comparisons in reports."""

import json
import re

import numpy as np
import pytest
import scipy.stats

from annotation.rounds.services import open_round
from evaluation.reports.document import build_document
from evaluation.reports.files import DOCUMENT_FORMATS as FORMATS
from evaluation.reports.sections.comparisons import compare_sides, comparison_in_words
from evaluation.reports.services import create_report
from kgharvest.statistics.paired_tests import CellKey, Pair, PairedDifference, Side
from tests.evaluation.evidence_factory import make_evidence
from tests.factories import judge_all, make_harvest, make_language_model, make_relation


def accuracies(model: str | None, **by_setting) -> dict:
    """Return the accuracies of one LM by setting, for relations r00, r01, and so on."""
    return {
        CellKey(f"r{number:02}", model, setting): accuracy
        for setting, column in by_setting.items()
        for number, accuracy in enumerate(column)
    }


def test_significantly_better_setting_beats_the_other():
    [compared] = compare_sides(accuracies("lm", human=[0.5, 0.4, 0.6, 0.5] * 3, multi=[0.7, 0.8, 0.7, 0.9] * 3), {}, 0)

    # Ahead in all 12 relations, so p = 2 / 2^12.
    assert compared["p_sign_flip"] == compared["p_holm"] == 2 / 2**12
    assert compared["difference"] == pytest.approx(-0.275)
    assert compared["low"] < -0.275 < compared["high"] < 0
    assert compared["sentence"].startswith("With lm, multi beats human by 27.5 points (")
    assert compared["sentence"].endswith(") over 12 relations; p < .001, Holm-adjusted < .001.")


def test_interval_is_stated_from_the_better_side():
    [compared] = compare_sides(accuracies("lm", human=[0.5, 0.4, 0.6, 0.5] * 3, multi=[0.7, 0.8, 0.7, 0.9] * 3), {}, 0)

    low, high = round(-100 * compared["high"]), round(-100 * compared["low"])
    assert f"({low} to {high})" in compared["sentence"]
    assert 0 < low < 27.5 < high


def test_sentence_uses_holm_adjusted_p():
    ahead = [0.6, 0.7, 0.65, 0.7, 0.6, 0.7, 0.5]
    columns = accuracies("lm", human=[0.5] * 7, multi=ahead)
    [single] = compare_sides(columns, {}, 0)

    # Ahead in six of seven relations and tied in one: p = 2 * 2 / 2^7 = .031. A third setting gives a Holm factor of 3.
    in_family = compare_sides(columns | accuracies("lm", top1=[0.5] * 7), {}, 0)[0]

    assert "multi beats human" in single["sentence"]
    assert "human and multi are not distinguishable: 13.6 points in favor of multi" in in_family["sentence"]
    assert "p = .031, Holm-adjusted .094" in in_family["sentence"]


def test_two_relations_are_too_few_for_significance():
    [compared] = compare_sides(accuracies("lm", human=[0.1, 0.2], multi=[0.9, 0.8]), {}, 0)

    assert (compared["low"], compared["high"]) == (None, None)
    assert "more relations" in compared["reason"]
    assert compared["sentence"] == (
        "With lm, human and multi are not distinguishable: 70.0 points in favor of multi over 2 relations; "
        "p = .50, Holm-adjusted .50 (with 2 relations, p cannot fall below .50)."
    )


@pytest.mark.parametrize(
    ("difference", "words"),
    [(0.136, "13.6 points in favor of multi (−1 to 30)"), (0.00018, "0.02 points in favor of multi (0.00 to 0.05)")],
)
def test_small_difference_has_enough_digits(difference, words):
    pair = Pair("settings", None, Side(None, "multi"), Side(None, "human"))
    low, high = (-0.012, 0.3) if difference > 0.1 else (-0.00001, 0.00049)

    sentence = comparison_in_words(pair, PairedDifference(9, difference, low, high, 0.2, None), 0.2)

    assert sentence.startswith(f"multi and human are not distinguishable: {words} over 9 relations")


def test_equal_sides_favor_neither():
    [compared] = compare_sides(accuracies("lm", human=[0.5] * 6, multi=[0.5] * 6), {}, 0)

    assert compared["sentence"] == (
        "With lm, human and multi are not distinguishable: 0.0 points over 6 relations; p = 1.00, Holm-adjusted 1.00."
    )


def test_comparison_uses_relations_with_rates_on_both_sides():
    [compared] = compare_sides(accuracies("lm", human=[0.5, None, 0.5, 0.5], multi=[0.6, 0.7, None, 0.8]), {}, 0)

    assert (compared["n_relations"], compared["difference"]) == (2, pytest.approx(-0.2))


def test_single_shared_relation_is_not_compared():
    assert compare_sides(accuracies("lm", human=[0.5], multi=[0.6, 0.7]), {}, 0) == []


def test_lms_are_compared_within_a_setting():
    cells = accuracies("big", multi=[0.9, 0.8]) | accuracies("small", multi=[0.2, 0.1], human=[0.5, 0.4])

    compared = compare_sides(cells, {}, 0)

    assert [
        (comparison["kind"], comparison.get("model"), comparison.get("setting"), comparison["a"], comparison["b"])
        for comparison in compared
    ] == [
        ("settings", "small", None, "multi", "human"),
        ("models", None, "multi", "big", "small"),
    ]
    assert compared[1]["sentence"].startswith("With multi, big and small are not distinguishable")


def test_unnamed_lms_and_settings_are_not_compared():
    cells = accuracies(None, multi=[0.9, 0.8]) | {CellKey(f"r0{n}", "lm", "multi"): 0.5 for n in (0, 1)}
    cells |= {CellKey(f"r0{n}", None, None): 0.5 for n in (0, 1)}

    assert compare_sides(cells, {}, 0) == []


def test_settings_of_unnamed_lm_are_compared():
    [compared] = compare_sides(accuracies(None, human=[0.1, 0.2], multi=[0.9, 0.8]), {}, 0)

    assert compared["model"] is None
    assert compared["sentence"].startswith("human and multi are not distinguishable")


def test_comparisons_are_reproducible_with_seed():
    cells = accuracies("lm", human=[n / 30 for n in range(25)], multi=[n**2 / 625 for n in range(25)])
    reordered = dict(sorted(cells.items(), key=lambda cell: (cell[0].setting, -ord(cell[0].relation[-1]))))

    assert compare_sides(cells, {}, 5) == compare_sides(reordered, {}, 5)


# Comparison by statements


def document_of_counts(human: tuple[int, int], multi: tuple[int, int], n_relations: int = 3) -> dict:
    """Build a document from accepted and rejected counts per cell. The harvests are ten times as large."""
    counts = {"human": human, "multi": multi}
    cells = {
        CellKey(f"r{number}", "lm", setting): counts[setting] for number in range(n_relations) for setting in counts
    }
    return build_document(make_evidence(cells))


def test_fewer_than_six_relations_are_compared_by_statements():
    [compared] = document_of_counts((18, 2), (8, 12))["comparisons"]

    assert (compared["unit"], compared["p_sign_flip"]) == ("statements", None)
    assert 0.3 < compared["low"] < compared["difference"] < compared["high"] < 0.65
    assert (compared["low"], compared["high"]) == (compared["these_low"], compared["these_high"])
    assert compared["p"] == compared["p_holm"] < 0.001
    assert "human beats multi by 50.0 points (" in compared["sentence"]
    assert "for these 3 relations, based on their statements; p < .001" in compared["sentence"]


def test_equivalence_test_uses_report_margin():
    differences = np.array([0.02, -0.01, 0.03, 0.0, 0.05, 0.01, -0.02])
    cells = accuracies("lm", human=[0.5] * 7, multi=(0.5 - differences).tolist())

    [compared] = compare_sides(cells, {}, 0, margin=0.04)

    smallest = compared["equivalence"]["smallest_margin"]
    assert compared["equivalence"] == {"margin": 0.04, "smallest_margin": smallest}
    assert scipy.stats.ttest_1samp(differences, smallest, alternative="less").pvalue == pytest.approx(0.05)
    assert smallest < 0.04
    assert "; at most 4 apart (p < .05)" in compared["sentence"]


def test_similar_sides_have_smallest_equivalence_margin():
    [compared] = document_of_counts((18, 2), (18, 2))["comparisons"]

    smallest = compared["equivalence"]["smallest_margin"]
    assert compared["equivalence"]["margin"] == 0.05
    assert 0.05 < smallest < compared["high"]
    assert re.search(r"not distinguishable: .*; at most \d+\.\d apart \(p = \.05\)\.$", compared["sentence"])


def test_six_relations_are_compared_by_relations():
    [compared] = document_of_counts((18, 2), (8, 12), n_relations=6)["comparisons"]

    assert compared["unit"] == "relations"
    assert compared["p"] == compared["p_sign_flip"] == 2 / 2**6


def test_first_sensitivity_p_equals_report_p():
    document = document_of_counts((18, 2), (14, 6))

    [compared], [under_rules] = document["comparisons"], document["sensitivity"]["comparisons"]
    assert under_rules["p_holm"][0] == compared["p_holm"]
    assert 0 < under_rules["p_holm"][1] <= 1


# Comparisons in a report


@pytest.fixture
def pilot(researcher):
    """Round on three relations and three settings. All settings share a true tuple; only human also has a false one."""
    language_model = make_language_model("lm")
    jobs = []
    for name in ("can", "has", "is"):
        relation = make_relation(name)
        for setting, other in (("human", "wrong"), ("multi", "right"), ("top1", "right")):
            tuples = [("a", "shared"), ("a", other)]
            jobs.append(make_harvest(tuples, relation=relation, language_model=language_model, setting=setting))
    cells = [{"job": job.pk, "n": None} for job in jobs]
    pilot = open_round({"name": "pilot", "cells": cells}, by=researcher)
    labels = ["false" if "wrong" in task.entities else "true" for task in pilot.tasks.order_by("position")]
    judge_all(pilot, labels, labels, labels)
    return pilot


def test_report_comparison_counts_shared_statements(pilot):
    document = create_report(pilot).document

    assert [
        (
            comparison["a"],
            comparison["b"],
            comparison["n_relations"],
            comparison["difference"],
            comparison["n_shared_tuples"],
        )
        for comparison in document["comparisons"]
    ] == [("human", "top1", 3, -0.5, 3), ("human", "multi", 3, -0.5, 3), ("top1", "multi", 3, 0, 6)]


def test_report_explains_missing_mcnemar_test(pilot):
    [compared, *_] = create_report(pilot).document["comparisons"]

    assert compared["p_mcnemar"] is None
    assert compared["reason_mcnemar"].startswith("A statement has one verdict in a round")


def test_report_with_comparisons_is_reproducible(pilot):
    # The first report adds an audit entry, so the second report records a different log head.
    first, second = (create_report(pilot).document | {"created_at": "", "audit": None} for _ in range(2))

    assert json.dumps(first) == json.dumps(second)


def test_page_and_markdown_label_simulated_comparisons(pilot, researcher_client):
    pilot.source = "simulated"
    pilot.save()
    report = create_report(pilot)

    page = researcher_client.get(f"{report.get_absolute_url()}?all").text
    text = FORMATS["md"].write(report.document)

    # All tuples of both harvests are judged, so the difference is exact.
    sentence = "With lm, top1 beats human by 50.0 points (50 to 50) for these 3 relations, based on their statements"
    assert sentence in re.sub("<[^>]*>", "", page)
    assert 'Comparisons</h3></summary> <strong class="simulated">simulated, not people</strong>' in page
    assert "## Comparisons (simulated, not people)\n" in text
    assert f"\n1. {sentence}" in text


def test_statements_without_verdict_are_not_compared(db):
    language_model = make_language_model("lm")
    relations = [make_relation(), make_relation()]
    jobs = [
        make_harvest([("a", "b")], relation=relation, language_model=language_model, setting=setting)
        for relation in relations
        for setting in ("human", "multi")
    ]
    pilot = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None} for job in jobs]})

    assert create_report(pilot).document["comparisons"] == []
