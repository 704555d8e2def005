"""Options of a report, declared once for its page and its command."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db.models import Exists, OuterRef

from annotation.models import JudgeAnswer, Round
from evaluation.reports.drawn_tuples import CUTS, OUTCOMES
from kgharvest.errors import DomainError
from kgharvest.statistics.paired_tests import MARGIN

LEAST_POINTS, MOST_POINTS = 0.1, 50
IN_POINTS = (
    f"Invalid equivalence margin. Enter a number of percentage points from {LEAST_POINTS:g} to {MOST_POINTS}, for "
    "example 5."
)


class BadReportOption(DomainError):
    """Invalid option of a report."""


class ReportForm(forms.Form):
    """Options of a report on the round `judged`."""

    equivalence_margin = forms.FloatField(
        label="Equivalence margin (points)",
        required=False,
        initial=round(100 * MARGIN),
        min_value=LEAST_POINTS,
        max_value=MOST_POINTS,
        help_text=(
            "Largest difference in percentage points at which two sides count as equivalent. Default: "
            f"{round(100 * MARGIN)}. Choose it before you see the results."
        ),
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), IN_POINTS),
    )

    judge = forms.ModelChoiceField(
        None,
        label="LM judge",
        required=False,
        empty_label="none",
        to_field_name="name",
        help_text="Judge run of the round. The labels of a good judge narrow the intervals. Default: none.",
        error_messages={
            "invalid_choice": "The round has no judge run named %(value)s with answers. Choose another run."
        },
    )

    def __init__(self, *args: Any, judged: Round, **options: Any) -> None:
        super().__init__(*args, **options)
        answered = JudgeAnswer.objects.filter(run=OuterRef("pk"))
        runs = judged.judge_runs.filter(Exists(answered)).order_by("name")
        self.fields["judge"].queryset = runs  # type: ignore[attr-defined]

    def clean_equivalence_margin(self) -> float:
        """Return the margin as a share."""
        points = self.cleaned_data["equivalence_margin"]
        return MARGIN if points is None else points / 100


def report_options(options: Mapping[str, Any], judged: Round) -> dict[str, Any]:
    """Return validated options of `compute_report`. Raises BadReportOption."""
    form = ReportForm(options, judged=judged)
    if not form.is_valid():
        raise BadReportOption(" ".join(reason for reasons in form.errors.values() for reason in reasons))
    return form.cleaned_data


def equivalence_margin_of(points: Any) -> float:
    """Return the margin as a share, for a report without a round. Raises BadReportOption."""
    try:
        points = ReportForm.base_fields["equivalence_margin"].clean(points)
    except forms.ValidationError as error:
        raise BadReportOption(" ".join(error.messages)) from error
    return MARGIN if points is None else points / 100


class TuplesForm(forms.Form):
    """Filters of the statements page, to which figures and tables link."""

    relation = forms.CharField(required=False)
    model = forms.CharField(required=False)
    setting = forms.CharField(required=False)
    verdict = forms.ChoiceField(choices=[("", "any"), *((name, name) for name in OUTCOMES)], required=False)
    best = forms.FloatField(label="Top share", required=False, min_value=0, max_value=1)
    cut = forms.ChoiceField(choices=[("", "none"), *((cut, cut) for cut in CUTS)], required=False)
    score_from = forms.FloatField(required=False)
    score_to = forms.FloatField(required=False)
