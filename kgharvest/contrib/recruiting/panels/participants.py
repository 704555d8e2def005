"""Participants of a panel with their judgments and pay, for the panel's page, its CSV, and the API."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Count, F, Q

from annotation.models import Judgment
from kgharvest.contrib.recruiting.models import Panel, Submission
from kgharvest.contrib.recruiting.panels.identifiers import Unreadable
from kgharvest.contrib.recruiting.panels.money import decimal_money
from kgharvest.contrib.recruiting.pay.hourly import active_times
from kgharvest.contrib.recruiting.pay.ledger import Balance, balances

UNREADABLE = "unreadable"  # shown for ids that were encrypted with a different SECRET_KEY
CSV_COLUMNS = (
    "participant", "session", "study", "annotator", "status", "platform_status", "entered", "completed",
    "active_minutes", "judgments", "gold_right", "gold_asked", "currency", "owed", "paid",
)  # fmt: skip
NO_JUDGMENTS = {"n_judged": 0, "n_gold": 0, "n_gold_right": 0}


def participant_rows(panel: Panel, submissions: Iterable[Submission] | None = None) -> list[dict[str, Any]]:
    """Return one row per submission, in order of entry. The number of queries does not depend on the number of rows.

    submissions: submissions to include, in this order, fetched with their annotators. active_s: None if too few answers
    were timed. n_gold: number of current answers to gold statements; n_gold_right: number of correct answers among
    them. owed, paid: in minor units.
    """
    counts, times, pay = judgment_counts(panel), active_times(panel), balances(panel)
    if submissions is None:
        submissions = panel.submissions.select_related("annotator").order_by("pk")
    return [
        {
            "pk": submission.pk,
            "participant": _readable(submission, "participant_id"),
            "session": _readable(submission, "session_id"),
            "study": submission.study,
            "annotator": submission.annotator.code if submission.annotator else "",
            "status": submission.status,
            "status_in_words": submission.get_status_display(),
            "platform_status": submission.platform_status,
            "entered_at": submission.entered_at,
            "completed_at": submission.completed_at,
            "ended_at": submission.ended_at,
            "active_s": times.get(submission.pk),
            **counts.get(submission.pk, NO_JUDGMENTS),
            **pay.get(submission.pk, Balance())._asdict(),
        }
        for submission in submissions
    ]


def judgment_counts(panel: Panel) -> dict[int, dict[str, Any]]:
    """Return judgment counts by submission id. Judgments from the annotator's other submissions are not counted."""
    in_submission = Q(judged_at__gte=F("annotator__submissions__entered_at")) & (
        Q(annotator__submissions__ended_at=None) | Q(judged_at__lte=F("annotator__submissions__ended_at"))
    )
    is_last, is_gold = Q(superseded_by=None), ~Q(task__gold_label="")
    judgments = Judgment.objects.filter(in_submission, annotator__submissions__panel=panel).order_by()
    rows = judgments.values(submission=F("annotator__submissions")).annotate(
        n_judged=Count("pk", filter=is_last),
        n_gold=Count("pk", filter=is_last & is_gold),
        n_gold_right=Count("pk", filter=is_last & is_gold & Q(label=F("task__gold_label"))),
    )
    return {row.pop("submission"): row for row in rows}


def _readable(submission: Submission, name: str) -> str:
    try:
        return str(getattr(submission, name))
    except Unreadable:
        return UNREADABLE


def places_of(panel: Panel) -> dict[str, int]:
    """Return the numbers of places that are taken (active or done), done, and free, and of participants who left."""
    by_status = Counter(dict(panel.submissions.order_by().values_list("status").annotate(n=Count("pk"))))
    taken = sum(by_status[status] for status in Submission.HOLDING)
    return {
        "taken": taken,
        "done": taken - by_status[Submission.Status.ACTIVE],
        "free": max(0, panel.places - taken),
        "left": sum(by_status.values()) - taken,
    }


def csv_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    """Yield rows of CSV_COLUMNS; amounts are decimal numbers in the panel's currency."""
    for row in participant_rows(panel):
        yield {
            **{name: row[name] for name in ("participant", "session", "study", "annotator", "platform_status")},
            "status": row["status_in_words"],
            "entered": row["entered_at"].isoformat(),
            "completed": row["completed_at"].isoformat() if row["completed_at"] else "",
            "active_minutes": "" if row["active_s"] is None else f"{row['active_s'] / 60:.1f}",
            "judgments": row["n_judged"],
            "gold_right": row["n_gold_right"],
            "gold_asked": row["n_gold"],
            "currency": panel.currency,
            "owed": decimal_money(row["owed"], panel.currency),
            "paid": decimal_money(row["paid"], panel.currency),
        }
