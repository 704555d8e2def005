"""Exclusion and reinstatement of annotators: exact counts, preview of the effect, and no lost data."""

import random

import pytest
from django.utils import timezone

from annotation.exchange.judgment_import import import_judgments
from annotation.judging.assignment import next_batch
from annotation.judging.verdicts import majority
from annotation.models import Annotator, Assignment, Judgment, Label, Round
from annotation.quality import exclusion
from annotation.quality.exclusion import exclude_annotator, exclusion_effect, reinstate_annotator
from annotation.rounds.services import open_round
from evaluation.reports.services import create_report
from kgharvest.statistics.rates import EMPTY_STRATUM
from tests.factories import judge, judge_all, make_annotators, make_harvest, make_round
from tests.refusals import refused

pytestmark = pytest.mark.django_db

COUNTERS = ("pk", "n_wanted", "n_leased", "n_judgments", "n_true", "n_false", "n_unjudgeable", "verdict")


def counters(round: Round) -> list[tuple]:
    return list(round.tasks.order_by("pk").values_list(*COUNTERS))


def assert_counters_match_judgments(round: Round) -> None:
    for task in round.tasks.all():
        counted = Judgment.objects.counted().filter(task=task)
        label_counts = [counted.filter(label=label).count() for label in Label.values]
        assert [task.n_true, task.n_false, task.n_unjudgeable] == label_counts
        assert (task.verdict == "") == (task.n_judgments < task.n_wanted)
        if task.verdict:
            assert task.verdict == majority(task.n_true, task.n_false, task.n_judgments)


def randomly_judged_round(n_tasks: int, n_annotators: int, seed: int = 0) -> tuple[Round, list[Annotator]]:
    """Create a partly judged round with uncounted late answers and open leases."""
    rng = random.Random(seed)
    round = make_round(n_tasks, batch_size=5)
    annotators = make_annotators(round, n_annotators)
    for annotator in [*annotators, *annotators]:
        for task in next_batch(annotator, timezone.now()):
            if rng.random() < 0.8:
                judge(annotator, task, rng.choice(Label.values))
    return round, annotators


def test_exclusion_reopens_statements():
    round = make_round(2)
    first, *_ = judge_all(round, ["true", "false"], ["true", "true"], ["false", "true"])

    exclude_annotator(first, "guesses")

    assert [(task.n_true, task.n_false, task.verdict) for task in round.tasks.all()] == [(1, 1, ""), (2, 0, "")]
    [newcomer] = make_annotators(round, 1)
    assert len(next_batch(newcomer, timezone.now())) == 2


def test_reinstatement_restores_all_counters_if_nothing_was_refilled(monkeypatch):
    monkeypatch.setattr(exclusion, "JUDGMENTS_AT_ONCE", 3)
    round, annotators = randomly_judged_round(12, 4)
    Assignment.objects.filter(status="leased", annotator__in=annotators[:2]).delete()
    round.tasks.update(n_leased=0)
    before = counters(round)

    for annotator in annotators[:2]:
        exclude_annotator(annotator, "a reason")
        assert_counters_match_judgments(round)
    assert counters(round) != before
    for annotator in annotators[:2]:
        reinstate_annotator(annotator)
        assert_counters_match_judgments(round)

    assert counters(round) == before
    assert not Judgment.objects.filter(is_excluded=True).exists()


def test_third_judgment_counts_again_after_reinstatement():
    round = make_round(1, third_only_if_split=True)
    judge_all(round, ["true"], ["false"])
    [third] = judge_all(round, ["true"])
    before = counters(round)
    [second] = Annotator.objects.filter(judgments__label="false")

    exclude_annotator(second, "guesses")
    assert counters(round)[0][1:4] == (2, 0, 2)
    reinstate_annotator(second)

    assert counters(round) == before
    assert before[0][3] == 3
    assert third.judgments.get().is_counted


def test_exclusion_releases_leases():
    round = make_round(4)
    [annotator] = make_annotators(round, 1)
    next_batch(annotator, timezone.now())

    exclude_annotator(annotator, "left")

    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}
    assert not Assignment.objects.filter(status="leased").exists()


def test_reinstated_judgment_stays_uncounted_if_its_slot_is_filled():
    round = make_round(2, judgments_per_task=1)
    [first] = judge_all(round, ["true", "true"])
    exclude_annotator(first, "guesses")
    [second] = make_annotators(round, 1)
    [assigned, _] = next_batch(second, timezone.now())
    judge(second, assigned, "false")  # the other statement stays assigned to the second annotator

    reinstatement = reinstate_annotator(first)

    reinstatement.refresh_from_db()
    assert (reinstatement.n_counted_again, reinstatement.n_left_out) == (0, 2)
    assert Judgment.objects.current().filter(annotator=first, is_counted=False).count() == 2
    assert_counters_match_judgments(round)


def test_reinstated_annotator_can_change_judgments():
    round = make_round(1, judgments_per_task=1)
    [annotator] = judge_all(round, ["true"])
    exclude_annotator(annotator, "a mistake")
    reinstate_annotator(annotator)

    judge(annotator, round.tasks.get(), "false")

    assert round.tasks.get().verdict == "rejected"


def test_interrupted_exclusion_resumes_and_is_logged_once(monkeypatch):
    monkeypatch.setattr(exclusion, "JUDGMENTS_AT_ONCE", 1)
    round = make_round(3)
    [annotator] = judge_all(round, ["true"] * 3)
    with monkeypatch.context() as power_cut:
        power_cut.setattr(exclusion, "_remove_from_counts", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exclude_annotator(annotator, "guesses")

    exclude_annotator(annotator, "guesses")

    assert not Judgment.objects.counted().exists()
    assert round.events.filter(kind="excluded").count() == 1
    assert annotator.exclusions.get().n_judgments == 3


def test_exclusion_requires_a_reason_and_a_valid_state():
    [annotator] = make_annotators(make_round(), 1)

    with refused("NoReason"):
        exclude_annotator(annotator, "  ")
    with refused("NotExcluded"):
        reinstate_annotator(annotator)


def test_excluding_annotator_of_imported_judgments_reopens_task(tmp_path):
    """Keep the task incomplete: two of the three remaining judgments are True, but k stays 4."""
    rows = [("a", "True"), ("b", "True"), ("c", "False"), ("d", "False")]
    lines = [
        "relation,entities,annotator,label",
        *(f'r,"[""x"", ""y""]",{annotator_name},{label}' for annotator_name, label in rows),
    ]
    (tmp_path / "judgments.csv").write_text("\n".join(lines))
    round = import_judgments(tmp_path / "judgments.csv", "imported", create=True).round
    annotator = Judgment.objects.filter(label="false").first().annotator
    before = counters(round)

    effect = exclusion_effect(annotator)
    exclude_annotator(annotator, "guesses")

    task = round.tasks.get()
    assert (task.n_wanted, task.n_judgments, task.verdict) == (4, 3, "")
    assert effect["changes"] == [{"before": "undecided", "after": "incomplete", "n": 1}]
    reinstate_annotator(annotator)
    assert counters(round) == before


def test_imported_judgments_of_an_excluded_annotator_stay_excluded(tmp_path):
    path = tmp_path / "judgments.csv"
    path.write_text("relation,entities,annotator,label\n" + 'r,"[""x"", ""y""]",a,True\nr,"[""x"", ""y""]",b,True\n')
    round = import_judgments(path, "imported", create=True).round
    annotator = round.annotators.first()
    exclude_annotator(annotator, "guesses")

    import_judgments(path, "imported", duplicates="last")

    assert round.tasks.get().n_judgments == 1
    reinstate_annotator(annotator)
    assert round.tasks.get().n_judgments == 2
    assert [event.kind for event in round.events.all()][1:3] == ["imported", "excluded"]


def test_exclusion_effect_matches_the_exclusion():
    round, annotators = randomly_judged_round(15, 4, seed=1)
    incomplete = round.tasks.filter(verdict="").count()

    effect = exclusion_effect(annotators[0])
    exclude_annotator(annotators[0], "guesses")

    reopened = sum(change["n"] for change in effect["changes"])
    assert round.tasks.filter(verdict="").count() == incomplete + reopened
    assert effect["n_judgments"] == annotators[0].exclusions.get().n_judgments
    assert effect["agreement"]["after"] == exclusion_effect(annotators[1])["agreement"]["before"]
    assert [cell["after"] for cell in effect["cells"]] == [
        cell["before"] for cell in exclusion_effect(annotators[1])["cells"]
    ]


def test_stratum_without_verdicts_leaves_cell_without_accuracy():
    """Exclude the only annotator who judged the stratum of the best two of six tuples."""
    job = make_harvest([(f"{number}", "x") for number in range(6)])
    cell = {"job": job.pk, "n": None, "strata": [1, 3]}
    round = open_round({"name": "pilot", "cells": [cell], "judgments_per_task": 1})
    first, second = make_annotators(round, 2)
    round.tasks.update(n_leased=1)
    for task in round.tasks.all():
        is_best = task.draws.get().harvested_tuple.rank <= 2
        annotator = first if is_best else second
        annotator.assignments.create(task=task, expires_at=timezone.now())
        judge(annotator, task, "true" if is_best else "false")

    [effect] = exclusion_effect(first)["cells"]
    [before] = create_report(round).document["cells"]
    exclude_annotator(first, "guesses")
    [after] = create_report(round).document["cells"]

    assert (effect["before"]["accuracy"], before["accuracy"]) == pytest.approx((2 / 6, 2 / 6))
    assert (effect["after"]["accuracy"], effect["after"]["n_incomplete"]) == (None, 2)
    assert effect["after"]["reason"] == after["reason"] == EMPTY_STRATUM


def test_exclusion_effect_matches_hand_calculation():
    """Exclude the first annotator of two statements with k = 3, TTT and TFF. TT and FF remain, both incomplete."""
    round = make_round(2)
    first, *_ = judge_all(round, ["true", "true"], ["true", "false"], ["true", "false"])

    effect = exclusion_effect(first)

    assert effect["changes"] == [
        {"before": "accepted", "after": "incomplete", "n": 1},
        {"before": "rejected", "after": "incomplete", "n": 1},
    ]
    [cell] = effect["cells"]
    assert cell["before"] == {"n": 2, "n_incomplete": 0, "accuracy": 0.5, "reason": None}
    # Two equal labels of k = 3 decide.
    assert cell["after"] == {"n": 0, "n_incomplete": 2, "accuracy": 0.5, "reason": None}
    # Before: 4 True, 2 False. 4 of 12 ordered pairs within tasks disagree, each weighted by 1/2: D_o = 2.
    # 16 of all 30 ordered pairs disagree: alpha = 1 - 5 * 2 / 16.
    assert effect["agreement"]["before"]["alpha"] == pytest.approx(1 - 5 * 2 / 16)
    assert effect["agreement"]["after"]["alpha"] == pytest.approx(1)
