"""LM behind a server that returns log-probabilities. The tokenizer is local; the weights are on the server.

The server returns no vectors. Tuples are scored by token log-probabilities, and the search uses the server's list of
most likely next tokens. Tokens that are not listed are at most as likely as the last token in the list.
"""

import heapq
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from kgharvest.engine.chat_completions import OTHER_SHAPE, ChatClient, ChatFailed, Reply, said_in
from kgharvest.engine.language_models.base import EncodedPrompt, Query, Tick, TokenIds
from kgharvest.engine.language_models.causal import LineByLine
from kgharvest.engine.language_models.families import check_tokenizer
from kgharvest.engine.language_models.loading import check_not_hidden, damage_said, files_of, silence_libraries
from kgharvest.engine.language_models.pretrained import MAX_TOKENS, TokenizedLM
from kgharvest.engine.language_models.served.names import ServedName
from kgharvest.engine.language_models.tokens import Tokens
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import UNNAMED, RankedToken, State, Step, TokenRanker
from kgharvest.engine.scoring import entity_logprobs
from kgharvest.engine.types import ModelNotFound, UnsupportedModel

# Client for log-probabilities from completions endpoints (vLLM and compatible servers). Prompts are token ids. The
# endpoint returns the most likely next tokens as ids (`return_tokens_as_token_ids`). With the option `prompt_logprobs`
# or `echo`, it also returns the log-probability of each token of a text.

PROMPTS_AT_ONCE = 64
FEWER = (20, 5)  # limits to try if the server reports none: the defaults of vLLM and OpenAI
LIMIT = re.compile(r"(?:allowed|maximum|most|exceed)\D{0,40}(\d+)")
TOKEN = re.compile(r"token_id:(\d+)")

Ranked = dict[int, float]  # log-probability by token


class ServerFailed(ChatFailed):
    """Raised if an LM server is unreachable, rejects a request, or returns no log-probabilities."""


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
        """Return, for each text, the log-probabilities of all tokens but the first, in nats. Raises ServerFailed."""
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
                raise self._refusal(reply)  # another problem, for example an invalid key
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
                f"{self.who} at {self.host} did not return log-probabilities of completions. Check the address."
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


KEPT_ANSWERS = 50_000  # lists of next tokens
EXACT_AT_ONCE = 16  # exact queries per batch, for tokens that are listed for some of the prompts only


# LM


class ServedLM(LineByLine, TokenizedLM):
    """A causal LM behind a server, with the query format of local causal LMs."""

    is_affine = True

    def __init__(self, client: CompletionsClient, tokenizer: Any, name: str, revision: str | None) -> None:
        self.name, self.revision, self.client = name, revision, client
        self.vocab_size = max(tokenizer.get_vocab().values()) + 1
        self.max_tokens = min(tokenizer.model_max_length, MAX_TOKENS)
        self.tokens = Tokens(tokenizer, self.vocab_size)
        self.is_cased = self.tokens.is_cased
        self.starts_entity, self.continues_entity = self.tokens.starts_entity, self.tokens.continues_entity
        self.end_entities_with_lines()
        self._answers: dict[TokenIds, Ranked] = {}

    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        raise self._no_distributions()

    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        raise self._no_distributions()

    def _no_distributions(self) -> UnsupportedModel:
        return UnsupportedModel(
            f"{self.name} is behind a server that returns log-probabilities of only a few tokens. This feature "
            "requires complete distributions. Load the LM locally."
        )

    def target_logprobs(self, queries: Sequence[Query], targets: Sequence[int], tick: Tick) -> NDArray[np.float64]:
        """Return (Q,): the log-probability of each target at the position of its query. Each text is sent once."""
        texts = [(*query.ids, target) for query, target in zip(queries, targets, strict=True)]
        in_order = sorted(set(texts))
        # The answer for a text includes the log-probabilities of its prefixes, so prefixes are not sent.
        longest = [ids for ids, after in zip(in_order, [*in_order[1:], ()], strict=True) if after[: len(ids)] != ids]
        answers = dict(zip(longest, self.client.token_logprobs(longest, tick), strict=True))
        longest_of: dict[TokenIds, TokenIds] = {}
        extension: TokenIds = ()
        for ids in reversed(in_order):
            extension = ids if ids in answers else extension
            longest_of[ids] = extension
        return np.array([answers[longest_of[ids]][len(ids) - 2] for ids in texts])

    def ranker(self, prompts: Sequence[EncodedPrompt], weights: Sequence[float], batch_size: int) -> TokenRanker:
        return ServedRanker(self, prompts, weights, batch_size)

    def next_tokens(self, texts: Sequence[TokenIds], tick: Tick) -> list[Ranked]:
        """Return the most likely next tokens of each text, best first. Each distinct text is sent once."""
        if len(self._answers) > KEPT_ANSWERS:
            self._answers.clear()
        new = [ids for ids in dict.fromkeys(texts) if ids not in self._answers]
        self._answers |= zip(new, self.client.next_tokens(new, tick), strict=True)
        return [self._answers[ids] for ids in texts]


class ServedRanker(TokenRanker):
    """Ranks next tokens by the weighted mean of the prompts' log-probabilities, without renormalization.

    With one prompt, this is the log-probability. If a token is missing from some of the prompts' lists, its exact
    log-probability is queried. UNNAMED represents all tokens that are in no list, with a lower bound on their cost.
    """

    lm: ServedLM

    def __init__(
        self, lm: ServedLM, prompts: Sequence[EncodedPrompt], weights: Sequence[float], batch_size: int
    ) -> None:
        super().__init__(lm, prompts, weights, batch_size)
        self.states_at_once = max(1, min(batch_size, PROMPTS_AT_ONCE // len(prompts)))
        self._prompt_weights = tuple(weights)
        self._exact: dict[tuple[TokenIds, int], float] = {}  # log-probabilities of unlisted tokens

    def rank(self, states: Sequence[State], tick: Tick) -> list[Iterator[RankedToken]]:
        self.n_states += len(states)
        texts = [
            [self.lm.query(prompt, state.pattern, state.filled).ids for prompt in self._prompts] for state in states
        ]
        lists = self.lm.next_tokens([ids for row in texts for ids in row], tick)
        list_of = dict(zip((ids for row in texts for ids in row), lists, strict=True))
        forced = [(ids, state.step.forced) for state, row in zip(states, texts, strict=True) for ids in row]
        self._ask([(ids, token) for ids, token in forced if token is not None and token not in list_of[ids]], tick)
        return [self._ranked(state.step, row, tick) for state, row in zip(states, texts, strict=True)]

    def _ranked(self, step: Step, texts: Sequence[TokenIds], tick: Tick) -> Iterator[RankedToken]:
        lists = self.lm.next_tokens(texts, tick)
        # Upper bound on the log-probability of unlisted tokens; minus infinity if the whole vocabulary is listed.
        last = [min(ranked.values()) if len(ranked) < self.lm.vocab_size else -np.inf for ranked in lists]
        if step.forced is not None:
            yield step.forced, self._costs(texts, lists, [step.forced], tick)[0]
            return
        admissible = self.lm.starts_entity if step.starts_entity else self.lm.continues_entity
        listed = {token for ranked in lists for token in ranked if token < len(admissible) and admissible[token]}
        lower_bounds = {
            token: self._cost([ranked.get(token, worst) for ranked, worst in zip(lists, last, strict=True)])
            for token in listed
        }
        queue = [(cost, any(token not in ranked for ranked in lists), token) for token, cost in lower_bounds.items()]
        heapq.heapify(queue)
        unnamed = self._cost(last)
        has_unnamed = bool(np.isfinite(unnamed))
        while queue:
            cost, is_bound, token = heapq.heappop(queue)
            if has_unnamed and cost >= unnamed:
                yield UNNAMED, unnamed
                has_unnamed = False
            if not is_bound:
                yield token, cost
                continue
            bounds = [token, *(other for _, is_bound, other in sorted(queue) if is_bound)]
            exact = bounds[:EXACT_AT_ONCE]
            queue = [entry for entry in queue if entry[2] not in exact]
            queue += zip(self._costs(texts, lists, exact, tick), [False] * len(exact), exact, strict=True)
            heapq.heapify(queue)
        if has_unnamed:
            yield UNNAMED, unnamed

    def _costs(
        self, texts: Sequence[TokenIds], lists: Sequence[Ranked], tokens: Sequence[int], tick: Tick
    ) -> list[float]:
        """Return the cost of each token after `texts`. Queries the server for tokens missing from its lists."""
        pairs = list(zip(texts, lists, strict=True))
        self._ask([(ids, token) for token in tokens for ids, ranked in pairs if token not in ranked], tick)
        return [
            self._cost([ranked[token] if token in ranked else self._exact[ids, token] for ids, ranked in pairs])
            for token in tokens
        ]

    def _ask(self, pairs: Sequence[tuple[TokenIds, int]], tick: Tick) -> None:
        """For each pair of text and token that is not cached yet, query and cache the token's log-probability."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._exact]
        answers = self.lm.client.token_logprobs([(*ids, token) for ids, token in new], tick)
        self._exact |= {pair: logprobs[-1] for pair, logprobs in zip(new, answers, strict=True)}

    def _cost(self, logprobs: Sequence[float]) -> float:
        pairs = zip(self._prompt_weights, logprobs, strict=True)
        return -float(sum(weight * logprob for weight, logprob in pairs if weight))


# Loading


TIMEOUT_S = 120.0
SAME_WITHIN = 0.3  # nats; in bfloat16, rounding and summation order change a logit by less than 0.1
TRIAL = PromptTemplate.parse("the <ENT0> is a <ENT1>")


def load_served(served: ServedName, name: str, revision: str | None, key_variable: str) -> ServedLM:
    """Return the LM behind a server, ready for queries.

    revision: revision of the tokenizer. The server determines the weights. Raises ModelNotFound if the tokenizer is not
    found, UnsupportedModel, or ServerFailed.
    """
    silence_libraries()
    check_not_hidden(served.tokenizer)
    try:
        with damage_said(served.tokenizer):
            is_folder = Path(served.tokenizer).is_dir()
            files = {"revision": revision} if is_folder else files_of(served.tokenizer, revision)
            tokenizer = AutoTokenizer.from_pretrained(served.tokenizer, **files)
            check_tokenizer(tokenizer, max(tokenizer.get_vocab().values()) + 1, served.tokenizer)
    except ModelNotFound as error:
        raise ModelNotFound(
            f"The tokenizer {served.tokenizer!r} of the served LM {served.model!r} is neither a complete local folder "
            "nor available from the hub. Add its hub id or folder after @, for example "
            f"{served.base_url}#{served.model}@TOKENIZER."
        ) from error
    client = CompletionsClient(
        "The LM's server",
        served.base_url,
        served.model,
        key_variable,
        TIMEOUT_S,
        advice="check that it runs, or try later",
        failure=ServerFailed,
    )
    commit = files["revision"]
    lm = ServedLM(client, tokenizer, name, f"as served, tokenizer {commit}" if commit else "as served")
    check_gives_logprobs(lm)
    return lm


def check_gives_logprobs(lm: ServedLM) -> None:
    """Check that the server returns both kinds of log-probabilities from the same distribution. Raises ServerFailed.

    A truncated or sharpened distribution gives no bound on the log-probabilities of the tokens that it omits.
    """
    prompt = lm.encode_prompt(TRIAL)
    entity = next((int(token),) for token in lm.starts_entity.nonzero()[0])
    entity_logprobs(lm, [prompt], [(entity, entity)], 1, lambda: None)
    query = lm.query(prompt, (1, 1), ())
    [ranked] = lm.next_tokens([query.ids], lambda: None)
    *_, (token, logprob) = ranked.items()
    [as_scored] = lm.target_logprobs([query], [token], lambda: None)
    if abs(logprob - as_scored) > SAME_WITHIN:
        raise ServerFailed(
            f"The server of {lm.name} returns inconsistent log-probabilities for the same token: {logprob:.2f} nats "
            f"as the next token, {as_scored:.2f} nats in a text. Configure it to return log-probabilities before "
            "sampling (vLLM: --logprobs-mode raw_logprobs)."
        )
