"""Client for log-probabilities from completions endpoints: vLLM and compatible servers.

Prompts are token ids. The endpoint returns a short list of the most likely next tokens, identified by id
(`return_tokens_as_token_ids`), and the log-probability of each token of a text, through `prompt_logprobs` or `echo`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from kgharvest.engine.chat_completions import OTHER_SHAPE, ChatClient, ChatFailed, Reply, said_in
from kgharvest.engine.language_models.base import Tick, TokenIds

PROMPTS_AT_ONCE = 64
FEWER = (20, 5)  # limits to try if the server does not state one: the defaults of vLLM and OpenAI
LIMIT = re.compile(r"(?:allowed|maximum|most|exceed)\D{0,40}(\d+)")
TOKEN = re.compile(r"token_id:(\d+)")

Ranked = dict[int, float]  # log-probability by token


class ServerFailed(ChatFailed):
    """An LM server that is unreachable, rejects the request, or returns no log-probabilities."""


class CompletionsClient(ChatClient):
    """Client for `/completions`. n_ranked: number of next tokens to request, reduced to the server's limit."""

    path = "/completions"
    asks_for = "completions"
    largest_reply = 64 << 20

    n_ranked = 100
    _echoes = False  # True if the server supports echo instead of prompt_logprobs

    def next_tokens(self, prompts: Sequence[TokenIds], tick: Tick) -> list[Ranked]:
        """Return the most likely next tokens of each prompt, best first. Raises ServerFailed."""
        return self._in_batches(prompts, self._next_tokens, tick)

    def token_logprobs(self, texts: Sequence[TokenIds], tick: Tick) -> list[list[float]]:
        """Return the log-probability of each token but the first of each text, in nats. Raises ServerFailed."""
        return self._in_batches(texts, self._token_logprobs, tick)

    def _in_batches(self, prompts: Sequence[TokenIds], ask: Callable[..., list[Any]], tick: Tick) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(prompts), PROMPTS_AT_ONCE):
            answers += ask(prompts[start : start + PROMPTS_AT_ONCE])
            tick()
        return answers

    def _next_tokens(self, prompts: Sequence[TokenIds]) -> list[Ranked]:
        while True:
            reply = self._ask(prompts, max_tokens=1, logprobs=self.n_ranked, return_tokens_as_token_ids=True)
            fewer = fewer_ranked(reply, self.n_ranked)
            if fewer is None:
                break
            self.n_ranked = fewer
        return self._read(reply, prompts, lambda choice, _: self._likeliest(choice))

    def _likeliest(self, choice: dict[str, Any]) -> Ranked:
        top = choice["logprobs"]["top_logprobs"][0]
        tokens = {name: TOKEN.fullmatch(name) for name in top}
        if not all(tokens.values()):
            raise self.failure(
                f"{self.who} at {self.host} identifies tokens by text, which is ambiguous. Use a server that supports "
                "return_tokens_as_token_ids, such as vLLM."
            )
        ranked = {int(tokens[name][1]): logprob_in(value) for name, value in top.items()}  # type: ignore[index]
        if not ranked:
            raise ValueError("no token")
        best = sorted(ranked.items(), key=lambda pair: (-pair[1], pair[0]))
        return dict(best[: self.n_ranked])

    def _token_logprobs(self, texts: Sequence[TokenIds]) -> list[list[float]]:
        if not self._echoes:
            reply = self._ask(texts, max_tokens=1, prompt_logprobs=1)
            if reply.status == 200 and "prompt_logprobs" in reply.text:
                return self._read(reply, texts, prompt_logprobs_in)
            if reply.status not in (200, 400, 422):
                raise self._refusal(reply)  # not about log-probabilities, for example an invalid key
            self._echoes = True
        reply = self._ask(texts, max_tokens=1, echo=True, logprobs=1)
        if reply.status == 200 and "token_logprobs" not in reply.text:
            raise self._gives_no_logprobs()
        return self._read(reply, texts, self._echoed)

    def _echoed(self, choice: dict[str, Any], text: TokenIds) -> list[float]:
        values = choice["logprobs"]["token_logprobs"]
        if len(values) < len(text):
            raise self._gives_no_logprobs()
        return [logprob_in(value) for value in values[1 : len(text)]]

    def _gives_no_logprobs(self) -> ChatFailed:
        return self.failure(
            f"{self.who} at {self.host} returns no log-probabilities of prompt tokens (neither prompt_logprobs nor "
            "echo). Use a server that supports one of them, such as vLLM."
        )

    def _ask(self, prompts: Sequence[TokenIds], **options: Any) -> Reply:
        body = {"model": self.model, "prompt": [list(ids) for ids in prompts], "temperature": 0, **options}
        return self._post(body)

    def _read(
        self, reply: Reply, prompts: Sequence[TokenIds], read: Callable[[dict[str, Any], TokenIds], Any]
    ) -> list[Any]:
        """Return the result of `read` for each prompt's choice. Raises ServerFailed."""
        if reply.status != 200:
            raise self._refusal(reply)
        try:
            choices = sorted(json.loads(reply.text)["choices"], key=lambda choice: choice["index"])
            return [read(choice, ids) for choice, ids in zip(choices, prompts, strict=True)]
        except OTHER_SHAPE:
            raise self.failure(
                f"{self.who} at {self.host} did not return log-probabilities of completions. Check its address."
            ) from None


def prompt_logprobs_in(choice: dict[str, Any], text: TokenIds) -> list[float]:
    """Return the log-probability of each token but the first. Raises ValueError, LookupError, or TypeError."""
    _, *logprobs = choice["prompt_logprobs"]
    return [logprob_in(by_token[str(token)]["logprob"]) for token, by_token in zip(text[1:], logprobs, strict=True)]


def logprob_in(value: Any) -> float:
    """Return `value` as a log-probability (<= 0). Raises ValueError or TypeError if it is not one."""
    logprob = float(value)
    if math.isnan(logprob) or logprob > 1e-3:
        raise ValueError(value)
    return min(logprob, 0.0)


def fewer_ranked(reply: Reply, asked: int) -> int | None:
    """Return a smaller number of next tokens to request if the server rejected `asked` as too many, otherwise None."""
    if reply.status not in (400, 422) or "logprobs" not in reply.text:
        return None
    limits = [int(number) for number in LIMIT.findall(said_in(reply.text) or reply.text)]
    fewer = [number for number in limits if 0 < number < asked] or [number for number in FEWER if number < asked]
    return max(fewer, default=None)
