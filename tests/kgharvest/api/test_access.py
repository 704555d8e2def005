"""API access control: every operation x role, within the project of the role and from another project.

The table is written by hand. The test fails for an operation without a row. Columns: anonymous; annotator; viewer,
adjudicator, researcher, and owner of the project; superuser; owner of another project; and, if it differs, an owner of
both projects with a token bound to the other project. All tokens have the scope `write`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from kgharvest.accounts.projects import create_invite
from kgharvest.accounts.tokens import create_token
from kgharvest.contrib.probing.models import Probe, TextTask
from kgharvest.entities.tables import save_table
from kgharvest.models import HarvestJob, Job, Relation, Webhook
from kgharvest.webhooks.outbox import send_test
from tests import factories
from tests.api import blanked, clients_of_columns, operations_of, wrong_rows

WRITTEN = {"name": "new", "set": "{set}", "statement": "<ENT0> is <ENT1>.", "seed_tuples": [["a", "b"], ["c", "d"]]}
FILE = b'{"entities": ["a", "b"], "score": -1}\n'
RELATIONS = b'{"name": "imported", "relations": []}'
HOOK = "https://1.1.1.1/"  # an IP address needs no DNS lookup; nothing is sent
PROMPTS = b'{"template": "[X] is [Y] ."}\n'

#                                                        no  ann view adj  res  own  sup  other
TABLE: dict[str, str] = {
    "GET tokens/":                                      "401 200 200 200 200 200 200 200",
    "POST tokens/":                                     "401 403 403 403 403 403 403 403",
    "GET tokens/{token}/":                              "401 404 404 404 404 200 404 404",
    "DELETE tokens/{token}/":                           "401 404 404 404 404 204 404 404",
    "GET projects/":                                    "401 403 200 200 200 200 200 200",
    "POST projects/":                                   "401 403 403 403 201 201 201 201 403",
    "GET projects/{slug}/":                             "401 403 200 200 200 200 200 404",
    "PATCH projects/{slug}/":                           "401 403 403 403 403 200 200 404",
    "GET projects/{slug}/members/":                     "401 403 200 200 200 200 200 404",
    "GET projects/{slug}/members/{username}/":          "401 403 200 200 200 200 200 404",
    "PATCH projects/{slug}/members/{username}/":        "401 403 403 403 403 200 200 404",
    "DELETE projects/{slug}/members/{username}/":       "401 403 204 403 403 204 204 404",
    "GET projects/{slug}/invites/":                     "401 403 403 403 403 200 200 404",
    "POST projects/{slug}/invites/":                    "401 403 403 403 403 201 201 404",
    "GET projects/{slug}/invites/{invite}/":            "401 403 403 403 403 200 200 404",
    "DELETE projects/{slug}/invites/{invite}/":         "401 403 403 403 403 204 204 404",
    "GET projects/{slug}/tokens/":                       "401 403 403 403 403 200 200 404",
    "DELETE projects/{slug}/tokens/{bound_token}/":     "401 403 403 403 403 204 204 404",
    "POST projects/{slug}/tokens/revoke/":              "401 403 403 403 403 200 200 404",
    "GET projects/{slug}/audit/":                       "401 403 403 403 403 200 200 404",
    "GET audit/":                                       "401 403 403 403 403 403 200 403",
    "GET projects/{slug}/webhooks/":                    "401 403 403 403 403 200 200 404",
    "POST projects/{slug}/webhooks/":                   "401 403 403 403 403 201 201 404",
    "GET projects/{slug}/webhooks/{webhook}/":          "401 403 403 403 403 200 200 404",
    "PATCH projects/{slug}/webhooks/{webhook}/":        "401 403 403 403 403 200 200 404",
    "DELETE projects/{slug}/webhooks/{webhook}/":       "401 403 403 403 403 204 204 404",
    "POST projects/{slug}/webhooks/{webhook}/test/":    "401 403 403 403 403 202 202 404",
    "POST projects/{slug}/webhooks/{webhook}/enable/":  "401 403 403 403 403 200 200 404",
    "POST projects/{slug}/webhooks/{webhook}/disable/": "401 403 403 403 403 200 200 404",
    "POST projects/{slug}/webhooks/{webhook}/secret/":  "401 403 403 403 403 200 200 404",
    "GET projects/{slug}/webhooks/{webhook}/deliveries/": "401 403 403 403 403 200 200 404",
    "POST projects/{slug}/webhooks/{webhook}/deliveries/{delivery}/send-again/": "401 403 403 403 403 202 202 404",
    "GET relation-sets/":                               "401 403 200 200 200 200 200 200",
    "POST relation-sets/":                              "401 403 403 403 201 201 201 400",
    "POST relation-sets/import/":                       "401 403 403 403 400 400 400 400",
    "GET relation-sets/{set_id}/":                      "401 403 200 200 200 200 200 404",
    "PATCH relation-sets/{set_id}/":                    "401 403 403 403 200 200 200 404",
    "DELETE relation-sets/{set_id}/":                   "401 403 403 403 409 409 409 404",
    "GET relation-sets/{set_id}/export/":               "401 403 200 200 200 200 200 404",
    "POST relation-sets/{set_id}/prompts/":             "401 403 403 403 200 200 200 404",
    "GET relation-sets/{set_id}/entities/":             "401 403 403 403 200 200 200 404",
    "POST relation-sets/{set_id}/entities/":            "401 403 403 403 200 200 200 404",
    "DELETE relation-sets/{set_id}/entities/":          "401 403 403 403 204 204 204 404",
    "GET relations/":                                   "401 403 200 200 200 200 200 200",
    "POST relations/":                                  "401 403 403 403 201 201 201 400",
    "GET relations/{relation}/":                        "401 403 200 200 200 200 200 404",
    "PATCH relations/{relation}/":                      "401 403 403 403 200 200 200 404",
    "DELETE relations/{relation}/":                     "401 403 403 403 409 409 409 404",
    "GET workers/":                                     "401 403 200 200 200 200 200 200",
    "GET workers/{worker}/":                            "401 403 200 200 200 200 200 200",
    "POST workers/{worker}/drain/":                     "401 403 403 403 403 403 200 403",
    "POST workers/{drained}/undrain/":                  "401 403 403 403 403 403 200 403",
    "GET jobs/":                                        "401 403 200 200 200 200 200 200",
    "GET jobs/{queued}/":                               "401 403 200 200 200 200 200 404",
    "POST jobs/{queued}/cancel/":                       "401 403 403 403 200 200 200 404",
    "POST jobs/{failed}/retry/":                        "401 403 403 403 202 202 202 404",
    "GET language-models/":                             "401 403 200 200 200 200 200 200",
    "GET launches/":                                    "401 403 200 200 200 200 200 200",
    "POST launches/":                                   "401 403 403 403 202 202 202 400",
    "POST launches/plan/":                              "401 403 403 403 200 200 200 400",
    "GET launches/{launch}/":                           "401 403 200 200 200 200 200 404",
    "POST launches/{launch}/cancel/":                   "401 403 403 403 200 200 200 404",
    "POST launches/{launch}/retry/":                    "401 403 403 403 202 202 202 404",
    "GET harvests/":                                    "401 403 200 200 200 200 200 200",
    "POST harvests/import/":                            "401 403 403 403 201 201 201 400",
    "GET harvests/{harvest}/":                          "401 403 200 200 200 200 200 404",
    "GET harvests/{harvest}/tuples/":                   "401 403 200 200 200 200 200 404",
    "GET harvests/{harvest}/export/":                   "401 403 200 200 200 200 200 404",
    "GET knowledge/":                                   "401 403 200 200 200 200 200 200",
    "GET knowledge/{tuple}/":                           "401 403 200 200 200 200 200 404",
    "GET knowledge/{published}/":                       "401 403 200 200 200 200 200 200 404",
    "POST knowledge/{tuple}/curations/":                "401 403 403 403 201 201 201 404",
    "POST knowledge/{published}/curations/":            "401 403 403 403 201 201 201 403 404",
    "GET entity/":                                      "401 403 200 200 200 200 200 404",
    "GET sensitive-words/":                             "401 403 200 200 200 200 200 200",
    "PUT sensitive-words/":                             "401 403 403 403 403 403 202 403",
    "GET probes/":                                      "401 403 200 200 200 200 200 200",
    "POST probes/":                                     "401 403 403 403 202 202 202 400",
    "GET probes/{probe}/":                              "401 403 200 200 200 200 200 404",
    "GET probes/{probe}/records/":                      "401 403 200 200 200 200 200 404",
    "GET probes/{probe}/prompts/":                      "401 403 200 200 200 200 200 404",
    "GET text-tasks/":                                  "401 403 200 200 200 200 200 200",
    "POST text-tasks/":                                 "401 403 403 403 202 202 202 400",
    "GET text-tasks/{text_task}/":                      "401 403 200 200 200 200 200 404",
}  # fmt: skip


def sent(operation: str, objects: dict[str, Any]) -> dict[str, Any]:
    """Return the request body or query parameters of an operation."""
    cell = {
        "relations": [objects["relation"]],
        "models": ["embedded"],
        "settings": ["human"],
        "project": objects["slug"],
    }
    bodies: dict[str, Any] = {
        "GET entity/": {"name": "dog"},
        "POST tokens/": {"name": "a", "scope": "read"},
        "POST projects/": {"name": "New"},
        "PATCH projects/{slug}/": {"name": "Renamed", "published_knowledge": "all"},
        "PATCH projects/{slug}/members/{username}/": {"role": "researcher"},
        "POST projects/{slug}/invites/": {"role": "viewer"},
        "POST projects/{slug}/webhooks/": {"url": f"{HOOK}new", "events": ["report.made"]},
        "PATCH projects/{slug}/webhooks/{webhook}/": {"events": ["job.finished"]},
        "POST relation-sets/": {"copy_of": objects["set_id"], "name": "copy", "project": objects["slug"]},
        "POST relation-sets/import/": {"file": SimpleUploadedFile("relations.json", RELATIONS)},
        "PATCH relation-sets/{set_id}/": {"description": "Changed."},
        "POST relation-sets/{set_id}/prompts/": {"file": SimpleUploadedFile(f"{objects['name']}.jsonl", PROMPTS)},
        "POST relations/": WRITTEN | {"set": objects["set"], "project": objects["slug"]},
        "PATCH relations/{relation}/": {"explanation": "Changed."},
        "POST launches/": cell,
        "POST launches/plan/": cell,
        "POST harvests/import/": {
            "file": SimpleUploadedFile("tuples.jsonl", FILE),
            "relation": objects["relation"],
            "project": objects["slug"],
            "model": "gpt",
            "setting": "llm",
        },
        "POST knowledge/{tuple}/curations/": {"decision": "hide", "reason": "Wrong."},
        "POST knowledge/{published}/curations/": {"decision": "hide", "reason": "Wrong."},
        "PUT sensitive-words/": {"words": ["new"]},
        "POST text-tasks/": {
            "task": "classify",
            "project": objects["slug"],
            "model": "embedded",
            "lines": [
                {"part": part, "sentence": "a", "label": label} for part in ("train", "dev", "test") for label in "bc"
            ],
        },
        "POST probes/": {
            "relations": [objects["relation"]],
            "project": objects["slug"],
            "model": "embedded",
            "methods": ["manual"],
            "facts": [{"part": part, "sub": part, "obj": "x"} for part in ("train", "dev", "test")],
        },
    }
    return bodies.get(operation, {})


@pytest.fixture
def objects(db) -> dict[str, Any]:
    """Create one object of every kind in a project. Keys: placeholders in the table."""
    project = factories.make_project("Own")
    relation = factories.make_relation(relation_set=factories.make_relation_set(project=project))
    save_table(relation.relation_set, True, False)
    common = {"project": project, "relation": relation}
    harvest = factories.make_harvest([["dog", "run"]], **common)
    shipped = factories.make_relation(relation_set=factories.make_relation_set(is_shipped=True))
    published = factories.make_harvest([["cat", "purr"]], project=project, relation=shipped)
    launch = factories.make_launch(project=project)
    lm = factories.make_language_model()
    probe = Probe.objects.create(kind="probe", project=project, language_model=lm, name="p", methods=[], facts="f")
    text_task = TextTask.objects.create(kind="text-task", task="classify", project=project, language_model=lm, name="t")
    owner = factories.make_member("owner", project, "owner")
    webhook = Webhook.objects.create(project_id=project.pk, url=HOOK, events=["report.made"])
    in_an_hour = timezone.now() + timedelta(hours=1)
    return {
        "slug": project.slug,
        "set": relation.relation_set.name,
        "set_id": relation.relation_set_id,
        "relation": relation.pk,
        "name": relation.name,
        "harvest": harvest.pk,
        "published": published.tuples.get().knowledge_tuple_id,
        "tuple": harvest.tuples.get().knowledge_tuple_id,
        "worker": factories.make_worker(in_an_hour).pk,  # alive during the whole test, also on a busy machine
        "drained": factories.make_worker(in_an_hour, is_draining=True).pk,
        "queued": factories.make_harvest_job(launch=launch, **common).pk,
        "failed": factories.make_harvest_job("failed", launch=launch, **common).pk,
        "launch": launch.pk,
        "probe": probe.pk,
        "text_task": text_task.pk,
        "webhook": webhook.pk,
        "delivery": send_test(webhook).pk,
        "username": factories.make_member("viewer", project, "viewer").username,
        "invite": create_invite(project, "viewer", timezone.now(), owner)[0].pk,
        "bound_token": create_token(owner, "bound", "read", 1, timezone.now(), project=project).token.pk,
        "token": create_token(owner, "first", "read", 1, timezone.now()).token.pk,
        "project": project,
        "owner": owner,
    }


@pytest.fixture
def clients(objects) -> list[Client]:
    """Return one client per column of the table."""
    project = objects["project"]
    people = [
        factories.make_user("annotator"),
        project.members.get(user__username="viewer").user,
        factories.make_member("adjudicator", project),
        factories.make_member("researcher", project),
        objects["owner"],
        factories.make_user("superuser", is_superuser=True),
        factories.make_member("owner", factories.make_project("Foreign")),
    ]
    return clients_of_columns(people)


def test_every_role_gets_the_status_in_the_table(objects, clients, enqueued):
    assert wrong_rows(TABLE, clients, objects, sent) == []


def test_every_operation_of_the_api_has_a_row():
    assert operations_of("kgharvest", "probing") == set(map(blanked, TABLE))


def test_fixture_creates_relation_and_jobs(objects):
    """Check sample objects. Otherwise, a 404 in the table would not prove denied access."""
    assert Relation.objects.filter(pk=objects["relation"]).exists()
    assert {
        Job.objects.get(pk=objects["queued"]).status,
        HarvestJob.objects.get(pk=objects["failed"]).status,
    } == {
        "queued",
        "failed",
    }
