"""Cost of chat models in tokens and money, budgets, and limits on request rates."""

import threading
from collections.abc import Iterable
from decimal import Decimal
from math import ceil
from time import monotonic
from typing import NamedTuple, Protocol

from kgharvest.engine.chat_completions import ChatFailed, Completion
from kgharvest.errors import DomainError

CHARACTERS_PER_TOKEN = 4  # used for estimates, and for endpoints that do not report their usage
MAX_TEMPLATE_TOKENS = 50  # maximum number of tokens that a chat template adds to a message
COST_PRECISION = Decimal("0.00000001")


class BudgetSpent(DomainError):
    """Raised if the next response could exceed the budget."""


class Priced(Protocol):
    """Prices per million tokens, in an unspecified currency."""

    prompt_price: Decimal
    completion_price: Decimal


class Limited(Priced, Protocol):
    """Prices, and limits on total tokens and cost. None: no limit."""

    max_tokens_total: int | None
    budget: Decimal | None


class Reserved(NamedTuple):
    """Maximum usage of a request. A prompt has at most one token per byte."""

    n_tokens: int
    cost: Decimal


def cost_of(prices: Priced, n_prompt_tokens: int, n_completion_tokens: int) -> Decimal:
    amount = n_prompt_tokens * prices.prompt_price + n_completion_tokens * prices.completion_price
    return (Decimal(amount) / 1_000_000).quantize(COST_PRECISION)


def reserved(prices: Priced, prompt: str, max_completion_tokens: int) -> Reserved:
    n_prompt = len(prompt.encode()) + MAX_TEMPLATE_TOKENS
    return Reserved(n_prompt + max_completion_tokens, cost_of(prices, n_prompt, max_completion_tokens))


def tokens_of(prompt: str, completion: Completion) -> tuple[int, int]:
    """Return the numbers of tokens of a prompt and its response.

    They are estimated if the endpoint does not report them.
    """
    counts = (completion.n_prompt_tokens, completion.n_completion_tokens)
    n_prompt, n_completion = (
        ceil(len(text) / CHARACTERS_PER_TOKEN) if count is None else count
        for text, count in zip((prompt, completion.text), counts, strict=True)
    )
    return n_prompt, n_completion


class Spending:
    """Tokens and money spent so far, and the limits on both. `count` is thread-safe."""

    def __init__(self, limits: Limited, n_tokens: int = 0, cost: Decimal = Decimal(0)):
        self.n_tokens, self.cost = n_tokens, cost
        self._limits = limits
        self._counting = threading.Lock()

    def has_room(self, requests: Iterable[Reserved]) -> bool:
        """Return whether the budget covers the maximum usage of the requests."""
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
        """Return the usage as a clause: "it has used 90 tokens of 100 tokens and 0.5000 of a budget of 1"."""
        limits = self._limits
        limit = "" if limits.max_tokens_total is None else f" of {limits.max_tokens_total} tokens"
        budget = "" if limits.budget is None else f" of a budget of {limits.budget:f}"
        return f"it has used {self.n_tokens} tokens{limit} and {self.cost:.4f}{budget}"


class Pace:
    """Limits the request rate of all threads together. Also delays requests while a hold is in effect."""

    def __init__(self, per_minute: int | None, is_over: threading.Event):
        self._interval_s = 60 / per_minute if per_minute else 0.0
        self._is_over = is_over
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Wait until the next request may be sent. Raises ChatFailed once the run is over."""
        with self._lock:
            start = max(monotonic(), self._next)
            self._next = start + self._interval_s
        if self._is_over.wait(max(0.0, start - monotonic())):
            raise ChatFailed("The run is over.")

    def hold(self, seconds: float) -> None:
        """Delay the requests of all threads. Called if the endpoint asks to wait."""
        with self._lock:
            self._next = max(self._next, monotonic() + seconds)
