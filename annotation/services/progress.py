"""How far a round is, counted in three queries at any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count

from annotation.models import Draw, Judgment, Round
from annotation.services.snapshots import counted
from annotation.statistics import agreement
from annotation.verdicts import Verdict

PACE_OVER = timedelta(hours=1)
OUTCOMES = (*(verdict.value for verdict in Verdict), "incomplete")
COUNTERS = ("n_true", "n_false", "n_unjudgeable", "n_wanted", "n_leased", "verdict")


def progress(round: Round, now: datetime) -> dict[str, Any]:
    """Return what the round's page shows of it: tasks, judgments, verdicts in all and by cell, agreement and pace.

    counted_at: None if it is true of now; a large round is counted now and then.
    """
    snapshot = counted(round, "progress", count_progress, now)
    found = snapshot.content
    return found | agreement(found["patterns"]) | pace(round, found, now) | {"counted_at": snapshot.counted_at}


def count_progress(round: Round) -> dict[str, Any]:
    tasks = round.tasks.without_gold().order_by()
    rows = [dict(zip((*COUNTERS, "n"), row, strict=True)) for row in _grouped(tasks)]
    patterns: Counter[tuple[int, int, int]] = Counter()
    totals = Counter(dict.fromkeys((*OUTCOMES, "n_tasks", "in_hand", "open", "n_judgments", "n_wanted", "n_leased"), 0))
    for row in rows:
        counts = (row["n_true"], row["n_false"], row["n_unjudgeable"])
        patterns[counts] += row["n"]
        totals.update(_totals(row, sum(counts)))
    return dict(totals) | {
        "complete": totals["n_tasks"] - totals["incomplete"],
        "patterns": [[*counts, n] for counts, n in sorted(patterns.items())],
        "cells": count_cells(round),
    }


def _grouped(tasks) -> Iterable[tuple]:
    return tasks.values_list(*COUNTERS).annotate(n=Count("pk"))


def _totals(row: dict[str, Any], n_judgments: int) -> dict[str, int]:
    n = row["n"]
    totals = {"n_tasks": n, row["verdict"] or "incomplete": n}
    if not row["verdict"]:
        totals["in_hand" if row["n_leased"] else "open"] = n
    return totals | {
        "n_judgments": n * n_judgments,
        "n_wanted": n * row["n_wanted"],
        "n_leased": n * row["n_leased"],
    }


def count_cells(round: Round) -> list[dict[str, Any]]:
    """Return for each cell its name and how many of the statements drawn for it have which verdict."""
    columns = ("relation__name", "language_model__name", "setting")
    strata = {pk: cell for pk, *cell in round.strata.order_by().values_list("pk", *columns)}
    cells = {tuple(cell): dict.fromkeys(OUTCOMES, 0) for cell in sorted(strata.values(), key=str)}
    drawn = Draw.objects.filter(stratum__round=round).order_by()
    for stratum, verdict, n in drawn.values_list("stratum", "task__verdict").annotate(n=Count("pk")):
        cells[tuple(strata[stratum])][verdict or "incomplete"] += n
    return [
        {"relation": relation, "model": model, "setting": setting, **outcomes}
        for (relation, model, setting), outcomes in cells.items()
    ]


def pace(round: Round, found: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return judgments_per_hour over the last hour, or since the round was opened, and hours_left at this pace."""
    since = max(now - PACE_OVER, round.opened_at or round.created_at)
    n_recent = Judgment.objects.counted().filter(annotator__round=round, judged_at__gt=since).count()
    hours = (now - since) / timedelta(hours=1)
    per_hour = n_recent / hours if n_recent and hours > 0 else None
    n_left = found["n_wanted"] - found["n_judgments"]
    return {"judgments_per_hour": per_hour, "n_left": n_left, "hours_left": n_left / per_hour if per_hour else None}
