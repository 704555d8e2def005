from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgharvest.harvests.cuts import BadCut, parse_cut

SCORES = [-1.0, -1.0 + log(0.5), -1.0 + log(0.1), -1.0 + log(0.09), -9.0]


@pytest.mark.parametrize(
    ("cut", "size"),
    [
        ("top:2", 2),
        ("top:99", 5),
        ("share:0.5", 3),  # the better half of five, rounded up
        ("share:1", 5),
        ("base:1", 3),  # at least a tenth as probable as the best: 1, 0.5 and 0.1, not 0.09
        ("base:2", 4),  # at least 0.05
        ("score:-1", 1),
        ("score:0", 0),
    ],
)
def test_size_of_a_cut(cut, size):
    assert parse_cut(cut).size(SCORES) == size


def test_a_share_is_not_rounded_up_by_floating_point_errors():
    assert [parse_cut(f"share:{share}").size([0.0] * 100) for share in (0.55, 0.07, 0.29)] == [55, 7, 29]


INVALID_CUTS = [
    "",
    "top",
    "top:0",
    "top:1.5",
    "top:inf",
    "share:0",
    "share:1.1",
    "base:-3",
    "score:nan",
    "best:3",
    "precision:0",
    "precision:2",
]


@pytest.mark.parametrize("text", INVALID_CUTS)
def test_invalid_cuts_are_rejected_with_the_syntax(text):
    with pytest.raises(BadCut, match="top:N, share:S"):
        parse_cut(text)


def test_a_base_beyond_the_list_is_rejected():
    with pytest.raises(BadCut, match=r"6 tuples.* 5"):
        parse_cut("base:6").size(SCORES)


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=40), st.integers(1, 40))
def test_a_base_cut_matches_brute_force(scores, base):
    scores = sorted(scores, reverse=True)
    base = min(base, len(scores))
    threshold = scores[base - 1] + log(0.1)

    assert parse_cut(f"base:{base}").size(scores) == sum(score >= threshold for score in scores)


@given(st.sampled_from(["top:7", "share:0.25", "base:3", "score:-2.5", "precision:0.8", "precision-low:0.5"]))
def test_parsing_and_printing_a_cut_round_trips(text):
    assert str(parse_cut(text)) == text
