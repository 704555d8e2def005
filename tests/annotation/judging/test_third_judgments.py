"""Agreement with third judgments only for splits: computed from the first two, on pages and in reports."""

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
    """Return a round of six statements: two true, one false, and three split ones with a third judgment."""
    round = make_round(6, third_only_if_split=True, batch_size=6)
    judge_all(round, [T, T, F, T, T, U], [T, T, F, F, U, F])
    judge_all(round, [T, T, T, T, T, T])
    return round


def agreement_of_report(round: Round) -> list[float]:
    document = create_report(round).document
    return [document["percent_agreement"], document["alpha"]["value"]]


def values_of(agreement: dict) -> list[float]:
    return [agreement["percent_agreement"], agreement["alpha"]]


def test_round_page_and_report_show_same_agreement(round):
    agreement = values_of(progress(round, timezone.now()))

    assert agreement[0] == pytest.approx(3 / 6)
    assert agreement == pytest.approx(agreement_of_report(round))


def test_changed_answer_does_not_change_third_annotator(round):
    """Check that the last annotator stays the third if the first two agree after a change."""
    first, *_ = round.annotators.order_by("pk")
    judge(first, round.tasks.get(position=3), F)

    agreement = values_of(progress(round, timezone.now()))

    assert agreement[0] == pytest.approx(4 / 6)
    assert agreement == pytest.approx(agreement_of_report(round))


def test_annotator_page_agreement_matches_report_pairs(round):
    pairs = create_report(round).document["annotator_pairs"]

    by_code = {row["code"]: row for row in count_annotators(round)}

    for annotator in round.annotators.order_by("pk"):
        annotator_pairs = [pair for pair in pairs if annotator.code in (pair["a"], pair["b"])]
        n_agreeing = sum(pair["n_shared"] * pair["agreement"] for pair in annotator_pairs)
        n_pairs = sum(pair["n_shared"] for pair in annotator_pairs)
        page = by_code[annotator.code]
        assert page["n_pairs"] == n_pairs
        assert page["agreement"] == (pytest.approx(n_agreeing / n_pairs) if n_pairs else None)
        statistics = statistics_of(annotator, timezone.now())
        assert (statistics["n_pairs"], statistics["agreement"]) == (page["n_pairs"], page["agreement"])
    # The first two annotators share six statements and agree on three; the third judged the splits.
    assert sorted((row["n_pairs"], row["agreement"]) for row in by_code.values() if row["n_pairs"]) == [(6, 0.5)] * 2
    assert sum(row["n_pairs"] == 0 for row in by_code.values()) == 1


def test_excluded_annotator_is_compared_with_first_two(round):
    first, *_ = round.annotators.order_by("pk")
    exclude_annotator(first, "guesses")
    judge_all(round, [T] * 6)  # the second judgment of agreed statements and the third of splits

    row = statistics_of(first, timezone.now())

    assert row["n_pairs"] == 6 * 2


@pytest.mark.parametrize("number", [0, 1, 2])
def test_exclusion_preview_agreement_matches_reports(round, number):
    annotator = round.annotators.order_by("pk")[number]
    before = agreement_of_report(round)

    effect = exclusion_effect(annotator)["agreement"]
    exclude_annotator(annotator, "guesses")

    assert values_of(effect["before"]) == pytest.approx(before)
    assert values_of(effect["after"]) == pytest.approx(agreement_of_report(round))
