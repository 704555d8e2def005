"""Harvests from chat models: request tuples, store each response immediately, and score the tuples with an LM."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace

from django.utils import timezone

from kgharvest.bulk.insert import storable
from kgharvest.chat_models.models import ChatAnswer
from kgharvest.chat_models.options import ChatOptions, from_json
from kgharvest.chat_models.services import endpoint_of, usage_of
from kgharvest.chat_models.spending import Pace, Spending, cost_of, reserved, tokens_of
from kgharvest.engine.chat_completions import Completion, Filtered
from kgharvest.engine.chat_tuples import ASKING, UNPARSABLE, Limits, Listed, answer_format, list_tuples, scores_of
from kgharvest.engine.harvest import order_tuples, score_tuples
from kgharvest.engine.types import HarvestResult, HarvestSpec, OnProgress, Progress
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, LanguageModel

POLL_S = 0.5  # interval between checks for cancellation while waiting for a response


def harvest_from_chat(
    job: HarvestJob, spec: HarvestSpec, heartbeat: ledger.Heartbeat, on_progress: OnProgress
) -> tuple[HarvestResult, str | None]:
    """Return the tuples listed by a chat model, and the revision of the scoring LM, if there is one.

    Responses are stored immediately and reused if the harvest resumes. Raises ChatFailed, NoCompletion, BadAddress, or
    an EngineError from the LM.
    """
    options = from_json(job.payload["chat"])
    listed = _listed(job, spec, options, heartbeat, on_progress)
    if not options.scorer:
        scores = _logprob_scores(job, spec, listed)
        if scores:
            job.score_scale = HarvestJob.ScoreScale.NATS
        tuples = order_tuples(listed.tuples, spec.params, scores)
        return _with_listed(HarvestResult((), tuple(tuples), {}, {"tuples": len(tuples)}), listed), None
    on_progress(Progress("loading the LM that scores", 0))
    name, revision = language_models.split_revision(options.scorer)
    scorer = LanguageModel.objects.get(name=name, revision=revision)
    with heartbeat.kept_alive():
        lm = language_models.load(scorer, job.payload["device"], job.payload["dtype"])
    return _with_listed(score_tuples(spec, listed.tuples, lm, on_progress), listed), lm.revision


def _logprob_scores(job: HarvestJob, spec: HarvestSpec, listed: Listed) -> list[float] | None:
    """Return the score of each tuple from the responses' log-probabilities, or None if one has no score."""
    scores: dict[tuple[str, ...], float] = {}
    for answer in job.chat_answers.order_by("position", "pk"):
        scores = scores_of(answer.logprobs, len(spec.seed_tuples[0]), spec.params.alpha) | scores  # first mention
    keys = [tuple(entity.surface.casefold() for entity in entities) for entities in listed.tuples]
    return [scores[key] for key in keys] if scores.keys() >= set(keys) else None


def _with_listed(result: HarvestResult, listed: Listed) -> HarvestResult:
    rejected = {**listed.rejected, **result.rejected}
    notices = [listed.notice, result.notice]
    if not listed.tuples and listed.rejected[UNPARSABLE]:
        notices.append(
            "No response of the chat model contained a valid tuple. See Chat model responses on the harvest page."
        )
    return replace(
        result,
        rejected=dict(sorted(rejected.items())),
        stats={"answers": listed.n_answers, "listed": len(listed.tuples), **result.stats},
        notice=" ".join(filter(None, notices)) or None,
    )


def _listed(
    job: HarvestJob, spec: HarvestSpec, options: ChatOptions, heartbeat: ledger.Heartbeat, on_progress: OnProgress
) -> Listed:
    asker = Asker(job, options, heartbeat)

    def watched(progress: Progress) -> None:
        asker.progress = progress
        on_progress(progress)

    max_listed = spec.params.max_tuples
    if options.scorer and spec.params.candidates is not None:  # the LM scores all candidates, and the best are stored
        max_listed = max(spec.params.candidates, max_listed or 0)
    limits = Limits(max_listed, options.tuples_per_request, options.patience, options.max_requests)
    with closing(asker):
        return list_tuples(spec, asker.ask, limits, watched)


class Asker:
    """Sends the questions of one harvest to the chat model. If a response is stored, it is returned instead.

    progress: progress to report repeatedly while waiting for a response. Reporting detects cancellation, which ends the
    wait.
    """

    progress = Progress(ASKING, 0)

    def __init__(self, job: HarvestJob, options: ChatOptions, heartbeat: ledger.Heartbeat):
        self._job, self._options, self._heartbeat = job, options, heartbeat
        self._format = answer_format(len(job.payload["spec"]["seed_tuples"][0]))
        answers = ChatAnswer.objects.filter(job=job)
        self._stored = {(answer.position, answer.question_sha256): answer.raw for answer in answers}
        used = usage_of(job)
        self._spending = Spending(options, used["n_prompt_tokens"] + used["n_completion_tokens"], used["cost"])
        endpoint = endpoint_of(options, job.payload.get("is_trusted", False))
        advice = "check the address, or retry the harvest later; stored responses are reused"
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1, "chat")
        pace = Pace(options.requests_per_minute, self._is_over)
        self._client = endpoint.client(job.language_model.name, options.timeout_s, advice, pace)

    def close(self) -> None:
        self._is_over.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def ask(self, question: str, position: int) -> str | None:
        """Implement engine.chat_tuples.Ask. Raises ChatFailed, NoCompletion, or Cancelled."""
        sha256 = hashlib.sha256(question.encode()).hexdigest()
        if (stored := self._stored.get((position, sha256))) is not None:
            return stored
        options = self._options
        if not self._spending.has_room([reserved(options, question, options.max_completion_tokens)]):
            return None
        temperature = {} if options.temperature is None else {"temperature": options.temperature}
        seed = self._job.payload["spec"]["params"]["seed"] + position
        future = self._pool.submit(
            self._client.complete,
            question,
            options.max_completion_tokens,
            seed=seed,
            response_format=self._format,
            **temperature,
            **({} if options.scorer else {"logprobs": True}),
        )
        while not wait([future], POLL_S).done:
            self._heartbeat(self.progress)
        try:
            completion = future.result()
        except Filtered:
            completion = Completion("")  # the response contains no tuples
        # The text that a later read from the database returns.
        completion = completion._replace(text=storable(completion.text))
        n_prompt, n_completion = tokens_of(question, completion)
        self._spending.count(n_prompt, n_completion)
        answer = ChatAnswer(
            job=self._job,
            position=position,
            question_sha256=sha256,
            raw=completion.text,
            logprobs=[(storable(token), logprob) for token, logprob in completion.logprobs],
            model_reported=storable(f"{completion.model} {completion.fingerprint}".strip())[:700],
            n_prompt_tokens=n_prompt,
            n_completion_tokens=n_completion,
            cost=cost_of(self._options, n_prompt, n_completion),
            seconds=completion.seconds,
            answered_at=timezone.now(),
        )
        self._heartbeat.store(answer.save)
        return completion.text
