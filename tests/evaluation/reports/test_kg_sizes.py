"""Size and accuracy of the KG at the cuts used in the paper."""

import pytest

from annotation.models import Judgment, Stratum
from annotation.rounds.services import open_round
from evaluation.evidence.evidence import drawn_verdicts, ranked_strata
from evaluation.evidence.rows import gather_evidence
from evaluation.reports.sections import rates
from kgharvest.models import HarvestedTuple
from tests.factories import judge_all, make_harvest

pytestmark = pytest.mark.django_db


def cut_entries(round):
    evidence = gather_evidence(round)
    return rates.cut_entries(evidence, ranked_strata(evidence, drawn_verdicts(evidence)))


def unjudge(tasks):
    Judgment.objects.filter(task__in=tasks).update(is_counted=False)
    tasks.update(verdict="", n_judgments=0, n_true=0, n_false=0, n_unjudgeable=0)


@pytest.fixture
def judged_round():
    """Round of twelve judged tuples with scores -1 to -12. The first nine are true."""
    job = make_harvest([(f"head {number}", f"tail {number}") for number in range(12)])
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None}]})
    ranks = {draw.task.position: draw.harvested_tuple.rank for draw in round.strata.get().draws.all()}
    judge_all(round, *[["true" if ranks[position] < 10 else "false" for position in sorted(ranks)]] * 3)
    return round


def test_each_cut_has_size_and_accuracy(judged_round):
    entries = {entry["cut"]: entry for entry in cut_entries(judged_round)}

    # base:10 keeps scores down to -10 + ln 0.1 = -12.3, so all twelve tuples. base:100 needs a hundredth tuple.
    assert {cut: (entry["size"], entry["n"], entry["accuracy"]) for cut, entry in entries.items()} == {
        "base:10": (12, 12, 0.75),
        "share:0.5": (6, 6, 1.0),
        "all": (12, 12, 0.75),
    }
    assert (entries["all"]["low"], entries["all"]["high"]) == (0.75, 0.75)  # all tuples are judged


def test_cut_beyond_the_sample_is_omitted(judged_round):
    judged_round.strata.update(population=6, rank_to=6, sample_size=6)

    assert {entry["cut"]: entry["size"] for entry in cut_entries(judged_round)} == {"share:0.5": 3, "all": 6}


def test_base_cut_compares_probabilities(judged_round):
    HarvestedTuple.objects.filter(rank__gt=10).update(score=-12.31)

    assert next(entry for entry in cut_entries(judged_round) if entry["cut"] == "base:10")["size"] == 10


def test_partly_judged_strata_are_weighted_by_population(judged_round):
    """Ranks 1-6 are all judged. Of ranks 7-12, two are judged and represent all six."""
    [whole] = judged_round.strata.all()
    part = Stratum.objects.get(pk=whole.pk)
    part.pk, part.rank_from, part.population, part.sample_size = None, 7, 6, 6
    whole.rank_to, whole.population, whole.sample_size = 6, 6, 6
    whole.save()
    part.save()
    lower = whole.draws.filter(harvested_tuple__rank__gt=6)
    unjudge(judged_round.tasks.filter(draws__in=lower.filter(harvested_tuple__rank__in=[7, 8, 9, 11])))
    lower.update(stratum=part)

    entries = {entry["cut"]: entry for entry in cut_entries(judged_round)}

    # 6 of 6 accepted in ranks 1-6, and neither of ranks 10 and 12.
    assert (entries["all"]["n"], entries["all"]["accuracy"]) == (8, 0.5)
