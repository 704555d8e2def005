"""Client for OpenAI-compatible chat endpoints: hosted models, vLLM, Ollama, llama.cpp, and similar servers.

Requests complete replies but also accepts streamed replies. Retries requests after temporary errors.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kgharvest.engine.types import EngineError

if TYPE_CHECKING:
    import httpx

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
LARGEST_REPLY = 4 << 20  # bytes
WORTH_A_RETRY = {408, 429, 500, 502, 503, 504}
FILTER = re.compile(r"content[_ -](filter|policy|management)", re.IGNORECASE)
# Request fields that some endpoints reject, and the words in their refusals
OPTIONAL_FIELDS = {
    "response_format": re.compile(r"response.?format|json.?schema|structured.?output|guided", re.IGNORECASE),
    "logprobs": re.compile(r"log.?prob", re.IGNORECASE),
}
NEW_LIMIT = "max_completion_tokens"  # the name of max_tokens for reasoning models
EVENT_STREAM = "text/event-stream"
# Exceptions raised for malformed replies. RecursionError: deeply nested JSON.
OTHER_SHAPE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)

Sleep = Callable[[float], None]


class ChatFailed(EngineError):
    """Raised if an endpoint is unreachable or rejects the request."""


class NoCompletion(EngineError):
    """Raised for a reply with status 200 that is not a chat completion. text: the reply."""

    def __init__(self, sentence: str, text: str):
        super().__init__(sentence)
        self.text = text


class Filtered(NoCompletion):
    """Raised if the endpoint's content filter rejects a question. Other questions may be accepted."""


class Completion(NamedTuple):
    """An answer and the metadata that the endpoint reports.

    text: the answer or the refusal. model, fingerprint: "" if not reported.
    n_prompt_tokens, n_completion_tokens: None if not reported. seconds: response time.
    logprobs: tokens of the answer and their log-probabilities in nats, if returned.
    """

    text: str
    model: str = ""
    fingerprint: str = ""
    n_prompt_tokens: int | None = None
    n_completion_tokens: int | None = None
    seconds: float = 0.0
    logprobs: tuple[tuple[str, float], ...] = ()


class Reply(NamedTuple):
    status: int
    headers: httpx.Headers
    text: str
    seconds: float


@dataclass
class ChatClient:
    """Thread-safe client for one model at one address. Subclasses can use another endpoint of the server.

    who: subject of error messages, for example "The paraphraser".
    base_url: URL without the final `/chat/completions`.
    key_variable: environment variable with the API key. "": no key.
    max_attempts: maximum number of requests per answer. The waits between requests are 1, 2, 4, ... seconds, unless the
        endpoint requests another wait.
    advice: end of the error message after the last attempt. failure: exception class to raise.
    before_request: called before each request; may raise.
    connect_to: address to connect to instead of resolving the host name.
    """

    who: str
    base_url: str
    model: str
    key_variable: str
    timeout_s: float = 60.0
    max_attempts: int = 5
    advice: str = "check the address, or try later"
    before_request: Callable[[], None] = lambda: None
    sleep: Sleep = time.sleep
    transport: httpx.BaseTransport | None = None
    connect_to: str = ""
    failure: type[ChatFailed] = ChatFailed
    _limit_field: str = field(default="max_tokens", init=False)
    _rejected_fields: set[str] = field(default_factory=set, init=False)

    path = "/chat/completions"
    asks_for = "chat completions"
    largest_reply = LARGEST_REPLY

    def __post_init__(self) -> None:
        import httpx

        try:
            url = httpx.URL(self.base_url)
        except (httpx.InvalidURL, TypeError):
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise self.failure(f"{self.who}'s address is not an http(s) URL. Example: https://api.openai.com/v1")
        if url.userinfo:  # the password would appear in logs
            raise self.failure(f"{self.who}'s address contains a password. Put the key into {self.key_variable}.")
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else ""
        if not re.fullmatch(r"[!-~]*", key):
            raise self.failure(f"{self.key_variable} contains characters that are invalid in keys. Set it to the key.")
        self.host = url.host
        headers, self._extensions = {"Authorization": f"Bearer {key}"} if key else {}, {}
        if self.connect_to:
            # The caller has resolved and checked the host name; the certificate is still verified against the name.
            headers["Host"] = url.netloc.decode()
            self._extensions = {"sni_hostname": url.host}
            url = url.copy_with(host=self.connect_to)
        self._client = httpx.Client(base_url=url, headers=headers, timeout=self.timeout_s, transport=self.transport)

    def close(self) -> None:
        self._client.close()

    def complete(self, question: str, max_tokens: int, **options: Any) -> Completion:
        """Return the answer to a user message. options: additional request fields, for example `temperature`.

        An endpoint that rejects `max_tokens` or one of OPTIONAL_FIELDS is asked without it from then on.

        Raises NoCompletion, or `failure` if the endpoint rejects the request or all attempts fail.
        """
        body = {"model": self.model, "messages": [{"role": "user", "content": question}], **options}
        for name in self._rejected_fields:
            body.pop(name, None)
        limit_field = self._limit_field
        reply = self._post(body | {limit_field: max_tokens})
        while reply.status in (400, 403, 422):  # each fallback applies once
            fields = (name for name, words in OPTIONAL_FIELDS.items() if name in body and words.search(reply.text))
            if rejected := next(fields, None):
                self._rejected_fields.add(rejected)
                del body[rejected]
            elif limit_field != NEW_LIMIT and reply.status == 400 and NEW_LIMIT in reply.text:
                self._limit_field = limit_field = NEW_LIMIT
            else:
                break
            reply = self._post(body | {limit_field: max_tokens})
        if reply.status == 400 and FILTER.search(reply.text):
            sentence = f"{self.who} at {self.host} rejected the question (content filter). Ask a different question."
            raise Filtered(sentence, reply.text)
        if reply.status != 200:
            raise self._refusal(reply)
        try:
            return read_completion(reply)
        except OTHER_SHAPE:
            sentence = f"{self.who} at {self.host} did not return a chat completion. Check the address."
            raise NoCompletion(sentence, reply.text) from None

    def _post(self, body: dict[str, Any]) -> Reply:
        """Return the first reply with a status that needs no retry."""
        import httpx

        trouble, wait_s = "", 0.0
        for attempt in range(self.max_attempts):
            if attempt:
                self.sleep(wait_s)
            wait_s = min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S)
            self.before_request()
            try:
                reply = self._exchange(body)
            except httpx.TimeoutException:
                trouble = f"did not answer within {self.timeout_s:g} s"
            except httpx.RequestError as error:
                trouble = f"cannot be reached ({type(error).__name__})"
            else:
                if reply.status not in WORTH_A_RETRY:
                    return reply
                trouble = f"answered with status {reply.status}"
                requested_s = retry_after_s(reply.headers.get("Retry-After", ""), datetime.now(UTC))
                if requested_s is not None and requested_s > LONGEST_WAIT_S:
                    sentence = (
                        f"{self.who} at {self.host} requires a wait of {requested_s:.0f} s. Try again afterwards."
                    )
                    raise self.failure(sentence)
                wait_s = wait_s if requested_s is None else requested_s
        raise self.failure(f"{self.who} at {self.host} {trouble} in {self.max_attempts} attempts; {self.advice}.")

    def _exchange(self, body: dict[str, Any]) -> Reply:
        """Send one request. The time limit covers the whole exchange, including slow replies."""
        import httpx

        start = time.monotonic()
        content = bytearray()
        with self._client.stream("POST", self.path, json=body, extensions=self._extensions) as response:
            for part in response.iter_bytes():
                content += part
                if len(content) > self.largest_reply or time.monotonic() - start > self.timeout_s:
                    raise httpx.ReadTimeout("The reply is too long or too slow.")
        text = content.decode(response.encoding or "utf-8", "replace")
        return Reply(response.status_code, response.headers, text, time.monotonic() - start)

    def _refusal(self, reply: Reply) -> ChatFailed:
        if reply.status in (401, 403):
            return self.failure(
                f"{self.who} at {self.host} rejected the key (status {reply.status}). "
                f"Set {self.key_variable or 'the key variable'} to a key with access to {self.model}."
            )
        if reply.status == 404:
            return self.failure(
                f"{self.who} at {self.host} has no model {self.model!r} or does not support {self.asks_for} "
                "(status 404). Check the model name and the address, which often ends in /v1."
            )
        return self.failure(
            f"{self.who} at {self.host} rejected the request (status {reply.status}){said_in(reply.text)}. "
            "Check the address and the model."
        )


def read_completion(reply: Reply) -> Completion:
    """Parse a reply. Raises one of the exceptions in OTHER_SHAPE if it is not a completion."""
    is_stream = reply.headers.get("Content-Type", "").startswith(EVENT_STREAM) or reply.text.startswith("data:")
    document = joined_stream(reply.text) if is_stream else json.loads(reply.text)
    choice = document["choices"][0]
    message = choice["message"]
    usage = document.get("usage") or {}
    return Completion(
        (text_of(message.get("content")) or message.get("refusal") or "").strip(),
        str(document.get("model") or ""),
        str(document.get("system_fingerprint") or ""),
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        reply.seconds,
        logprobs_of(choice),
    )


def logprobs_of(choice: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    """Return the tokens of a choice with their log-probabilities, or nothing if they are missing or malformed.

    Tokens that end within a character are joined with the next ones.
    """
    pieces: list[tuple[str, float]] = []
    content, logprob = b"", 0.0
    try:
        for token in choice["logprobs"]["content"]:
            codes = token.get("bytes")
            if codes is not None and not isinstance(codes, list):  # bytes(n) has n zeros
                return ()
            content += token["token"].encode() if codes is None else bytes(codes)
            logprob += float(token["logprob"])
            with suppress(UnicodeDecodeError):
                pieces.append((content.decode(), logprob))
                content, logprob = b"", 0.0
    except OTHER_SHAPE:
        return ()
    return tuple(pieces) if all(math.isfinite(piece[1]) for piece in pieces) else ()


def text_of(content: Any) -> str:
    """Return the text of a message, which is a string, or a list of parts of which some are texts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None


def said_in(text: str) -> str:
    """Return the message of a standard error reply, formatted to continue a sentence, or "" if there is none."""
    try:
        message = " ".join(json.loads(text)["error"]["message"].split())
    except OTHER_SHAPE:
        return ""
    return f" with the message {message!r:.200}"


def joined_stream(text: str) -> dict[str, Any]:
    """Return the completion in a stream of server-sent events. Raises ValueError if the stream is truncated.

    Format of OpenAI's `stream: true`: `data: {"choices": [{"delta": {"content": "..."}}]}`, ending with `data: [DONE]`.
    """
    completion: dict[str, Any] = {}
    content, is_over = "", False
    for line in text.splitlines():
        event = line.removeprefix("data:").strip()
        if not line.startswith("data:") or not event:
            continue
        if event == "[DONE]":
            is_over = True
            break
        piece = json.loads(event)
        completion |= {name: piece[name] for name in ("model", "system_fingerprint", "usage") if piece.get(name)}
        for choice in piece.get("choices", [])[:1]:
            content += text_of(choice.get("delta", {}).get("content"))
            is_over = is_over or bool(choice.get("finish_reason"))
    if not is_over:
        raise ValueError("The stream is truncated.")
    return completion | {"choices": [{"message": {"content": content}}]}


def retry_after_s(header: str, now: datetime) -> float | None:
    """Return the seconds to wait according to a Retry-After header (seconds or a date), or None if it is malformed."""
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", header):
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - now).total_seconds())
    except (ValueError, TypeError):
        return None
