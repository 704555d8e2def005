"""Rounds with their samples, and what people said."""

from annotation.gold.models import GoldDecision
from annotation.judges.models import JudgeAnswer, JudgeKind, JudgeRun
from annotation.judging.models import (
    LONGEST_COMMENT,
    Annotator,
    Assignment,
    Judgment,
    Label,
    StatementReport,
)
from annotation.quality.models import Adjudication, Exclusion, Limits, RoundEvent
from annotation.recruiting.events.models import PanelEvent
from annotation.recruiting.models import Invite
from annotation.recruiting.panels.models import Panel, Platform, Submission
from annotation.recruiting.pay.models import PayEntry, PlatformCommand
from annotation.recruiting.questionnaire.models import CheckTry, WhoAnswers, Withdrawal
from annotation.rounds.models import Draw, JudgmentTask, Layout, Round, Snapshot, Stratum
from annotation.training.models import Training, TrainingStatement

__all__ = [
    "LONGEST_COMMENT",
    "Adjudication",
    "Annotator",
    "Assignment",
    "CheckTry",
    "Draw",
    "Exclusion",
    "GoldDecision",
    "Invite",
    "JudgeAnswer",
    "JudgeKind",
    "JudgeRun",
    "Judgment",
    "JudgmentTask",
    "Label",
    "Layout",
    "Limits",
    "Panel",
    "PanelEvent",
    "PayEntry",
    "Platform",
    "PlatformCommand",
    "Round",
    "RoundEvent",
    "Snapshot",
    "StatementReport",
    "Stratum",
    "Submission",
    "Training",
    "TrainingStatement",
    "WhoAnswers",
    "Withdrawal",
]
