"""API permissions for preregistrations, statements, and packs."""

from __future__ import annotations

from typing import Any

import pytest

from annotation.rounds.services import create_draft
from evaluation.reports.services import create_report
from kgharvest.contrib.publishing.models import PaperPack
from tests import factories
from tests.api import blanked, clients_of_columns, operations_of, wrong_rows
from tests.kgharvest.contrib.publishing.preregistration.planning import PLAN, freeze, planned

#                                                              no  ann view adj  res  own  sup  other
TABLE = {
    "GET rounds/{draft}/preregistrations/":                    "401 403 200 200 200 200 200 404",
    "POST rounds/{draft}/preregistrations/":                   "401 403 403 403 201 201 201 404",
    "GET rounds/{draft}/preregistrations/{preregistration}/":  "401 403 200 200 200 200 200 404",
    "GET rounds/{draft}/preregistrations/{preregistration}/preregistration.json": "401 403 200 200 200 200 200 404",
    "GET reports/{report}/packs/":                            "401 403 200 200 200 200 200 404",
    "POST reports/{report}/packs/":                           "401 403 403 403 202 202 202 404",
    "GET reports/{report}/packs/{pack}/":                     "401 403 200 200 200 200 200 404",
    "POST reports/{report}/packs/{pack}/cancel/":             "401 403 403 403 409 409 409 404",
    "GET reports/{report}/packs/{pack}/pack.zip":             "401 403 404 404 404 404 404 404",
    "GET reports/{report}/paper/statements/":                 "401 403 200 200 200 200 200 404",
    "PATCH reports/{report}/paper/statements/":               "401 403 403 403 200 200 200 404",
}  # fmt: skip
BODIES: dict[str, Any] = {
    "POST rounds/{draft}/preregistrations/": PLAN,
    "PATCH reports/{report}/paper/statements/": {"languages": "English"},
}


@pytest.mark.django_db
def test_roles_get_the_documented_status(enqueued):
    round = factories.make_round(3, project=factories.make_project("Own"), judgments_per_task=1)
    factories.judge_all(round, ["true", "false", "true"])
    project = round.project
    people = [
        factories.make_user("annotator"),
        *(factories.make_member(role, project) for role in ("viewer", "adjudicator", "researcher", "owner")),
        factories.make_user("superuser", is_superuser=True),
        factories.make_member("owner", factories.make_project("Foreign")),
    ]
    report = create_report(round)
    harvest = factories.make_harvest([("a", "b"), ("c", "d"), ("e", "f")], project=project)
    draft = create_draft({"name": "draft", "cells": [{"job": harvest.pk, "n": None}]}, None, project)
    ids = {
        "draft": draft.pk,
        "preregistration": freeze(draft, planned()).pk,
        "report": report.pk,
        "pack": PaperPack.objects.create(kind="pack", report=report, project=project, status="failed").pk,
    }

    assert wrong_rows(TABLE, clients_of_columns(people), ids, lambda operation, _: BODIES.get(operation, {})) == []


def test_every_operation_has_a_row():
    assert operations_of("publishing") == set(map(blanked, TABLE))
