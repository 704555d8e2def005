"""Harvest jobs: the request frozen in the job, its run in a worker, and its results stored."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise, product
from time import monotonic
from typing import Any

from django.db import IntegrityError, transaction

from kgharvest import code_version
from kgharvest.access import owns_installation
from kgharvest.accounts.projects import project_for
from kgharvest.chat_models.options import ChatOptions, to_json
from kgharvest.chat_models.services import check_endpoint, summary_of
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE, check_placement
from kgharvest.engine.prompts.template import parse_prompts
from kgharvest.engine.settings import SETTINGS, find_setting
from kgharvest.engine.types import HarvestParams, HarvestResult, HarvestSpec, OnProgress, ParaphraserSettings, Progress
from kgharvest.entities.tables import SAME_FACT, canonicalizer, distinct_facts, with_canonical_entities
from kgharvest.errors import DomainError
from kgharvest.harvests import language_models
from kgharvest.harvests.parts.sharing import Sharing
from kgharvest.jobs import ledger
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import HarvestJob, Job, JobPrompt, LanguageModel, Launch, Project, Prompt, Relation
from kgharvest.relations.checks import sentence_error

MIN_SEED_TUPLES = 2


class CellUnderWay(DomainError):
    """A cell that `job` is harvesting, or waits to harvest, with the same parameters."""

    def __init__(self, job: HarvestJob):
        super().__init__(f"Job {job.pk}, {job}, asks the same and is {job.status}; wait for it or cancel it.")
        self.job = job


@dataclass(frozen=True)
class HarvestRequest:
    """A cell and how to harvest it. `prompts`: used instead of the relation's own, initial and ready ones.

    device, dtype: of the LM, as kgharvest.engine.language_models.networks.placement names them. chat: of a setting that
    asks a chat model; the cell's LM is then that model, and `device` is of the LM that scores.

    Raises EngineError for a device or dtype that there is not, or that do not go together.
    """

    relation: Relation
    language_model: LanguageModel
    setting: str
    params: HarvestParams = field(default_factory=HarvestParams)
    prompts: tuple[str, ...] = ()
    paraphraser: ParaphraserSettings = field(default_factory=ParaphraserSettings)
    device: str = DEFAULT_DEVICE
    dtype: str = DEFAULT_DTYPE
    chat: ChatOptions | None = None

    def __post_init__(self) -> None:
        check_placement(self.device, self.dtype)

    @property
    def cell(self) -> str:
        return f"{self.relation.name} × {self.language_model.short_name} × {self.setting}"


def create_harvest_job(
    request: HarvestRequest, by=None, launch: Launch | None = None, project: Project | None = None
) -> HarvestJob:
    """Create a queued job with all it needs frozen in it, in the project of the launch, if there is one.

    Raises RelationNotReady, EngineError, CellUnderWay, NotAllowed or ProjectNotNamed.

    `ledger.run_job` does it in this process; `queue_harvest` leaves it to a worker.
    """
    check_harvest(request, by)
    project = launch.project if launch else project_for(by, project)
    unique_key = unique_key_of(request)
    payload = payload_of(request)
    is_unscored = request.chat is not None and not request.chat.scorer
    if request.chat:
        payload["is_trusted"] = owns_installation(by)
    try:
        with transaction.atomic():
            return HarvestJob.objects.create(
                kind="harvest",
                project=project,
                relation=request.relation,
                language_model=request.language_model,
                setting=request.setting,
                payload=payload,
                lm=lm_of(request),
                score_scale=HarvestJob.ScoreScale.ORDER if is_unscored else HarvestJob.ScoreScale.NATS,
                unique_key=unique_key,
                launch=launch,
                created_by=by,
            )
    except IntegrityError:
        same = HarvestJob.objects.with_cell().unfinished().filter(project=project, unique_key=unique_key).first()
        if same is None:
            raise
        raise CellUnderWay(same) from None


def lm_of(request: HarvestRequest) -> str:
    """Return the LM that the harvest loads, in words; that which scores what a chat model lists, if there is one."""
    if request.chat is None:
        return language_models.in_words(str(request.language_model), request.device, request.dtype)
    return language_models.in_words(request.chat.scorer, request.device, request.dtype) if request.chat.scorer else ""


def requests_for(
    relations: Iterable[Relation],
    language_models: Sequence[LanguageModel],
    settings: Sequence[str],
    chat_models: Sequence[LanguageModel] = (),
    **shared: Any,
) -> Iterator[HarvestRequest]:
    """Yield the cells of relations x LMs x settings; settings that ask a chat model go with `chat_models` instead.

    shared: fields of HarvestRequest that all of them have; `chat` is for chat models alone. Raises NoChatModel.
    """
    chat = shared.pop("chat", None)
    asking = [setting for setting in settings if find_setting(setting).asks_chat]
    if asking and not chat_models:
        raise DomainError(
            "NoChatModel",
            f"The setting {asking[0]} asks a chat model; name one with --chat-model, or among the chat models.",
        )
    if chat_models and not asking:
        some = ", ".join(name for name, setting in SETTINGS.items() if setting.asks_chat)
        raise DomainError(
            "NoChatModel", f"A chat model is named, and no setting asks it; choose the setting {some}, or name none."
        )
    for relation in relations:
        for language_model, setting in product(language_models, settings):
            if setting not in asking:
                yield HarvestRequest(relation, language_model, setting, **shared)
        for language_model, setting in product(chat_models, asking):
            yield HarvestRequest(relation, language_model, setting, chat=chat or ChatOptions(), **shared)


@transaction.atomic
def queue_harvest(request: HarvestRequest, by=None, project: Project | None = None) -> HarvestJob:
    """Create a job and tell the workers."""
    job = create_harvest_job(request, by, project=project)
    ledger.enqueue(job)
    return job


def payload_of(request: HarvestRequest) -> dict[str, Any]:
    """Return what a job is asked to do, frozen: equal for equal requests."""
    chat = {"chat": to_json(request.chat)} if request.chat else {}
    spec = asdict(_spec(request))  # the inverse of `_spec_from_json`
    spec["params"]["disabled_filters"] = sorted(spec["params"]["disabled_filters"])
    return {"spec": json.loads(json.dumps(spec)), "device": request.device, "dtype": request.dtype, **chat}


def unique_key_of(request: HarvestRequest) -> str:
    """Return what is equal for requests that ask the same of the same cell (docs/decisions/0012)."""
    cell = [request.relation.pk, request.language_model.pk, request.setting]
    question = json.dumps([*cell, payload_of(request)], sort_keys=True)
    return f"harvest:{hashlib.sha256(question.encode()).hexdigest()}"


def check_harvest(request: HarvestRequest, by=None) -> None:
    """Raise RelationNotReady, NoEndpoint, BadAddress or an EngineError if `create_harvest_job` would."""
    _check(_spec(request), request.relation)
    if request.chat:
        check_endpoint(request.chat, by)
    if lm := request.chat.scorer if request.chat else request.language_model.name:
        language_models.check_where(language_models.split_revision(lm)[0], request.device, request.dtype)


def _spec(request: HarvestRequest) -> HarvestSpec:
    relation = request.relation
    return HarvestSpec(
        relation=relation.name,
        initial_prompts=request.prompts or tuple(relation.initial_prompts),
        prompts=request.prompts or tuple(relation.prompts),
        seed_tuples=tuple(tuple(entities) for entities in relation.seed_tuples),
        setting=request.setting,
        params=request.params,
        paraphraser=request.paraphraser,
    )


def _check(spec: HarvestSpec, relation: Relation) -> None:
    find_setting(spec.setting)  # refuses one that there is not
    if len(spec.seed_tuples) < MIN_SEED_TUPLES:
        raise DomainError(
            "RelationNotReady",
            f"The relation {relation.path} has {len(spec.seed_tuples)} seed tuples; give it at least two.",
        )
    for prompt in (*spec.initial_prompts, *spec.prompts):
        if reason := sentence_error(prompt):
            raise DomainError("RelationNotReady", f"The prompt {reason}.")
    parse_prompts([*spec.initial_prompts, *spec.prompts], relation.arity)


def _spec_from_json(document: dict[str, Any]) -> HarvestSpec:
    params = dict(document["params"])
    params["disabled_filters"] = frozenset(params["disabled_filters"])
    return HarvestSpec(
        relation=document["relation"],
        initial_prompts=tuple(document["initial_prompts"]),
        prompts=tuple(document["prompts"]),
        seed_tuples=tuple(tuple(entities) for entities in document["seed_tuples"]),
        setting=document["setting"],
        params=HarvestParams(**params),
        paraphraser=ParaphraserSettings(**document["paraphraser"]),
    )


# -- doing it, in a worker ---------------------------------------------------------------------------------------------


def run_harvest(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Harvest; return what stores the result. Runner of jobs of kind "harvest"."""
    harvest_job = HarvestJob.objects.select_related("relation", "language_model").get(pk=job.pk)
    clock = StageClock(heartbeat)
    if SETTINGS[harvest_job.setting].asks_chat:
        return _run_chat_harvest(harvest_job, heartbeat, clock)
    clock(Progress(language_models.LOADING, 0))
    with heartbeat.kept_alive():
        # Imported here because it imports torch, which must not be loaded in the process that forks.
        from kgharvest.engine.harvest import harvest_prepared, prepare

        lm = language_models.load(harvest_job.language_model, job.payload["device"], job.payload["dtype"])
    spec = _spec_from_json(job.payload["spec"])
    sharing = Sharing(harvest_job, heartbeat, clock)
    prepared = sharing.prepared(lambda: prepare(spec, lm, clock), spec.params)
    result = harvest_prepared(prepared, spec.params, lm, sharing)
    seconds = clock.seconds()
    code_version()  # asks git once in this process: now, not in the transaction that stores
    more = {"parts": parts} if (parts := sharing.summary()) else {}
    return lambda: store_result(harvest_job, result, lm.revision, seconds, more)


def _run_chat_harvest(job: HarvestJob, heartbeat: ledger.Heartbeat, clock: StageClock) -> ledger.Store:
    from kgharvest.chat_models.harvesting import harvest_from_chat  # imports torch

    result, revision = harvest_from_chat(job, _spec_from_json(job.payload["spec"]), heartbeat, clock)
    seconds = clock.seconds()
    code_version()
    chat = summary_of(job)
    return lambda: store_result(job, result, revision, seconds, {"chat": chat})


class StageClock:
    """Passes progress on and notes how long each stage lasts."""

    def __init__(self, on_progress: OnProgress):
        self._on_progress = on_progress
        self._starts: dict[str, float] = {}

    def __call__(self, progress: Progress) -> None:
        self._starts.setdefault(progress.stage, monotonic())
        self._on_progress(progress)

    def seconds(self) -> dict[str, float]:
        """Return the stages in their order, each with its seconds; the last one lasted until now."""
        starts = [*self._starts.values(), monotonic()]
        return {
            stage: round(end - start, 3) for stage, (start, end) in zip(self._starts, pairwise(starts), strict=True)
        }


def store_result(
    job: HarvestJob,
    result: HarvestResult,
    revision: str | None,
    seconds: Mapping[str, float] | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write prompts, tuples and summary of a job. Call it inside the transaction that ends the job.

    seconds: how long each stage lasted, if somebody took the time. more: of the summary.
    """
    _store_prompts(job, result)
    found = (TupleRow(scored.entities, scored.surface, scored.score, scored.mtl) for scored in result.tuples)
    rows, n_same = distinct_facts(with_canonical_entities(found, canonicalizer(job.relation)))
    store_tuples(job, rows)
    summary = {
        "rejected": {**result.rejected, **({SAME_FACT: n_same} if n_same else {})},
        "stats": dict(result.stats),
        "notice": result.notice,
        "warning": result.warning,
        "seconds": dict(seconds or {}),
        "revision": revision,
        "code_version": code_version(),
        "learned_prompts": [
            {"text": prompt.text, "token_ids": prompt.token_ids} for prompt in result.prompts if prompt.token_ids
        ],
        **(more or {}),
    }
    HarvestJob.objects.filter(pk=job.pk).update(
        n_tuples=len(rows), summary=summary, fingerprint=fingerprint(job, revision)
    )


def fingerprint(job: HarvestJob, revision: str | None) -> str:
    """Return 16 hex digits, equal for jobs that asked the same revision of an LM the same in the same way."""
    question = json.dumps([job.payload, job.language_model.name, revision], sort_keys=True)
    return hashlib.sha256(question.encode()).hexdigest()[:16]


def _store_prompts(job: HarvestJob, result: HarvestResult) -> None:
    relation = job.relation
    origins = dict.fromkeys(relation.prompts, "ready") | dict.fromkeys(relation.initial_prompts, "initial")
    prompts_by_text = defaultdict(list)  # several learned prompts can have the same text
    for prompt in result.prompts:
        prompts_by_text[prompt.text].append(prompt)
    new_origin = "learned" if SETTINGS[job.setting].learns_prompts else "created"
    prompts = [Prompt(relation=relation, text=text, origin=origins.get(text, new_origin)) for text in prompts_by_text]
    Prompt.objects.bulk_create(prompts, ignore_conflicts=True)
    ids = dict(Prompt.objects.filter(relation=relation, text__in=list(prompts_by_text)).values_list("text", "pk"))
    JobPrompt.objects.bulk_create(
        JobPrompt(
            job=job,
            prompt_id=ids[text],
            weight=sum(prompt.weight for prompt in prompts_of_text),
            compatibility=max(prompt.compatibility for prompt in prompts_of_text),
        )
        for text, prompts_of_text in prompts_by_text.items()
    )
