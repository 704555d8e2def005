"""Runs of judges: made with all they need frozen in them, done by a worker, continued with a larger budget."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet, Sum
from django.utils import timezone

from annotation.judges.labels import label_of
from annotation.judges.models import JudgeAnswer, JudgeKind, JudgeRun
from annotation.judges.prompts import fill, relation_texts, sha256_of
from annotation.judges.specs import run_from_spec
from annotation.models import Round
from annotation.rounds.builder import populations
from annotation.rounds.instructions import freeze_statement
from kgharvest.access import Action, check_may, owns_installation
from kgharvest.bulk.insert import insert_rows, storable
from kgharvest.chat_models.services import Endpoint
from kgharvest.chat_models.spending import CHARACTERS_PER_TOKEN, cost_of, round_up
from kgharvest.errors import DomainError, NotFound
from kgharvest.events.recording import record
from kgharvest.harvests.language_models import check_where, get_language_model, in_words, language_model_for_pages
from kgharvest.jobs import ledger
from kgharvest.models import HarvestedTuple, KnowledgeTuple, Relation

API_KEY_VARIABLE = "KGHARVEST_JUDGE_API_KEY"
TOKENS_OF_AN_ANSWER = 5  # to expect of one word
ESTIMATED_FROM = 200  # tuples
UNANSWERED = "unanswered"  # of a run's payload: tokens of prompts and of replies whose questions stayed open
ANSWER_FIELDS = (
    "run", "knowledge_tuple", "repeat", "raw", "label", "score", "prompt_sha256", "model_reported", "n_prompt_tokens",
    "n_completion_tokens", "cost", "seconds", "answered_at",
)  # fmt: skip


class AnswersWouldBeLost(DomainError):
    """Deleting runs that hold answers which whoever deletes them did not count, or that go on answering."""


class JudgedTuple(NamedTuple):
    """entities: as written, by slot."""

    tuple_id: int
    relation_id: int
    statement: str
    entities: Sequence[str]


class Question(NamedTuple):
    """A tuple that a judge is asked about, for the `repeat`-th time, from 0."""

    judged: JudgedTuple
    repeat: int


class Answered(NamedTuple):
    """What a judge answered, as JudgeAnswer describes it.

    label: None for that which `raw` names. prompt_sha256: of a file's answer; else that of the run's prompt.
    is_answer: False for replies that were none when the run had to stop: they were charged for, the question is open.
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
    """Return what the run is asked about: the round's statements, then what they were drawn from, best first.

    Of a draft what opening it would draw from. Each tuple once, worded as its statement, or as the first
    harvest has it. Gold is none of it. Raises NothingToJudge, and as freeze_round does.
    """
    tuples: dict[int, JudgedTuple] = {}
    for judged in _tuples_to_judge(run):
        tuples.setdefault(judged.tuple_id, judged)
        if len(tuples) == run.limit:
            break
    if not tuples:
        raise DomainError(
            "NothingToJudge",
            f"The round {run.round.name} has neither statements nor harvests; there is nothing to judge.",
        )
    return list(tuples.values())


def _tuples_to_judge(run: JudgeRun) -> Iterator[JudgedTuple]:
    round = run.round
    tasks = round.tasks.without_gold().order_by("position")
    columns = ("knowledge_tuple_id", "knowledge_tuple__relation_id", "statement", "entities")
    yield from (JudgedTuple(*row) for row in tasks.values_list(*columns).iterator())
    for relation, kept in _populations(run):
        for tuple_id, surface in kept.values_list("knowledge_tuple_id", "surface").iterator():
            yield JudgedTuple(tuple_id, relation.pk, freeze_statement(relation.statement, surface).text, surface)


def _populations(run: JudgeRun) -> Iterator[tuple[Relation, QuerySet[HarvestedTuple]]]:
    """Yield what the samples of the round were drawn from, or would be, best first."""
    round = run.round
    if round.status == Round.Status.DRAFT:
        yield from ((job.relation, kept) for job, kept in populations(round, run.created_by))
        return
    for stratum in round.strata.filter(job__isnull=False).select_related("job", "relation"):
        kept = stratum.job.tuples.presentable(include_sensitive=round.include_sensitive)
        yield stratum.relation, kept.filter(rank__gte=stratum.rank_from, rank__lte=stratum.rank_to).order_by("rank")


def open_questions(run: JudgeRun) -> tuple[list[Question], int]:
    """Return what the run has no answer for yet, and how many questions there are in all."""
    answered = set(run.answers.order_by().values_list("knowledge_tuple", "repeat").iterator())
    every_tuple = tuples_to_judge(run)
    questions = [Question(judged, repeat) for repeat in range(run.repeats) for judged in every_tuple]
    return [asked for asked in questions if (asked.judged.tuple_id, asked.repeat) not in answered], len(questions)


def create_run(round: Round, document: Mapping[str, Any], by=None) -> JudgeRun:
    """Return a new run in the queue, with its prompt and what it says of relations frozen; nobody is asked yet.

    `queue_run` tells the workers. Raises BadJudgeSpec, BadPromptTemplate, TooFewExamples, NothingToJudge,
    NameOfRunTaken, NotAllowed, BadAddress, NotFound for an LM that is not here, and as freeze_round does for a draft.
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
    """Create a run and tell the workers. Raises as create_run does."""
    run = create_run(round, document, by)
    ledger.enqueue(run)
    return run


def prepare_run(run: JudgeRun, round: Round, by) -> None:
    """Give an unsaved run its round and freeze what its prompt says. Raises as create_run does."""
    check_may(by, Action.WORK, round.project)
    run.round, run.project, run.created_by = round, round.project, by
    run.payload = {"is_trusted": owns_installation(by)}
    if run.judge_kind == JudgeKind.CHAT:
        endpoint_of(run).check()
    elif run.judge_kind in (JudgeKind.CAUSAL, JudgeKind.SCORE):
        find = get_language_model if by is None else language_model_for_pages
        named = find(run.model, run.revision)
        run.model, run.revision = named.name, named.revision
        check_where(named.name, run.device, run.dtype)
        run.payload["device"] = run.device
        run.lm = in_words(str(named), run.device, run.dtype)
    judged = tuples_to_judge(run)
    relations = Relation.objects.select_related("relation_set").filter(pk__in={each.relation_id for each in judged})
    if run.judge_kind == JudgeKind.SCORE:
        run.relation_texts = {
            str(relation.pk): {
                "prompts": [run.prompt] if run.prompt else relation.initial_prompts,
                "seed_tuples": relation.seed_tuples,
            }
            for relation in relations
        }
    elif run.judge_kind != JudgeKind.FILE:
        judged_ids = {each.tuple_id for each in judged}
        known = KnowledgeTuple.objects.filter(relation__in=relations).values_list("pk", "relation", "key")
        keys = {(relation, key) for pk, relation, key in known if pk in judged_ids}
        run.relation_texts = relation_texts(round, relations, keys, run.n_examples, run.example_order)
    run.prompt_sha256 = prompt_sha256(run)


def prompt_sha256(run: JudgeRun) -> str:
    """Return the SHA-256 of the prompt as it is now; of a score judge without one, of its relations' in JSON."""
    if run.judge_kind == JudgeKind.SCORE and not run.prompt:
        prompts = {relation_id: texts["prompts"] for relation_id, texts in run.relation_texts.items()}
        return sha256_of(json.dumps(prompts, sort_keys=True, ensure_ascii=False))
    return sha256_of(run.prompt)


def endpoint_of(run: JudgeRun) -> Endpoint:
    """Return where a judge of the kind chat is asked, and what may be sent there."""
    is_owner = run.payload.get("is_trusted", False)
    return Endpoint("The judge", settings.JUDGE_BASE_URL, API_KEY_VARIABLE, run.base_url, is_owner)


def save_run(run: JudgeRun) -> None:
    """Raises NameOfRunTaken, NotFound."""
    try:
        with transaction.atomic():
            if not Round.objects.select_for_update().filter(pk=run.round_id).exists():
                raise NotFound(f"The draft {run.round.name} was deleted meanwhile.")
            run.save()
    except IntegrityError:
        if not run.round.judge_runs.filter(name=run.name).exists():
            raise
        raise DomainError(
            "NameOfRunTaken", f"{run.round.name} has a judge run {run.name!r} already. Choose another name."
        ) from None


def record_run(run: JudgeRun, by) -> None:
    facts = {"run": run.name, "judge": run.model, "prompt_sha256": run.prompt_sha256}
    record("judge_run.made", run, by, round=run.round, **facts)


def continue_run(run: JudgeRun, limits: Mapping[str, Any], by=None) -> JudgeRun:
    """Queue a run that stopped again. limits: new ones, of `budget` and `max_tokens_total`; those left out stay.

    Raises NotAllowed, BudgetTooSmall, JobNotOpen.
    """
    check_may(by, Action.WORK, run.project)
    used = usage_of(run)
    with transaction.atomic():
        for name, spent, sentence in (
            ("budget", used.cost, f"The run has cost {used.cost:.4f} already; give it a budget above that."),
            ("max_tokens_total", used.n_tokens, f"The run has used {used.n_tokens} tokens already; allow it more."),
        ):
            wanted = limits.get(name, getattr(run, name))
            if name in limits and wanted is not None and wanted <= spent:
                raise DomainError("BudgetTooSmall", sentence)
            setattr(run, name, wanted)
        run.save(update_fields=["budget", "max_tokens_total"])
        ledger.retry(run, by)
    run.refresh_from_db()
    return run


def delete_runs(round: Round, n_answers: int, by=None) -> None:
    """Delete the runs of a round, within the caller's transaction, if they hold no more answers than `n_answers`.

    Answers cost money and cannot be had again. Raises AnswersWouldBeLost.
    """
    runs = list(round.judge_runs.order_by("pk"))
    if unfinished := [run.name for run in runs if run.is_unfinished]:
        raise AnswersWouldBeLost(f"The judge run {unfinished[0]} still goes on; cancel it, or wait until it has ended.")
    usages = [usage_of(run) for run in runs]
    held, cost = sum(usage.n_answers for usage in usages), sum(usage.cost for usage in usages)
    if held > n_answers:
        raise AnswersWouldBeLost(
            f"The judge runs of {round.name} hold {held} answers (cost {cost:.4f}), which would be "
            f"deleted with it. Download those you want to keep; judge_answers={held} deletes them."
        )
    for run, usage in zip(runs, usages, strict=True):
        record("judge_run.deleted", run, by, round=round, run=run.name, n_answers=usage.n_answers)
        run.delete()


def find_run(round: Round, name: str) -> JudgeRun:
    """Return the round's run of this name. Raises NotFound."""
    run = round.judge_runs.for_list().filter(name=name).first()
    if run is None:
        raise NotFound(f"The round {round.name} has no judge run {name!r}; look at the list of its judge runs.")
    return run


def store_answers(run: JudgeRun, answers: Sequence[Answered]) -> None:
    """Add answers to the run, and what replies were charged that were none, within the caller's transaction."""
    sha256, now = prompt_sha256(run), timezone.now()
    if replies := [answer for answer in answers if not answer.is_answer]:  # their questions stay open
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
    """What a run has used, or is expected to use. cost: in the currency of its prices."""

    n_answers: int
    n_prompt_tokens: int
    n_completion_tokens: int
    cost: Decimal

    @property
    def n_tokens(self) -> int:
        return self.n_prompt_tokens + self.n_completion_tokens


def usage_of(run: JudgeRun) -> Usage:
    """Return what the run has used, with the replies to questions that stayed open."""
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
    """Return what a run of this description would use, one-word answers taken for granted. Raises as create_run does.

    Tokens are estimated from the lengths of some filled prompts; what runs here costs no tokens.
    """
    run, _ = run_from_spec(document)
    prepare_run(run, round, by)
    judged = tuples_to_judge(run)
    n_questions = len(judged) * run.repeats
    if run.judge_kind != JudgeKind.CHAT:
        return Usage(n_questions, 0, 0, Decimal(0))
    some = judged[:: max(1, len(judged) // ESTIMATED_FROM)]
    n_characters = sum(
        len(fill(run.prompt, each.statement, run.relation_texts[str(each.relation_id)])) for each in some
    )
    n_prompt_tokens = round_up(n_questions * n_characters / len(some) / CHARACTERS_PER_TOKEN)
    n_completion_tokens = n_questions * TOKENS_OF_AN_ANSWER
    return Usage(n_questions, n_prompt_tokens, n_completion_tokens, cost_of(run, n_prompt_tokens, n_completion_tokens))
