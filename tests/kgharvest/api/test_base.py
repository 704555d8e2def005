"""What every part of the API shares: pages, filters, errors in one shape, answers that are given once."""

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


# -- pages -------------------------------------------------------------------------------------------------------------


def test_a_list_is_read_page_by_page_while_rows_come_and_go(api):
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
def test_rubbish_in_the_address_is_400_with_a_sentence(api, query):
    response = api.get(SETS, query)

    assert response.status_code == 400
    assert error_of(response)["message"]


@pytest.mark.parametrize("value", [10**30, -(10**30), 1e308, True])
def test_a_cursor_with_an_odd_number_is_no_failure(api, value):
    assert api.get(SETS, {"after": cursor_of([value])}).status_code in (200, 400)


# -- errors ------------------------------------------------------------------------------------------------------------


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
def test_a_body_that_is_no_object_of_json_is_400(api, body):
    assert api.post(SETS, body, JSON).status_code == 400


def test_a_bug_is_a_500_that_says_nothing(api, monkeypatch):
    monkeypatch.setattr("kgharvest.relations.api.SetViewSet.get_queryset", lambda view: 1 / 0)
    client = Client(raise_request_exception=False, **api.defaults)  # which holds no answer to the description

    response = client.get(SETS)

    assert (response.status_code, error_of(response)["code"]) == (500, "Failed")
    assert "division" not in response.content.decode()


def test_too_many_requests_are_429_with_the_seconds_to_wait(db, settings):
    settings.API_LIMITS = {"token": (3, 60), "anonymous": (2, 60)}
    one, other = client_of(), client_of()

    assert [one.get(SETS).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert other.get(SETS).status_code == 200
    refused = one.get(SETS)
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert error_of(refused)["code"] == "Throttled"
    assert [Client().get(SETS).status_code for _ in range(3)] == [401, 401, 429]
    wrong = Client(headers={"authorization": "Bearer kgh_wrong"})
    assert wrong.get(SETS).status_code == 429  # counted with what comes without a token


def test_all_processes_count_together_and_seldom_ask_the_database(db, settings):
    settings.API_LIMITS = {"token": (40, 60), "anonymous": (2, 60)}
    client = client_of()

    with CaptureQueriesContext(connection) as asked:
        first = [client.get(SETS).status_code for _ in range(30)]
        n_asked = sum("SELECT" in query["sql"] and "kgharvest_attempts" in query["sql"] for query in asked)
    cache.clear()  # another process has a memory of its own
    second = [client.get(SETS).status_code for _ in range(12)]
    with CaptureQueriesContext(connection) as asked_when_refused:
        client.get(SETS)
        asks_again = any("kgharvest_attempts" in query["sql"] for query in asked_when_refused)

    assert first == [200] * 30
    assert second == [200] * 10 + [429] * 2
    assert n_asked == 30 / (40 / 20)  # once for each twentieth of the limit
    assert not asks_again


# -- idempotency -------------------------------------------------------------------------------------------------------


def write(client: Client, key: str | None, **fields):
    headers = {"idempotency-key": key} if key is not None else {}
    return client.post(RELATIONS, WRITTEN | fields, JSON, headers=headers)


def test_a_request_sent_again_with_its_key_creates_nothing_and_is_answered_the_same(api):
    first, again = write(api, "a"), write(api, "a")

    assert (first.status_code, again.status_code) == (201, 201)
    assert (again.json(), again.headers["Location"]) == (first.json(), first.headers["Location"])
    assert Relation.objects.count() == 1
    assert error_of(write(api, None))["fields"]["name"]


def test_a_key_is_for_one_request_of_one_user(api):
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
def test_an_odd_key_is_refused(api, key):
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
def test_of_simultaneous_requests_with_one_key_one_creates():
    client, others = client_of(), 4
    start, answers = Barrier(others), []

    def send() -> None:
        start.wait()
        response = client.post(RELATIONS, WRITTEN, JSON, headers={"idempotency-key": "same"})
        answers.append((response.status_code, response.json()["id"]))
        connection.close()

    threads = [Thread(target=send) for _ in range(others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [(201, Relation.objects.get().pk)] * others


@on_postgresql
def test_all_of_this_holds_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout
