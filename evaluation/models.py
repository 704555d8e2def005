"""Reports and evaluations of scores, for Django; they live in their rooms."""

from evaluation.reports.models import Report
from evaluation.scores.models import ScoreEvaluation

__all__ = ["Report", "ScoreEvaluation"]
