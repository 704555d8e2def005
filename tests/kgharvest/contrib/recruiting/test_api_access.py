"""API permissions for recruiting and payment."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from annotation.invites.services import join_round
from kgharvest.contrib.recruiting.panels.services import enter
from tests import factories
from tests.api import blanked, clients_of_columns, operations_of, wrong_rows
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel

#    no token, annotator, viewer, adjudicator, researcher, owner, superuser, owner of another project
TABLE = {
    "GET rounds/{open}/panels/{open_panel}/pay/": "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/panels/{open_panel}/pay/floor/": "401 403 403 403 409 409 409 404",
    "POST rounds/{open}/panels/{open_panel}/pay/approve/": "401 403 403 403 200 200 200 404",
    "GET rounds/{open}/panels/{open_panel}/pay/bonuses/": "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/panels/{open_panel}/pay/bonuses/": "401 403 403 403 201 201 201 404",
    "POST rounds/{open}/panels/{open_panel}/pay/bonuses/paid/": "401 403 403 403 409 409 409 404",
    "GET rounds/{open}/panels/{open_panel}/pay/entries/": "401 403 403 403 200 200 200 404",
    "GET rounds/{open}/panels/{open_panel}/pay/entries.csv": "401 403 403 403 200 200 200 404",
    "GET rounds/{open}/panels/{open_panel}/pay/commands/": "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/panels/{open_panel}/pay/commands/": "401 403 403 403 201 201 201 404",
    "POST rounds/{open}/panels/{open_panel}/pay/commands/{command}/resend/": "401 403 403 403 409 409 409 404",
    "POST rounds/{open}/panels/{open_panel}/pay/commands/{command}/settle/": "401 403 403 403 409 409 409 404",
    "GET rounds/{open}/panels/":                              "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/panels/":                             "401 403 403 403 201 201 201 404",
    "GET rounds/{open}/panels/{draft_panel}/":                "401 403 403 403 200 200 200 404",
    "PATCH rounds/{open}/panels/{draft_panel}/":              "401 403 403 403 200 200 200 404",
    "DELETE rounds/{open}/panels/{draft_panel}/":             "401 403 403 403 204 204 204 404",
    "GET rounds/{open}/panels/{draft_panel}/cost/":           "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/panels/{draft_panel}/publish/":       "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/panels/{open_panel}/pause/":          "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/panels/{draft_panel}/resume/":        "401 403 403 403 409 409 409 404",
    "POST rounds/{open}/panels/{open_panel}/stop/":           "401 403 403 403 200 200 200 404",
    "GET rounds/{open}/panels/{open_panel}/participants/":    "401 403 403 403 200 200 200 404",
    "GET rounds/{open}/panels/{open_panel}/reconciliation/":  "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/panels/{open_panel}/reconciliation/": "401 403 403 403 409 409 409 404",
}  # fmt: skip


def body_of(operation: str, ids: dict[str, Any]) -> dict[str, Any]:
    bodies: dict[str, Any] = {
        "POST rounds/{open}/panels/{open_panel}/pay/bonuses/": {
            "submission": ids["submission"],
            "amount": 10,
            "reason": "Thanks.",
        },
        "POST rounds/{open}/panels/{open_panel}/pay/bonuses/paid/": {"submissions": [ids["submission"]], "total": 1},
        "POST rounds/{open}/panels/{open_panel}/pay/commands/": {"submission": ids["submission"], "kind": "return"},
        "POST rounds/{open}/panels/{open_panel}/pay/commands/{command}/settle/": {"was_done": True},
    }
    return bodies.get(operation, {})


@pytest.mark.django_db
def test_roles_get_the_documented_status(enqueued, settings):
    settings.API_LIMITS = dict.fromkeys(settings.API_LIMITS, (10**6, 60))
    round = factories.make_round(3, project=factories.make_project("Own"))
    project, annotator = round.project, factories.make_user("annotator")
    join_round(round, annotator)
    people = [
        annotator,
        *(factories.make_member(role, project) for role in ("viewer", "adjudicator", "researcher", "owner")),
        factories.make_user("superuser", is_superuser=True),
        factories.make_member("owner", factories.make_project("Foreign")),
    ]
    submission = enter(make_panel(round), "person", "", timezone.now())
    ids = {
        "open": round.pk,
        "draft_panel": make_panel(round, "draft").name,
        "open_panel": submission.panel.name,
        "submission": submission.pk,
        "command": submission.commands.create(kind="bonus", key="bonus:0", amount=10).pk,
    }

    assert wrong_rows(TABLE, clients_of_columns(people), ids, body_of) == []


def test_every_operation_has_a_row():
    assert operations_of("recruiting") == set(map(blanked, TABLE))
