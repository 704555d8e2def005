"""A small study for tests of documents and packs: a judged round, statements about it, and row files."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
from django.utils import timezone

from annotation.invites.services import join_round, make_invites
from annotation.models import Round
from annotation.quality.exclusion import exclude_annotator
from evaluation.models import Report
from evaluation.reports.services import create_report
from kgharvest.contrib.publishing.packs.archive import PackFile, RowColumn
from tests.factories import judge, make_harvest, make_member, make_relation, make_user, next_batch, open_round

LABELS = "true", "false", "true", "true", "unjudgeable", "true"
STATEMENTS = {
    "title": "Judged tuples of three LMs",
    "authors": "Lovelace, Ada; Analytical Society\nvon Neumann, John",
    "contact_name": "Ada Lovelace",
    "contact_affiliation": "Analytical Society",
    "contact_email": "ada@analytical.example",
    "paper_url": "https://papers.example/1",
    "resources_url": "https://data.example/1",
    "preregistration": "No",
    "funding": "None",
    "languages": "English",
    "experts": "no",
    "recruitment": "Students of two courses were asked in class.",
    "pay": "money",
    "pay_adequacy": "15 EUR an hour, above the minimum wage of 12.82 EUR.",
    "known_to_authors": "yes",
    "researchers_judged": "no",
    "demographics": "All between 18 and 35 years old.",
    "ethics_board": "Board of the Analytical Society, 2026-07.",
    "consent": "People were told that the labels are published.",
    "personal_data": "Names are deleted after a year.",
    "special_category": "no",
    "impact_assessment": "None",
    "intended_use": "To compare LMs.",
    "limitations": "Three relations only.",
    "biases": "Statements about Europe.",
    "social_impact": "None that we know of.",
    "maintenance": "By the authors for five years.",
    "licence": "CC-BY-4.0",
}


def make_study(n_people: int = 6, by=None, **spec) -> Round:
    """Open a round of two relations, judged completely by `n_people` annotators."""
    jobs = [
        make_harvest(
            [(f"head {n}", f"tail {n}") for n in range(4)],
            relation=make_relation(name),
            summary={"revision": "a1b2", "code_version": "0.1.0"},
        )
        for name in ("can", "likes")
    ]
    document = {"name": spec.pop("name", "pilot"), "cells": [{"job": job.pk, "n": 3} for job in jobs], **spec}
    round = open_round(document, by, jobs[0].project)
    for number in range(n_people):
        annotator = join_round(round, make_user(), agrees=True)
        while batch := next_batch(annotator, timezone.now()):
            for task in batch:
                judge(annotator, task, LABELS[(task.position + number) % len(LABELS)], seconds=4.0 + number)
    return round


def report_on(round: Round, by=None) -> Report:
    return create_report(round, by=by)


def exclude_first(round: Round, reason: str = "answers too fast") -> None:
    exclude_annotator(round.annotators.order_by("pk").first(), reason)


def add_guest(round: Round, name: str):
    """Join the round as a guest with a single-use invite."""
    [invite] = make_invites(round, 1, timezone.now() + timedelta(days=7))
    return join_round(round, name=name, agrees=True, invite=invite)


def make_owner(username: str):
    return make_member("owner", username=username)


def row_files() -> list[PackFile]:
    """Return a table of judgments as Parquet and JSON lines, and a table as JSON lines only."""
    table = pa.table({"statement": [1, 1, 2], "label": ["true", "false", "true"], "seconds": [1.5, None, 2.0]})
    buffer = BytesIO()
    pq.write_table(table, buffer)
    columns = (
        RowColumn("statement", "integer", "Number of the statement."),
        RowColumn("label", "string", "What was said."),
        RowColumn("seconds", "number", "Active time."),
    )
    lines = b'{"statement": 1, "label": "true", "seconds": 1.5}\n'
    return [
        PackFile("data/judgments.parquet", buffer.getvalue(), "application/vnd.apache.parquet", "Judgments.", columns),
        PackFile("data/judgments.jsonl", lines, "application/x-ndjson", "Judgments, as lines.", columns),
        PackFile("data/extra.jsonl", lines, "application/x-ndjson", "More, as lines.", columns),
        PackFile("report.json", b"{}\n", "application/json", "The report."),
    ]
