"""`precision:0.8`: judgments make a cut by score."""

import io
from itertools import pairwise

import numpy as np
import pytest
from django.core.management import call_command
from hypothesis import given
from hypothesis import strategies as st

from annotation.models import Round
from evaluation.statistics.curves import kept_parts, largest_part
from evaluation.statistics.rates import wilson_interval
from kgharvest.harvests.cuts import BadCut, by_score, kept_size, parse_cut
from kgharvest.models import HarvestJob
from tests.factories import judge_all, make_harvest, make_round

TTFT_FF = [True, True, False, True, False, False]  # judged, best score first


def parts_of(is_accepted, scores=None, weights=None):
    n = len(is_accepted)
    scores = np.arange(n, 0, -1.0) if scores is None else np.array(scores, dtype=float)
    return kept_parts(scores, np.array(is_accepted), np.ones(n) if weights is None else np.array(weights, dtype=float))


def test_precision_of_every_part_is_monotone_by_the_isotonic_fit():
    # By hand: the third and the fourth pool to 1/2 each, so the best 3 have (1 + 1 + 1/2) / 3.
    assert [part.precision for part in parts_of(TTFT_FF)] == pytest.approx([1, 1, 2.5 / 3, 3 / 4, 3 / 5, 3 / 6])


def test_the_interval_is_wilsons_for_a_simple_sample():
    part = parts_of(TTFT_FF)[3]

    assert (part.low, part.high) == pytest.approx(wilson_interval(3, 4))
    assert part.n == 4


@pytest.mark.parametrize(("target", "n_kept"), [(1.0, 2), (0.8, 3), (0.75, 4), (0.5, 6)])
def test_the_largest_part_that_reaches_the_target_is_kept(target, n_kept):
    assert largest_part(parts_of(TTFT_FF), target, surely=False).n == n_kept


def test_to_be_sure_takes_more_evidence():
    parts = parts_of(TTFT_FF)

    assert largest_part(parts, 0.8, surely=True) is None
    assert largest_part(parts, 0.3, surely=True).low >= 0.3


def test_equal_scores_stay_together():
    assert [part.n for part in parts_of([True, False, True], scores=[2, 1, 1])] == [1, 3]


def test_a_draw_that_stands_for_more_tuples_weighs_more():
    assert parts_of([True, False], weights=[1, 3])[-1].precision == pytest.approx(1 / 4)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_more_tuples_are_never_more_precise_and_all_have_the_samples_share(is_accepted):
    precisions = [part.precision for part in parts_of(is_accepted)]

    assert all(a >= b - 1e-9 for a, b in pairwise(precisions))
    assert precisions[-1] == pytest.approx(np.mean(is_accepted))


# -- from a round ------------------------------------------------------------------------------------------------------


@pytest.fixture
def job(db) -> HarvestJob:
    """A harvest of six tuples scored -1 ... -6, judged by a round: true, true, false, true, false, false."""
    round = make_round(6, name="pilot")
    draws = {draw.task.position: draw.harvested_tuple.rank for draw in round.strata.get().draws.all()}
    labels = ["true" if TTFT_FF[draws[position] - 1] else "false" for position in sorted(draws)]
    judge_all(round, labels, labels, labels)
    return round.strata.get().job


def test_a_cut_by_precision_is_a_cut_by_score_that_says_where_it_is_from(job):
    kept = by_score(job, parse_cut("precision:0.75"))

    assert str(kept.cut) == "score:-4"
    assert kept.sentence == (
        "precision:0.75 = score >= -4.0, estimated .75 (.30 to .95) from 4 judged tuples of round pilot"
    )
    assert kept_size(job, parse_cut("precision:0.75")) == 4


def test_simulated_judgments_are_named(job):
    Round.objects.update(source="simulated")

    assert by_score(job, parse_cut("precision:0.75")).sentence.endswith("round pilot (simulated, not people)")


def test_a_precision_out_of_reach_is_refused_with_what_there_is(job):
    with pytest.raises(BadCut, match=r"No part of this harvest reaches a lower bound of \.90; the best has 1\.00"):
        by_score(job, parse_cut("precision-low:0.9"))


@pytest.mark.django_db
def test_a_harvest_that_nobody_judged_has_no_precision():
    with pytest.raises(BadCut, match=r"needs judgments, and no tuple of .* has a verdict"):
        by_score(make_harvest([("a", "b")]), parse_cut("precision:0.8"))


def test_an_export_by_precision_says_what_it_cut(job):
    out, err = io.StringIO(), io.StringIO()

    call_command("export_tuples", "--job", str(job.pk), "--cut", "precision:0.75", stdout=out, stderr=err)

    assert len(out.getvalue().splitlines()) == 4
    assert "precision:0.75 = score >= -4.0" in err.getvalue()
