"""Number formats of pages, tables, figures, and commands: shares, points, p values, counts, and durations.

Shares in [0, 1] have no leading zero, as in papers. Differences of shares are in percentage points. None is shown as a
dash. The minus sign is U+2212; numbers that round to zero have no sign.
"""

from collections.abc import Mapping
from math import ceil, log10
from typing import Any

DASH = "–"
MINUS = "−"
EXACT = {"score", "score_low", "score_high", "threshold", "weight"}  # keys of numbers that are not estimates
DECIMALS = 6  # of numbers in documents; further digits are noise of iterations, resamples, and summation


def rounded(value: float) -> float:
    """Round a number to DECIMALS, and a small number, such as a p value, to three significant digits."""
    return float(round(value, DECIMALS) if abs(value) >= 1e-4 or abs(value) < 1e-12 else f"{value:.3g}")


def with_rounded_numbers(value: Any) -> Any:
    """Return a JSON value with the numbers in it rounded, except values of the keys in EXACT."""
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, Mapping):
        return {key: part if key in EXACT else with_rounded_numbers(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_rounded_numbers(part) for part in value]
    return value


def _decimal_text(value: float, decimals: int, sign: str = "-") -> str:
    text = f"{value:{sign}.{decimals}f}"
    return text.replace("-", MINUS) if float(text) else text.lstrip("+-")


def share(value: float | None, decimals: int = 2) -> str:
    """Format a share or coefficient: .73, −.05, 1.00."""
    if value is None:
        return DASH
    text = _decimal_text(rounded(value), decimals)
    return text.replace("0.", ".", 1) if text.lstrip(MINUS).startswith("0.") else text


def percent(value: float) -> str:
    """Format a configured share in percent: "10 %"."""
    return f"{100 * value:.0f} %"


def interval(low: float | None, high: float | None) -> str:
    """Format an interval of shares: ".61 to .82"; "" without an interval."""
    return "" if low is None or high is None else f"{share(low)} to {share(high)}"


def share_with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Format a share with its interval: ".73 (.61 to .82)"; without an interval, the share only."""
    return share(value) + ("" if low is None or high is None else f" ({interval(low, high)})")


def p_value(p: float | None) -> str:
    """Format a p value with three decimal places below .10, otherwise with two: "< .001", ".043", ".32"."""
    if p is not None and p < 0.001:
        return "< .001"
    return share(p, 3 if p is not None and p < 0.0995 else 2)


def share_tick(value: float) -> str:
    """Format the axis label of a share: 0, .5, 1."""
    return share(value, 1) if 0 < abs(value) < 1 else _decimal_text(value, 0)


def points(difference: float | None, decimals: int = 1) -> str:
    """Format a difference of shares with its sign: +12.6, −3.0, 0.0."""
    return DASH if difference is None else _decimal_text(100 * rounded(difference), decimals, "+")


def in_points(size: float, decimals: int = 1) -> str:
    """Format a difference of shares, or a half-width, without sign: "12.6 points"."""
    return f"{_decimal_text(100 * abs(rounded(size)), decimals)} points"


def points_interval(low: float, high: float, decimals: int = 0) -> str:
    """Format the interval of a difference: "−1 to 30"."""
    return f"{_decimal_text(100 * rounded(low), decimals)} to {_decimal_text(100 * rounded(high), decimals)}"


def points_with_interval(difference: float, low: float | None, high: float | None) -> str:
    """Format a difference with its interval: "+12.6 (−1 to 30)"; without an interval, the difference only."""
    return points(difference) + ("" if low is None or high is None else f" ({points_interval(low, high)})")


def points_tick(difference: float) -> str:
    """Format the axis label of a difference of shares: −20, 0, 2.5."""
    return f"{round(100 * difference, 2) + 0:g}".replace("-", MINUS)  # adding 0 turns -0 into 0


def decimals_of_points(difference: float) -> int:
    """Return a number of decimals, at least one, at which a nonzero difference in points is not shown as 0.0."""
    size = 100 * abs(difference)
    return 1 if size == 0 or size >= 0.05 else ceil(-log10(size))


def count(n: int | None) -> str:
    """Format an integer with thousands separators: 12,345."""
    return DASH if n is None else f"{n:,}"


def counted(n: int, noun: str, plural: str = "") -> str:
    """Format a count with its unit: "1 relation", "2,345 relations". plural: default is the noun with -s."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def score(value: float | None, decimals: int = 3) -> str:
    """Format a score: −2.952, 0.173."""
    return DASH if value is None else _decimal_text(value, decimals)


def number(value: float | None) -> str:
    """Format a number with four significant digits."""
    return DASH if value is None else f"{value:.4g}".replace("-", MINUS)


def seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f} s"


def duration(duration_s: float | None) -> str:
    """Format a duration, rounded up: "45 s", "12 min", "3 h 20 min"; "" for None."""
    if duration_s is None:
        return ""
    if duration_s < 90:
        return f"{ceil(duration_s)} s"
    n_hours, minutes = divmod(ceil(duration_s / 60), 60)
    if not n_hours:
        return f"{minutes} min"
    return f"{n_hours} h {minutes} min" if minutes else f"{n_hours} h"


def hours(value: float | None) -> str:
    """Format hours of work, rounded: "12 min", "5 h", "3 days"."""
    if value is None:
        return DASH
    if value < 1:
        return f"{max(1, round(60 * value))} min"
    return f"{value:.0f} h" if value < 48 else f"{value / 24:.0f} days"


def pace(per_minute: float | None) -> str:
    """Format a rate: "12 per minute" or, below one per minute, "30 per hour"; "" for None."""
    if per_minute is None:
        return ""
    return f"{per_minute:.0f} per minute" if per_minute >= 1 else f"{60 * per_minute:.0f} per hour"
