"""Agreement where a third person is asked only if two differ: that of the first two, on pages as in reports."""

import pytest
from django.utils import timezone

from annotation.models import Round
from annotation.monitoring.progress import progress
from annotation.quality.annotator_statistics import count_annotators, statistics_of
from annotation.quality.exclusion import exclude_annotator, exclusion_effect
from evaluation.reports.services import create_report
from tests.factories import judge, judge_all, make_round

pytestmark = pytest.mark.django_db

T, F, U = "true", "false", "unjudgeable"


@pytest.fixture
def round() -> Round:
    """Six statements: two said to be true by both, one false by both, three split, for which a third is asked."""
    round = make_round(6, third_only_if_split=True, batch_size=6)
    judge_all(round, [T, T, F, T, T, U], [T, T, F, F, U, F])
    judge_all(round, [T, T, T, T, T, T])
    return round


def agreement_of_report(round: Round) -> list[float]:
    document = create_report(round).document
    return [document["percent_agreement"], document["alpha"]["value"]]


def shown(agreement: dict) -> list[float]:
    return [agreement["percent_agreement"], agreement["alpha"]]


def test_the_rounds_page_says_what_the_report_says(round):
    agreement = shown(progress(round, timezone.now()))

    assert agreement[0] == pytest.approx(3 / 6)
    assert agreement == pytest.approx(agreement_of_report(round))


def test_a_change_of_mind_makes_nobody_the_third(round):
    """Where the first two come to agree, the third is still the one who was asked last."""
    first, *_ = round.annotators.order_by("pk")
    judge(first, round.tasks.get(position=3), F)

    agreement = shown(progress(round, timezone.now()))

    assert agreement[0] == pytest.approx(4 / 6)
    assert agreement == pytest.approx(agreement_of_report(round))


def test_the_annotators_page_says_of_each_what_the_reports_pairs_say(round):
    pairs = create_report(round).document["annotator_pairs"]

    by_code = {row["code"]: row for row in count_annotators(round)}

    for annotator in round.annotators.order_by("pk"):
        own = [pair for pair in pairs if annotator.code in (pair["a"], pair["b"])]
        n_agreeing = sum(pair["n_shared"] * pair["agreement"] for pair in own)
        n_pairs = sum(pair["n_shared"] for pair in own)
        page = by_code[annotator.code]
        assert page["n_pairs"] == n_pairs
        assert page["agreement"] == (pytest.approx(n_agreeing / n_pairs) if n_pairs else None)
        alone = statistics_of(annotator, timezone.now())
        assert (alone["n_pairs"], alone["agreement"]) == (page["n_pairs"], page["agreement"])
    # The first two share all six statements and agree on three; the third was asked because they differed.
    assert sorted((row["n_pairs"], row["agreement"]) for row in by_code.values() if row["n_pairs"]) == [(6, 0.5)] * 2
    assert sum(row["n_pairs"] == 0 for row in by_code.values()) == 1


def test_whoever_counts_no_more_is_compared_with_the_first_two(round):
    first, *_ = round.annotators.order_by("pk")
    exclude_annotator(first, "guesses")
    judge_all(round, [T] * 6)  # the second on the statements without a dispute, the third on the others

    row = statistics_of(first, timezone.now())

    assert row["n_pairs"] == 6 * 2


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_preview_of_an_exclusion_says_what_reports_say_before_and_after(round, number):
    annotator = round.annotators.order_by("pk")[number]
    before = agreement_of_report(round)

    effect = exclusion_effect(annotator)["agreement"]
    exclude_annotator(annotator, "guesses")

    assert shown(effect["before"]) == pytest.approx(before)
    assert shown(effect["after"]) == pytest.approx(agreement_of_report(round))
