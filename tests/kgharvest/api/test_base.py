"""Common API behavior: pagination, filters, errors, throttling, and idempotency keys."""

from __future__ import annotations

import json
from datetime import timedelta
from threading import Barrier, Thread

import pytest
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kgharvest.api.pagination import cursor_of
from kgharvest.models import KeyedAnswer, Relation, RelationSet
from tests import factories
from tests.api import JSON, RELATIONS, SETS, WRITTEN, client_of, error_of
from tests.postgres import on_postgresql, run_on_postgresql


@pytest.fixture
def api(db) -> Client:
    return client_of()


# Pagination


def test_pagination_is_stable_while_rows_are_added_and_deleted(api):
    first = [factories.make_relation_set().pk for _ in range(7)][::-1]

    page = api.get(SETS, {"limit": 3}).json()
    seen = [row["id"] for row in page["results"]]
    factories.make_relation_set()
    RelationSet.objects.get(pk=seen[-1]).delete()
    while page["next"]:
        page = api.get(page["next"]).json()
        seen += [row["id"] for row in page["results"]]

    assert seen == first


def test_the_next_page_keeps_the_filters(api):
    for is_shipped in [True, False] * 3:
        factories.make_relation_set(is_shipped=is_shipped)

    page = api.get(SETS, {"limit": 2, "is_shipped": "true"}).json()
    rest = api.get(page["next"]).json()

    assert [row["is_shipped"] for row in page["results"] + rest["results"]] == [True] * 3
    assert rest["next"] is None


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"}, {"limit": "501"}, {"limit": "-1"}, {"limit": "²"}, {"limit": "9" * 5000}, {"limit": ""},
        {"after": ""}, {"after": "x"}, {"after": "é"}, {"after": cursor_of([])}, {"after": cursor_of([1, 2])},
        {"after": cursor_of(["a"])}, {"after": cursor_of(["1\x00"])}, {"after": cursor_of([None])},
        {"after": "W" * 9999},
        {"nmae": "a"}, {"is_shipped": "perhaps"}, {"name": "a\x00"}, {"name": "x" * 101},
    ],
)  # fmt: skip
def test_invalid_query_parameters_return_400_with_message(api, query):
    response = api.get(SETS, query)

    assert response.status_code == 400
    assert error_of(response)["message"]


@pytest.mark.parametrize("value", [10**30, -(10**30), 1e308, True])
def test_cursor_with_unusual_number_causes_no_server_error(api, value):
    assert api.get(SETS, {"after": cursor_of([value])}).status_code in (200, 400)


# Errors


def test_all_errors_have_the_same_shape(api, db):
    cases = {
        404: [api.get("/api/v1/nothing/"), api.get(f"{SETS}999/"), api.get(f"{SETS}{'9' * 19}/"), api.get("/api/")],
        405: [api.put(SETS), api.delete(SETS), api.post(f"{SETS}1/"), api.post("/api/v1/reports/1/")],
        406: [client_of(accept="image/png").get(SETS)],
        415: [api.post(SETS, "a", "text/plain"), api.post(f"{SETS}import/", {}, JSON)],
        401: [Client().get(SETS), client_of(authorization="Bearer kgh_x").get(SETS)],
        403: [client_of(scope="read").post(SETS), client_of(factories.make_user()).get(SETS)],
        400: [api.get(f"{SETS}?name=%00"), api.post(SETS, "{", JSON), api.post(SETS, b"\xff", JSON)],
    }

    for status, responses in cases.items():
        assert [response.status_code for response in responses] == [status] * len(responses)
        assert all(error_of(response)["message"] for response in responses)


@pytest.mark.parametrize("body", ["[" * 100_000, "9" * 5000, "NaN", '{"copy_of": 1e999}', "[]", "null", '"a"', "{}"])
def test_invalid_request_body_returns_400(api, body):
    assert api.post(SETS, body, JSON).status_code == 400


def test_server_error_does_not_disclose_details(api, monkeypatch):
    monkeypatch.setattr("kgharvest.relations.api.SetViewSet.get_queryset", lambda view: 1 / 0)
    client = Client(raise_request_exception=False, **api.defaults)  # does not validate responses against the schema

    response = client.get(SETS)

    assert (response.status_code, error_of(response)["code"]) == (500, "Failed")
    assert "division" not in response.content.decode()


def test_throttled_requests_return_429_with_retry_after(db, settings):
    settings.API_LIMITS = {"token": (3, 60), "anonymous": (2, 60)}
    one, other = client_of(), client_of()

    assert [one.get(SETS).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert other.get(SETS).status_code == 200
    refused = one.get(SETS)
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert error_of(refused)["code"] == "Throttled"
    assert [Client().get(SETS).status_code for _ in range(3)] == [401, 401, 429]
    wrong = Client(headers={"authorization": "Bearer kgh_wrong"})
    assert wrong.get(SETS).status_code == 429  # counted as anonymous


def test_processes_share_the_throttle_with_few_queries(db, settings):
    settings.API_LIMITS = {"token": (40, 60), "anonymous": (2, 60)}
    client = client_of()

    with CaptureQueriesContext(connection) as queries:
        first = [client.get(SETS).status_code for _ in range(30)]
        n_selects = sum("SELECT" in query["sql"] and "kgharvest_attempts" in query["sql"] for query in queries)
    cache.clear()  # simulates another process with an empty cache
    second = [client.get(SETS).status_code for _ in range(12)]
    with CaptureQueriesContext(connection) as queries_if_refused:
        client.get(SETS)
        selects_again = any("kgharvest_attempts" in query["sql"] for query in queries_if_refused)

    assert first == [200] * 30
    assert second == [200] * 10 + [429] * 2
    assert n_selects == 30 / (40 / 20)  # one query per twentieth of the limit
    assert not selects_again


# Idempotency


def write(client: Client, key: str | None, **fields):
    headers = {"idempotency-key": key} if key is not None else {}
    return client.post(RELATIONS, WRITTEN | fields, JSON, headers=headers)


def test_repeated_request_with_same_key_returns_stored_response(api):
    first, again = write(api, "a"), write(api, "a")

    assert (first.status_code, again.status_code) == (201, 201)
    assert (again.json(), again.headers["Location"]) == (first.json(), first.headers["Location"])
    assert Relation.objects.count() == 1
    assert error_of(write(api, None))["fields"]["name"]


def test_idempotency_key_applies_to_one_request_of_one_user(api):
    write(api, "a")

    assert error_of(write(api, "a", name="other"))["code"] == "KeyReused"
    assert write(client_of(), "a", set="others").status_code == 201
    assert write(api, "b", name="other").status_code == 201


def test_error_responses_are_not_stored(api):
    assert write(api, "a", statement="no slots").status_code == 400

    assert not KeyedAnswer.objects.exists()
    assert write(api, "a").status_code == 201


def test_responses_are_stored_for_one_day(api):
    write(api, "a")
    KeyedAnswer.objects.update(created_at=timezone.now() - timedelta(hours=25))

    assert write(api, "a", name="other").status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 201, "é", "a\tb"])
def test_malformed_idempotency_key_is_rejected(api, key):
    assert [*error_of(write(api, key))["fields"]] == ["Idempotency-Key"]


def test_a_repeated_upload_is_recognized_by_its_content(api):
    def send(description: str):
        document = {"name": "places", "description": description, "relations": [RELATION_OF_A_FILE]}
        file = SimpleUploadedFile("places.json", json.dumps(document).encode())
        return api.post(f"{SETS}import/", {"file": file}, headers={"idempotency-key": "a"})

    assert [send("one").status_code, send("one").status_code, send("two").status_code] == [201, 201, 409]


RELATION_OF_A_FILE = {
    "name": "place_for",
    "initial_prompts": ["<ENT0> is a place for <ENT1>."],
    "seed_tuples": WRITTEN["seed_tuples"],
}


@pytest.mark.django_db(transaction=True)
def test_simultaneous_requests_with_same_key_create_one_object():
    client, n_requests = client_of(), 4
    start, answers = Barrier(n_requests), []

    def send() -> None:
        start.wait()
        response = client.post(RELATIONS, WRITTEN, JSON, headers={"idempotency-key": "same"})
        answers.append((response.status_code, response.json()["id"]))
        connection.close()

    threads = [Thread(target=send) for _ in range(n_requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [(201, Relation.objects.get().pk)] * n_requests


@on_postgresql
def test_module_passes_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout
