"""Judges behind an OpenAI-compatible endpoint: several requests at once, within a rate and a budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from decimal import Decimal
from time import monotonic
from typing import NamedTuple

from django.conf import settings

from annotation.judges.labels import UNPARSABLE
from annotation.judges.models import JudgeRun
from annotation.judges.prompts import fill
from annotation.judges.runs import CHARACTERS_PER_TOKEN, Answered, Question, Usage, cost_of, is_trusted, round_up
from kgharvest.engine.chat_completions import ChatClient, ChatFailed, Completion, Filtered, NoCompletion
from kgharvest.errors import DomainError
from kgharvest.webhooks.addresses import resolve

API_KEY_VARIABLE = "KGHARVEST_JUDGE_API_KEY"
TRIES_FOR_A_COMPLETION = 3  # replies that are none are asked for again
TOKENS_OF_A_FRAME = 50  # at most, that a chat template puts around a message
POLL_S = 0.5  # a cancelled run notices with the next


class BudgetSpent(DomainError):
    """A run that stopped because the next answer might cost more than its budget has left."""


class Reserved(NamedTuple):
    """The most that a request may use: a token is at least a byte of the prompt."""

    n_tokens: int
    cost: Decimal


class Attempt(NamedTuple):
    """A question with what came of asking it so far. n: replies that were no completion. spent: the last of them, with
    the tokens of all; None before the first."""

    question: Question
    n: int = 0
    spent: Answered | None = None


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


class ChatJudge:
    """used: by answers that are stored already."""

    def __init__(self, run: JudgeRun, used: Usage):
        self._run = run
        self._n_tokens, self._cost = used.n_tokens, used.cost
        self._counting = threading.Lock()
        self._is_over = threading.Event()
        pace = Pace(run.requests_per_minute, self._is_over)
        self._client = ChatClient(
            "The judge",
            run.base_url or settings.JUDGE_BASE_URL,
            run.model,
            API_KEY_VARIABLE if is_trusted(run) else "",
            run.timeout_s,
            advice="check the address, or retry the run later; what is answered stays",
            before_request=pace.wait,
            sleep=pace.hold,
            connect_to="" if is_trusted(run) else _checked_address(run.base_url),
        )

    def answers(self, questions: Sequence[Question], tick: Callable[[], None]) -> Iterator[list[Answered]]:
        """As Judge.answers. Raises BudgetSpent before the budget is exceeded, and ChatFailed.

        In both cases after the answers that were on their way have come and been stored, and replies that were no
        completion: they may have been charged for.
        """
        waiting = [Attempt(question) for question in reversed(questions)]
        in_flight: dict[Future[Attempt | Answered], tuple[Attempt, Reserved]] = {}
        failures: list[ChatFailed] = []
        pool = ThreadPoolExecutor(self._run.n_parallel, "judge")
        try:
            while True:
                while waiting and not failures and self._has_room(in_flight.values(), waiting[-1]):
                    attempt = waiting.pop()
                    in_flight[pool.submit(self._ask, attempt)] = attempt, self._reserved(attempt)
                if not in_flight:
                    break
                done, _ = wait(in_flight, POLL_S, FIRST_COMPLETED)
                tick()
                asked = {future: in_flight.pop(future)[0] for future in done}
                failed = {future: error for future in done if isinstance(error := future.exception(), ChatFailed)}
                failures += failed.values()
                came = [future.result() for future in done if future not in failed]
                waiting += [asked[future] for future in failed]
                waiting += [outcome for outcome in came if isinstance(outcome, Attempt)]
                if answered := [outcome for outcome in came if isinstance(outcome, Answered)]:
                    yield answered
            if spent := [attempt.spent for attempt in waiting if attempt.spent]:
                waiting = [attempt for attempt in waiting if not attempt.spent]
                yield spent
            if failures:
                raise failures[0]
            if waiting:
                raise BudgetSpent(self._spent_text(len(waiting)))
        finally:
            self._is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            self._client.close()

    def _prompt(self, question: Question) -> str:
        texts = self._run.relation_texts[str(question.judged.relation_id)]
        return fill(self._run.prompt, question.judged.statement, texts)

    def _reserved(self, attempt: Attempt) -> Reserved:
        n_prompt = len(self._prompt(attempt.question).encode()) + TOKENS_OF_A_FRAME
        n_completion = self._run.max_completion_tokens
        return Reserved(n_prompt + n_completion, cost_of(self._run, n_prompt, n_completion))

    def _has_room(self, in_flight: Collection[tuple[Attempt, Reserved]], attempt: Attempt) -> bool:
        """Return whether a slot is free, and the budget bears the attempt if all on their way use the most."""
        run, requests = self._run, [*(reserved for _, reserved in in_flight), self._reserved(attempt)]
        n_tokens = self._n_tokens + sum(request.n_tokens for request in requests)
        cost = self._cost + sum(request.cost for request in requests)
        return (
            len(requests) <= run.n_parallel
            and (run.max_tokens_total is None or n_tokens <= run.max_tokens_total)
            and (run.budget is None or cost <= run.budget)
        )

    def _count(self, answer: Answered) -> None:
        with self._counting:
            self._n_tokens += answer.n_prompt_tokens + answer.n_completion_tokens
            self._cost += cost_of(self._run, answer.n_prompt_tokens, answer.n_completion_tokens)

    def _spent_text(self, n_left: int) -> str:
        limit = "" if self._run.max_tokens_total is None else f" of {self._run.max_tokens_total} tokens"
        budget = "" if self._run.budget is None else f" of a budget of {self._run.budget:f}"
        return (
            f"The run stopped before its budget is exceeded: it has used {self._n_tokens} tokens{limit} and "
            f"{self._cost:.4f}{budget}, and the next answer might take more than is left; {n_left} questions are open. "
            "Continue it with a larger budget."
        )

    def _ask(self, attempt: Attempt) -> Answered | Attempt:
        """Return the answer to a question, or the attempt with one more reply that is no completion: it is asked again
        within the budget, or kept as it came after TRIES_FOR_A_COMPLETION. Raises ChatFailed."""
        prompt = self._prompt(attempt.question)
        options = {"temperature": self._run.temperature, "seed": self._run.seed + attempt.question.repeat}
        is_completion = True
        try:
            completion = self._client.complete(prompt, self._run.max_completion_tokens, **options)
        except Filtered as refusal:
            return _with_spent(Answered(attempt.question, refusal.text, label=UNPARSABLE), attempt.spent)
        except NoCompletion as fault:
            completion, is_completion = Completion(fault.text), False
        answered = _answered(attempt.question, prompt, completion)
        if not is_completion:  # whatever came is no answer, even if it holds "false", as JSON does
            most = self._run.max_completion_tokens  # what came is no text of the LM's
            answered = answered._replace(label=UNPARSABLE, n_completion_tokens=min(answered.n_completion_tokens, most))
        self._count(answered)
        total = _with_spent(answered, attempt.spent)
        if is_completion or attempt.n + 1 == TRIES_FOR_A_COMPLETION:
            return total
        return Attempt(attempt.question, attempt.n + 1, total)


def _with_spent(answer: Answered, spent: Answered | None) -> Answered:
    """Return the answer with the tokens of earlier replies to its question."""
    if spent is None:
        return answer
    return answer._replace(
        n_prompt_tokens=answer.n_prompt_tokens + spent.n_prompt_tokens,
        n_completion_tokens=answer.n_completion_tokens + spent.n_completion_tokens,
    )


def _answered(question: Question, prompt: str, completion: Completion) -> Answered:
    counts = (completion.n_prompt_tokens, completion.n_completion_tokens)
    n_prompt, n_completion = (
        round_up(len(text) / CHARACTERS_PER_TOKEN) if count is None else count
        for text, count in zip((prompt, completion.text), counts, strict=True)
    )
    model = f"{completion.model} {completion.fingerprint}".strip()
    return Answered(question, completion.text, model, n_prompt, n_completion, completion.seconds)


def _checked_address(base_url: str) -> str:
    """Return the address that the host's name means now. Raises BadAddress, or ChatFailed if it is unknown."""
    try:
        return str(resolve(base_url).address)
    except OSError:
        raise ChatFailed(f"The host of {base_url} is not known here; check the judge's address.") from None
