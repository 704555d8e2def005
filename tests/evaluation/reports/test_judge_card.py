"""Judge card of a report, checked against hand-calculated counts, and its empty states."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from django.template.loader import render_to_string

from annotation.judges.labels import SeveralJudges
from annotation.judges.models import JudgeKind
from annotation.models import Draw, Round
from evaluation.evidence.judges import judge_answers_of_rows, statement_weights
from evaluation.evidence.rows import gather_evidence, rows_of_round
from evaluation.panels import judge_card
from evaluation.reports.document import report_tables
from evaluation.reports.sections.judge_card import (
    ASKED_ONCE,
    NO_PROBABILITY,
    NO_VERDICTS,
    card_entry,
    effect_table,
    score_table,
)
from evaluation.reports.services import compute_report, create_report
from kgharvest.statistics.sequential import SeenStrata, anytime_interval
from tests.factories import judge_all, make_harvest, make_judge_answer, make_judge_run, make_round

pytestmark = pytest.mark.django_db

N = 40


@pytest.fixture(scope="module")
def round_of_module(module_rows):
    """Round of 40 statements. Ranks 1 to 30 are accepted, and one of three annotators errs on each fourth rank."""
    round = make_round(N)
    rank = dict(Draw.objects.values_list("task__position", "harvested_tuple__rank"))
    truth = ["true" if rank[position] <= 30 else "false" for position in range(N)]
    wrong = ["false" if label == "true" else "true" for label in truth]
    with_errors = [
        w if rank[position] % 4 == 0 else t for position, (t, w) in enumerate(zip(truth, wrong, strict=True))
    ]
    judge_all(round, truth, truth, with_errors)
    return round


@pytest.fixture
def round(round_of_module):
    return deepcopy(round_of_module)


def run_by_rank(round, label_of_rank, repeats=1, **fields):
    """label_of_rank: function from rank and repeat to a label, or to None for no answer."""
    run = make_judge_run(round, repeats=repeats, **fields)
    for harvested in round.strata.get().job.tuples.all():
        for repeat in range(repeats):
            if (label := label_of_rank(harvested.rank, repeat)) is not None:
                make_judge_answer(run, harvested.knowledge_tuple, label, repeat=repeat)
    return run


def label_with_errors(rank, repeat):
    """Return True up to rank 27, unparsable to 30, and for the ten false tuples two True and one Unjudgeable."""
    return "true" if rank <= 27 or rank in (31, 32) else {28: "", 29: "", 30: "", 33: "unjudgeable"}.get(rank, "false")


def card_of(round, run):
    evidence = gather_evidence(round)
    return card_entry(evidence, judge_answers_of_rows(rows_of_round(round, run), evidence))


def test_errors_and_agreement_match_hand_calculation(round):
    card = card_of(round, run_by_rank(round, label_with_errors))

    [overall] = card["relations"]
    assert (card["n_asked"], card["n_statements"], card["n_verdicts"], overall["n"]) == (N, N, N, N)
    assert overall["sensitivity"]["value"] == pytest.approx(27 / 30)
    assert overall["specificity"]["value"] == pytest.approx(7 / 10)
    assert overall["youden_j"]["value"] == pytest.approx(0.6)
    assert overall["confusion"]["rejected"] == {"true": 2, "false": 7, "unjudgeable": 1, "unparsable": 0}
    # The ten statements at each fourth rank are disputed. There, only the dissenter can be compared with a majority.
    assert overall["agreement"]["n"] == 30 * 3 + 10
    assert overall["agreement"]["people"]["percent"] == pytest.approx(90 / 100)
    # The judge errs on ranks 28 to 33, of which 28 and 32 are disputed: 4 * 3 + 2 judgments.
    assert overall["agreement"]["judge"]["percent"] == pytest.approx(1 - (4 * 3 + 2) / 100)


def test_alternative_annotator_test_covers_each_annotator_kind(round):
    card = card_of(round, run_by_rank(round, lambda rank, _: "true" if rank <= 30 else "false"))

    # The judge makes no errors. It is significantly better only than the third annotator, and no annotator is better.
    assert {test["kind"]: test["omega"] for test in card["alternative_annotator"]} == {
        "experts": 1.0,
        "skilled": 1.0,
        "crowd": 1.0,
    }
    assert all(test["is_passed"] and test["rho"] == 1.0 for test in card["alternative_annotator"])


def test_card_reports_flips_and_other_runs(round):
    """The first three tuples change once in three repeats, so 2 of 3 pairs differ."""
    run = run_by_rank(round, lambda rank, repeat: "false" if rank <= 3 and repeat == 2 else "true", repeats=3, seed=1)
    other = run_by_rank(
        round, lambda rank, _: "false" if rank > 30 else "true", seed=2, repeats=1, prompt="{statement}?"
    )
    other.prompt_sha256 = "other"
    other.save()

    card = card_of(round, run)

    assert (card["flips"]["n"], card["flips"]["n_changing"]) == (N, 3)
    assert card["flips"]["flip_rate"] == pytest.approx(3 * (2 / 3) / N)
    [change] = card["other_runs"]
    assert change["differs"] == ["seed", "repeats", "wording of the prompt"]
    assert change["p_holm"] is None  # only runs that differ in one respect are tested
    assert (change["n"], change["n_differing"], change["more_true"]) == (N, 10, pytest.approx(-0.25))


def test_single_differences_between_runs_have_effects(round):
    """Compared with `plain`, tuples become true with another wording, but not with another order of labels."""
    fields = {"relation_texts": {"1": {"instructions": "Say so.", "examples": "one\n\ntwo\n\n"}}}
    run = run_by_rank(round, label_with_errors, name="plain", prompt="{statement} True or False?", **fields)
    other_order = {"1": {"instructions": "Say so.", "examples": "two\n\none\n\n"}}
    more_true = run_by_rank(round, lambda *_: "true", name="b", prompt="{statement} is True, or False?", **fields)
    run_by_rank(round, label_with_errors, name="c", prompt="{statement} False or True?", **fields)
    run_by_rank(round, label_with_errors, name="d", prompt=run.prompt, relation_texts=other_order)
    run_by_rank(round, label_with_errors, name="e", prompt=run.prompt, dtype="nf4", **fields)

    card = card_of(round, run)

    effects = {change["run"]: change for change in card["other_runs"]}
    assert [effects[name]["differs"] for name in "bcde"] == [
        ["wording of the prompt"], ["order of the labels"], ["order of the examples"], ["number format"],
    ]  # fmt: skip
    assert (effects["b"]["n_to_true"], effects["b"]["n_from_true"], effects["c"]["n_differing"]) == (11, 0, 0)
    # The other runs have no differing answers.
    assert effects["b"]["p_holm"] == effects["b"]["p"] == pytest.approx(2 / 2**11)
    document = {"judge_card": card, "source": round.source}
    rows = {row.values[0]: row.values for row in effect_table(document).rows}
    assert rows["wording of the prompt"][1] == str(more_true)
    assert rows["order of the labels"][3:6] == (0, 0, pytest.approx(effects["c"]["low"]))


def test_only_judges_with_probabilities_are_calibrated(round):
    run = make_judge_run(round, judge_kind=JudgeKind.CAUSAL)
    for harvested in round.strata.get().job.tuples.all():
        make_judge_answer(run, harvested.knowledge_tuple, "true", score=0.85)

    # 30 of 40 statements are accepted.
    assert card_of(round, run)["calibration"]["error"] == pytest.approx(0.1)
    assert card_of(round, run_by_rank(round, label_with_errors))["calibration"] == {"reason": NO_PROBABILITY}


def test_repeated_chat_judge_is_calibrated_by_share_of_true(round):
    """The judge answers True four of five times for every tuple, and 30 of 40 tuples are accepted."""
    run = run_by_rank(round, lambda _, repeat: "true" if repeat else "false", repeats=5)

    assert card_of(round, run)["calibration"]["error"] == pytest.approx(0.05)


def test_score_judge_has_accuracy_by_score(round):
    run = make_judge_run(round, judge_kind=JudgeKind.SCORE, threshold=-5)
    for harvested in round.strata.get().job.tuples.all():
        make_judge_answer(run, harvested.knowledge_tuple, "true", score=-harvested.rank)

    card = card_of(round, run)

    bins = card["calibration"]["scores"]
    assert [part["n"] for part in bins] == [5] * 8
    assert [part["accuracy"] for part in bins] == [0, 0, 1, 1, 1, 1, 1, 1]  # ranks 31 to 40 are rejected
    assert score_table({"judge_card": card}).rows[0].values[:3] == (-40, -36, 5)


def test_identical_panel_judges_count_as_one_vote(round):
    runs = [run_by_rank(round, label_with_errors, panel="jury") for _ in range(3)]

    panel = card_of(round, runs[0])["panel"]

    assert panel["runs"] == sorted(run.name for run in runs)
    assert (panel["kish"], panel["eigenvalue"]) == pytest.approx((1, 1))


def test_statement_weights_are_inverse_sampling_fractions():
    job = make_harvest([(f"head {n}", f"tail {n}") for n in range(40)])
    round = make_round(1, cells=[{"job": job.pk, "n": 20, "strata": [1, 11], "allocation": "equal"}])

    weights = statement_weights(gather_evidence(round))

    assert sorted(weights.tolist()) == [1.0] * 10 + [3.0] * 10


def test_card_explains_missing_verdicts():
    round = make_round(N)

    card = card_of(round, run_by_rank(round, label_with_errors))

    assert (card["reason"], card["relations"][0]["sensitivity"]["value"]) == (NO_VERDICTS, None)
    assert card["flips"] == {"reason": ASKED_ONCE}
    assert card["alternative_annotator"][0]["omega"] is None
    report = compute_report(round, judge=round.judge_runs.get())
    tables = {table.name: table for table in report_tables(report.document)}
    assert NO_VERDICTS in tables["judge"].notes


def test_judge_tables_of_report_name_run_and_lm(round):
    run = run_by_rank(round, label_with_errors, repeats=2, panel="jury")

    document = compute_report(round, judge=run).document

    tables = [table for table in report_tables(document) if table.name.startswith("judge")]
    assert {table.name for table in tables} >= {"judge", "judge-confusion", "judge-alternative", "judge-steadiness"}
    assert all(f"judge {run.name} (judge-lm)" in table.title for table in tables)
    assert compute_report(round).document["judge_card"] is None


def test_run_with_several_lms_is_rejected(round):
    run = run_by_rank(round, label_with_errors)
    answer = run.answers.first()
    answer.model_reported = "another"
    answer.save()

    with pytest.raises(SeveralJudges):
        compute_report(round, judge=run)


def panel_of(run):
    [panel] = judge_card(None, run)
    return render_to_string(panel.template, panel.context)


def test_run_page_shows_order_effect_before_judgments():
    unjudged = make_round(4)
    run, _ = (
        run_by_rank(unjudged, lambda *_: "true", name=name, prompt=f"{{statement}} {ways}?")
        for name, ways in (("a", "True or False"), ("b", "False or True"))
    )

    page = panel_of(run)

    assert NO_VERDICTS in page
    assert "Effect of wording and order: judge a (judge-lm)" in page
    assert "People&#x27;s verdicts and the judge" not in page


def test_run_page_shows_judge_quality(round):
    html = panel_of(run_by_rank(round, label_with_errors, repeats=2))

    assert "Judge quality" in html
    assert "Alternative annotator test" in html
    assert ".90" in html  # sensitivity 27 of 30


def test_card_on_simulated_round_is_labeled(round, researcher_client):
    run = run_by_rank(round, label_with_errors)
    assert "simulated, not people" not in panel_of(run)

    Round.objects.update(source=Round.Source.SIMULATED)
    run.round.refresh_from_db()

    assert 'Judge quality <strong class="simulated">' in panel_of(run)
    page = researcher_client.get(f"{create_report(run.round, judge=run).get_absolute_url()}?all").text
    assert 'Judge quality</h3></summary> <strong class="simulated">' in page


def test_run_page_explains_missing_judge_quality():
    round = make_round(N)
    run = run_by_rank(round, label_with_errors)
    assert NO_VERDICTS in panel_of(run)

    Round.objects.update(n_tasks=0)
    run.round.refresh_from_db()
    assert "The round is not open yet" in panel_of(run)


def test_run_page_omits_card_of_large_rounds_and_several_lms(round):
    run = run_by_rank(round, label_with_errors)
    run.round.n_tasks = 1_000_000
    assert "Create a report with this judge" in panel_of(run)

    run.round.refresh_from_db()
    answer = run.answers.first()
    answer.model_reported = "another"
    answer.save()
    assert "was answered by" in panel_of(run)


def test_report_page_contains_judge_card(round, researcher_client):
    run = run_by_rank(round, label_with_errors)
    report = create_report(round, judge=run)

    html = researcher_client.get(f"{report.get_absolute_url()}?all").text

    assert 'id="judge"' in html
    assert f"judge {run.name} (judge-lm)" in html


def test_anytime_interval_uses_judge_of_report():
    job = make_harvest([(f"head {rank}", f"tail {rank}") for rank in range(1, 201)])
    round = make_round(1, cells=[{"job": job.pk, "n": 60}], judgments_per_task=1)
    run = make_judge_run(round)
    for harvested in job.tuples.all():
        make_judge_answer(run, harvested.knowledge_tuple, "true" if harvested.rank <= 150 else "false")
    rank = dict(Draw.objects.filter(stratum__round=round).values_list("task__position", "harvested_tuple__rank"))
    judge_all(round, ["true" if rank[position] <= 150 else "false" for position in range(60)])

    [without_judge], [with_judge] = (compute_report(round, judge=judge).document["cells"] for judge in (None, run))

    n_true = sum(place <= 150 for place in rank.values())
    people = SeenStrata(*np.array([[60, n_true, n_true, 200]]).T)
    split = SeenStrata(*np.array([[n_true, n_true, n_true, 150], [60 - n_true, 0, 0, 50]]).T)
    assert tuple(without_judge["every_look"].values()) == anytime_interval(people)
    assert tuple(with_judge["every_look"].values()) == anytime_interval(people, split)
