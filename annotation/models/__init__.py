"""Studies, rounds with their samples, and what people said."""

from annotation.models.judging import Annotator, Assignment, Judgment, Label
from annotation.models.rounds import Draw, JudgmentTask, Round, Stratum
from annotation.models.studies import Study, StudyMember

__all__ = [
    "Annotator",
    "Assignment",
    "Draw",
    "Judgment",
    "JudgmentTask",
    "Label",
    "Round",
    "Stratum",
    "Study",
    "StudyMember",
]
