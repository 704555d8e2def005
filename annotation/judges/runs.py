"""Judge runs: creation with frozen prompts, open questions, answers, usage, and continuation with a larger budget."""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from math import ceil
from typing import Any, NamedTuple

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from annotation.judges.labels import label_of
from annotation.judges.models import JudgeAnswer, JudgeKind, JudgeRun
from annotation.judges.prompts import fill, relation_texts, sha256_of
from annotation.judges.specs import run_from_spec
from annotation.models import Round
from annotation.rounds.builder import populations
from annotation.rounds.instructions import freeze_statement
from kgharvest.access import Action, check_may, owns_installation
from kgharvest.audit.tables import AuditedTable
from kgharvest.bulk.insert import insert_rows, storable
from kgharvest.chat_models.services import Endpoint
from kgharvest.chat_models.spending import CHARACTERS_PER_TOKEN, cost_of
from kgharvest.errors import DomainError, NotFound
from kgharvest.events.recording import record
from kgharvest.harvests.language_models import check_where, get_language_model, in_words, language_model_for_pages
from kgharvest.jobs import ledger
from kgharvest.models import HarvestedTuple, KnowledgeTuple, Relation

API_KEY_VARIABLE = "KGHARVEST_JUDGE_API_KEY"
TOKENS_OF_AN_ANSWER = 5  # estimate for one word
ESTIMATED_FROM = 200  # tuples sampled for an estimate
UNANSWERED = "unanswered"  # payload key: prompt and completion tokens of replies that were not answers
JUDGE_RUNS = AuditedTable(
    JudgeRun,
    *("round_id", "judge_kind", "model", "revision", "prompt_sha256", "temperature", "seed", "repeats", "threshold"),
    children=("answers", "id", "knowledge_tuple_id", "repeat", "raw", "label", "score", "cost"),
    is_mutable=True,
    unfinished=Q(status__in=[JudgeRun.Status.QUEUED, JudgeRun.Status.RUNNING]),
)
ANSWER_FIELDS = (
    "run", "knowledge_tuple", "repeat", "raw", "label", "score", "prompt_sha256", "model_reported", "n_prompt_tokens",
    "n_completion_tokens", "cost", "seconds", "answered_at",
)  # fmt: skip


class AnswersWouldBeLost(DomainError):
    """Raised on deletion of unfinished runs, or of runs with more answers than the caller confirmed."""


class JudgedTuple(NamedTuple):
    """A tuple to judge. entities: surface forms by slot."""

    tuple_id: int
    relation_id: int
    statement: str
    entities: Sequence[str]


class Question(NamedTuple):
    """A tuple to judge and the number of the repeat, from 0."""

    judged: JudgedTuple
    repeat: int


class Answered(NamedTuple):
    """An answer of a judge; see JudgeAnswer.

    label: None to parse it from `raw`. prompt_sha256: prompt hash of an imported answer; empty if the run's own prompt
    was used. is_answer: False if the run stopped after a reply that was not a completion. This reply is charged, but
    the question stays open.
    """

    question: Question
    raw: str
    model_reported: str = ""
    n_prompt_tokens: int = 0
    n_completion_tokens: int = 0
    seconds: float | None = None
    score: float | None = None
    label: str | None = None
    prompt_sha256: str = ""
    is_answer: bool = True


def tuples_to_judge(run: JudgeRun) -> list[JudgedTuple]:
    """Return the tuples of the run: the round's statements, then the populations of its samples, best tuple first.

    For a draft, these are the populations that would be sampled if the draft were opened now. Each tuple appears once,
    worded as in its statement. A tuple without a statement is worded as in the first harvest that contains it. Gold
    statements are excluded. Raises NothingToJudge, or the same errors as freeze_round.
    """
    tuples: dict[int, JudgedTuple] = {}
    for judged in _tuples_to_judge(run):
        tuples.setdefault(judged.tuple_id, judged)
        if len(tuples) == run.limit:
            break
    if not tuples:
        raise DomainError(
            "NothingToJudge", f"Round {run.round.name} has no statements and no harvests. Add a cell with a harvest."
        )
    return list(tuples.values())


def _tuples_to_judge(run: JudgeRun) -> Iterator[JudgedTuple]:
    round = run.round
    tasks = round.tasks.without_gold().order_by("position")
    columns = ("knowledge_tuple_id", "knowledge_tuple__relation_id", "statement", "entities")
    yield from (JudgedTuple(*row) for row in tasks.values_list(*columns).iterator())
    for relation, population in _populations(run):
        for tuple_id, surface in population.values_list("knowledge_tuple_id", "surface").iterator():
            yield JudgedTuple(tuple_id, relation.pk, freeze_statement(relation.statement, surface).text, surface)


def _populations(run: JudgeRun) -> Iterator[tuple[Relation, QuerySet[HarvestedTuple]]]:
    """Yield (relation, population) for each sample of the round, best tuple first."""
    round = run.round
    if round.status == Round.Status.DRAFT:
        yield from ((job.relation, population) for job, population in populations(round, run.created_by))
        return
    for stratum in round.strata.filter(job__isnull=False).select_related("job", "relation"):
        tuples = stratum.job.tuples.presentable(include_sensitive=round.include_sensitive)
        yield stratum.relation, tuples.filter(rank__gte=stratum.rank_from, rank__lte=stratum.rank_to).order_by("rank")


def open_questions(run: JudgeRun) -> tuple[list[Question], int]:
    """Return the questions without an answer, and the number of all questions of the run."""
    answered = set(run.answers.order_by().values_list("knowledge_tuple", "repeat").iterator())
    tuples = tuples_to_judge(run)
    questions = [Question(judged, repeat) for repeat in range(run.repeats) for judged in tuples]
    unanswered = [question for question in questions if (question.judged.tuple_id, question.repeat) not in answered]
    return unanswered, len(questions)


def create_run(round: Round, document: Mapping[str, Any], by=None) -> JudgeRun:
    """Create a queued run with a frozen prompt and relation texts, without notifying workers (see `queue_run`).

    Raises BadJudgeSpec, BadPromptTemplate, TooFewExamples, NothingToJudge, NameOfRunTaken, NotAllowed, BadAddress,
    NotFound for an LM that is not installed, or, for a draft, the same errors as freeze_round.
    """
    run, path = run_from_spec(document)
    if run.judge_kind == JudgeKind.FILE or path:
        raise DomainError("BadJudgeSpec", "path is only for imports. Omit it, or import the file.")
    prepare_run(run, round, by)
    with transaction.atomic():
        save_run(run)
        record_run(run, by)
    return run


@transaction.atomic
def queue_run(round: Round, document: Mapping[str, Any], by=None) -> JudgeRun:
    """Create a run and enqueue it for workers. Raises the same errors as create_run."""
    run = create_run(round, document, by)
    ledger.enqueue(run)
    return run


def prepare_run(run: JudgeRun, round: Round, by) -> None:
    """Set round and payload of an unsaved run, and freeze its relation texts. Raises the same errors as create_run."""
    check_may(by, Action.WORK, round.project)
    run.round, run.project, run.created_by = round, round.project, by
    run.payload = {"is_trusted": owns_installation(by)}
    if run.judge_kind == JudgeKind.CHAT:
        endpoint_of(run).check()
    elif run.judge_kind in (JudgeKind.CAUSAL, JudgeKind.SCORE):
        find = get_language_model if by is None else language_model_for_pages
        language_model = find(run.model, run.revision)
        run.model, run.revision = language_model.name, language_model.revision
        check_where(language_model.name, run.device, run.dtype)
        run.payload["device"] = run.device
        run.lm = in_words(str(language_model), run.device, run.dtype)
    tuples = tuples_to_judge(run)
    relations = Relation.objects.select_related("relation_set").filter(pk__in={row.relation_id for row in tuples})
    if run.judge_kind == JudgeKind.SCORE:
        run.relation_texts = {
            str(relation.pk): {
                "prompts": [run.prompt] if run.prompt else relation.initial_prompts,
                "seed_tuples": relation.seed_tuples,
            }
            for relation in relations
        }
    elif run.judge_kind != JudgeKind.FILE:
        tuple_ids = {row.tuple_id for row in tuples}
        stored_keys = KnowledgeTuple.objects.filter(relation__in=relations).values_list("pk", "relation", "key")
        keys = {(relation, key) for pk, relation, key in stored_keys if pk in tuple_ids}
        run.relation_texts = relation_texts(round, relations, keys, run.n_examples, run.example_order)
    run.prompt_sha256 = prompt_sha256(run)


def prompt_sha256(run: JudgeRun) -> str:
    """Return the SHA-256 of the prompt. For a score judge without a prompt, hash the relations' prompts as JSON."""
    if run.judge_kind == JudgeKind.SCORE and not run.prompt:
        prompts = {relation_id: texts["prompts"] for relation_id, texts in run.relation_texts.items()}
        return sha256_of(json.dumps(prompts, sort_keys=True, ensure_ascii=False))
    return sha256_of(run.prompt)


def endpoint_of(run: JudgeRun) -> Endpoint:
    """Return the endpoint of a chat judge."""
    is_owner = run.payload.get("is_trusted", False)
    return Endpoint("The judge", settings.JUDGE_BASE_URL, API_KEY_VARIABLE, run.base_url, is_owner)


def save_run(run: JudgeRun) -> None:
    """Save a new run. Raises NameOfRunTaken or NotFound."""
    try:
        with transaction.atomic():
            if not Round.objects.select_for_update().filter(pk=run.round_id).exists():
                raise NotFound(f"Draft {run.round.name} not found. It was deleted in the meantime.")
            run.save()
    except IntegrityError:
        if not run.round.judge_runs.filter(name=run.name).exists():
            raise
        raise DomainError(
            "NameOfRunTaken", f"{run.round.name} already has a judge run {run.name!r}. Choose another name."
        ) from None


def record_run(run: JudgeRun, by) -> None:
    facts = {"run": run.name, "judge": run.model, "prompt_sha256": run.prompt_sha256}
    record("judge_run.made", run, by, round=run.round, **facts)


def continue_run(run: JudgeRun, limits: Mapping[str, Any], by=None) -> JudgeRun:
    """Queue a stopped run again. limits: new values of JudgeRun.LIMITS; a limit that is missing is not changed.

    Raises NotAllowed, BudgetTooSmall, or JobNotOpen.
    """
    check_may(by, Action.WORK, run.project)
    used = usage_of(run)
    with transaction.atomic():
        for name, spent, message in (
            ("budget", used.cost, f"The run has already cost {used.cost:.4f}. Increase the budget."),
            ("max_tokens_total", used.n_tokens, f"The run has used {used.n_tokens} tokens. Increase the token limit."),
        ):
            limit = limits.get(name, getattr(run, name))
            if name in limits and limit is not None and limit <= spent:
                raise DomainError("BudgetTooSmall", message)
            setattr(run, name, limit)
        run.save(update_fields=run.LIMITS)
        ledger.retry(run, by)
    run.refresh_from_db()
    return run


def delete_runs(round: Round, n_answers: int, by=None) -> None:
    """Delete all runs of the round in the caller's transaction if they have at most `n_answers` answers in total.

    Answers cost money and cannot be recovered. Raises AnswersWouldBeLost.
    """
    runs = list(round.judge_runs.order_by("pk"))
    if unfinished := [run.name for run in runs if run.is_unfinished]:
        raise AnswersWouldBeLost(f"Judge run {unfinished[0]} is unfinished. Cancel it, or wait until it ends.")
    usages = [usage_of(run) for run in runs]
    total, cost = sum(usage.n_answers for usage in usages), sum(usage.cost for usage in usages)
    if total > n_answers:
        raise AnswersWouldBeLost(
            f"Judge runs of {round.name} have {total} answers (cost {cost:.4f}) that would be deleted. Download the "
            f"answers you need, then confirm with judge_answers={total}."
        )
    for run, usage in zip(runs, usages, strict=True):
        subject = ("judgerun", run.pk)
        record("judge_run.deleted", subject, by, deleted=[run], round=round, run=run.name, n_answers=usage.n_answers)
        run.delete()


def find_run(round: Round, name: str) -> JudgeRun:
    """Return the round's run with this name. Raises NotFound."""
    run = round.judge_runs.for_list().filter(name=name).first()
    if run is None:
        raise NotFound(f"Round {round.name} has no judge run {name!r}. See the list of judge runs of the round.")
    return run


def store_answers(run: JudgeRun, answers: Sequence[Answered]) -> None:
    """Store the answers, and the usage of replies that were not answers, within the caller's transaction."""
    sha256, now = prompt_sha256(run), timezone.now()
    if replies := [answer for answer in answers if not answer.is_answer]:
        n_prompt, n_completion = run.payload.get(UNANSWERED, (0, 0))
        n_prompt += sum(reply.n_prompt_tokens for reply in replies)
        n_completion += sum(reply.n_completion_tokens for reply in replies)
        run.payload[UNANSWERED] = [n_prompt, n_completion]
        JudgeRun.objects.filter(pk=run.pk).update(payload=run.payload)
    insert_rows(
        JudgeAnswer,
        ANSWER_FIELDS,
        (
            (
                run.pk,
                answer.question.judged.tuple_id,
                answer.question.repeat,
                storable(answer.raw),
                label_of(answer.raw) if answer.label is None else answer.label,
                answer.score,
                answer.prompt_sha256 or sha256,
                storable(answer.model_reported)[:700],
                answer.n_prompt_tokens,
                answer.n_completion_tokens,
                cost_of(run, answer.n_prompt_tokens, answer.n_completion_tokens),
                answer.seconds,
                now,
            )
            for answer in answers
            if answer.is_answer
        ),
    )


class Usage(NamedTuple):
    """Usage of a run, actual or estimated. cost: in the currency of the run's prices."""

    n_answers: int
    n_prompt_tokens: int
    n_completion_tokens: int
    cost: Decimal

    @property
    def n_tokens(self) -> int:
        return self.n_prompt_tokens + self.n_completion_tokens


def usage_of(run: JudgeRun) -> Usage:
    """Return the usage so far, including replies to questions that are still open."""
    sums = run.answers.order_by().aggregate(
        n=Count("pk"),
        prompt=Sum("n_prompt_tokens", default=0),
        completion=Sum("n_completion_tokens", default=0),
        cost=Sum("cost", default=Decimal(0)),
    )
    n_prompt, n_completion = run.payload.get(UNANSWERED, (0, 0))
    cost = sums["cost"] + cost_of(run, n_prompt, n_completion)
    return Usage(sums["n"], sums["prompt"] + n_prompt, sums["completion"] + n_completion, cost)


def estimated_usage(round: Round, document: Mapping[str, Any], by=None) -> Usage:
    """Return the expected usage of a run with this spec if all answers are one word.

    Raises the same errors as create_run. Tokens are estimated from the lengths of a sample of prompts. Local LMs use no
    tokens.
    """
    run, _ = run_from_spec(document)
    prepare_run(run, round, by)
    tuples = tuples_to_judge(run)
    n_questions = len(tuples) * run.repeats
    if run.judge_kind != JudgeKind.CHAT:
        return Usage(n_questions, 0, 0, Decimal(0))
    sample = tuples[:: max(1, len(tuples) // ESTIMATED_FROM)]
    n_characters = sum(len(fill(run.prompt, row.statement, run.relation_texts[str(row.relation_id)])) for row in sample)
    n_prompt_tokens = ceil(n_questions * n_characters / len(sample) / CHARACTERS_PER_TOKEN)
    n_completion_tokens = n_questions * TOKENS_OF_AN_ANSWER
    return Usage(n_questions, n_prompt_tokens, n_completion_tokens, cost_of(run, n_prompt_tokens, n_completion_tokens))
