"""Options of a report, declared once for its page and its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from evaluation.statistics.paired_tests import MARGIN
from kgharvest.errors import DomainError

LEAST_POINTS, MOST_POINTS = 0.1, 50
IN_POINTS = (
    f"The equivalence margin is a number of percentage points from {LEAST_POINTS:g} to {MOST_POINTS}, such as 5."
)


class BadReportOption(DomainError):
    """An option of a report that it cannot be made with."""


class ReportForm(forms.Form):
    equivalence_margin = forms.FloatField(
        label="Equivalence margin, points",
        required=False,
        initial=round(100 * MARGIN),
        min_value=LEAST_POINTS,
        max_value=MOST_POINTS,
        help_text="Percentage points within which two sides count as alike. Choose it before you see the numbers.",
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), IN_POINTS),
    )

    def clean_equivalence_margin(self) -> float:
        """Return it as a share."""
        points = self.cleaned_data["equivalence_margin"]
        return MARGIN if points is None else points / 100


def report_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `compute_report` that a form or a command was given. Raises BadReportOption."""
    form = ReportForm(given)
    if not form.is_valid():
        raise BadReportOption(" ".join(reason for reasons in form.errors.values() for reason in reasons))
    return form.cleaned_data
