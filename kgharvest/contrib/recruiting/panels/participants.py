"""Who came from a panel, what each has done and what each is owed: for the panel's page, its CSV and the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Q

from annotation.models import Judgment
from kgharvest.contrib.recruiting.models import Panel, Submission
from kgharvest.contrib.recruiting.panels.identifiers import Unreadable
from kgharvest.contrib.recruiting.panels.money import decimal_money
from kgharvest.contrib.recruiting.pay.hourly import active_times
from kgharvest.contrib.recruiting.pay.ledger import Balance, balances

UNREADABLE = "unreadable"  # in the place of what was encrypted with another SECRET_KEY
CSV_COLUMNS = (
    "participant", "session", "study", "annotator", "status", "platform_status", "entered", "completed",
    "active_minutes", "judgments", "gold_right", "gold_asked", "currency", "owed", "paid",
)  # fmt: skip
NOTHING = {"n_judged": 0, "n_gold": 0, "n_gold_right": 0}


def participant_rows(panel: Panel, submissions: Iterable[Submission] | None = None) -> list[dict[str, Any]]:
    """Return a row for each submission of the panel, in the order they came, in a fixed number of queries.

    submissions: those alone, in their order; give them with their annotators. active_s: active time, None where too
    little was measured. n_gold, n_gold_right: of the last answers. owed, paid: in minor units.
    """
    work, times, lines = work_by_submission(panel), active_times(panel), balances(panel)
    rows = []
    if submissions is None:
        submissions = panel.submissions.select_related("annotator").order_by("pk")
    for submission in submissions:
        balance = lines.get(submission.pk, Balance())
        rows.append(
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
                **work.get(submission.pk, NOTHING),
                "owed": balance.owed,
                "paid": balance.paid,
            }
        )
    return rows


def work_by_submission(panel: Panel) -> dict[int, dict[str, Any]]:
    """Return what was judged in each taking part, by its id; what the same person judged in another one is left out."""
    of_part = Q(judged_at__gte=F("annotator__submissions__entered_at")) & (
        Q(annotator__submissions__ended_at=None) | Q(judged_at__lte=F("annotator__submissions__ended_at"))
    )
    is_last, is_gold = Q(superseded_by=None), ~Q(task__gold_label="")
    judgments = Judgment.objects.filter(of_part, annotator__submissions__panel=panel).order_by()
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
    """Return how many places are taken, done (judged to the end) and free."""
    by_status = Counter(dict(panel.submissions.order_by().values_list("status").annotate(n=Count("pk"))))
    taken = sum(by_status[status] for status in Submission.HOLDING)
    return {
        "taken": taken,
        "done": taken - by_status[Submission.Status.ACTIVE],
        "free": max(0, panel.places - taken),
        "left": sum(by_status.values()) - taken,
    }


def csv_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    """Yield the rows of CSV_COLUMNS; amounts are decimal numbers of the panel's currency."""
    for row in participant_rows(panel):
        yield {
            **{name: row[name] for name in ("participant", "session", "study", "annotator", "platform_status")},
            "status": row["status_in_words"],
            "entered": _iso(row["entered_at"]),
            "completed": _iso(row["completed_at"]),
            "active_minutes": "" if row["active_s"] is None else f"{row['active_s'] / 60:.1f}",
            "judgments": row["n_judged"],
            "gold_right": row["n_gold_right"],
            "gold_asked": row["n_gold"],
            "currency": panel.currency,
            "owed": decimal_money(row["owed"], panel.currency),
            "paid": decimal_money(row["paid"], panel.currency),
        }


def _iso(at: datetime | None) -> str:
    return at.isoformat() if at else ""
