"""Rehearsal page and API: assumptions in, interval widths, power, and cost out, without stored data."""

from __future__ import annotations

import pytest
from django.apps import apps

from annotation.rounds.builder import freeze_round
from annotation.rounds.services import create_draft, open_draft
from evaluation.evidence.rows import gather_evidence
from evaluation.rehearsals.rehearsal import draft_evidence
from kgharvest.accounts.projects import default_project
from tests.factories import make_harvest, make_language_model, make_relation, make_researcher

pytestmark = pytest.mark.django_db


@pytest.fixture
def draft():
    """Draft round on two LMs and two relations. The LMs share every second tuple."""
    cells = []
    relations = [make_relation(name) for name in ("capital", "river")]
    for model in map(make_language_model, ("lab/alpha", "lab/beta")):
        for relation in relations:
            tuples = [(f"head {n if n % 2 else f'{model} {n}'}", "tail") for n in range(30)]
            job = make_harvest(tuples, relation=relation, language_model=model)
            cells.append({"job": job.pk, "n": 20, "strata": 2})
    return create_draft({"name": "pilot", "cells": cells, "gold_share": 0}, None, default_project())


@pytest.fixture
def researcher(client):
    client.force_login(make_researcher())
    return client


def rows_of_all_tables() -> dict[str, int]:
    return {model._meta.label: model.objects.count() for model in apps.get_models()}


def test_rehearsal_uses_the_draw_of_the_opened_round(draft):
    evidence = draft_evidence(draft, freeze_round(draft))
    open_evidence = gather_evidence(open_draft(draft, None))
    assert evidence.cells == open_evidence.cells
    assert [stratum[:4] for stratum in evidence.strata] == [stratum[:4] for stratum in open_evidence.strata]
    assert evidence.n_tasks == open_evidence.n_tasks
    assert sorted(zip(*(column.tolist() for column in evidence.draws[:2]), strict=True)) == sorted(
        zip(*(column.tolist() for column in open_evidence.draws[:2]), strict=True)
    )


def test_page_shows_width_power_time_and_cost(researcher, draft):
    before = rows_of_all_tables()
    assert f"{draft.get_absolute_url()}rehearsal/" in researcher.get(draft.get_absolute_url()).text
    query = {"accuracy_1": 90, "accuracy_2": 40, "seconds": 36, "pay_per_hour": 15}
    page = researcher.get(f"{draft.get_absolute_url()}rehearsal/", query).text
    n_judgments = 3 * len([task for task in freeze_round(draft).tasks if not task.is_gold])
    assert f"<dd>{n_judgments}</dd>" in page
    assert f"<dd>{n_judgments * 36 / 3600 * 15:,.2f}</dd>" in page
    assert "alpha · multi" in page
    assert "+50.0" in page  # points between the LMs
    assert 'value="90"' in page
    assert rows_of_all_tables() == before


def test_outcome_part_omits_the_form(researcher, draft):
    part = researcher.get(f"{draft.get_absolute_url()}rehearsal/", {"part": "outcome"}).text
    assert "Power" in part
    assert "<form" not in part


def test_invalid_assumption_is_reported_at_its_field(researcher, draft):
    page = researcher.get(f"{draft.get_absolute_url()}rehearsal/", {"false_called_true": "80", "n_people": "many"}).text
    assert "less than or equal to 50" in page
    assert "Enter a whole number" in page
    assert "No results. Correct the assumptions" in page


def test_draft_with_errors_redirects_with_reason(researcher, draft):
    draft.spec["cells"][0]["n"] = 1000
    draft.save()
    answer = researcher.get(f"{draft.get_absolute_url()}rehearsal/", follow=True)
    assert answer.redirect_chain == [(draft.get_absolute_url(), 302)]
    assert "Reduce n" in answer.text


def test_api_returns_rehearsal_results(researcher, draft):
    answer = researcher.get(f"/api/v1/rounds/{draft.pk}/rehearsal/", {"accuracy_1": 90, "unjudgeable": 0}).json()
    [first, second] = answer["rehearsal"]["sides"]
    assert first["measured"]["median"] > second["measured"]["median"]
    assert answer["pay"] is None
    [comparison] = answer["rehearsal"]["comparisons"]
    assert comparison["expected"] == pytest.approx(0.2)
    refused = researcher.get(f"/api/v1/rounds/{draft.pk}/rehearsal/", {"unjudgeable": 99})
    assert refused.status_code == 400


def test_only_drafts_can_be_rehearsed(researcher, draft):
    path = f"/api/v1/rounds/{draft.pk}/rehearsal/"
    assert researcher.get(path).status_code == 200
    open_draft(draft, None)

    answer = researcher.get(path)

    assert (answer.status_code, answer.json()["error"]["message"]) == (
        409,
        "Round pilot is open. Only drafts can be rehearsed.",
    )
