"""Report API, and a complete study through the API, from draft to report tables."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from django.db import connection

from annotation.models import Label
from annotation.rounds.services import close_round, open_round
from evaluation.models import Report
from evaluation.reports import services
from evaluation.reports.document import report_tables
from evaluation.reports.files import FILES, write_report
from evaluation.reports.services import compute_report, create_report
from kgharvest.models import Role
from kgharvest.tables.formats import csv_text
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

REPORTS = "/api/v1/reports/"


@pytest.fixture
def api(db):
    return client_of(factories.make_researcher("ada"))


@pytest.fixture
def round(db):
    round = factories.make_round(6, name="pilot")
    factories.judge_all(round, ["true"] * 6, ["true", "false"] * 3, ["false"] * 6)
    return round


def test_report_with_judge_names_the_run(api, round):
    run = factories.make_judge_run(round, "lm-judge")
    factories.make_judge_answer(run, round.tasks.first().knowledge_tuple, "true")

    created = api.post(REPORTS, {"round": round.pk, "judge": "lm-judge"}, JSON)
    unknown = api.post(REPORTS, {"round": round.pk, "judge": "nobody"}, JSON)

    assert created.json()["document"]["judge"]["run"] == "lm-judge"
    assert created.json()["document"]["cells"][0]["judge"]["n_labelled"] == 1
    assert unknown.status_code == 409
    assert "nobody" in unknown.json()["error"]["message"]


def test_report_is_created_once_listed_and_read(api, round):
    headers = {"idempotency-key": "one"}
    responses = [
        api.post(REPORTS, {"round": round.pk, "equivalence_margin": 3}, JSON, headers=headers) for _ in range(2)
    ]
    address = responses[0].headers["Location"]

    assert (responses[0].status_code, responses[1].json(), Report.objects.count()) == (201, responses[0].json(), 1)
    report = api.get(address).json()
    assert report == responses[0].json()
    assert report["document"] == Report.objects.get().document
    assert (report["headline"]["n_judgments"], report["created_by"]) == (18, "ada")
    listed = api.get(REPORTS, {"round": round.pk, "project": "default"}).json()["results"]
    assert listed == [{key: report[key] for key in listed[0]}]
    assert api.get(REPORTS, {"round": round.pk + 1}).json()["results"] == []


def test_report_with_idempotency_key_uses_separate_transaction(api, round, monkeypatch):
    """PostgreSQL can set a snapshot only at the beginning of a transaction."""
    outer: list[list[str]] = []

    def record_savepoints(*args, **options):
        outer.append(list(connection.savepoint_ids))
        return compute_report(*args, **options)

    monkeypatch.setattr(services, "compute_report", record_savepoints)

    response = api.post(REPORTS, {"round": round.pk}, JSON, headers={"idempotency-key": "one"})

    assert (response.status_code, outer) == (201, [[]])


def test_api_files_equal_page_files(api, round):
    report = create_report(round)
    report.refresh_from_db()  # PostgreSQL orders the keys of JSON
    shown = api.get(f"{REPORTS}{report.pk}/").json()

    assert [file["name"] for file in shown["files"]] == list(FILES)
    for file in shown["files"]:
        assert api.get(file["url"]).content == write_report(report, file["name"])
    tables = {table.name: table for table in report_tables(report.document)}
    assert [file["name"] for file in shown["tables"]] == list(tables)
    for file in shown["tables"]:
        assert api.get(file["url"]).content.decode() == csv_text(tables[file["name"]])
    svg = api.get(shown["figures"][0]["url"])
    assert (svg.headers["Content-Type"], b"<svg" in svg.content) == ("image/svg+xml", True)
    assert api.get(shown["figures"][0]["url"].replace(".svg", ".pdf"), {"theme": "light"}).content.startswith(b"%PDF")
    for invalid in ("report.doc", "tables/nothing.csv", "figures/nothing.svg", "figures/heat-map.gif"):
        assert api.get(f"{REPORTS}{report.pk}/{invalid}").status_code == 404
    assert api.get(shown["figures"][0]["url"], {"theme": "x"}).status_code == 400


def test_tuples_endpoint_lists_statements_of_cells(api, round):
    address = f"{REPORTS}{create_report(round).pk}/tuples/"
    relation = round.strata.get().relation

    every = api.get(address, {"limit": 4}).json()
    rest = api.get(every["next"]).json()

    assert len(every["results"] + rest["results"]) == 6
    assert [judgment["label"] for judgment in every["results"][0]["judgments"]].count("true") >= 1
    accepted = api.get(address, {"relation": relation.path, "outcome": "accepted", "setting": "multi"}).json()[
        "results"
    ]
    assert len(accepted) == 3
    assert api.get(address, {"model": "nobody"}).json()["results"] == []
    for invalid in ({"outcome": "x"}, {"relation": "a\x00"}, {"x": "1"}):
        assert api.get(address, invalid).status_code == 400


@pytest.mark.parametrize(
    "body", [{}, [], {"round": "x"}, {"round": 10**30}, {"round": 1, "equivalence_margin": 51}, {"round": 1, "x": 1}]
)
def test_invalid_report_requests_are_rejected(api, body):
    assert api.post(REPORTS, body, JSON).status_code == 400


def test_viewer_cannot_create_and_outsider_cannot_see_reports(api, round):
    report = create_report(round)
    viewer = client_of(factories.make_member(Role.VIEWER))
    stranger = client_of(factories.make_researcher(project=factories.make_project()))

    assert viewer.get(f"{REPORTS}{report.pk}/").status_code == 200
    assert error_of(viewer.post(REPORTS, {"round": round.pk}, JSON))["code"] == "NotAllowed"
    assert stranger.get(REPORTS).json()["results"] == []
    assert stranger.post(REPORTS, {"round": round.pk}, JSON).status_code == 404
    for rest in ("", "report.json", "tables/cells.csv", "figures/heat-map.svg", "tuples/"):
        assert stranger.get(f"{REPORTS}{report.pk}/{rest}").status_code == 404


# Complete study


def label_of(annotator: int, statement: str) -> str:
    """Return the fixed label of an annotator for a statement, independent of the order of questions."""
    return list(Label.values)[(annotator + len(statement) * 7 + sum(map(ord, statement))) % 3]


def test_api_study_equals_study_by_pages_and_commands(api):
    jobs = [
        factories.make_harvest([(f"{name} {'x' * number}", f"tail {number}") for number in range(8)], setting=name)
        for name in ("human", "multi")
    ]
    spec = {"cells": [{"job": job.pk, "n": 6} for job in jobs], "judgments_per_task": 3, "batch_size": 4, "seed": 5}

    created = api.post("/api/v1/rounds/", spec | {"name": "by-api"}, JSON)
    address = created.headers["Location"]
    link = api.post(f"{address}open/").json()["join_url"]
    for annotator in range(3):
        client = client_of(factories.make_user(), "judge")
        judging = f"/api/v1/judging/{client.post('/api/v1/judging/', {'link': link}, JSON).json()['round']}/"
        statements = client.get(judging).json()["tasks"]
        while statements:
            for statement in statements:
                text = "".join(text for text, _ in statement["parts"])
                answer = {"task": statement["task"], "label": label_of(annotator, text), "client_uuid": str(uuid4())}
                reply = client.post(judging, answer | {"more": True}, JSON).json()
            statements = reply["tasks"]
    assert api.post(f"{address}close/").json()["status"] == "closed"
    by_api = api.post(REPORTS, {"round": created.json()["id"]}, JSON).json()

    by_command_round = open_round(spec | {"name": "by-command"})
    tasks = list(by_command_round.tasks.order_by("position").values_list("statement", flat=True))
    factories.judge_all(by_command_round, *([label_of(annotator, text) for text in tasks] for annotator in range(3)))
    close_round(by_command_round)
    by_command = create_report(by_command_round)

    assert by_api["headline"] == by_command.headline
    for part in (
        "n_tasks",
        "n_complete",
        "n_judgments",
        "alpha",
        "percent_agreement",
        "cells",
        "totals",
        "comparisons",
    ):
        assert by_api["document"][part] == json.loads(json.dumps(by_command.document[part]))
    [cells] = [table["url"] for table in by_api["tables"] if table["name"] == "cells"]
    table = next(table for table in report_tables(by_command.document) if table.name == "cells")
    assert api.get(cells).content.decode() == csv_text(table)
