"""What asking chat models costs: tokens and money, within a rate and a budget."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from decimal import Decimal
from time import monotonic
from typing import NamedTuple, Protocol

from kgharvest.engine.chat_completions import ChatFailed, Completion
from kgharvest.errors import DomainError

CHARACTERS_PER_TOKEN = 4  # for estimates, and for endpoints that do not say what they used
TOKENS_OF_A_FRAME = 50  # at most, that a chat template puts around a message
A_MILLION = 1_000_000
CENT_OF_CENT = Decimal("0.00000001")


class BudgetSpent(DomainError):
    """Work that stopped because the next answer might cost more than its budget has left."""


class Priced(Protocol):
    """Prices of a million tokens, in a currency that its owner knows."""

    @property
    def prompt_price(self) -> Decimal: ...

    @property
    def completion_price(self) -> Decimal: ...


class Limited(Priced, Protocol):
    """Prices and limits: of tokens of prompts and answers together, and of money. None is no limit."""

    @property
    def max_tokens_total(self) -> int | None: ...

    @property
    def budget(self) -> Decimal | None: ...


class Reserved(NamedTuple):
    """The most that a request may use: a token is at least a byte of the prompt."""

    n_tokens: int
    cost: Decimal


def cost_of(prices: Priced, n_prompt_tokens: int, n_completion_tokens: int) -> Decimal:
    amount = n_prompt_tokens * prices.prompt_price + n_completion_tokens * prices.completion_price
    return (Decimal(amount) / A_MILLION).quantize(CENT_OF_CENT)


def reserved(prices: Priced, prompt: str, max_completion_tokens: int) -> Reserved:
    n_prompt = len(prompt.encode()) + TOKENS_OF_A_FRAME
    return Reserved(n_prompt + max_completion_tokens, cost_of(prices, n_prompt, max_completion_tokens))


def tokens_of(prompt: str, completion: Completion) -> tuple[int, int]:
    """Return the tokens of a prompt and of its answer, estimated where the endpoint does not say."""
    counts = (completion.n_prompt_tokens, completion.n_completion_tokens)
    n_prompt, n_completion = (
        round_up(len(text) / CHARACTERS_PER_TOKEN) if count is None else count
        for text, count in zip((prompt, completion.text), counts, strict=True)
    )
    return n_prompt, n_completion


def round_up(number: float) -> int:
    return int(-(-number // 1))


class Spending:
    """What was used so far of a budget. Safe to count from several threads."""

    def __init__(self, limits: Limited, n_tokens: int = 0, cost: Decimal = Decimal(0)):
        self.n_tokens, self.cost = n_tokens, cost
        self._limits = limits
        self._counting = threading.Lock()

    def has_room(self, requests: Iterable[Reserved]) -> bool:
        """Return whether the budget bears these requests if all of them use the most."""
        n_tokens, cost = self.n_tokens, self.cost
        for request in requests:
            n_tokens, cost = n_tokens + request.n_tokens, cost + request.cost
        limits = self._limits
        return (limits.max_tokens_total is None or n_tokens <= limits.max_tokens_total) and (
            limits.budget is None or cost <= limits.budget
        )

    def count(self, n_prompt_tokens: int, n_completion_tokens: int) -> None:
        with self._counting:
            self.n_tokens += n_prompt_tokens + n_completion_tokens
            self.cost += cost_of(self._limits, n_prompt_tokens, n_completion_tokens)

    def in_words(self) -> str:
        """Return "it has used 90 tokens of 100 and 0.5000 of a budget of 1"."""
        limits = self._limits
        limit = "" if limits.max_tokens_total is None else f" of {limits.max_tokens_total} tokens"
        budget = "" if limits.budget is None else f" of a budget of {limits.budget:f}"
        return f"it has used {self.n_tokens} tokens{limit} and {self.cost:.4f}{budget}"


class Pace:
    """Lets requests of all threads begin at most so often, and none before a hold is over."""

    def __init__(self, per_minute: int | None, is_over: threading.Event):
        self._interval_s = 60 / per_minute if per_minute else 0.0
        self._is_over = is_over
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Raises ChatFailed once the run is over."""
        with self._lock:
            start = max(monotonic(), self._next)
            self._next = start + self._interval_s
        if self._is_over.wait(max(0.0, start - monotonic())):
            raise ChatFailed("The run is over.")

    def hold(self, seconds: float) -> None:
        """Let nobody begin for so long: an endpoint that asks one of us to wait means all."""
        with self._lock:
            self._next = max(self._next, monotonic() + seconds)
