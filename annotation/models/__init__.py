"""Studies, rounds with their samples, and what people said."""

from annotation.models.gold import GoldDecision
from annotation.models.invites import Invite
from annotation.models.judging import LONGEST_COMMENT, Annotator, Assignment, Judgment, Label, StatementReport
from annotation.models.quality import Adjudication, Exclusion, Limits, RoundEvent, Snapshot
from annotation.models.rounds import Draw, JudgmentTask, Layout, Round, Stratum
from annotation.models.studies import Study, StudyMember
from annotation.models.training import Training, TrainingStatement

__all__ = [
    "LONGEST_COMMENT",
    "Adjudication",
    "Annotator",
    "Assignment",
    "Draw",
    "Exclusion",
    "GoldDecision",
    "Invite",
    "Judgment",
    "JudgmentTask",
    "Label",
    "Layout",
    "Limits",
    "Round",
    "RoundEvent",
    "Snapshot",
    "StatementReport",
    "Stratum",
    "Study",
    "StudyMember",
    "Training",
    "TrainingStatement",
]
