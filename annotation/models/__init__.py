"""Studies, rounds with their samples, and what people said."""

from annotation.models.gold import GoldDecision
from annotation.models.invites import Invite
from annotation.models.judging import Annotator, Assignment, Judgment, Label, StatementReport
from annotation.models.rounds import Draw, JudgmentTask, Layout, Round, Stratum
from annotation.models.studies import Study, StudyMember
from annotation.models.training import Training, TrainingStatement

__all__ = [
    "Annotator",
    "Assignment",
    "Draw",
    "GoldDecision",
    "Invite",
    "Judgment",
    "JudgmentTask",
    "Label",
    "Layout",
    "Round",
    "StatementReport",
    "Stratum",
    "Study",
    "StudyMember",
    "Training",
    "TrainingStatement",
]
