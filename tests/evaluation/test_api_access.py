"""API permissions for rounds, judging, and reports: status of every operation for every role.

The table is written by hand. A test fails if an operation has no row. Columns: anonymous; annotator of the open round;
viewer, adjudicator, researcher, and owner of the project; superuser; owner of another project; and, if it differs, an
owner of both projects with a token bound to the other project. All tokens have scope `write`.
tests/kgharvest/api/test_access.py covers the rest of the API.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from annotation.gold.candidates import decide_on_gold, gold_candidates
from annotation.invites.services import join_round, make_invites
from annotation.judging.reservations import reserve_statements
from annotation.rounds.services import create_draft
from evaluation.models import ScoreEvaluation
from evaluation.reports.services import create_report
from evaluation.sharing.services import share_report
from tests import factories
from tests.api import blanked, clients_of_columns, operations_of, wrong_rows

pytestmark = pytest.mark.django_db

FILE = b'relation,entities,annotator,label\nlikes,"[""ann"", ""tea""]",a,True\n'

#                                                              no  ann view adj  res  own  sup  other
TABLE: dict[str, str] = {
    "GET rounds/":                                            "401 403 200 200 200 200 200 200",
    "POST rounds/":                                           "401 403 403 403 201 201 201 409",
    "POST rounds/plan/":                                      "401 403 403 403 200 200 200 409",
    "POST rounds/import/":                                    "401 403 403 403 201 201 201 409",
    "GET rounds/{open}/":                                     "401 403 200 200 200 200 200 404",
    "PUT rounds/{draft}/":                                    "401 403 403 403 200 200 200 404",
    "PATCH rounds/{open}/":                                   "401 403 403 403 200 200 200 404",
    "DELETE rounds/{draft}/":                                 "401 403 403 403 204 204 204 404",
    "POST rounds/{draft}/open/":                              "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/pause/":                              "401 403 403 403 200 200 200 404",
    "POST rounds/{done}/reopen/":                             "401 403 403 403 200 200 200 404",
    "POST rounds/{done}/archive/":                            "401 403 403 403 200 200 200 404",
    "POST rounds/{done}/restore/":                            "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/close/":                              "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/clone/":                              "401 403 403 403 201 201 201 404",
    "GET rounds/{open}/assigned/":                            "401 403 200 200 200 200 200 404",
    "POST rounds/{open}/release/":                            "401 403 403 403 200 200 200 404",
    "GET rounds/{draft}/plan/":                               "401 403 200 200 200 200 200 404",
    "GET rounds/{draft}/preview/":                            "401 403 403 403 200 200 200 404",
    "GET rounds/{draft}/rehearsal/":                           "401 403 403 403 200 200 200 404",
    "GET rounds/{open}/progress/":                            "401 403 200 200 200 200 200 404",
    "GET rounds/{open}/instructions/":                        "401 403 200 200 200 200 200 404",
    "PUT rounds/{draft}/instructions/{relation}/":            "401 403 403 403 200 200 200 404",
    "GET rounds/{open}/invites/":                             "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/invites/":                            "401 403 403 403 201 201 201 404",
    "DELETE rounds/{open}/invites/{invite}/":                 "401 403 403 403 204 204 204 404",
    "GET rounds/{open}/reservations/":                        "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/reservations/":                       "401 403 403 403 201 201 201 404",
    "DELETE rounds/{open}/reservations/{reservation}/":       "401 403 403 403 204 204 204 404",
    "GET rounds/{done}/tasks/":                               "401 403 200 200 200 200 200 404",
    "GET rounds/{done}/tasks/{task}/":                        "401 403 200 200 200 200 200 404",
    "POST rounds/{done}/tasks/{task}/adjudications/":         "401 403 403 201 201 201 201 404",
    "GET rounds/{done}/adjudication/":                        "401 403 403 200 200 200 200 404",
    "GET rounds/{done}/judgments/":                           "401 403 200 200 200 200 200 404",
    "GET rounds/{done}/judgments.csv":                        "401 403 200 200 200 200 200 404",
    "GET rounds/{done}/questionnaire/":                       "401 403 200 200 200 200 200 404",
    "GET rounds/{done}/limits/":                              "401 403 200 200 200 200 200 404",
    "PUT rounds/{done}/limits/":                              "401 403 403 403 200 200 200 404",
    "GET rounds/{done}/events/":                              "401 403 200 200 200 200 200 404",
    "GET rounds/{done}/annotators/":                          "401 403 200 200 200 200 200 404",
    "GET rounds/{done}/annotators/{code}/":                   "401 403 200 200 200 200 200 404",
    "POST rounds/{done}/annotators/{code}/pause/":            "401 403 403 403 200 200 200 404",
    "POST rounds/{done}/annotators/{code}/resume/":           "401 403 403 403 409 409 409 404",
    "POST rounds/{done}/annotators/{code}/withdraw/":         "401 403 403 403 200 200 200 404",
    "POST rounds/{done}/annotators/{code}/erase/":            "401 403 403 403 403 200 200 404",
    "GET rounds/{done}/annotators/{code}/exclusion/":         "401 403 403 403 200 200 200 404",
    "POST rounds/{done}/annotators/{code}/exclusion/":        "401 403 403 403 200 200 200 404",
    "DELETE rounds/{done}/annotators/{code}/exclusion/":      "401 403 403 403 409 409 409 404",
    "GET rounds/{open}/judge-runs/":                          "401 403 200 200 200 200 200 404",
    "POST rounds/{open}/judge-runs/":                         "401 403 403 403 202 202 202 404",
    "POST rounds/{open}/judge-runs/estimate/":                "401 403 403 403 200 200 200 404",
    "POST rounds/{open}/judge-runs/import/":                  "401 403 403 403 201 201 201 404",
    "GET judge-runs/{judge_run}/":                            "401 403 200 200 200 200 200 404",
    "POST judge-runs/{judge_run}/cancel/":                    "401 403 403 403 200 200 200 404",
    "POST judge-runs/{failed_judge_run}/continue/":           "401 403 403 403 202 202 202 404",
    "GET judge-runs/{judge_run}/answers/":                    "401 403 200 200 200 200 200 404",
    "GET judge-runs/{judge_run}/answers.jsonl":               "401 403 200 200 200 200 200 404",
    "GET gold/candidates/{relation}/":                        "401 403 200 200 200 200 200 404",
    "POST gold/candidates/{relation}/":                       "401 403 403 403 200 200 200 404",
    "GET gold/decisions/":                                    "401 403 200 200 200 200 200 200",
    "POST gold/decisions/{decision}/withdraw/":               "401 403 403 403 200 200 200 404",
    "GET judging/":                                           "401 200 200 200 200 200 200 200",
    "POST judging/":                                          "401 200 200 200 200 200 200 200 403",
    "GET judging/{open}/":                                    "401 200 404 404 404 404 404 404",
    "POST judging/{open}/":                                   "401 200 404 404 404 404 404 404",
    "POST judging/{open}/skip/":                              "401 200 404 404 404 404 404 404",
    "POST judging/{open}/skipped/":                           "401 200 404 404 404 404 404 404",
    "POST judging/{open}/release/":                           "401 200 404 404 404 404 404 404",
    "POST judging/{open}/report/":                            "401 200 404 404 404 404 404 404",
    "GET judging/{open}/recent/":                             "401 200 404 404 404 404 404 404",
    "GET judging/{open}/instructions/":                       "401 200 404 404 404 404 404 404",
    "GET judging/{open}/questions/":                          "401 200 404 404 404 404 404 404",
    "POST judging/{open}/questions/":                         "401 409 404 404 404 404 404 404",
    "POST judging/{open}/withdraw/":                          "401 200 404 404 404 404 404 404",
    "GET judging/{open}/training/":                           "401 200 404 404 404 404 404 404",
    "POST judging/{open}/training/":                          "401 200 404 404 404 404 404 404",
    "GET reports/":                                           "401 403 200 200 200 200 200 200",
    "POST reports/":                                          "401 403 403 403 201 201 201 404",
    "GET reports/{report}/":                                  "401 403 200 200 200 200 200 404",
    "POST reports/{report}/archive/":                         "401 403 403 403 200 200 200 404",
    "POST reports/{report}/restore/":                         "401 403 403 403 200 200 200 404",
    "GET reports/{report}/report.csv":                        "401 403 200 200 200 200 200 404",
    "GET reports/{report}/tables/cells.csv":                  "401 403 200 200 200 200 200 404",
    "GET reports/{report}/figures/heat-map.svg":              "401 403 200 200 200 200 200 404",
    "GET reports/{report}/tuples/":                           "401 403 200 200 200 200 200 404",
    "GET reports/{report}/shares/":                           "401 403 403 403 200 200 200 404",
    "POST reports/{report}/shares/":                          "401 403 403 403 201 201 201 404",
    "GET reports/{report}/shares/{share}/":                   "401 403 403 403 200 200 200 404",
    "DELETE reports/{report}/shares/{share}/":                "401 403 403 403 204 204 204 404",
    "GET comparisons/reports/":                               "401 403 200 200 200 200 200 404",
    "GET comparisons/harvests/":                              "401 403 200 200 200 200 200 404",
    "GET comparisons/sets/":                                  "401 403 200 200 200 200 200 404",
    "GET score-evaluations/":                                 "401 403 200 200 200 200 200 200",
    "POST score-evaluations/":                                "401 403 403 403 202 202 202 400",
    "GET score-evaluations/{scores}/":                        "401 403 200 200 200 200 200 404",
    "POST score-evaluations/{scores}/cancel/":                "401 403 403 403 409 409 409 404",
    "GET score-evaluations/{scores}/scores.json":             "401 403 200 200 200 200 200 404",
}  # fmt: skip


def parameters_of(operation: str, stored: dict[str, Any]) -> dict[str, Any]:
    """Return the request body or the query parameters of an operation, or an empty dict."""
    spec = {"name": "new", "project": stored["slug"], "cells": [{"job": stored["harvest"], "n": 2}]}
    label = {"label": "true", "client_uuid": str(uuid4())}
    pair = {"a": stored["harvest"], "b": stored["harvest"]}
    judge = {"name": "new-lm", "kind": "score", "model": "embedded", "threshold": -5}
    answer = json.dumps({"relation": stored["open_relation"], "entities": ["head 0", "tail 0"], "label": "true"})
    bodies: dict[str, Any] = {
        "POST rounds/{open}/judge-runs/": judge,
        "POST rounds/{open}/judge-runs/estimate/": judge,
        "POST rounds/{open}/judge-runs/import/": {
            "file": SimpleUploadedFile("answers.jsonl", answer.encode()), "name": "imported",
        },
        "POST rounds/": spec,
        "POST rounds/plan/": spec,
        "PUT rounds/{draft}/": spec,
        "PATCH rounds/{open}/": {"who_can_join": "link"},
        "POST rounds/{open}/reservations/": {
            "relation": stored["relation_of_open"], "annotators": [stored["open_code"]],
        },
        "POST rounds/import/": {
            "file": SimpleUploadedFile("judged.csv", FILE), "round": "old", "create": "true", "project": stored["slug"],
        },
        "PUT rounds/{draft}/instructions/{relation}/": {"instructions": "Be strict."},
        "POST rounds/{done}/tasks/{task}/adjudications/": label,
        "POST rounds/{done}/annotators/{code}/exclusion/": {"reason": "Too fast."},
        "POST gold/candidates/{relation}/": {"decisions": {stored["candidate"]: True}},
        "POST gold/decisions/{decision}/withdraw/": {"reason": "It is true."},
        "POST judging/": {"link": stored["link"]},
        "POST judging/{open}/": label | {"task": stored["token"]},
        "POST judging/{open}/skip/": {"task": stored["token"]},
        "POST judging/{open}/report/": {"task": stored["token"], "report-reason": "other"},
        "POST judging/{open}/questions/": {"stage": "who", "answers": {}},
        "POST judging/{open}/training/": {"position": 0, "label": "true"},
        "POST reports/": {"round": stored["done"]},
        "POST reports/{report}/shares/": {"name": "Reviewers"},
        "GET comparisons/reports/": {"a": stored["report"], "b": stored["report"]},
        "GET comparisons/harvests/": pair,
        "GET comparisons/sets/": pair,
        "POST score-evaluations/": {"model": stored["model"], "settings": ["human"], "project": stored["slug"]},
    }  # fmt: skip
    return bodies.get(operation, {})


@pytest.fixture
def stored(db) -> dict[str, Any]:
    """One object of each kind in one project."""
    project = factories.make_project("Own")
    relation = factories.make_relation(relation_set=factories.make_relation_set(project=project))
    tuples = [(f"head {number}", f"tail {number}") for number in range(3)]
    harvest = factories.make_harvest(tuples, project=project, relation=relation)
    spec = {"cells": [{"job": harvest.pk, "n": None}], "judgments_per_task": 1}
    done, open_round = (
        factories.make_round(3, name=name, project=project, judgments_per_task=1) for name in ("done", "open")
    )
    [judge] = factories.judge_all(done, ["true", "false", "true"])
    done.status = "closed"
    done.save()
    open_round.training_size = 1
    open_round.save()
    open_round.training_statements.create(position=0, statement="dogs swim", spans=[], label="true", reason="Known.")
    annotator = join_round(open_round, factories.make_user("annotator"))
    annotator.trained_at = timezone.now()
    annotator.save()
    task = open_round.tasks.first()
    annotator.assignments.create(task=task, expires_at=timezone.now() + timedelta(minutes=30))
    open_round.tasks.filter(pk=task.pk).update(n_leased=1)
    first, second, *_ = gold_candidates(relation)
    decide_on_gold(relation, {first.code: True})
    scores = ScoreEvaluation.objects.create(
        kind=ScoreEvaluation.KIND, project=project, language_model=harvest.language_model, status="succeeded",
        document={"scorers": []},
    )  # fmt: skip
    report = create_report(done)
    draft = create_draft(spec | {"name": "draft"}, None, project)
    return {
        "project": project,
        "slug": project.slug,
        "relation": relation.pk,
        "harvest": harvest.pk,
        "model": harvest.language_model_id,
        "done": done.pk,
        "open": open_round.pk,
        "open_relation": task.knowledge_tuple.relation.path,
        "judge_run": factories.make_judge_run(open_round, "lm", status="queued").pk,
        "failed_judge_run": factories.make_judge_run(open_round, "failed-lm", status="failed").pk,
        "draft": draft.pk,
        "link": open_round.join_token,
        "reservation": reserve_statements(open_round, [annotator.code], pk__in=[open_round.tasks.last().pk]).pk,
        "open_code": annotator.code,
        "relation_of_open": task.knowledge_tuple.relation_id,
        "invite": make_invites(open_round, 1, timezone.now() + timedelta(days=1))[0].pk,
        "task": done.tasks.first().pk,
        "code": judge.code,
        "token": annotator.token_of(task.pk),
        "annotator": annotator.user,
        "candidate": second.code,
        "decision": relation.gold_decisions.get().pk,
        "report": report.pk,
        "share": share_report(report, "Reviewers", 1, timezone.now()).pk,
        "scores": scores.pk,
    }


@pytest.fixture
def clients(stored) -> list[Client]:
    """One client for each column of the table."""
    project = stored["project"]
    people = [
        stored["annotator"],
        *(factories.make_member(role, project) for role in ("viewer", "adjudicator", "researcher", "owner")),
        factories.make_user("superuser", is_superuser=True),
        factories.make_member("owner", factories.make_project("Foreign")),
    ]
    return clients_of_columns(people)


def test_roles_get_status_codes_of_table(stored, clients, enqueued, settings):
    settings.API_LIMITS = dict.fromkeys(settings.API_LIMITS, (10**6, 60))

    assert wrong_rows(TABLE, clients, stored, parameters_of) == []


def test_table_covers_every_operation():
    assert operations_of("annotation", "evaluation") == set(map(blanked, TABLE))
