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


def judged(draft, *, true_of="multi", n_people=3):
    """Open the draft, have everybody call the tuples of one setting true and all others false, and close it."""
    round = open_draft(draft)
    labels = ["true" if task.statement.startswith(true_of) else "false" for task in round.tasks.order_by("position")]
    judge_all(round, *[labels] * n_people)
    close_round(round)
    return round


def report_on(draft, **options):
    return create_report(judged(draft, **options)).document


# -- families ----------------------------------------------------------------------------------------------------------


def test_holm_within_families_by_hand():
    # Planned .01 and .04: twice the smaller, then the larger. Exploratory .02, .03, .5: times three, two and one.
    adjusted = holm_by_family([0.01, 0.03, 0.04, 0.02, 0.5], [True, False, True, False, False])

    assert adjusted == pytest.approx([0.02, 0.06, 0.04, 0.06, 0.5])


def test_one_family_is_holms_own_adjustment():
    ps = [0.2, 0.01, 0.03]

    assert holm_by_family(ps, [None] * 3) == holm(ps)


def test_planned_comparisons_do_not_pay_for_the_others():
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

    own_rule = [entry["p_holm"][0] for entry in document["sensitivity"]["comparisons"]]
    assert own_rule == pytest.approx([entry["p_holm"] for entry in document["comparisons"]])


def test_the_planner_counts_the_comparisons_of_a_family():
    draft = make_draft(3, THREE)
    freeze(draft)

    plans = report_on(draft)["planner"]["comparisons"]

    assert sorted(plan["n_comparisons"] for plan in plans) == [1, 2, 2]


def test_without_planned_comparisons_all_are_one_exploratory_family():
    draft = make_draft(3, THREE)
    freeze(draft, planned())

    comparisons = report_on(draft)["comparisons"]

    assert not any(entry["planned"] for entry in comparisons)
    assert [entry["p_holm"] for entry in comparisons] == pytest.approx(holm([entry["p"] for entry in comparisons]))


def test_rules_by_family_by_hand():
    cells = [CellKey(f"r{number}", "lm", setting) for setting in THREE for number in range(8)]
    rng = np.random.default_rng(1)
    table = rng.random((1, len(cells)))
    pair = frozenset((Side("lm", "multi"), Side("lm", "human")))

    alone = compare_rules(cells, table, 0)
    family = compare_rules(cells, table, 0, planned=frozenset([pair]))

    assert [entry.pair for entry in alone] == [entry.pair for entry in family]
    [of_pair] = [entry for entry in family if frozenset((entry.pair.a, entry.pair.b)) == pair]
    assert isinstance(of_pair.pair, Pair)
    assert of_pair.p_holm[0] <= alone[family.index(of_pair)].p_holm[0]


# -- without a preregistration -----------------------------------------------------------------------------------------


def test_reports_without_one_have_no_word_of_it():
    report = create_report(judged(make_draft(3, THREE)))
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


# -- hypotheses --------------------------------------------------------------------------------------------------------


def comparison(**numbers):
    entry = {
        "kind": "settings", "model": "lm", "a": "human", "b": "multi", "difference": -0.2, "low": -0.3, "high": -0.1,
        "p_holm": 0.01, "equivalence": {"margin": 0.05, "p": 0.9, "smallest_margin": 0.28},
    }  # fmt: skip
    return entry | numbers


@pytest.mark.parametrize(
    ("expects", "numbers", "outcome"),
    [
        ("first", {}, "supported"),  # first is multi, which is ahead: the report's difference is human less multi
        ("second", {}, "not supported"),
        ("different", {}, "supported"),
        ("first", {"p_holm": 0.05}, "undecided"),
        ("second", {"p_holm": 0.2}, "undecided"),
        ("different", {"p_holm": 0.2}, "undecided"),
    ],
)
def test_the_outcome_of_a_hypothesis_on_a_direction(expects, numbers, outcome):
    hypothesis = {**SIDES, "expects": expects, "margin": None, "words": "w"}

    tested = hypothesis_outcome(hypothesis, [comparison(**numbers)])

    assert tested["outcome"] == outcome
    assert (tested["difference"], tested["low"], tested["high"]) == (0.2, 0.1, 0.3)


@pytest.mark.parametrize(
    ("margin", "numbers", "outcome"),
    [
        (30, {}, "supported"),  # at most 28 points apart at p = .05
        (28, {}, "undecided"),  # p = .05 is not below
        (15, {}, "undecided"),  # the interval reaches within 15 points
        (9, {}, "not supported"),  # all of 10 to 30 is beyond
        (9, {"low": None, "high": None}, "undecided"),
        (30, {"equivalence": None}, "undecided"),
    ],
)
def test_the_outcome_of_a_hypothesis_on_likeness(margin, numbers, outcome):
    hypothesis = {**SIDES, "expects": "alike", "margin": margin, "words": "w"}

    assert hypothesis_outcome(hypothesis, [comparison(**numbers)])["outcome"] == outcome


def test_a_hypothesis_that_the_report_has_no_number_for_is_undecided():
    hypothesis = {**SIDES, "expects": "first", "margin": None, "words": "w"}

    tested = hypothesis_outcome(hypothesis, [])

    assert (tested["outcome"], tested["comparison"]) == ("undecided", None)
    assert "Not compared" in tested["reason"]


def test_a_report_tests_the_hypotheses_by_its_own_comparisons():
    draft = make_draft(6)
    freeze(draft, planned(hypotheses=[{**SIDES, "expects": "first"}]))

    document = report_on(draft)

    [tested] = document["preregistration"]["hypotheses"]
    [compared] = document["comparisons"]
    assert tested["outcome"] == "supported"
    assert (tested["comparison"], tested["p_holm"]) == (1, compared["p_holm"])
    assert tested["difference"] == 1.0 == -compared["difference"]


# -- deviations --------------------------------------------------------------------------------------------------------


def test_a_round_as_it_was_planned_has_no_deviations():
    draft = make_draft(closes_when="complete")
    frozen = freeze(draft)

    report = create_report(judged(draft))

    assert report.document["preregistration"]["deviations"] == []
    assert (
        SECTION.badge(report.document["preregistration"]) == f"Preregistered {frozen.frozen_at:%Y-%m-%d}, no deviations"
    )
    assert report.headline["n_deviations"] == 0
    assert report.method.endswith(f"\n\n{PREREGISTERED}")


def test_another_seed_and_another_sample_are_deviations():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    fewer = [{**cell, "n": 2} for cell in draft.spec["cells"]]
    edit_draft(draft, draft.spec | {"seed": 5, "cells": fewer})

    found = {entry["path"]: (entry["planned"], entry["actual"]) for entry in _deviations(draft)}

    assert found["options.seed"] == ("0", "5")
    assert found["statements.n"] == ("12", "8")
    assert found["cells.relation-study-0 · lm · multi.sample_size"] == ("3", "2")
    assert "statements.sha256" in found


def test_hashes_are_cut_in_tables_and_whole_in_the_document():
    whole = {"path": "statements.sha256", "planned": "a" * 64, "actual": "b" * 64}

    table = deviation_table({"preregistration": {"deviations": [whole]}})

    assert table.rows[0].values == ("statements.sha256", "a" * 16 + "…", "b" * 16 + "…")


def test_instructions_and_limits_changed_are_deviations():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    edit_draft(draft, draft.spec | {"instructions": "Guess."})
    round = open_draft(draft)
    set_limits(round, longest_run=40)
    close_round(round)

    paths = [entry["path"] for entry in create_report(round).document["preregistration"]["deviations"]]

    # The hash of the instructions is no deviation beside their text.
    assert paths == ["limits.longest_run", "options.instructions", "stopping_rule"]


def test_an_exclusion_by_hand_is_set_beside_the_rule():
    draft = make_draft(judgments_per_task=2)
    freeze(draft)
    round = judged(draft, n_people=2)
    annotator = round.annotators.order_by("pk").first()
    exclude_annotator(annotator, "guesses")

    found = create_report(round).document["preregistration"]["deviations"]

    [entry] = [entry for entry in found if "exclusions" in entry["path"]]

    assert entry["path"] == f"exclusions.{annotator.code}"
    assert entry["planned"] == "Nobody."
    assert "manually" in entry["actual"]
    assert "guesses" in entry["actual"]


def test_an_exclusion_after_the_first_of_two_pauses_is_none():
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
        ("c8460897190de13af2fd250555f7507ead324dda5b8fd274a3e98dca8dcff2e4", []),  # its wording at 95ec9180
        ("0" * 64, ["analysis.method_sha256"]),
    ],
)
def test_only_another_method_is_a_deviation_not_its_wording(planned_method, paths):
    state = {"options": {"closes_when": "manual"}, "analysis": {"method_sha256": "1" * 64}}
    frozen = {"state": state | {"analysis": {"method_sha256": planned_method}}, "plan": {"exclusion_rules": ""}}
    conduct = {"timeline": [], "exclusions": [], "dates": {"closed_at": "2026-07-04"}, "statements": {"incomplete": 0}}

    assert [deviation.path for deviation in deviations(frozen, state, conduct)] == paths


def test_an_end_before_the_rule_is_a_deviation():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    round = open_draft(draft)
    close_round(round)

    [entry] = create_report(round).document["preregistration"]["deviations"]

    assert entry["path"] == "stopping_rule"
    assert entry["planned"] == "closed when every statement has its judgments"
    assert "12 statements incomplete" in entry["actual"]


def test_a_look_at_a_round_that_goes_on_is_a_deviation():
    draft = make_draft()
    freeze(draft)
    round = open_draft(draft)

    [entry] = create_report(round).document["preregistration"]["deviations"]

    assert "not closed" in entry["actual"]


def test_a_report_keeps_to_the_last_version():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    edit_draft(draft, draft.spec | {"seed": 3})
    last = freeze(draft)

    registered = report_on(draft)["preregistration"]

    assert (registered["version"], registered["sha256"], registered["deviations"]) == (2, last.sha256, [])


def test_the_time_of_the_first_judgment_is_named():
    draft = make_draft(closes_when="complete")
    freeze(draft)
    before = timezone.now().replace(microsecond=0)

    registered = report_on(draft)["preregistration"]

    assert registered["first_judgment_at"] >= before.isoformat(timespec="seconds")
    assert Judgment.objects.exists()


def test_differences_by_hand():
    planned_ones = {"a": 1, "b": {"c": [1, 2]}, "d": "x", "g": True}
    actual = {"a": 1, "b": {"c": [1, 3]}, "e": {"f": None}, "g": False}

    assert list(differences(planned_ones, actual)) == [
        Deviation("b.c[1]", "2", "3"),
        Deviation("d", "x", None),
        Deviation("e", None, "f: none"),
        Deviation("g", "yes", "no"),
    ]


def test_nothing_differs_from_itself():
    state = {"a": [1, {"b": None}], "c": "d"}

    assert list(differences(state, state)) == []


def _deviations(draft):
    return report_on(draft)["preregistration"]["deviations"]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["html", "md", "tex", "json"])
def test_files_name_hash_and_families(name):
    draft = make_draft(3, THREE)
    frozen = freeze(draft)

    content = FORMATS[name].write(report_on(draft))

    assert frozen.sha256 in content
    for word in ("planned", "exploratory") if name != "json" else ('"planned": true', '"planned": false'):
        assert word in content
