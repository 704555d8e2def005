"""Chat paraphraser, tested with scripted responses and a real server on the loopback interface."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from kgharvest.engine.chat_completions import ChatClient, ChatFailed, retry_after_s
from kgharvest.engine.prompts.paraphrasers.chat import (
    API_KEY_VARIABLE,
    ChatParaphraser,
    ParaphraserFailed,
    sentences_of,
)

KEY = "sk-very-secret-123"
URL = "https://llm.example.org/v1"
ENTITIES = ["mask", "virus"]
ANSWER = "A mask keeps a virus away.\nThanks to a mask, no virus spreads."
SENTENCES = ANSWER.splitlines()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, KEY)


def completion(answer: str | None = ANSWER, **more: object) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"role": "assistant", "content": answer}}], **more})


class Script:
    """Transport that returns the replies in order and repeats the last one. Exceptions are raised."""

    def __init__(self, *replies: httpx.Response | Exception) -> None:
        self._replies = list(replies)
        self.requests: list[httpx.Request] = []
        self.slept_s: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def paraphraser(self, url: str = URL, **limits: int) -> ChatParaphraser:
        exchange = {"transport": httpx.MockTransport(self), "sleep": self.slept_s.append}
        return ChatParaphraser(url, "gpt-x", **limits, **exchange)

    def paraphrase(self, **limits: int) -> list[str]:
        return self.paraphraser(**limits).paraphrase("A mask prevents a virus.", ENTITIES)


def test_request_contains_model_sentence_entities_and_key() -> None:
    script = Script(completion())

    assert script.paraphrase() == SENTENCES

    (request,) = script.requests
    body = json.loads(request.content)
    assert str(request.url) == f"{URL}/chat/completions"
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert body["model"] == "gpt-x"
    assert body["max_tokens"] > 0
    assert 'exactly once, unchanged: "mask", "virus"' in body["messages"][0]["content"]
    assert "Sentence: A mask prevents a virus." in body["messages"][0]["content"]


def test_missing_key_sends_no_authorization_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(API_KEY_VARIABLE)
    script = Script(completion())

    script.paraphrase()

    assert "Authorization" not in script.requests[0].headers


@pytest.mark.parametrize("key", ["sk one two", "clé", "sk-1\nHost: elsewhere.example"])
def test_invalid_key_is_refused_and_not_repeated_in_error(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, key)

    with pytest.raises(ParaphraserFailed, match="invalid in keys") as error:
        Script(completion()).paraphraser()

    assert key not in str(error.value)


@pytest.mark.parametrize(
    "failure",
    [
        httpx.Response(429),
        httpx.Response(500),
        httpx.Response(503),
        httpx.ReadTimeout("slow"),
        httpx.ConnectError("nobody there"),
    ],
    ids=["429", "500", "503", "timeout", "no connection"],
)
def test_temporary_failure_is_retried_with_growing_waits(failure: httpx.Response | Exception) -> None:
    script = Script(failure, failure, failure, completion())

    assert script.paraphrase() == SENTENCES
    assert script.slept_s == [1, 2, 4]


def test_retry_after_header_is_respected() -> None:
    script = Script(httpx.Response(429, headers={"Retry-After": "7"}), completion())

    script.paraphrase()

    assert script.slept_s == [7]


def test_wait_of_hours_is_refused() -> None:
    script = Script(httpx.Response(429, headers={"Retry-After": "7200"}))

    with pytest.raises(ParaphraserFailed, match="7200 s"):
        script.paraphrase()
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("30", 30.0),
        ("Sat, 21 Nov 2026 10:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_accepts_seconds_and_dates(header: str, wait_s: float | None) -> None:
    assert retry_after_s(header, now=datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)) == wait_s


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (httpx.Response(500), "status 500 in 5 attempts"),
        (httpx.ReadTimeout("slow"), "within 60 s in 5 attempts"),
        (httpx.ConnectError("nobody"), r"cannot be reached \(ConnectError\) in 5 attempts"),
        (httpx.Response(401, json={"error": {"message": f"Incorrect API key {KEY}"}}), "rejected the key"),
        (httpx.Response(404), "no model 'gpt-x'"),
        (httpx.Response(400, text="no such field"), r"rejected the request \(status 400\)"),
        (httpx.Response(302, headers={"Location": "https://elsewhere.example"}), r"status 302"),
        (httpx.Response(200, text="<html>Welcome</html>"), "did not return a chat completion"),
        (httpx.Response(200, text="[" * 100_000), "did not return a chat completion"),
        (httpx.Response(400, text="[" * 100_000), r"rejected the request \(status 400\)\. Check"),
        (httpx.Response(200, json={"choices": []}), "did not return a chat completion"),
        (httpx.Response(200, json=["hello"]), "did not return a chat completion"),
        (
            httpx.Response(200, json={"choices": [{"message": {"content": ["a", "b"]}}]}),
            "did not return a chat completion",
        ),
    ],
)
def test_failures_are_one_sentence_without_key(
    reply: httpx.Response | Exception, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    with pytest.raises(ParaphraserFailed, match=message) as error:
        Script(reply).paraphrase()

    sentence = str(error.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert KEY not in sentence + caplog.text + repr(error.value.__cause__)


def test_call_limit_counts_every_request() -> None:
    script = Script(httpx.Response(500), httpx.Response(500), completion())
    paraphraser = script.paraphraser(max_calls=3)

    paraphraser.paraphrase("A mask prevents a virus.", ENTITIES)
    with pytest.raises(ParaphraserFailed, match="has used 3 of 3 calls"):
        paraphraser.paraphrase("A mask prevents a virus.", ENTITIES)

    assert len(script.requests) == 3


def test_token_limit_reserves_room_for_response() -> None:
    script = Script(completion(usage={"prompt_tokens": 100, "completion_tokens": 600, "total_tokens": 700}))
    paraphraser = script.paraphraser(max_tokens=2000)

    for _ in range(2):  # a reply of up to 1000 tokens fits after 0 and 700 used tokens, but not after 1400
        paraphraser.paraphrase("A mask prevents a virus.", ENTITIES)
    with pytest.raises(ParaphraserFailed, match="1400 of 2000 tokens"):
        paraphraser.paraphrase("A mask prevents a virus.", ENTITIES)


def test_tokens_are_estimated_without_usage_counts() -> None:
    paraphraser = Script(completion(answer="x" * 4000)).paraphraser()

    paraphraser.paraphrase("A mask prevents a virus.", ENTITIES)

    assert 1000 <= paraphraser.n_tokens < 1300


def test_max_tokens_refusal_is_retried_with_new_parameter() -> None:
    refusal = {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}
    script = Script(httpx.Response(400, json=refusal), completion())

    assert script.paraphrase() == SENTENCES
    assert "max_completion_tokens" in json.loads(script.requests[1].content)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_both_refused_parameters_are_replaced_in_any_order(is_reversed: bool) -> None:
    messages = ["response_format is not supported", "Use 'max_completion_tokens' instead."]
    refusals = [httpx.Response(400, json={"error": {"message": message}}) for message in messages]
    script = Script(*(refusals[::-1] if is_reversed else refusals), completion())
    client = ChatClient("The judge", URL, "gpt-x", "", transport=httpx.MockTransport(script))

    answers = [client.complete("Is it true?", 10, response_format={"type": "json_object"}).text for _ in range(2)]

    bodies = [json.loads(request.content) for request in script.requests]
    assert answers == [ANSWER] * 2
    assert [("response_format" in body, "max_completion_tokens" in body) for body in bodies] == [
        (True, False),
        (is_reversed, is_reversed),
        (False, True),
        (False, True),
    ]


def test_repeated_refusal_ends_in_an_error() -> None:
    refusal = {"error": {"message": "Neither response_format nor max_completion_tokens."}}
    script = Script(httpx.Response(400, json=refusal))
    client = ChatClient("The judge", URL, "gpt-x", "", transport=httpx.MockTransport(script))

    with pytest.raises(ChatFailed):
        client.complete("Is it true?", 10, response_format={"type": "json_object"})

    assert len(script.requests) == 3


@pytest.mark.parametrize("url", ["", "llm.example.org/v1", "ftp://llm.example.org", "https://", "http://a:b"])
def test_address_must_be_http_url(url: str) -> None:
    with pytest.raises(ParaphraserFailed, match="not an http"):
        Script(completion()).paraphraser(url)


def test_password_in_address_is_refused_and_not_repeated_in_error() -> None:
    with pytest.raises(ParaphraserFailed, match=API_KEY_VARIABLE) as error:
        Script(completion()).paraphraser("https://me:hunter2@llm.example.org/v1")

    assert "hunter2" not in str(error.value)


def test_responses_are_stripped_of_list_marks_and_thoughts() -> None:
    answer = (
        '<think>\nFirst, a mask ...\n</think>\n\n1. A mask stops it.\n- "It stops."\n  2) “Stop it.”\n' + "so " * 61
    )

    assert sentences_of(answer) == ["A mask stops it.", "It stops.", "Stop it."]


def test_empty_response_yields_no_paraphrases() -> None:
    assert Script(completion(answer=None)).paraphrase() == []


class Handler(BaseHTTPRequestHandler):
    """Handler that is busy once, then responds, and records its requests."""

    requests: list[tuple[str, str | None, dict]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.path, self.headers["Authorization"], body))
        is_busy = len(self.requests) == 1
        self.send_response(503 if is_busy else 200)
        self.send_header("Retry-After", "0")
        self.end_headers()
        if not is_busy:
            self.wfile.write(completion().content)

    def log_message(self, *args: object) -> None:
        """Suppress request logging."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Handler.requests.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server
        server.shutdown()


def test_busy_server_is_retried(server: ThreadingHTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_port}/v1"

    sentences = ChatParaphraser(url, "gpt-x").paraphrase("A mask prevents a virus.", ENTITIES)

    assert sentences == SENTENCES
    assert [(path, key) for path, key, _ in Handler.requests] == [("/v1/chat/completions", f"Bearer {KEY}")] * 2


def test_unreachable_server_is_reported(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}/v1"
    paraphraser = ChatParaphraser(url, "gpt-x", max_attempts=2, sleep=lambda seconds: None)

    with pytest.raises(ParaphraserFailed, match=r"127\.0\.0\.1 cannot be reached \(ConnectError\) in 2 attempts"):
        paraphraser.paraphrase("A mask prevents a virus.", ENTITIES)


@pytest.fixture
def free_port() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        return server.server_port
