"""Chat judges: LM judges behind an OpenAI-compatible endpoint, with parallel requests, a rate limit, and a budget."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from annotation.judges.labels import UNPARSABLE
from annotation.judges.models import JudgeRun
from annotation.judges.prompts import fill
from annotation.judges.runs import Answered, Question, Usage, endpoint_of
from kgharvest.chat_models.spending import BudgetSpent, Pace, Reserved, Spending, reserved, tokens_of
from kgharvest.engine.chat_completions import ChatFailed, Completion, Filtered, NoCompletion

TRIES_FOR_A_COMPLETION = 3  # maximum requests per question if no reply is a completion
POLL_S = 0.5  # maximum seconds until the cancellation of a run is noticed


class Attempt(NamedTuple):
    """A question and its replies so far.

    n: number of replies that were not completions. spent: the last such reply, with the total tokens of all such
    replies; None if n is 0.
    """

    question: Question
    n: int = 0
    spent: Answered | None = None


class ChatJudge:
    """Judge that calls a chat endpoint. used: tokens and cost that the run used earlier."""

    def __init__(self, run: JudgeRun, used: Usage):
        self._run = run
        self._spending = Spending(run, used.n_tokens, used.cost)
        self._is_over = threading.Event()
        advice = "check the base URL, or retry the run later; stored answers are kept"
        pace = Pace(run.requests_per_minute, self._is_over)
        self._client = endpoint_of(run).client(run.model, run.timeout_s, advice, pace)

    def answers(self, questions: Sequence[Question], tick: Callable[[], None]) -> Iterator[list[Answered]]:
        """Yield answers as they arrive. The caller must store the answers before it requests the next answers.

        tick: called regularly; may raise an error to stop the work. Raises ChatFailed, or BudgetSpent if the next
        answer might exceed the budget.

        Before it raises one of these errors, the generator waits for pending requests and yields their answers. The
        generator also yields the usage of replies that were not completions, although the questions of these replies
        stay open.
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
                attempts = {future: in_flight.pop(future)[0] for future in done}
                errors = {future: error for future in done if isinstance(error := future.exception(), ChatFailed)}
                failures += errors.values()
                outcomes = [future.result() for future in done if future not in errors]
                waiting += [attempts[future] for future in errors]
                waiting += [outcome for outcome in outcomes if isinstance(outcome, Attempt)]
                if answers := [outcome for outcome in outcomes if isinstance(outcome, Answered)]:
                    yield answers
            if spent := [attempt.spent._replace(is_answer=False) for attempt in waiting if attempt.spent]:
                yield spent
            if failures:
                raise failures[0]
            if waiting:
                raise BudgetSpent(
                    f"The run stopped before exceeding its budget: {self._spending.in_words()}, and the next answer "
                    f"might exceed the limit. {len(waiting)} questions are open. Continue the run with a larger budget."
                )
        finally:
            self._is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            self._client.close()

    def _prompt(self, question: Question) -> str:
        texts = self._run.relation_texts[str(question.judged.relation_id)]
        return fill(self._run.prompt, question.judged.statement, texts)

    def _reserved(self, attempt: Attempt) -> Reserved:
        return reserved(self._run, self._prompt(attempt.question), self._run.max_completion_tokens)

    def _has_room(self, in_flight: Collection[tuple[Attempt, Reserved]], attempt: Attempt) -> bool:
        """Return whether a request slot is free and the budget suffices.

        The budget must cover the maximum usage of this attempt and of all pending requests.
        """
        requests = [*(request for _, request in in_flight), self._reserved(attempt)]
        return len(requests) <= self._run.n_parallel and self._spending.has_room(requests)

    def _ask(self, attempt: Attempt) -> Answered | Attempt:
        """Return the answer to a question or, if the reply is not a completion, the attempt with this reply added.

        After TRIES_FOR_A_COMPLETION such replies, the last one is returned as an answer. Raises ChatFailed.
        """
        prompt = self._prompt(attempt.question)
        options = {"temperature": self._run.temperature, "seed": self._run.seed + attempt.question.repeat}
        is_completion = True
        try:
            completion = self._client.complete(prompt, self._run.max_completion_tokens, **options)
        except Filtered as refusal:
            return _with_spent(Answered(attempt.question, refusal.text, label=UNPARSABLE), attempt.spent)
        except NoCompletion as fault:
            completion, is_completion = Completion(fault.text), False
        model = f"{completion.model} {completion.fingerprint}".strip()
        tokens = tokens_of(prompt, completion)
        answered = Answered(attempt.question, completion.text, model, *tokens, completion.seconds)
        # The LM did not write this reply, so "false" in it is not a label, and its length is not a token count.
        if not is_completion:
            most = self._run.max_completion_tokens
            answered = answered._replace(label=UNPARSABLE, n_completion_tokens=min(answered.n_completion_tokens, most))
        self._spending.count(answered.n_prompt_tokens, answered.n_completion_tokens)
        total = _with_spent(answered, attempt.spent)
        if is_completion or attempt.n + 1 == TRIES_FOR_A_COMPLETION:
            return total
        return Attempt(attempt.question, attempt.n + 1, total)


def _with_spent(answer: Answered, spent: Answered | None) -> Answered:
    if spent is None:
        return answer
    return answer._replace(
        n_prompt_tokens=answer.n_prompt_tokens + spent.n_prompt_tokens,
        n_completion_tokens=answer.n_completion_tokens + spent.n_completion_tokens,
    )
