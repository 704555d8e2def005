"""Number formats on pages, in tables, and in sentences."""

import pytest

from kgharvest.pages import number_format


@pytest.mark.parametrize(
    ("share", "printed"),
    [
        (0.734, ".73"),
        (-0.05, "−.05"),
        (1.0, "1.00"),
        (0.999, "1.00"),
        (0.0, ".00"),
        (-0.001, ".00"),
        (-0.5, "−.50"),
        (-1.2, "−1.20"),
        (None, "–"),
    ],
)
def test_shares_are_printed_as_in_papers(share, printed):
    assert number_format.share(share) == printed


@pytest.mark.parametrize(
    ("p", "printed"), [(0.0004, "< .001"), (0.043, ".043"), (0.0996, ".10"), (0.32, ".32"), (1.0, "1.00"), (None, "–")]
)
def test_p_values_below_a_tenth_have_three_digits(p, printed):
    assert number_format.p_value(p) == printed


@pytest.mark.parametrize(
    ("difference", "printed"),
    [(0.126, "+12.6"), (-0.03, "−3.0"), (0.0, "0.0"), (-0.0004, "0.0"), (0.0004, "0.0"), (None, "–")],
)
def test_differences_are_printed_in_points(difference, printed):
    assert number_format.points(difference) == printed


def test_zero_interval_bound_has_no_sign():
    assert number_format.points_with_interval(-0.1, -0.3, -0.001) == "−10.0 (−30 to 0)"


def test_an_estimate_can_have_no_interval():
    assert number_format.share_with_interval(0.7, None, None) == ".70"
    assert number_format.points_with_interval(0.7, None, None) == "+70.0"


@pytest.mark.parametrize(
    ("seconds", "printed"), [(12.1, "13 s"), (90, "2 min"), (3600, "1 h"), (12000, "3 h 20 min"), (None, "")]
)
def test_durations_are_rounded_up(seconds, printed):
    assert number_format.duration(seconds) == printed


@pytest.mark.parametrize(("hours", "printed"), [(0, "1 min"), (0.5, "30 min"), (5.2, "5 h"), (72, "3 days")])
def test_hours_of_work_use_a_suitable_unit(hours, printed):
    assert number_format.hours(hours) == printed


def test_nouns_follow_their_numbers():
    assert number_format.counted(1, "relation") == "1 relation"
    assert number_format.counted(2345, "entity", "entities") == "2,345 entities"
