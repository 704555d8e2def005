"""Entities looked up at a reconciliation service: the protocol, the job, and what people decide."""

from __future__ import annotations

import json
from ipaddress import ip_network
from urllib.parse import parse_qs

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from kgharvest.entities import reconciliation
from kgharvest.entities.models import EntityName, EntityTable
from kgharvest.entities.reconciliation import (
    LookupFailed,
    NothingToLookUp,
    ReconciliationService,
    accept_matches,
    decide_on_candidates,
    lookups_of,
    names_without_id,
    queue_lookup,
)
from kgharvest.entities.tables import EntityIds, canonicalizer, save_table
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.webhooks.addresses import BadAddress
from tests import factories
from tests.api import JSON, client_of

URL = "https://reconcile.example.org/en/api"
PROPOSALS = {
    "usa": [
        {"id": "Q30", "name": "United States", "score": 98, "match": True, "description": "country"},
        {"id": "Q1", "name": "USA (song)", "score": 40.5, "match": False},
    ],
    "dogs": [{"id": "Q144", "name": "dog", "score": 60, "match": False}],
    "paris": [{"id": "Q90", "name": "Paris", "match": True}, {"id": "Q16858", "name": "Paris", "match": False}],
    "odd": [{"id": "Q2", "name": "a\x00b", "match": True}, {"id": "Q" * 201, "name": "long"}],
}


class FakeService(httpx.MockTransport):
    """A service that knows PROPOSALS, and first gives the answers of `before`."""

    def __init__(self, *before: httpx.Response | Exception):
        super().__init__(self._answer)
        self.before, self.batches, self.limits = list(before), [], set()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        queries = json.loads(parse_qs(request.content.decode())["queries"][0])
        self.batches.append([query["query"] for query in queries.values()])
        self.limits |= {(query["limit"], query.get("type")) for query in queries.values()}
        if self.before:
            answer = self.before.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        results = {key: {"result": PROPOSALS.get(query["query"], [])} for key, query in queries.items()}
        return httpx.Response(200, json=results)


@pytest.fixture
def fake(monkeypatch):
    """The service that jobs ask, whatever the address."""
    service = FakeService()
    monkeypatch.setattr(
        reconciliation.httpx,
        "Client",
        lambda real=httpx.Client, **options: real(**(options | {"transport": service})),
    )
    return service


@pytest.fixture
def relation(db):
    relation = factories.make_relation(
        "owns", relation_set=factories.make_relation_set("own"), seed_tuples=[["a", "b"]] * 2
    )
    factories.make_harvest([("USA", "dogs"), ("Paris", "dogs")], relation=relation)
    return relation


def looked_up(relation_set) -> Job:
    job = queue_lookup(relation_set, URL)
    ledger.run_job(job.pk)
    job.refresh_from_db()
    return job


# -- the protocol ------------------------------------------------------------------------------------------------------


def test_names_are_asked_in_one_batch_and_what_cannot_be_kept_is_left_out():
    fake = FakeService()

    found = ReconciliationService(URL, "Q6256", is_trusted=True, transport=fake).candidates(["usa", "odd", "nobody"])

    assert [(row.name, row.identifier, row.score, row.is_match) for row in found] == [
        ("usa", "Q30", 98.0, True), ("usa", "Q1", 40.5, False),
    ]  # fmt: skip
    assert (fake.batches, fake.limits) == ([["usa", "odd", "nobody"]], {(3, "Q6256")})


@pytest.mark.parametrize("score", ["NaN", "Infinity", "1e999", "9" * 400])
def test_a_score_that_no_database_or_json_holds_is_none(score):
    answer = '{"q0": {"result": [{"id": "Q30", "name": "United States", "score": %s}]}}' % score  # noqa: UP031
    fake = FakeService(httpx.Response(200, text=answer))

    (found,) = ReconciliationService(URL, is_trusted=True, transport=fake).candidates(["usa"])

    assert (found.identifier, found.score) == ("Q30", None)


def test_descriptions_are_kept_without_what_no_database_holds():
    proposal = {"id": "Q30", "name": "United States", "description": "a\x00 country\ud800\n of\u200b states"}
    fake = FakeService(httpx.Response(200, text=json.dumps({"q0": {"result": [proposal]}})))

    (found,) = ReconciliationService(URL, is_trusted=True, transport=fake).candidates(["usa"])

    assert found.description == "a country of states"


def test_passing_trouble_is_tried_again_after_the_time_asked_for():
    waits = []
    fake = FakeService(httpx.Response(429, headers={"Retry-After": "7"}), httpx.ConnectError("no"), httpx.Response(503))

    service = ReconciliationService(URL, is_trusted=True, transport=fake, sleep=waits.append)

    assert len(service.candidates(["usa"])) == 2
    assert waits == [7.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([httpx.Response(400)], r"refuses the request \(status 400\); check its address and type"),
        ([httpx.Response(200, text="<html>")], "not as a reconciliation service does"),
        ([httpx.Response(200, text="[" * 100_000)], "not as a reconciliation service does"),
        ([httpx.Response(200, json={"q0": {}})], "not as a reconciliation service does"),
        ([httpx.Response(200, json={"q0": {"result": [{"id": 1}]}})], "not as a reconciliation service does"),
        ([httpx.Response(503)] * 5, "answered with status 503, 5 times in a row; try later"),
        ([httpx.ReadTimeout("")] * 5, "gave no answer within 60 s, 5 times in a row"),
    ],
)
def test_a_service_that_fails_is_named_with_what_to_do(answers, said):
    service = ReconciliationService(URL, is_trusted=True, transport=FakeService(*answers), sleep=lambda s: None)

    with pytest.raises(LookupFailed, match=rf"^reconcile\.example\.org .*{said}"):
        service.candidates(["usa"])


def test_only_owners_have_the_own_network_asked(settings):
    settings.WEBHOOK_NETWORKS = []
    with pytest.raises(BadAddress, match="no address of the internet"):
        ReconciliationService("https://127.0.0.1/")

    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    ReconciliationService("https://127.0.0.1/")


# -- the job -----------------------------------------------------------------------------------------------------------


def test_a_lookup_stores_what_is_proposed_for_names_without_an_id(relation, fake):
    save_table(relation.relation_set, False, False, ("l.tsv", b"dog\tdogs\tQ144\n"))

    job = looked_up(relation.relation_set)

    assert (job.status, fake.batches) == ("succeeded", [["paris", "usa"]])
    proposed = relation.relation_set.entity_candidates.best_first().values_list("name", "identifier", "is_match")
    assert list(proposed) == [
        ("paris", "Q90", True), ("paris", "Q16858", False), ("usa", "Q30", True), ("usa", "Q1", False),
    ]  # fmt: skip


def test_a_lookup_that_was_cut_off_asks_only_for_the_rest(relation, fake, monkeypatch):
    monkeypatch.setattr(reconciliation, "QUERIES_AT_ONCE", 1)
    fake.before = [httpx.Response(200, json={"q0": {"result": PROPOSALS["dogs"]}}), httpx.Response(400)]

    job = looked_up(relation.relation_set)
    assert job.status == "failed"
    assert "status 400" in job.error
    ledger.retry(job)
    ledger.run_job(job.pk)

    assert fake.batches == [["dogs"], ["paris"], ["paris"], ["usa"]]
    assert relation.relation_set.entity_candidates.values("name").distinct().count() == 3


def test_lookups_of_many_names_go_on_where_the_last_one_ended(relation, fake, monkeypatch):
    monkeypatch.setattr(reconciliation, "MOST_ENTITIES", 2)
    monkeypatch.setitem(PROPOSALS, "dogs", [])  # known to nobody, and so asked again

    for _ in range(3):
        assert looked_up(relation.relation_set).status == "succeeded"

    assert fake.batches == [["dogs", "paris"], ["usa"], ["dogs"]]


def test_two_clicks_are_one_lookup_and_a_set_without_names_has_none(relation):
    assert queue_lookup(relation.relation_set, URL) == queue_lookup(relation.relation_set, URL)
    assert lookups_of(relation.relation_set).count() == 1

    with pytest.raises(NothingToLookUp):
        queue_lookup(factories.make_relation_set("empty"), URL)


# -- what people decide ------------------------------------------------------------------------------------------------


def test_accepted_names_have_ids_in_exports_and_lead_to_their_label(relation, fake):
    relation_set = relation.relation_set
    looked_up(relation_set)
    ids = dict(relation_set.entity_candidates.values_list("identifier", "pk"))

    assert decide_on_candidates(relation_set, [ids["Q30"], ids["Q1"]], ["dogs", "unknown"]) == 1

    assert list(EntityName.objects.order_by("name").values_list("name", "label", "identifier")) == [
        ("united states", "United States", "Q30"), ("usa", "United States", "Q30"),
    ]  # fmt: skip
    assert EntityIds(relation).of([["usa", "dogs"]]) == [["Q30", None]]
    assert canonicalizer(relation)("USA") == "united states"
    table = EntityTable.objects.get()
    assert (table.n_labels, table.n_aliases, table.without_articles) == (1, 1, False)
    assert set(relation_set.entity_candidates.values_list("name", flat=True)) == {"paris"}
    assert decide_on_candidates(relation_set, [ids["Q30"]]) == 0  # decided meanwhile


def test_a_label_of_the_table_keeps_its_own_id(relation, fake, monkeypatch):
    monkeypatch.setattr(reconciliation, "ACCEPTED_AT_ONCE", 1)
    save_table(relation.relation_set, True, False, ("l.tsv", b"United States\t\tmine:1\n"))
    looked_up(relation.relation_set)

    assert accept_matches(relation.relation_set) == 2

    ids = dict(EntityName.objects.values_list("name", "identifier"))
    assert ids == {"united states": "mine:1", "usa": "Q30", "paris": "Q90"}
    table = EntityTable.objects.get()
    assert (table.n_labels, table.n_aliases, table.without_articles) == (2, 1, True)
    assert names_without_id(relation.relation_set, 5) == ["dogs"]


# -- doors -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("installation_owner")
def test_the_page_looks_up_shows_and_links(researcher_client, relation, fake):
    address = reverse("kgharvest:entity_candidates", args=[relation.relation_set_id])

    assert "Address of the service" in researcher_client.get(address).text
    refused = researcher_client.post(address, {"lookup": "1", "url": "ftp://x"}).text
    assert "write https://host/path" in refused
    researcher_client.post(address, {"lookup": "1", "url": URL})
    assert "waiting for a worker" in researcher_client.get(address).text
    ledger.run_job(Job.objects.get(kind="reconcile_entities").pk)

    page = researcher_client.get(address).text
    assert "sure of 2 names" in page
    pk = relation.relation_set.entity_candidates.get(identifier="Q144").pk
    done = researcher_client.post(address, {"name:dogs": str(pk), "name:usa": "none"}, follow=True).text
    assert "1 name linked." in done
    assert "sure of 1 name." in done
    assert "1 name linked." in researcher_client.post(address, {"matches": "1"}, follow=True).text
    assert "Nothing is left to decide." in researcher_client.get(address).text


@pytest.mark.usefixtures("installation_owner")
def test_the_api_looks_up_lists_and_links(relation, fake):
    api = client_of(factories.make_researcher())
    address = f"/api/v1/relation-sets/{relation.relation_set_id}/entities/"

    assert api.post(f"{address}lookups/", {"url": "http://127.0.0.1/"}, JSON).status_code == 409
    queued = api.post(f"{address}lookups/", {"url": "https://1.1.1.1/"}, JSON)
    assert (queued.status_code, queued.json()["kind"]) == (201, "reconcile_entities")
    ledger.run_job(queued.json()["id"])
    rows = api.get(f"{address}candidates/").json()["results"]
    chosen = [row["id"] for row in rows if row["is_match"]]
    decided = api.post(f"{address}candidates/", {"accepted": chosen, "refused": ["dogs"]}, JSON)

    assert (decided.status_code, decided.json()) == (200, {"n_linked": 2})
    assert api.get(f"{address}candidates/").json()["results"] == []


def test_the_command_looks_up_and_links_what_is_sure(relation, fake, capsys):
    call_command("link_entities", set_name="own", service=URL, accept_sure=True)

    assert "own: 2 names linked; 1 name to decide on, on the set's page." in capsys.readouterr().out
    with pytest.raises(CommandError, match="--service goes without FILE"):
        call_command("link_entities", set_name="own", service=URL, remove=True)
