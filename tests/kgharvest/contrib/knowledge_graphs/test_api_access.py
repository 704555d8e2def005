"""API permissions for the import and export of knowledge graphs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from evaluation.reports.services import create_report
from tests import factories
from tests.api import blanked, clients_of_columns, operations_of, wrong_rows

#                                    no  ann view adj  res  own  sup  other
TABLE = {
    "POST harvests/import-kg/":     "401 403 403 403 201 201 201 400",
    "GET reports/{report}/kg/":     "401 403 200 200 200 200 200 404",
}  # fmt: skip


def body_of(operation: str, ids: dict[str, Any]) -> dict[str, Any]:
    bodies: dict[str, Any] = {
        "POST harvests/import-kg/": {
            "file": SimpleUploadedFile("kg.tsv", b"a\tr\tb\n"),
            "name": "GPTKB",
            "project": ids["slug"],
            "mapping": json.dumps({"relations": {"r": {"template": "[HEAD] has [TAIL]."}}}),
        },
        "GET reports/{report}/kg/": {"format": "nt"},
    }
    return bodies[operation]


@pytest.mark.django_db
def test_roles_get_the_documented_status():
    round = factories.make_round(3, project=factories.make_project("Own"), judgments_per_task=1)
    factories.judge_all(round, ["true", "false", "true"])
    project = round.project
    people = [
        factories.make_user("annotator"),
        *(factories.make_member(role, project) for role in ("viewer", "adjudicator", "researcher", "owner")),
        factories.make_user("superuser", is_superuser=True),
        factories.make_member("owner", factories.make_project("Foreign")),
    ]
    ids = {"slug": project.slug, "report": create_report(round).pk}

    assert wrong_rows(TABLE, clients_of_columns(people), ids, body_of) == []


def test_every_operation_has_a_row():
    assert operations_of("knowledge_graphs") == set(map(blanked, TABLE))
