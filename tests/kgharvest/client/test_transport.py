"""Client requests: retries, error messages, and protection of the token."""

from __future__ import annotations

import json
from io import BytesIO

import httpx
import pytest

from kgharvest.client import ApiError, Client, Conflict, Invalid, ServerUnavailable, TooManyRequests, Unauthorized
from kgharvest.client.transport import Transport
from tests.test_architecture import loaded_by

URL = "http://kg.test"


class Server:
    """Fake server that returns the given responses in order. An exception simulates a broken connection."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def transport_to(server: Server, **options) -> tuple[Transport, list[float]]:
    pauses: list[float] = []
    transport = Transport(URL, "kgh_secret", pause=pauses.append, **options)
    transport._http = httpx.Client(transport=httpx.MockTransport(server), headers=transport._http.headers)
    return transport, pauses


def refusal(status: int, code: str = "Code", message: str = "A sentence.", **more) -> httpx.Response:
    headers = more.pop("headers", {})
    return httpx.Response(status, json={"error": {"code": code, "message": message, **more}}, headers=headers)


BROKEN = httpx.ConnectError("refused")


def test_a_request_carries_the_token_and_reads_json():
    server = Server(httpx.Response(200, json={"id": 1}))
    transport, _ = transport_to(server)

    assert transport.request("GET", "rounds/", params={"limit": 2}) == {"id": 1}
    [request] = server.requests
    assert str(request.url) == f"{URL}/api/v1/rounds/?limit=2"
    assert request.headers["authorization"] == "Bearer kgh_secret"


def test_a_report_with_a_judge_names_its_run():
    server = Server(httpx.Response(201, json={"id": 3}))
    client = Client(URL, "kgh_secret")
    client._http = httpx.Client(transport=httpx.MockTransport(server))

    assert client.rounds.report(7, judge="llama-1") == {"id": 3}
    [request] = server.requests
    assert str(request.url) == f"{URL}/api/v1/reports/"
    assert json.loads(request.content) == {"round": 7, "judge": "llama-1"}


def test_a_preregistration_is_sent_to_its_round():
    server = Server(httpx.Response(201, json={"id": 2}))
    client = Client(URL, "kgh_secret")
    client._http = httpx.Client(transport=httpx.MockTransport(server))

    assert client.rounds.preregister(7, analysis="As usual.") == {"id": 2}
    [request] = server.requests
    assert str(request.url) == f"{URL}/api/v1/rounds/7/preregistrations/"
    assert json.loads(request.content) == {"analysis": "As usual."}


def test_retried_post_uses_the_same_idempotency_key():
    server = Server(BROKEN, httpx.Response(503), httpx.ReadTimeout("slow"), httpx.Response(201, json={"id": 7}))
    transport, pauses = transport_to(server)

    assert transport.request("POST", "rounds/", json={"name": "a"}) == {"id": 7}
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert [json.loads(request.content) for request in server.requests] == [{"name": "a"}] * 4
    assert pauses == sorted(pauses)


def test_separate_posts_use_different_idempotency_keys():
    server = Server(httpx.Response(201, json={}), httpx.Response(201, json={}))
    transport, _ = transport_to(server)
    for _ in range(2):
        transport.request("POST", "rounds/", json={})

    assert len({request.headers["idempotency-key"] for request in server.requests}) == 2


def test_retried_upload_sends_the_whole_file():
    server = Server(httpx.Response(502), httpx.Response(201, json={}))
    transport, _ = transport_to(server)

    transport.request("POST", "relation-sets/import/", files={"file": ("a.json", BytesIO(b"content"))})

    assert all(b"content" in request.content for request in server.requests)


def test_retry_after_header_sets_the_pause():
    server = Server(refusal(429, headers={"Retry-After": "7"}), httpx.Response(200, json={}))
    transport, pauses = transport_to(server)
    transport.request("GET", "rounds/")

    assert pauses == [7]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([BROKEN] * 3, ServerUnavailable),
        ([httpx.Response(503)] * 3, ServerUnavailable),
        ([refusal(429)] * 3, TooManyRequests),
    ],
)
def test_request_fails_after_the_last_try(answers, kind):
    transport, pauses = transport_to(Server(*answers), tries=3)

    with pytest.raises(kind):
        transport.request("GET", "rounds/")
    assert len(pauses) == 2


@pytest.mark.parametrize(("status", "kind"), [(400, Invalid), (401, Unauthorized), (409, Conflict), (500, ApiError)])
def test_error_response_raises_exception_with_server_message(status, kind):
    server = Server(refusal(status, "Code", "It is not valid.", fields={"name": ["Too long.", "Odd."]}))
    transport, _ = transport_to(server)

    with pytest.raises(kind) as caught:
        transport.request("POST", "rounds/", json={})

    assert str(caught.value) == "It is not valid. name: Too long. Odd."
    assert (caught.value.status, caught.value.code, len(server.requests)) == (status, "Code", 1)


def test_a_proxy_error_page_raises_an_error():
    transport, _ = transport_to(Server(httpx.Response(413, text="<html>too large</html>")))

    with pytest.raises(ApiError, match="413"):
        transport.request("GET", "rounds/")


def test_token_is_not_sent_to_other_servers():
    server = Server()
    transport, _ = transport_to(server)

    with pytest.raises(ValueError, match="is not below"):
        transport.request("GET", "http://elsewhere.test/api/v1/rounds/?after=x")
    assert server.requests == []


def test_a_missing_token_raises_an_error_with_the_fix(monkeypatch):
    monkeypatch.delenv("KGHARVEST_TOKEN", raising=False)

    with pytest.raises(ValueError, match="KGHARVEST_TOKEN"):
        Transport(URL)


def test_json_lines_are_streamed():
    lines = b'{"rank": 1}\n{"rank": 2}\n'
    transport, _ = transport_to(Server(httpx.Response(200, content=lines), refusal(409)))

    assert [row["rank"] for row in transport.json_lines("harvests/1/tuples/")] == [1, 2]
    with pytest.raises(Conflict):
        list(transport.json_lines("harvests/1/tuples/"))


def test_importing_the_client_loads_neither_django_nor_torch_nor_pandas():
    assert loaded_by("import kgharvest.client", "django", "torch", "pandas", "numpy", "celery", "rest_framework") == []
