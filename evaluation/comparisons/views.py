"""Two reports side by side, or a report beside the paper's own table."""

from __future__ import annotations

from dataclasses import replace

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from evaluation.comparisons.published import PublishedTable, load_table5
from evaluation.comparisons.report_comparison import (
    Opponent,
    comparisons_between,
    difference_table,
    opponent,
    published_table,
    shared_relations,
    side_by_side_table,
)
from evaluation.comparisons.shared_verdicts import shared_verdicts
from evaluation.reports.models import Report
from evaluation.reports.sections.compare_sides import compare_sides
from evaluation.reports.sections.quality_tables import comparison_table
from kgharvest.access import researcher_required

PAPER = "paper"
PAPER_NAME = "the paper"
MOST_CHOICES = 200
SEED = 0  # of the intervals: a comparison opened twice shows the same


@researcher_required
def compare(request: HttpRequest) -> HttpResponse:
    reports = Report.objects.visible_to(request.user).for_list()
    asked = {side: request.GET.get(side, "") for side in "ab"}
    context = {"asked": asked, "choices": choices(reports), "paper": load_table5()}
    if all(asked.values()):
        a, b = told_apart(*(find_opponent(reports, asked[side]) for side in "ab"))
        context |= compared(a, b) | {
            "same_tuples": same_tuples(reports, *asked.values()),
            "sources": [(each.name, address_of(asked[side])) for each, side in ((a, "a"), (b, "b"))],
        }
    return render(request, "evaluation/comparisons/compare.html", context)


def choices(reports) -> list[tuple[str, str]]:
    own = [(str(report.pk), str(report)) for report in reports[:MOST_CHOICES]]
    return [*own, (PAPER, "Hao et al. (2023), Table 5, as printed in the paper")]


def find_opponent(reports, asked: str) -> Opponent:
    if asked == PAPER:
        return opponent(PAPER_NAME, as_document(load_table5()))
    report = reports.defer(None).filter(pk=asked).first() if asked.isdecimal() else None
    if report is None:
        raise Http404("There is no such report.")
    return opponent(report.round.name, report.document)


def address_of(asked: str) -> str:
    return reverse("evaluation:published") if asked == PAPER else reverse("evaluation:report", args=[asked])


def same_tuples(reports, a: str, b: str) -> str | None:
    """Return what the verdicts of two rounds on the same tuples say, in words."""
    if PAPER in (a, b):
        return None
    rounds = [reports.get(pk=asked).round for asked in (a, b)]
    found = shared_verdicts(*rounds)
    return found and found.in_words(*(round.name for round in rounds))


def told_apart(a: Opponent, b: Opponent) -> tuple[Opponent, Opponent]:
    """Number two reports on one round."""
    if a.name != b.name:
        return a, b
    return replace(a, name=f"{a.name}, first"), replace(b, name=f"{b.name}, second")


def as_document(table: PublishedTable) -> dict:
    """Return a published table as far as it can be one of ours: it prints neither counts nor intervals."""
    unknown = {"n": None, "accuracy_low": None, "accuracy_high": None, "incomplete": 0}
    return {
        "cells": [
            {**key._asdict(), "accuracy": accuracy, "rejection": rejection, **unknown}
            for key, (accuracy, rejection) in table.cells.items()
        ]
    }


def compared(a: Opponent, b: Opponent) -> dict:
    comparisons = comparisons_between(a, b, SEED)
    return {
        "a": a,
        "b": b,
        "n_shared": len(shared_relations(a, b)),
        "table": side_by_side_table(a, b),
        "differences": difference_table(a, b),
        "comparisons": comparisons,
        "comparison_table": comparison_table({"comparisons": comparisons}),
        "origins": sorted({each.origin for each in (a, b)} - {""}),
    }


@researcher_required
def published(request: HttpRequest) -> HttpResponse:
    """The paper's Table 5 with the tests that it does not print."""
    paper = load_table5()
    accuracies = {key: accuracy for key, (accuracy, _) in paper.cells.items()}
    comparisons = compare_sides(accuracies, {}, SEED)
    context = {
        "paper": paper,
        "table": published_table(paper),
        "comparisons": comparisons,
        "comparison_table": comparison_table({"comparisons": comparisons}),
    }
    return render(request, "evaluation/comparisons/published.html", context)
