"""Reports on preregistered rounds: families of comparisons, outcomes of hypotheses, deviations."""

import numpy as np
import pytest
from django.utils import timezone

from annotation.judging.judgments import Judgment
from annotation.quality.exclusion import exclude_annotator
from annotation.quality.limits import set_limits
from annotation.rounds.services import close_round, edit_draft, open_draft
from evaluation.reports.document import method_of, report_tables
from evaluation.reports.files import DOCUMENT_FORMATS as FORMATS
from evaluation.reports.sections.comparisons import compare_rules
from evaluation.reports.services import create_report
from kgharvest.contrib.publishing.preregistration.report_section import METHOD as PREREGISTERED
from kgharvest.contrib.publishing.preregistration.report_section import (
    SECTION,
    Deviation,
    deviation_table,
    deviations,
    differences,
    hypothesis_outcome,
)
from kgharvest.statistics.paired_tests import CellKey, Pair, Side, holm, holm_by_family
from tests.factories import judge_all
from tests.kgharvest.contrib.publishing.preregistration.planning import SIDES, freeze, make_draft, planned

pytestmark = pytest.mark.django_db

THREE = ("multi", "human", "top1")


def judge_draft(draft, *, true_of="multi", n_people=3):
    """Open, judge, and close the draft. All annotators judge the tuples of one setting true and the rest false."""
    round = open_draft(draft)
    labels = ["true" if task.statement.startswith(true_of) else "false" for task in round.tasks.order_by("position")]
    judge_all(round, *[labels] * n_people)
    close_round(round)
    return round


def report_on(draft, **options):
    return create_report(judge_draft(draft, **options)).document


# Families


def test_holm_adjusts_within_families():
    # Planned: .01 times two, .04 times one. Exploratory: .02 times three, .03 times two, .5 times one.
    adjusted = holm_by_family([0.01, 0.03, 0.04, 0.02, 0.5], [True, False, True, False, False])

    assert adjusted == pytest.approx([0.02, 0.06, 0.04, 0.06, 0.5])


def test_single_family_equals_plain_holm():
    ps = [0.2, 0.01, 0.03]

    assert holm_by_family(ps, [None] * 3) == holm(ps)


def test_planned_comparisons_are_adjusted_separately():
    draft = make_draft(3, THREE)
    freeze(draft)

    comparisons = report_on(draft)["comparisons"]

    planned_ones = [entry for entry in comparisons if entry["planned"]]
    others = [entry for entry in comparisons if not entry["planned"]]
    assert [(entry["a"], entry["b"]) for entry in planned_ones] == [("human", "multi")]
    assert planned_ones[0]["p_holm"] == planned_ones[0]["p"]
    assert [entry["p_holm"] for entry in others] == pytest.approx(holm([entry["p"] for entry in others]))
    assert len(others) == 2


def test_sensitivity_adjusts_within_the_same_families():
    draft = make_draft(3, THREE)
    freeze(draft)

    document = report_on(draft)

    default_rule = [entry["p_holm"][0] for entry in document["sensitivity"]["comparisons"]]
    assert default_rule == pytest.approx([entry["p_holm"] for entry in document["comparisons"]])


def test_planner_counts_comparisons_per_family():
    draft = make_draft(3, THREE)
    freeze(draft)

    plans = report_on(draft)["planner"]["comparisons"]

    assert sorted(plan["n_comparisons"] for plan in plans) == [1, 2, 2]


def test_unplanned_comparisons_form_one_exploratory_family():
    draft = make_draft(3, THREE)
    freeze(draft, planned())

    comparisons = report_on(draft)["comparisons"]

    assert not any(entry["planned"] for entry in comparisons)
    assert [entry["p_holm"] for entry in comparisons] == pytest.approx(holm([entry["p"] for entry in comparisons]))


def test_planned_pair_is_adjusted_less_than_without_families():
    cells = [CellKey(f"r{number}", "lm", setting) for setting in THREE for number in range(8)]
    rng = np.random.default_rng(1)
    table = rng.random((1, len(cells)))
    pair = frozenset((Side("lm", "multi"), Side("lm", "human")))

    alone = compare_rules(cells, table, 0)
    family = compare_rules(cells, table, 0, planned=frozenset([pair]))

    assert [entry.pair for entry in alone] == [entry.pair for entry in family]
    [planned_pair] = [entry for entry in family if frozenset((entry.pair.a, entry.pair.b)) == pair]
    assert isinstance(planned_pair.pair, Pair)
    assert planned_pair.p_holm[0] <= alone[family.index(planned_pair)].p_holm[0]


# Without preregistration


def test_unregistered_report_omits_preregistration():
    report = create_report(judge_draft(make_draft(3, THREE)))
    document = report.document

    assert "preregistration" not in document
    assert not any("planned" in entry for entry in document["comparisons"])
    assert document["method"] == report.method == method_of(document)
    assert "n_deviations" not in report.headline
    names = {table.name for table in report_tables(document)}
    assert not names & {"preregistration", "hypotheses", "deviations"}
    [table] = [table for table in report_tables(document) if table.name == "comparisons"]
    assert "family" not in [column.title for column in table.columns]
    assert not any("reregist" in str(FORMATS[name].write(document)) for name in ("html", "md", "tex", "csv", "json"))


# Hypotheses


def comparison(**numbers):
    entry = {
        "kind": "settings", "model": "lm", "a": "human", "b": "multi", "difference": -0.2, "low": -0.3, "high": -0.1,
        "p_holm": 0.01, "equivalence": {"margin": 0.05, "p": 0.9, "smallest_margin": 0.28},
    }  # fmt: skip
    return entry | numbers


@pytest.mark.parametrize(
    ("expects", "numbers", "outcome"),
    [
        ("first", {}, "supported"),  # first is multi, which is more accurate; the report states human minus multi
        ("second", {}, "not supported"),
        ("different", {}, "supported"),
        ("first", {"p_holm": 0.05}, "undecided"),
        ("second", {"p_holm": 0.2}, "undecided"),
        ("different", {"p_holm": 0.2}, "undecided"),
    ],
)
def test_outcome_of_direction_hypothesis(expects, numbers, outcome):
    hypothesis = {**SIDES, "expects": expects, "margin": None, "words": "w"}

    result = hypothesis_outcome(hypothesis, [comparison(**numbers)])

    assert result["outcome"] == outcome
    assert (result["difference"], result["low"], result["high"]) == (0.2, 0.1, 0.3)


@pytest.mark.parametrize(
    ("margin", "numbers", "outcome"),
    [
        (30, {}, "supported"),  # at most 28 points apart at p = .05
        (28, {}, "undecided"),  # p = .05 is not significant
        (15, {}, "undecided"),  # the interval overlaps the margin of 15 points
        (9, {}, "not supported"),  # the interval from 10 to 30 points exceeds the margin
        (9, {"low": None, "high": None}, "undecided"),
        (30, {"equivalence": None}, "undecided"),
    ],
)
def test_outcome_of_similarity_hypothesis(margin, numbers, outcome):
    hypothesis = {**SIDES, "expects": "alike", "margin": margin, "words": "w"}

    assert hypothesis_outcome(hypothesis, [comparison(**numbers)])["outcome"] == outcome


def test_hypothesis_without_a_comparison_is_undecided():
    hypothesis = {**SIDES, "expects": "first", "margin": None, "words": "w"}

    result = hypothesis_outcome(hypothesis, [])

    assert (result["outcome"], result["comparison"]) == ("undecided", None)
    assert "Not compared" in result["reason"]


def test_report_tests_hypotheses_with_its_comparisons():
    draft = make_draft(6)
    freeze(draft, planned(hypotheses=[{**SIDES, "expects": "first"}]))

    document = report_on(draft)

    [result] = document["preregistration"]["hypotheses"]
    [comparison_entry] = document["comparisons"]
    assert result["outcome"] == "supported"
    assert (result["comparison"], result["p_holm"]) == (1, comparison_entry["p_holm"])
    assert result["difference"] == 1.0 == -comparison_entry["difference"]


# Deviations


def test_round_conducted_as_planned_has_no_deviations():
    draft = make_draft(closes_when="complete")
    frozen = freeze(draft)

    report = create_report(judge_draft(draft))

    assert report.document["preregistration"]["deviations"] == []
    assert (
        SECTION.badge(report.document["preregistration"]) == f"Preregistered {frozen.frozen_at:%Y-%m-%d}, no deviations"
    )
    assert report.headline["n_deviations"] == 0
    assert report.method.endswith(f"\n\n{PREREGISTERED}")


def test_changed_seed_and_sample_are_deviations():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    fewer = [{**cell, "n": 2} for cell in draft.spec["cells"]]
    edit_draft(draft, draft.spec | {"seed": 5, "cells": fewer})

    found_deviations = {entry["path"]: (entry["planned"], entry["actual"]) for entry in _deviations(draft)}

    assert found_deviations["options.seed"] == ("0", "5")
    assert found_deviations["statements.n"] == ("12", "8")
    assert found_deviations["cells.relation-study-0 · lm · multi.sample_size"] == ("3", "2")
    assert "statements.sha256" in found_deviations


def test_deviation_table_shortens_hashes():
    entry = {"path": "statements.sha256", "planned": "a" * 64, "actual": "b" * 64}

    table = deviation_table({"preregistration": {"deviations": [entry]}})

    assert table.rows[0].values == ("statements.sha256", "a" * 16 + "…", "b" * 16 + "…")


def test_changed_instructions_and_limits_are_deviations():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    edit_draft(draft, draft.spec | {"instructions": "Guess."})
    round = open_draft(draft)
    set_limits(round, longest_run=40)
    close_round(round)

    paths = [entry["path"] for entry in create_report(round).document["preregistration"]["deviations"]]

    # The text of the instructions is listed, so their hash is not.
    assert paths == ["limits.longest_run", "options.instructions", "stopping_rule"]


def test_manual_exclusion_is_listed_with_the_planned_rule():
    draft = make_draft(judgments_per_task=2)
    freeze(draft)
    round = judge_draft(draft, n_people=2)
    annotator = round.annotators.order_by("pk").first()
    exclude_annotator(annotator, "guesses")

    found_deviations = create_report(round).document["preregistration"]["deviations"]

    [entry] = [entry for entry in found_deviations if "exclusions" in entry["path"]]

    assert entry["path"] == f"exclusions.{annotator.code}"
    assert entry["planned"] == "Nobody."
    assert "manually" in entry["actual"]
    assert "guesses" in entry["actual"]


def test_exclusion_after_one_of_two_pauses_is_not_a_deviation():
    conduct = {
        "timeline": [
            {"kind": "limit_crossed", "annotator": "A1", "at": f"2026-07-0{day}T12:00:00+00:00"} for day in (1, 3)
        ],
        "exclusions": [
            {"annotator": "A1", "at": "2026-07-02T12:00:00+00:00", "reason": "fast", "reinstated_at": "2026-07-02"}
        ],
        "dates": {"closed_at": "2026-07-04T12:00:00+00:00"},
        "statements": {"incomplete": 0},
    }
    state = {"options": {"closes_when": "manual"}}
    frozen = {"state": state, "plan": {"exclusion_rules": "Whom a limit pauses."}}

    assert deviations(frozen, state, conduct) == []


@pytest.mark.parametrize(
    ("planned_method", "paths"),
    [
        ("c8460897190de13af2fd250555f7507ead324dda5b8fd274a3e98dca8dcff2e4", []),  # hash of the wording at 95ec9180
        ("0" * 64, ["analysis.method_sha256"]),
    ],
)
def test_changed_method_is_a_deviation_but_not_its_wording(planned_method, paths):
    state = {"options": {"closes_when": "manual"}, "analysis": {"method_sha256": "1" * 64}}
    frozen = {"state": state | {"analysis": {"method_sha256": planned_method}}, "plan": {"exclusion_rules": ""}}
    conduct = {"timeline": [], "exclusions": [], "dates": {"closed_at": "2026-07-04"}, "statements": {"incomplete": 0}}

    assert [deviation.path for deviation in deviations(frozen, state, conduct)] == paths


def test_closing_before_the_stopping_rule_is_a_deviation():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    round = open_draft(draft)
    close_round(round)

    [entry] = create_report(round).document["preregistration"]["deviations"]

    assert entry["path"] == "stopping_rule"
    assert entry["planned"] == "closed when every statement has its judgments"
    assert "12 statements incomplete" in entry["actual"]


def test_report_on_an_open_round_is_a_deviation():
    draft = make_draft()
    freeze(draft)
    round = open_draft(draft)

    [entry] = create_report(round).document["preregistration"]["deviations"]

    assert "not closed" in entry["actual"]


def test_report_uses_the_last_version():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    edit_draft(draft, draft.spec | {"seed": 3})
    last = freeze(draft)

    registered = report_on(draft)["preregistration"]

    assert (registered["version"], registered["sha256"], registered["deviations"]) == (2, last.sha256, [])


def test_report_contains_time_of_first_judgment():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    before = timezone.now().replace(microsecond=0)

    registered = report_on(draft)["preregistration"]

    assert registered["first_judgment_at"] >= before.isoformat(timespec="seconds")
    assert Judgment.objects.exists()


def test_differences_list_changed_added_and_removed_values():
    planned_ones = {"a": 1, "b": {"c": [1, 2]}, "d": "x", "g": True}
    actual = {"a": 1, "b": {"c": [1, 3]}, "e": {"f": None}, "g": False}

    assert list(differences(planned_ones, actual)) == [
        Deviation("b.c[1]", "2", "3"),
        Deviation("d", "x", None),
        Deviation("e", None, "f: none"),
        Deviation("g", "yes", "no"),
    ]


def test_equal_states_have_no_differences():
    state = {"a": [1, {"b": None}], "c": "d"}

    assert list(differences(state, state)) == []


def _deviations(draft):
    return report_on(draft)["preregistration"]["deviations"]


# Files


@pytest.mark.parametrize("name", ["html", "md", "tex", "json"])
def test_files_contain_hash_and_families(name):
    draft = make_draft(3, THREE)
    frozen = freeze(draft)

    content = FORMATS[name].write(report_on(draft))

    assert frozen.sha256 in content
    for word in ("planned", "exploratory") if name != "json" else ('"planned": true', '"planned": false'):
        assert word in content
