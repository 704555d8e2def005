"""Precision cuts such as `precision:0.8`: judgments determine a score cut."""

import io

import pytest
from django.core.management import call_command

from annotation.models import JudgmentTask, Round
from kgharvest.harvests.cuts import BadCut, by_score, kept_size, parse_cut
from kgharvest.models import HarvestJob
from tests.factories import judge_all, make_harvest, make_judge_answer, make_judge_run, make_project, make_round

TTFT_FF = [True, True, False, True, False, False]  # verdicts in descending score order


# Cuts from a round


@pytest.fixture
def job(db) -> HarvestJob:
    """Harvest of six tuples with scores -1 to -6, judged in a round: true, true, false, true, false, false."""
    round = make_round(6, name="pilot")
    draws = {draw.task.position: draw.harvested_tuple.rank for draw in round.strata.get().draws.all()}
    labels = ["true" if TTFT_FF[draws[position] - 1] else "false" for position in sorted(draws)]
    judge_all(round, labels, labels, labels)
    return round.strata.get().job


def test_precision_cut_becomes_score_cut_with_source(job):
    kept = by_score(job, parse_cut("precision:0.75"))

    assert str(kept.cut) == "score:-4"
    assert kept.sentence == (
        "precision:0.75 = score >= -4.0, estimated .75 (.75 to .75) from 4 judged tuples of round pilot"
    )
    assert kept_size(job, parse_cut("precision:0.75")) == 4


def test_precision_cut_can_use_judge(job):
    """All tuples are judged, so the judge does not change the cut. The sentence names the judge."""
    run = make_judge_run(job.strata.get().round, "llama-1")
    for harvested in job.tuples.all():
        make_judge_answer(run, harvested.knowledge_tuple, "true" if harvested.rank < 4 else "false")

    kept = by_score(job, parse_cut("precision:0.75@llama-1"))

    assert str(kept.cut) == "score:-4"
    assert kept.sentence == (
        "precision:0.75@llama-1 = score >= -4.0, estimated .75 (.75 to .75) from 4 judged tuples of round pilot, with "
        "the judge llama-1 (judge-lm)"
    )
    assert by_score(job, parse_cut("precision-low:0.75@llama-1")).cut == kept.cut
    with pytest.raises(BadCut, match="has no judge run 'gpt'"):
        by_score(job, parse_cut("precision:0.75@gpt"))


@pytest.mark.parametrize("text", ["top:10@llama-1", "precision:0.8@", "precision:0.8@a b"])
def test_judge_is_valid_only_in_precision_cuts(text):
    with pytest.raises(BadCut, match="Invalid cut"):
        parse_cut(text)


def test_cut_from_simulated_judgments_is_labeled(job):
    Round.objects.update(source="simulated")

    assert by_score(job, parse_cut("precision:0.75")).sentence.endswith("round pilot (simulated, not people)")


def test_judgments_of_another_project_are_ignored(job):
    Round.objects.update(project=make_project())

    with pytest.raises(BadCut, match=r"no tuple of .* has a verdict"):
        by_score(job, parse_cut("precision:0.75"))


def test_unreachable_precision_is_rejected_with_best_value(job):
    JudgmentTask.objects.filter(draws__harvested_tuple__rank=1).update(verdict="rejected", n_true=0, n_false=3)

    with pytest.raises(BadCut, match=r"No part of this harvest reaches a lower bound of \.90; the best part has \.50"):
        by_score(job, parse_cut("precision-low:0.9"))


@pytest.mark.django_db
def test_unjudged_harvest_has_no_precision_cut():
    with pytest.raises(BadCut, match=r"requires judgments, but no tuple of .* has a verdict"):
        by_score(make_harvest([("a", "b")]), parse_cut("precision:0.8"))


def test_export_with_precision_cut_prints_score_cut(job):
    out, err = io.StringIO(), io.StringIO()

    call_command("export_tuples", "--job", str(job.pk), "--cut", "precision:0.75", stdout=out, stderr=err)

    assert len(out.getvalue().splitlines()) == 4
    assert "precision:0.75 = score >= -4.0" in err.getvalue()
