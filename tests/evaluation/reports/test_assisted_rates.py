"""Reports with a judge, from stored answers to the displayed numbers."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from annotation.judges.labels import SeveralJudges
from annotation.rounds.services import open_round
from evaluation.evidence.evidence import drawn_verdicts
from evaluation.evidence.judges import JudgedStrata, judged_tuples_of_rows
from evaluation.evidence.rows import gather_evidence, rows_of_round
from evaluation.models import Report
from evaluation.reports.sections import rates as rates_section
from evaluation.reports.sections.assisted_rates import assisted_comparison_entries, with_assisted_rates
from evaluation.reports.services import compute_report
from kgharvest.errors import DomainError
from kgharvest.models import KnowledgeTuple
from kgharvest.statistics.judge_assisted import PEOPLE_ALONE, POST_STRATIFIED, posterior_interval
from kgharvest.statistics.rates import simple_interval
from tests import factories

pytestmark = pytest.mark.django_db

N_TUPLES, N_DRAWN = 40, 20
SETTINGS = {"human": 1, "multi": 2}


def is_true(knowledge_tuple: KnowledgeTuple) -> bool:
    return int(knowledge_tuple.entities[0].split()[-1]) % 4 != 0


def open_example_round(strata=None, relations=("prevent",)):
    """Open a round on harvests in two settings that share every other tuple. Three of four tuples are true."""
    language_model, jobs = factories.make_language_model("lm"), []
    for name in relations:
        relation = factories.make_relation(name)
        for setting, step in SETTINGS.items():
            tuples = [(f"head {step * number}", f"{name} {step * number}") for number in range(N_TUPLES)]
            fields = {"relation": relation, "setting": setting, "language_model": language_model}
            jobs.append(factories.make_harvest(tuples, **fields))
    cells = [{"job": job.pk, "n": N_DRAWN, "strata": strata} for job in jobs]
    return open_round(
        {"name": "judged", "cells": cells, "seed": 3, "judgments_per_task": 1}, factories.make_researcher()
    )


def judge_correctly(round):
    """Judge every statement correctly."""
    tasks = round.tasks.order_by("position").select_related("knowledge_tuple")
    labels = ["true" if is_true(task.knowledge_tuple) else "false" for task in tasks]
    factories.judge_all(round, labels)
    return round


def make_run(round, wrong=10, left_out=0, **fields):
    """Create a judge run with an error on every `wrong`-th tuple, without answers for the first `left_out` tuples."""
    run = factories.make_judge_run(round, "lm-judge", **fields)
    tuples = KnowledgeTuple.objects.filter(harvested_tuples__job__strata__round=round).distinct().order_by("pk")
    for number, knowledge_tuple in enumerate(tuples[left_out:]):
        label = is_true(knowledge_tuple) != (number % wrong == 0)
        factories.make_judge_answer(run, knowledge_tuple, "true" if label else "false")
    return run


def strata_of(round, run):
    evidence = gather_evidence(round)
    return evidence, JudgedStrata(
        evidence, drawn_verdicts(evidence), judged_tuples_of_rows(rows_of_round(round, run), evidence)
    )


def cells_of(round, run):
    """Return the judge-assisted entry of each cell without computing the full report."""
    evidence, judged_strata = strata_of(round, run)
    return [entry["judge"] for entry in with_assisted_rates([{}] * len(evidence.cells), evidence, judged_strata)]


def test_cell_counts_harvest_by_judge_label():
    round = judge_correctly(open_example_round())
    run = make_run(round)
    labels = dict(run.answers.values_list("knowledge_tuple", "label"))

    cell = cells_of(round, run)[0]

    job = round.strata.get(setting="human").job
    judge_labels = [labels[pk] for pk in job.tuples.values_list("knowledge_tuple", flat=True)]
    groups = cell["groups"]
    assert [group["population"] for group in groups] == [judge_labels.count("true"), judge_labels.count("false"), 0]
    assert sum(group["drawn"] for group in groups) == N_DRAWN
    shares = [group["accepted"] / group["drawn"] for group in groups[:2]]
    assert cell["accuracy"] == pytest.approx(
        np.dot(shares, [judge_labels.count("true"), judge_labels.count("false")]) / N_TUPLES
    )
    limits = posterior_interval(tuple((g["accepted"], g["drawn"], g["population"]) for g in groups[:2]))
    assert (cell["accuracy_low"], cell["accuracy_high"]) == pytest.approx(limits)
    assert cell["judge_alone"] == judge_labels.count("true") / N_TUPLES
    assert (cell["method"], cell["n_labelled"]) == (POST_STRATIFIED, N_TUPLES)
    assert cell["effective_labels"] > N_DRAWN


def test_cut_population_is_counted_exactly():
    """The judge labels the ten best-ranked tuples True and the rest False."""
    round = judge_correctly(open_example_round())
    run = factories.make_judge_run(round, "by-rank")
    for harvested in round.strata.get(setting="human").job.tuples.select_related("knowledge_tuple"):
        factories.make_judge_answer(run, harvested.knowledge_tuple, "true" if harvested.rank <= 10 else "false")
    evidence, strata = strata_of(round, run)
    human = np.array([evidence.cells.index(cell) for cell in evidence.cells if cell.setting == "human"])

    taken = [strata.sample(human, np.array([rank])).population.tolist() for rank in (5, 10, 25, 40)]

    assert taken == [[[5, 0, 0]], [[10, 0, 0]], [[10, 15, 0]], [[10, 30, 0]]]


def test_population_excludes_only_tuples_hidden_before_draw():
    round = open_example_round()
    run = make_run(round)
    job = round.strata.get(setting="human").job
    hidden = job.tuples.exclude(draws__stratum__round=round).order_by("rank")[:6].values("knowledge_tuple")
    before = strata_of(round, run)[1].sample(np.array([0]), np.array([N_TUPLES])).population
    KnowledgeTuple.objects.filter(pk__in=list(hidden.values_list("knowledge_tuple", flat=True))).update(
        curation="hidden"
    )

    after = strata_of(round, run)[1].sample(np.array([0]), np.array([N_TUPLES])).population

    assert before.sum() == after.sum() == N_TUPLES
    assert np.abs(after - before).max() <= 2


def test_incomplete_judge_run_leaves_human_estimate():
    """A judge that labels only drawn tuples would reveal the draw, and one label would stand for the rest."""
    round = judge_correctly(open_example_round())
    run = make_run(round)
    run.answers.exclude(knowledge_tuple__in=round.tasks.values("knowledge_tuple")).delete()

    cell = cells_of(round, run)[0]

    n_true = sum(group["accepted"] for group in cell["groups"])
    assert [group["population"] for group in cell["groups"]] == [0, 0, N_TUPLES]
    assert cell["method"] == PEOPLE_ALONE
    assert cell["accuracy"] == pytest.approx(n_true / N_DRAWN)
    assert (cell["accuracy_low"], cell["accuracy_high"]) == simple_interval(int(n_true), N_DRAWN, N_TUPLES)
    assert N_DRAWN <= cell["n_labelled"] < N_TUPLES
    assert cell["judge_alone"] is None
    document = compute_report(round, judge=run).document
    assert {total["judge"]["judge_alone"] for total in document["totals"]} == {None}
    assert {entry["youden_j_a"] for entry in document["judge"]["comparisons"]} <= {None}


def test_assisted_averages_and_curves_agree_with_cells():
    round = judge_correctly(open_example_round(relations=("prevent", "cause")))
    document = compute_report(round, judge=make_run(round)).document

    for total in document["totals"]:
        cell_rates = [cell["judge"]["accuracy"] for cell in document["cells"] if cell["setting"] == total["setting"]]
        assert total["judge"]["accuracy"] == pytest.approx(np.mean(cell_rates), abs=1e-6)
        assert total["judge"]["n_relations"] == 2
    for cell, curve in zip(document["cells"], document["curves"], strict=False):
        keys = ("accuracy", "accuracy_low", "accuracy_high", "effective_labels")
        assert [curve["sizes"][-1]["judge"][key] for key in keys] == [cell["judge"][key] for key in keys]
    of_all = {cut["setting"]: cut["judge"]["accuracy"] for cut in document["cuts"] if cut["cut"] == "all"}
    assert of_all == {total["setting"]: total["judge"]["weighted_accuracy"] for total in document["totals"]}


def test_rank_strata_are_post_stratified_separately():
    round = judge_correctly(open_example_round(strata=2))

    human, cell = cells_of(round, make_run(round, wrong=60))

    assert human["method"] == PEOPLE_ALONE  # a stratum of ten draws with a quarter labeled False
    assert cell["method"] == POST_STRATIFIED
    assert cell["effective_labels"] > N_DRAWN


def test_constant_judge_leaves_human_estimate():
    round = judge_correctly(open_example_round())
    run = factories.make_judge_run(round, "yes-sayer")
    for knowledge_tuple in KnowledgeTuple.objects.all():
        factories.make_judge_answer(run, knowledge_tuple, "true")

    cell = cells_of(round, run)[0]

    n_true = cell["groups"][0]["accepted"]
    assert cell["method"] == PEOPLE_ALONE
    assert (cell["accuracy_low"], cell["accuracy_high"]) == simple_interval(int(n_true), N_DRAWN, N_TUPLES)
    assert cell["effective_labels"] == N_DRAWN
    assert cell["judge_alone"] == 1


def test_comparison_uses_judge_and_reports_its_quality():
    round = judge_correctly(open_example_round())
    run = make_run(round)
    evidence, judged_strata = strata_of(round, run)

    [compared] = assisted_comparison_entries(evidence, drawn_verdicts(evidence), judged_strata)

    a, b = cells_of(round, run)
    n_true_a, n_true_b = (sum(group["accepted"] for group in cell["groups"]) for cell in (a, b))
    assert compared["difference"] == pytest.approx(a["accuracy"] - b["accuracy"])
    assert compared["people"]["difference"] == pytest.approx((n_true_a - n_true_b) / N_DRAWN)
    assert compared["high"] - compared["low"] < compared["people"]["high"] - compared["people"]["low"]
    assert compared["n_shared_tuples"] > 0
    assert 0.5 < compared["youden_j_a"] < 1
    assert compared["youden_j_difference"]["value"] == pytest.approx(compared["youden_j_a"] - compared["youden_j_b"])
    assert "for this relation, based on its statements" in compared["sentence"]


def test_run_with_two_reported_lms_is_rejected(researcher_client):
    round = judge_correctly(open_example_round())
    run = make_run(round)
    run.answers.filter(pk=run.answers.first().pk).update(model_reported="another-lm")

    with pytest.raises(SeveralJudges, match="Start a new run with one LM"):
        rows_of_round(round, run)
    answer = researcher_client.post(
        reverse("evaluation:report_new", args=[round.path]), {"judge": run.name}, follow=True
    )
    assert "Start a new run with one LM" in answer.content.decode()
    assert not Report.objects.exists()


def test_command_and_page_accept_judge_run_name(researcher_client):
    round = judge_correctly(open_example_round())
    make_run(round)
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    call_command("report", "--round", round.name, "--judge", "lm-judge", stdout=out)
    by_command = json.loads(out.buffer.getvalue())

    assert b'name="judge"' in researcher_client.get(round.get_absolute_url()).content
    page = researcher_client.post(
        reverse("evaluation:report_new", args=[round.path]), {"judge": "lm-judge"}, follow=True
    )

    whole_page = researcher_client.get(f"{page.request['PATH_INFO']}?all").text
    assert "Judge-assisted estimates" in whole_page
    assert "judge-lm" in whole_page
    assert Report.objects.latest("pk").document["cells"] == by_command["cells"]


def test_unknown_judge_run_is_rejected():
    round = open_example_round()

    with pytest.raises((DomainError, CommandError), match="no judge run named nobody"):
        call_command("report", "--round", round.name, "--judge", "nobody")


def test_precision_cut_is_largest_precise_part_with_judge(monkeypatch):
    """Compare the cut with the assisted rate at every judged score."""
    monkeypatch.setattr(rates_section, "TARGET", 0.5)
    round = judge_correctly(open_example_round())
    run = make_run(round)
    evidence, judged_strata = strata_of(round, run)

    for curve in compute_report(round, judge=run).document["curves"][:2]:
        cut = curve["precision_cut_judge"]
        cell = [key._asdict().items() <= curve.items() for key in evidence.cells].index(True)
        [stratum] = np.flatnonzero(evidence.cell_of_stratum == cell)
        in_stratum = evidence.draws.stratum == stratum
        rates = {
            rank: judged_strata.rate(np.array([stratum]), np.array([rank])).rate
            for rank in evidence.draws.rank[in_stratum]
        }
        best = max(rank for rank, rate in rates.items() if rate.value is not None and rate.value >= 0.5)
        [score] = evidence.draws.score[in_stratum & (evidence.draws.rank == best)]
        assert (cut["score"], cut["precision"], cut["low"], cut["high"]) == pytest.approx((score, *rates[best][:3]))
