"""Close rounds by their own rule. Every worker does it now and then (settings.CHORES)."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db.models import Exists, OuterRef, Q

from annotation.models import JudgmentTask, Round
from annotation.rounds.services import WrongStatus, close_round

logger = logging.getLogger(__name__)


def close_due_rounds(now: datetime) -> None:
    """Close the open rounds whose date has come, or whose statements all have their judgments."""
    incomplete = JudgmentTask.objects.without_gold().filter(round=OuterRef("pk"), verdict="")
    is_over = Q(closes_when=Round.ClosesWhen.DATE, closes_at__lte=now)
    is_complete = Q(closes_when=Round.ClosesWhen.COMPLETE) & ~Exists(incomplete)
    for round in Round.objects.filter(is_over | is_complete, status=Round.Status.OPEN):
        try:
            close_round(round)
        except WrongStatus:
            logger.info("The round %s was closed by somebody else.", round.name)
