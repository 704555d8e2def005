"""The models of this app, for Django: each is defined in the models.py of its folder."""

from evaluation.reports.models import Report
from evaluation.scores.models import ScoreEvaluation

__all__ = ["Report", "ScoreEvaluation"]
