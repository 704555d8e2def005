"""Harvest jobs: create a job from a frozen request, run it in a worker, and store its results."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise, product
from time import monotonic
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from kgharvest import code_version
from kgharvest.access import owns_installation
from kgharvest.accounts.projects import project_for
from kgharvest.audit.tables import AuditedTable
from kgharvest.chat_models.options import ChatOptions, to_json
from kgharvest.chat_models.services import check_endpoint, summary_of
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE, check_placement
from kgharvest.engine.prompts.template import parse_prompts
from kgharvest.engine.settings import PROMPT_SETTINGS, SETTINGS, find_setting
from kgharvest.engine.types import (
    EngineError,
    HarvestParams,
    HarvestResult,
    HarvestSpec,
    OnProgress,
    ParaphraserSettings,
    Progress,
)
from kgharvest.entities.tables import SAME_FACT, canonicalizer, distinct_facts, with_canonical_entities
from kgharvest.errors import DomainError
from kgharvest.harvests import language_models
from kgharvest.harvests.parts.sharing import Sharing
from kgharvest.jobs import ledger
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import HarvestJob, Job, JobPrompt, LanguageModel, Launch, Project, Prompt, Relation
from kgharvest.relations.checks import sentence_error

MIN_SEED_TUPLES = 2
# Parameters omitted from payloads if they have the default, so that the keys of earlier harvests do not change.
ADDED_PARAMS = ("heads", "numbers", "min_score", "order")


class CellUnderWay(DomainError):
    """Raised if an unfinished `job` harvests the same cell with the same parameters."""

    def __init__(self, job: HarvestJob):
        super().__init__(f"Job {job.pk} ({job}) has the same parameters and is {job.status}. Wait for it or cancel it.")
        self.job = job


@dataclass(frozen=True)
class HarvestRequest:
    """A cell and the parameters of its harvest.

    prompts: prompts that replace the relation's initial and ready prompts. device, dtype: placement of the LM, as in
    kgharvest.engine.language_models.networks.placement. For chat models, this is the placement of the scoring LM. chat:
    options for settings that use a chat model; `language_model` is then the chat model.

    Raises EngineError if the device or dtype is unknown, or if their combination is not supported.
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
    """Create a queued job with a frozen copy of the harvest's input.

    The project of a launch takes precedence over `project`.

    Run the job with `ledger.run_job`, or wake a worker with `ledger.enqueue`. Raises RelationNotReady, EngineError,
    CellUnderWay, NotAllowed, or ProjectNotNamed.
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
    """Return the key of the LM that the harvest loads.

    For chat models, this is the scoring LM, or "" if there is none.
    """
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
    """Yield requests for all combinations of relations, LMs, and settings.

    Settings that use a chat model are combined with `chat_models`. shared: fields with the same value in all requests.
    `chat` applies only to chat models. Raises NoChatModel.
    """
    chat = shared.pop("chat", None)
    chat_settings = [setting for setting in settings if find_setting(setting).asks_chat]
    if chat_settings and not chat_models:
        raise DomainError(
            "NoChatModel",
            f"The setting {chat_settings[0]} needs a chat model. Enter one under Chat models or with --chat-model.",
        )
    if chat_models and not chat_settings:
        names = ", ".join(name for name, setting in SETTINGS.items() if setting.asks_chat)
        raise DomainError(
            "NoChatModel", f"No selected setting uses the chat model. Select the setting {names} or remove the model."
        )
    for relation in relations:
        for language_model, setting in product(language_models, settings):
            if setting not in chat_settings:
                yield HarvestRequest(relation, language_model, setting, **shared)
        for language_model, setting in product(chat_models, chat_settings):
            yield HarvestRequest(relation, language_model, setting, chat=chat or ChatOptions(), **shared)


@transaction.atomic
def queue_harvest(request: HarvestRequest, by=None, project: Project | None = None) -> HarvestJob:
    """Create a job and wake a worker."""
    job = create_harvest_job(request, by, project=project)
    ledger.enqueue(job)
    return job


def payload_of(request: HarvestRequest) -> dict[str, Any]:
    """Return the frozen parameters of the job as JSON. Equal requests give equal JSON."""
    chat = {"chat": to_json(request.chat)} if request.chat else {}
    spec = asdict(spec_of(request))  # inverse of `_spec_from_json`
    params = spec["params"]
    params["disabled_filters"] = sorted(params["disabled_filters"])
    for name in ADDED_PARAMS:
        if params[name] == getattr(HarvestParams, name):
            del params[name]
    if not spec["negative_seed_tuples"]:
        del spec["negative_seed_tuples"]  # the fingerprints of jobs without them stay the same
    return {"spec": json.loads(json.dumps(spec)), "device": request.device, "dtype": request.dtype, **chat}


def unique_key_of(request: HarvestRequest) -> str:
    """Return a key for the cell and parameters of a request.

    Requests for the same task have the same key (docs/decisions/0012).
    """
    cell = [request.relation.pk, request.language_model.pk, request.setting]
    identity = json.dumps([*cell, payload_of(request)], sort_keys=True)
    return f"harvest:{hashlib.sha256(identity.encode()).hexdigest()}"


def check_harvest(request: HarvestRequest, by=None) -> None:
    """Raise RelationNotReady, NoEndpoint, BadAddress, or an EngineError if `create_harvest_job` would raise it, too."""
    spec, relation = spec_of(request), request.relation
    if find_setting(spec.setting).asks_chat and request.params.heads:
        raise EngineError(
            f"The setting {spec.setting} cannot complete heads. Choose from {', '.join(PROMPT_SETTINGS)}."
        )
    if len(spec.seed_tuples) < MIN_SEED_TUPLES:
        raise DomainError(
            "RelationNotReady",
            f"The relation {relation.path} has {len(spec.seed_tuples)} seed tuples. Add seed tuples until it has "
            f"{MIN_SEED_TUPLES}.",
        )
    for prompt in (*spec.initial_prompts, *spec.prompts):
        if reason := sentence_error(prompt):
            raise DomainError("RelationNotReady", f"The prompt {reason}.")
    parse_prompts([*spec.initial_prompts, *spec.prompts], relation.arity)
    if request.chat:
        if spec.params.order != HarvestParams.order:
            raise DomainError(
                "OrderNotSupported",
                f"The setting {spec.setting} does not search, so it has no order {spec.params.order}. Use the order "
                f"{HarvestParams.order}, or launch this setting separately.",
            )
        check_endpoint(request.chat, by)
    if lm := request.chat.scorer if request.chat else request.language_model.name:
        language_models.check_where(language_models.split_revision(lm)[0], request.device, request.dtype)


def spec_of(request: HarvestRequest) -> HarvestSpec:
    relation = request.relation
    return HarvestSpec(
        relation=relation.name,
        initial_prompts=request.prompts or tuple(relation.initial_prompts),
        prompts=request.prompts or tuple(relation.prompts),
        seed_tuples=tuple(tuple(entities) for entities in relation.seed_tuples),
        setting=request.setting,
        params=request.params,
        paraphraser=request.paraphraser,
        negative_seed_tuples=tuple(tuple(entities) for entities in relation.negative_seed_tuples),
    )


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
        negative_seed_tuples=tuple(tuple(entities) for entities in document.get("negative_seed_tuples", ())),
    )


def run_harvest(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Run a job of kind "harvest". Returns the function that stores the result."""
    harvest_job = HarvestJob.objects.select_related("relation", "language_model").get(pk=job.pk)
    clock = StageClock(heartbeat)
    spec = _spec_from_json(job.payload["spec"])
    # Imported here because torch must not be loaded in the process that forks.
    if SETTINGS[harvest_job.setting].asks_chat:
        from kgharvest.chat_models.harvesting import harvest_from_chat

        result, revision = harvest_from_chat(harvest_job, spec, heartbeat, clock)
        seconds = clock.seconds()
        more_summary = {"chat": summary_of(harvest_job)}
    else:
        clock(Progress(language_models.LOADING, 0))
        with heartbeat.kept_alive():
            from kgharvest.engine.harvest import harvest_prepared, prepare

            lm = language_models.load(harvest_job.language_model, job.payload["device"], job.payload["dtype"])
        sharing = Sharing(harvest_job, heartbeat, clock)
        prepared = sharing.prepared(lambda: prepare(spec, lm, clock), spec.params)
        result, revision = harvest_prepared(prepared, spec.params, lm, sharing), lm.revision
        seconds = clock.seconds()
        more_summary = {"parts": parts} if (parts := sharing.summary()) else {}
    code_version()  # caches the version, so that git does not run in the transaction that stores the result
    return lambda: store_result(harvest_job, result, revision, seconds, more_summary)


class StageClock:
    """Progress callback that measures the duration of each stage and forwards the progress."""

    def __init__(self, on_progress: OnProgress):
        self._on_progress = on_progress
        self._starts: dict[str, float] = {}

    def __call__(self, progress: Progress) -> None:
        self._starts.setdefault(progress.stage, monotonic())
        self._on_progress(progress)

    def seconds(self) -> dict[str, float]:
        """Return the duration of each stage, in order. The last stage is considered to end now."""
        starts = [*self._starts.values(), monotonic()]
        return {
            stage: round(end - start, 3) for stage, (start, end) in zip(self._starts, pairwise(starts), strict=True)
        }


def store_result(
    job: HarvestJob,
    result: HarvestResult,
    revision: str | None,
    seconds: Mapping[str, float] | None = None,
    more_summary: Mapping[str, Any] | None = None,
) -> None:
    """Store the prompts, tuples, and summary of a job. Call it inside the transaction that ends the job.

    seconds: duration of each stage, if measured.
    """
    _store_prompts(job, result)
    scored_rows = (TupleRow(scored.entities, scored.surface, scored.score, scored.mtl) for scored in result.tuples)
    rows, n_same = distinct_facts(with_canonical_entities(scored_rows, canonicalizer(job.relation)))
    store_tuples(job, rows)
    summary = {
        "rejected": {**result.rejected, **({SAME_FACT: n_same} if n_same else {})},
        "stats": dict(result.stats),
        "notice": result.notice,
        "warning": result.warning,
        "codes": list(result.codes),
        "unknown_seed_tuples": [list(seed) for seed in result.unknown_seed_tuples],
        "seconds": dict(seconds or {}),
        "revision": revision,
        "code_version": code_version(),
        "learned_prompts": [
            {"text": prompt.text, "token_ids": prompt.token_ids} for prompt in result.prompts if prompt.token_ids
        ],
        **({"null_heads": list(result.null_heads)} if result.null_heads else {}),
        **(more_summary or {}),
    }
    HarvestJob.objects.filter(pk=job.pk).update(
        n_tuples=len(rows), score_scale=job.score_scale, summary=summary, fingerprint=fingerprint(job, revision)
    )


HARVESTS = AuditedTable(
    HarvestJob,
    *("relation_id", "language_model_id", "setting", "score_scale", "n_tuples", "fingerprint"),
    condition=Q(status=HarvestJob.Status.SUCCEEDED),
    children=("tuples", "rank", "knowledge_tuple_id", "score", "mtl"),
)


def fingerprint(job: HarvestJob, revision: str | None) -> str:
    """Return 16 hexadecimal digits that identify the parameters, LM, and revision of a job."""
    identity = json.dumps([job.payload, job.language_model.name, revision], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _store_prompts(job: HarvestJob, result: HarvestResult) -> None:
    relation = job.relation
    origins = dict.fromkeys(relation.prompts, "ready") | dict.fromkeys(relation.initial_prompts, "initial")
    prompts_by_text = defaultdict(list)  # several learned prompts can have the same text
    for prompt in result.prompts:
        prompts_by_text[prompt.text].append(prompt)
    setting = SETTINGS.get(job.setting)  # None for crawls
    new_origin = "learned" if setting and setting.learns in ("tokens", "vectors") else "created"
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
