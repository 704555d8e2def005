"""Models of the annotation app: rounds, samples, judgments, quality, judges, and invites."""

from annotation.gold.models import GoldDecision
from annotation.invites.models import Invite
from annotation.judges.models import JudgeAnswer, JudgeKind, JudgeRun
from annotation.judging.models import LONGEST_COMMENT, Annotator, Assignment, Judgment, Label, StatementReport
from annotation.judging.models import Reservation as Reservation
from annotation.quality.models import Adjudication, Exclusion, Limits
from annotation.questionnaire.models import CheckTry, WhoAnswers, Withdrawal
from annotation.rounds.models import Draw, JudgmentTask, Layout, Round, Snapshot, Stratum
from annotation.training.models import Training, TrainingStatement
