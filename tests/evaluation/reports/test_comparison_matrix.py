"""Comparison matrices: row minus column, used if there are too many comparisons for sentences."""

from itertools import combinations

from evaluation.reports.sections.comparisons import MOST_SENTENCES, matrices_of
from tests.evaluation.report_documents import TWO_SETTINGS, make_comparison, make_document

SETTINGS = ("autoprompt", "human", "lpaqa", "multi", "top1")


def make_document_with_comparisons() -> dict:
    pairs = [*combinations(SETTINGS, 2), *combinations(("a", "b"), 2)]
    kinds = [{"kind": "settings", "model": "org/big"}] * 10 + [{"kind": "models", "setting": "multi"}]
    comparisons = [
        make_comparison(**kind, a=a, b=b, difference=0.01 * n, low=0.01 * n - 0.05, high=0.01 * n + 0.1, p_holm=0.04)
        for n, ((a, b), kind) in enumerate(zip(pairs, kinds, strict=True), start=1)
    ]
    return make_document(TWO_SETTINGS, comparisons=comparisons)


def test_matrix_contains_pairs_in_both_directions_with_intervals():
    settings, models = matrices_of(make_document_with_comparisons())

    assert (settings.common, models.common) == ("big", "multi")
    assert settings.names == list(SETTINGS)
    rows = dict(settings.rows)
    assert rows["autoprompt"][0] is None
    forth, back = rows["autoprompt"][2], rows["lpaqa"][0]  # the second comparison
    assert (forth.number, forth.text, forth.interval) == (2, "+2.0", "−3 to 12")
    assert (back.number, back.text, back.interval) == (2, "−2.0", "−12 to 3")
    assert forth.is_significant


def test_few_comparisons_have_no_matrix():
    document = make_document_with_comparisons()
    document["comparisons"] = document["comparisons"][:MOST_SENTENCES]

    assert matrices_of(document) == []
