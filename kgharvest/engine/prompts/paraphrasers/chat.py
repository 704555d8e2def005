"""A paraphraser behind an OpenAI-compatible chat endpoint: a hosted model, vLLM, Ollama, llama.cpp and the like."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from kgharvest.engine.types import EngineError

API_KEY_VARIABLE = "KGHARVEST_PARAPHRASER_API_KEY"
PARAPHRASES_PER_CALL = 10
REPLY_TOKENS = 1000
CHARACTERS_PER_TOKEN = 4  # for endpoints that do not say what they used
MOST_WORDS = 60  # of a paraphrase; longer ones wander off and may exceed what the LM takes
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
WORTH_A_RETRY = {408, 429, 500, 502, 503, 504}

Sleep = Callable[[float], None]


class ParaphraserFailed(EngineError):
    """A paraphraser that cannot be reached, refuses, answers nonsense, or has reached its spend cap."""


@dataclass(frozen=True)
class ChatEndpoint:
    """Where to ask and how much.

    base_url: up to and without `/chat/completions`, as in `https://api.openai.com/v1`.
    max_attempts: requests for one answer; between them is a wait of 1, 2, 4 .. s, or what the endpoint asks for.
    max_calls, max_tokens: the spend cap of one paraphraser: requests, and tokens of questions and answers together.
    """

    base_url: str
    model: str
    timeout_s: float = 60.0
    max_attempts: int = 5
    max_calls: int = 100
    max_tokens: int = 100_000


class ChatParaphraser:
    """Asks a chat model. The key is read from KGHARVEST_PARAPHRASER_API_KEY; without one, none is sent."""

    def __init__(
        self, endpoint: ChatEndpoint, transport: httpx.BaseTransport | None = None, sleep: Sleep = time.sleep
    ) -> None:
        check_url(endpoint.base_url)
        self.name = f"chat:{endpoint.model}"
        self.n_calls = self.n_tokens = 0
        self._endpoint, self._sleep = endpoint, sleep
        self._limit_field = "max_tokens"
        self._client = httpx.Client(
            base_url=endpoint.base_url, headers=authorization(), timeout=endpoint.timeout_s, transport=transport
        )

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        question = instruction(sentence, entities)
        response = self._post(question)
        if response.status_code == 400 and "max_completion_tokens" in response.text:
            self._limit_field = "max_completion_tokens"  # what reasoning models call the same limit
            response = self._post(question)
        if response.is_error or response.is_redirect:
            raise ParaphraserFailed(self._refusal(response))
        answer, n_tokens = self._read(response)
        self.n_tokens += n_tokens or len(question + answer) // CHARACTERS_PER_TOKEN
        return sentences_of(answer)

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        return []

    def _post(self, question: str) -> httpx.Response:
        """Return the first response that is worth no retry."""
        trouble, wait_s = "", 0.0
        for attempt in range(self._endpoint.max_attempts):
            if attempt:
                self._sleep(wait_s)
            wait_s = min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S)
            self._spend_a_call()
            try:
                response = self._client.post("/chat/completions", json=self._body(question))
            except httpx.TimeoutException:
                trouble = f"gave no answer within {self._endpoint.timeout_s:g} s"
            except httpx.RequestError as error:
                trouble = f"cannot be reached ({type(error).__name__})"
            else:
                if response.status_code not in WORTH_A_RETRY:
                    return response
                trouble = f"answered with status {response.status_code}"
                wait_s = self._asked_wait(response, wait_s)
        raise ParaphraserFailed(
            f"The paraphraser at {self._host} {trouble}, {self._endpoint.max_attempts} times in a row; "
            "check the address, try later, or use the offline paraphraser."
        )

    def _body(self, question: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": question}]
        return {"model": self._endpoint.model, "messages": messages, self._limit_field: REPLY_TOKENS}

    def _spend_a_call(self) -> None:
        endpoint = self._endpoint
        if self.n_calls >= endpoint.max_calls or self.n_tokens + REPLY_TOKENS > endpoint.max_tokens:
            raise ParaphraserFailed(
                f"The paraphraser has used {self.n_calls} of {endpoint.max_calls} calls and {self.n_tokens} of "
                f"{endpoint.max_tokens} tokens; raise its spend cap or use fewer initial prompts."
            )
        self.n_calls += 1

    def _asked_wait(self, response: httpx.Response, otherwise_s: float) -> float:
        wait_s = retry_after_s(response.headers.get("Retry-After", ""), datetime.now(UTC))
        if wait_s is not None and wait_s > LONGEST_WAIT_S:
            raise ParaphraserFailed(
                f"The paraphraser at {self._host} asks to wait {wait_s:.0f} s; try again after that time."
            )
        return otherwise_s if wait_s is None else wait_s

    def _refusal(self, response: httpx.Response) -> str:
        status = response.status_code
        if status in (401, 403):
            return (
                f"The paraphraser at {self._host} refuses the key (status {status}); "
                f"set {API_KEY_VARIABLE} to one that may use {self._endpoint.model}."
            )
        if status == 404:
            return (
                f"The paraphraser at {self._host} knows no model {self._endpoint.model!r} or no chat completions "
                "(status 404); check the model's name and the address, which often ends in /v1."
            )
        return f"The paraphraser at {self._host} refuses the request (status {status}); check its address and model."

    def _read(self, response: httpx.Response) -> tuple[str, int]:
        """Return the answer and how many tokens the endpoint counted, 0 where it did not."""
        try:
            reply = response.json()
            answer = str.strip(reply["choices"][0]["message"]["content"] or "")
            return answer, int((reply.get("usage") or {}).get("total_tokens", 0))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ParaphraserFailed(
                f"The paraphraser at {self._host} answers, but not with a chat completion; check its address."
            ) from None

    @property
    def _host(self) -> str:
        return self._client.base_url.host


def check_url(base_url: str) -> None:
    """Raise ParaphraserFailed unless `base_url` is http(s) and holds no password, which logs would show."""
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise ParaphraserFailed(
            "The paraphraser's address is no http(s) URL; write one like https://api.openai.com/v1."
        )
    if url.userinfo:
        raise ParaphraserFailed(f"The paraphraser's address holds a password; put the key into {API_KEY_VARIABLE}.")


def authorization() -> dict[str, str]:
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ParaphraserFailed(
            f"{API_KEY_VARIABLE} holds spaces or characters that no key has; set it to the key alone."
        )
    return {"Authorization": f"Bearer {key}"} if key else {}


def instruction(sentence: str, entities: Sequence[str]) -> str:
    kept = ", ".join(f'"{entity}"' for entity in entities)
    return (
        f"Write {PARAPHRASES_PER_CALL} paraphrases of the sentence below, as different from each other as you can, but "
        "of the same meaning and in plain English.\n"
        f"Each one must contain each of these expressions exactly once, unchanged: {kept}.\n"
        "Write one paraphrase a line and nothing else: no numbers, no quotation marks, no comments.\n\n"
        f"Sentence: {sentence}"
    )


def sentences_of(answer: str) -> list[str]:
    """Return the lines of `answer` without thoughts, list marks and quotation marks; overlong ones are left out."""
    lines = re.sub(r"<think>.*?</think>", "", answer, flags=re.DOTALL).splitlines()
    unmarked = (re.sub(r"^\s*(?:[-*•]|\(?\d+[.):])\s*", "", line).strip() for line in lines)
    sentences = (re.sub(r'^["“](.*)["”]$', r"\1", line).strip() for line in unmarked)
    return [sentence for sentence in sentences if sentence and len(sentence.split()) <= MOST_WORDS]


def retry_after_s(header: str, now: datetime) -> float | None:
    """Return the wait that a Retry-After header asks for, given in seconds or as a date; None if it is unreadable."""
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", header):
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - now).total_seconds())
    except (ValueError, TypeError):
        return None
