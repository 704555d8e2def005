"""Panels about reports and comparisons that other pages show.

They are registered in PANELS and HOOKS of kgharvest.registries.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from django.http import HttpRequest
from django.urls import reverse

from annotation.judges.models import JudgeRun
from annotation.models import Round
from annotation.monitoring.progress import LIVE_JUDGMENTS
from evaluation.evidence.evidence import cells_of, drawn_verdicts, evidence_of_rows, macro_closing
from evaluation.evidence.judges import judge_answers_of_rows
from evaluation.evidence.rows import gather_evidence, judge_rows, rows_of_round, rules_of_round
from evaluation.models import Report
from evaluation.rendering.figures.report_figures import figure_named
from evaluation.reports.document import finding, tables_of
from evaluation.reports.forms import ReportForm
from evaluation.reports.sections.judge_card import STEADINESS_TABLES, card_entry
from evaluation.reports.sections.judge_card import TABLES as CARD_TABLES
from evaluation.reports.services import one_moment
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, Project, Relation
from kgharvest.pages.home import project_step, stage
from kgharvest.pages.panels import Panel, button

N_NEWEST = 5  # number of reports on the page of a round


def home_stages(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Yield the stage of reports, with the finding and the forest plot of the newest report that has judgments."""
    reports, parts = Report.objects.visible_to(request.user).archived(False), []
    judged = reports.for_list().filter(headline__n_judgments__gt=0)
    if report := judged.order_by("-created_at", "-pk").first():
        document = report.document_for_pages
        figure = figure_named("averages", document) if len(document["totals"]) > 1 else None
        context = {"report": report, "finding": finding(document), "figure": figure and figure.image(document)}
        parts = [Panel("evaluation/reports/_newest_report.html", context)]
    description = "A report estimates the accuracy, with intervals, agreement, and comparisons."
    counts = [(n := reports.count(), f"report{'s' * (n != 1)}", "")]
    yield stage("Reports", reverse("evaluation:report_list"), counts, description, parts)


def project_contents(request: HttpRequest, project: Project) -> Iterator[Panel]:
    n_reports = Report.objects.filter(round__project=project).archived(False).count()
    yield project_step("Reports", reverse("evaluation:report_list"), project, n_reports, "report")
    if n_studies := project.studies.count():
        yield project_step("Studies", reverse("evaluation:study_list"), project, n_studies, "study", "studies")


def studies(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield button("Studies", reverse("evaluation:study_list"))


def study_of_round(request: HttpRequest, round: Round) -> Iterator[Panel]:
    """Yield links to the round's study and to a file that reproduces the round."""
    if study := getattr(round, "study", None):
        yield button("Study", study.get_absolute_url())
    if round.spec:
        yield button("Download as study file", reverse("evaluation:round_study_file", args=[round.path]))


def compare_relation(request: HttpRequest, relation: Relation) -> Iterator[Panel]:
    yield button("Compare harvests", f"{reverse('evaluation:compare_harvests')}?relation={relation.pk}")


def compare_harvest(request: HttpRequest, job: HarvestJob) -> Iterator[Panel]:
    if job.n_tuples:
        yield button("Compare", f"{reverse('evaluation:compare_harvests')}?a={job.pk}")


def rehearse_draft(request: HttpRequest, draft: Round) -> Iterator[Panel]:
    yield button("Run simulation", reverse("evaluation:rehearsal", args=[draft.path]))


def make_report(request: HttpRequest, round: Round) -> Iterator[Panel]:
    yield Panel("evaluation/reports/_make_report.html", {"round": round})


def round_reports(request: HttpRequest, round: Round) -> Iterator[Panel]:
    """Yield a section with the newest reports on the round and a form for a new report."""
    reports = round.reports.filter(archived_at=None).only("created_at", "headline")
    newest = list(reports.order_by("-created_at", "-pk")[: N_NEWEST + 1])
    context = {"reports": newest[:N_NEWEST], "has_more": len(newest) > N_NEWEST, "round": round}
    yield Panel("evaluation/reports/_round_reports.html", context | {"form": ReportForm(judged=round)})


TOO_LARGE = "The round is too large to evaluate the judge on this page. Create a report with this judge."
NOT_OPEN = "The round is not open yet. The judge's quality is measured against human judgments of the round's sample."


def judge_card(request: HttpRequest, run: JudgeRun) -> Iterator[Panel]:
    """Yield the quality of a judge, for the page of its run."""
    context: dict[str, Any] = {"reason": NOT_OPEN}
    if run.round.n_tasks:
        context = _card_of(run)
    yield Panel("evaluation/reports/_judge_card_panel.html", context | {"round": run.round})


def _card_of(run: JudgeRun) -> dict[str, Any]:
    if run.round.n_tasks * run.round.judgments_per_task > LIVE_JUDGMENTS:
        return {"reason": TOO_LARGE}
    try:
        rows = rows_of_round(run.round) | judge_rows(run.round, run)
    except DomainError as refusal:
        return {"reason": str(refusal)}
    evidence = evidence_of_rows(rows, rules_of_round(run.round))
    card = card_entry(evidence, judge_answers_of_rows(rows, evidence))
    document = {"judge_card": card, "source": run.round.source}
    tables = tables_of(CARD_TABLES if card["n_verdicts"] else STEADINESS_TABLES, document)
    return {"reason": card["reason"], "tables": {table.name.replace("-", "_"): table for table in tables}}


def half_width(round: Round) -> float | None:
    """Return the largest half-width of the averages of LMs and settings, or None if one is undefined."""
    with one_moment():
        evidence = gather_evidence(round)
    cells = cells_of(evidence, drawn_verdicts(evidence))
    sides = (np.flatnonzero(evidence.side_of_cell == side).tolist() for side in range(len(evidence.sides)))
    closings = [macro_closing([cells[cell] for cell in side], round.closes_at_half_width) for side in sides]
    half_widths = [closing.half_width for closing in closings if closing is not None]
    return max(half_widths) if half_widths and len(half_widths) == len(closings) else None
