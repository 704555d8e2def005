"""Cells on the round page: numbers equal to reports, pivot and list, filters and sorting by query string."""

from __future__ import annotations

import re
from copy import deepcopy
from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from django.utils import timezone

from annotation.models import Round, Snapshot
from annotation.monitoring import cells as monitoring_cells
from annotation.monitoring import progress as snapshots
from annotation.monitoring.cells import LATER, cell_tables, count_cells, round_cells
from annotation.monitoring.progress import interval_picture
from annotation.rounds.forms import job_choices
from annotation.rounds.services import create_draft, open_round
from evaluation.evidence.evidence import cells_of, drawn_verdicts
from evaluation.evidence.rows import gather_evidence
from kgharvest.models import Project
from kgharvest.statistics.arrays import ACCEPTED
from tests.annotation.monitoring.test_progress import DeferredThread
from tests.factories import judge_all, make_harvest, make_language_model, make_relation

pytestmark = pytest.mark.django_db

PILOT = "/projects/default/rounds/pilot/"
NUMBERS = ("drawn", "accepted", "rejected", "undecided", "accuracy", "low", "high")


@pytest.fixture(scope="module")
def round_of_module(module_rows) -> Round:
    """Return a judged round of three cells (two relations, two LMs). Tuples with an odd number are false."""
    bert, gpt = make_language_model("bert"), make_language_model("gpt")
    river, capital = make_relation("river"), make_relation("capital")
    jobs = [
        make_harvest([(f"{relation.name} {n}", f"tail {n}") for n in range(20)], relation=relation, language_model=lm)
        for relation, lm in ((river, bert), (river, gpt), (capital, bert))
    ]
    cells = [{"job": job.pk, "n": n} for job, n in zip(jobs, (4, 6, 8), strict=True)]
    round = open_round({"name": "pilot", "cells": cells, "batch_size": 50}, None, Project.objects.get(slug="default"))
    labels = ["false" if task.statement[-2] in "13579" else "true" for task in round.tasks.order_by("position")]
    judge_all(round, *[labels] * 3)
    return round


@pytest.fixture
def round(round_of_module) -> Round:
    return deepcopy(round_of_module)


def test_cell_accuracy_and_interval_match_reports(round):
    evidence = gather_evidence(round)
    reported = {
        (cell.key.relation, cell.key.model): [cell.n, *cell.rate_of(ACCEPTED)[:3]]
        for cell in cells_of(evidence, drawn_verdicts(evidence))
    }

    shown = {
        (cell["relation"], cell["model"]): [cell["drawn"], cell["accuracy"], cell["low"], cell["high"]]
        for cell in count_cells(round)
    }

    assert shown == reported
    assert len(shown) == 3


def test_round_with_many_cells_shows_accuracies_after_background_count(round, monkeypatch):
    monkeypatch.setattr(monitoring_cells, "MOST_AT_A_LOOK", 2)
    monkeypatch.setattr(snapshots, "Thread", DeferredThread)
    monkeypatch.setattr(snapshots.connection, "close", lambda: None)
    monkeypatch.setattr(DeferredThread, "waiting", [])

    first = round_cells(round, timezone.now())
    assert {(cell["accuracy"], cell["reason"]) for cell in first.content} == {(None, LATER)}
    assert sum(cell["accepted"] for cell in first.content) > 0
    assert cell_tables(first.content, QueryDict())["notice"] == LATER
    [run_count] = DeferredThread.waiting
    run_count()

    second = round_cells(round, first.counted_at)
    assert second.content == count_cells(round)
    assert cell_tables(second.content, QueryDict())["notice"] == ""
    assert Snapshot.objects.count() == 1


def test_pivot_lists_relations_by_lm_and_links_statements(researcher_client, round):
    context = researcher_client.get(PILOT).context["cells"]

    assert [side["setting"] for side in context["sides"]] == ["multi", "multi"]
    assert [name for name, _ in context["models"]] == ["bert", "gpt"]
    assert [[row["relation"], *map(bool, row["cells"])] for row in context["rows"]] == [
        ["capital", True, False],
        ["river", True, True],
    ]
    statements = researcher_client.get(PILOT + context["rows"][1]["cells"][1]["statements"])
    assert statements.context["n"] == 6
    assert "bert × multi" in statements.text


def test_unknown_side_in_query_is_ignored(researcher_client, round):
    pages = [researcher_client.get(f"{PILOT}statements/?show=all&side={side}") for side in ("9.multi", ".", "x", "")]

    assert [page.context["n"] for page in pages] == [round.n_tasks] * 4


def test_query_filters_and_sorts_cells_and_marks_hidden_rows(researcher_client, round):
    def cells(query):
        return researcher_client.get(PILOT + query).context["cells"]

    by_accuracy = cells("?sort=-s1")
    assert [row["relation"] for row in by_accuracy["rows"]] == ["river", "capital"]  # capital has no gpt cell
    filtered = cells("?cells=list&q=RIV gpt&sort=-drawn")
    assert [(row["drawn"], row["is_hidden"]) for row in filtered["rows"]] == [(8, True), (6, False), (4, True)]
    assert (filtered["n_shown"], cells("?sort=made-up")["sort"]) == (1, "relation")


def test_filters_find_relations_with_and_without_underscores(researcher):
    job = make_harvest([("a", "b"), ("c", "d")], relation=make_relation("place_for"))
    cells = count_cells(open_round({"name": "underscores", "cells": [{"job": job.pk, "n": 2}]}, researcher))
    for q in ("place_for", "place for"):
        assert cell_tables(cells, QueryDict(urlencode({"q": q})))["n_shown"] == 1
        assert len(job_choices({"find": q}, set(), researcher)[0]) == 1
    assert cell_tables(cells, QueryDict("q=placefor"))["n_shown"] == 0


def test_interval_picture_spans_the_interval_or_is_empty():
    path, circle = re.findall(r'd="([^"]+)"|cx="([^"]+)"', interval_picture(0.5, 0, 1))

    assert (path[0], circle[1]) == ("M3.0 5H61.0", "32.0")
    assert interval_picture(None, None, None) == ""


def test_draft_has_no_cells(researcher_client):
    job = make_harvest([("a", "b")])
    draft = create_draft(
        {"name": "draft", "cells": [{"job": job.pk, "n": 1}]}, None, Project.objects.get(slug="default")
    )

    assert count_cells(draft) == []
    assert researcher_client.get(f"/api/v1/rounds/{draft.pk}/progress/").json()["cells"] == []
