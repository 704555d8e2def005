"""Score evaluation jobs. Workers run jobs of pages and the API; a command runs its job in its own process."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from django.db import transaction
from django.utils import timezone

from annotation.judges.models import JudgeRun
from evaluation.models import ScoreEvaluation
from evaluation.scores.facts import (
    BUILT_IN,
    ScoredRelation,
    TrainingRows,
    built_in_facts,
    facts_from_json,
    facts_of_content,
    facts_to_json,
    training_of_content,
)
from evaluation.scores.lookups import Table, frequency_scorer, judge_scores, lookup_scorer, scores_of_content
from evaluation.scores.scorers import (
    LPAQA,
    StoredPrompt,
    corrected_scores,
    document_of,
    lpaqa_scorer,
    prior_scorer,
    score_samples,
    setting_scorer,
    stored_scorer,
    writable,
)
from kgharvest import code_version
from kgharvest.accounts.projects import project_for
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE
from kgharvest.engine.settings import PROMPT_SETTINGS, WITHOUT_LEARNING
from kgharvest.engine.types import OnProgress, Progress, Reporter, ignore
from kgharvest.errors import DomainError
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, LanguageModel, Project

# Settings whose prompts are stored with the harvest, unlike the vectors of soft prompts.
STORED_SETTINGS = tuple(name for name, setting in PROMPT_SETTINGS.items() if setting.learns != "vectors")
CORRECTED, PRIOR, FREQUENCY = "corrected", "prior", "frequency"
# Baseline scores and their form labels.
MORE_SCORES = {
    CORRECTED: "prior-corrected: each score above minus the entities' likelihood without a prompt",
    PRIOR: "entity prior: likelihood of the entities without a prompt",
    FREQUENCY: "entity frequency: number of tuples in this installation with the entities",
    LPAQA: "LPAQA: log P(last entity | other entities), with prompt weights learned from training facts",
}
TRAIN_HELP = (
    'Training facts of LPAQA: JSONL like the facts, with {"relation": "set/name", "template": "[X] ... [Y]"} for '
    "its prompts. Default: the seed tuples and prompts of the relations."
)
MORE_NAMES = {PRIOR: "entity prior", FREQUENCY: "entity frequency", LPAQA: "LPAQA log P(t|h)"}  # in the document


@dataclass(frozen=True)
class ScoreRequest:
    """Options of a score evaluation.

    facts: name of the facts in `relations`. harvested: settings whose prompts are taken from the newest finished
    harvests with this LM. more: keys of MORE_SCORES. systems: scores of other systems (evaluation.scores.lookups).
    judge_runs: runs of the same project. device, dtype: of the LM. job_ids: harvests to choose from; None for all of
    the project. train: training facts and prompts of LPAQA by set/name.
    """

    language_model: LanguageModel
    settings: Sequence[str] = WITHOUT_LEARNING
    harvested: Sequence[str] = ()
    facts: str = BUILT_IN
    relations: Sequence[ScoredRelation] | None = None  # None for built-in facts
    seed: int = 0
    device: str = DEFAULT_DEVICE
    dtype: str = DEFAULT_DTYPE
    more: Sequence[str] = ()
    systems: Table = field(default_factory=dict)
    judge_runs: Sequence[JudgeRun] = ()
    job_ids: Collection[int] | None = None
    train: TrainingRows = field(default_factory=dict)


def score_request(
    language_model: LanguageModel,
    *options: Sequence[str],
    facts: Any = None,
    systems: Any = None,
    train: Any = None,
    by=None,
    **more: Any,
) -> ScoreRequest:
    """Return a request with the uploaded files. Raises ImportRefused for invalid files."""
    if train:
        more["train"] = training_of_content(train.read(), train.name, by)
    if systems:
        more["systems"] = scores_of_content(systems.read(), systems.name)
    if facts:
        more |= {"facts": facts.name, "relations": facts_of_content(facts.read(), facts.name, by)}
    return ScoreRequest(language_model, *options, **more)


def with_harvests(request: ScoreRequest, project: Project) -> tuple[list[ScoredRelation], dict[str, dict[str, int]]]:
    """Return the relations to score, and the ids of harvests that provide prompts, by setting and relation name.

    If harvests provide prompts, only relations harvested in all these settings are scored, so all scorers see the same
    tuples. Raises NothingHarvested or NoScorer.
    """
    scorers_without_prompts = (request.systems, request.judge_runs, set(request.more) - {CORRECTED})
    if not request.settings and not request.harvested and not any(scorers_without_prompts):
        raise DomainError("NoScorer", "No scores selected. Choose at least one kind of prompts or scores.")
    relations = built_in_facts() if request.relations is None else list(request.relations)
    if request.train and not request.train.keys() & {relation.path for relation in relations}:
        raise DomainError("BadFacts", "The training file has no facts of the scored relations. Use the same relations.")
    relations = [relation.trained_on(request.train.get(relation.path, ())) for relation in relations]
    harvests = HarvestJob.objects.filter(project=project, language_model=request.language_model)
    harvests = harvests.succeeded().filter(job_prompts__isnull=False).select_related("relation__relation_set")
    if request.job_ids is not None:
        harvests = harvests.filter(pk__in=request.job_ids)
    harvests = harvests.only("relation__name", "relation__relation_set__name").order_by("pk")
    newest: dict[str, dict[str, int]] = {}
    for setting in request.harvested:
        ids = {job.relation.path: job.pk for job in harvests.filter(setting=setting)}
        newest[setting] = {relation.name: ids[relation.path] for relation in relations if relation.path in ids}
    harvested = [relation for relation in relations if all(relation.name in jobs for jobs in newest.values())]
    if not harvested:
        names = ", ".join(request.harvested)
        raise DomainError(
            "NothingHarvested",
            f"{request.language_model} has no finished harvest with {names} of a relation that has facts. Harvest such "
            "a relation, or choose other prompts.",
        )
    names = {relation.name for relation in harvested}
    return harvested, {
        setting: {name: job for name, job in jobs.items() if name in names} for setting, jobs in newest.items()
    }


def stored_prompts(job: HarvestJob) -> list[StoredPrompt]:
    learned = {prompt["text"]: prompt["token_ids"] for prompt in job.summary.get("learned_prompts", [])}
    return [
        StoredPrompt(job_prompt.prompt.text, job_prompt.weight, learned.get(job_prompt.prompt.text))
        for job_prompt in job.job_prompts.select_related("prompt")
    ]


def queue_score_job(request: ScoreRequest, by, project: Project | None = None, unique_key: str = "") -> ScoreEvaluation:
    """Enqueue an evaluation, or return an identical unfinished evaluation of the same project.

    unique_key: as in Job; evaluations with different keys are not identical.
    Raises NothingHarvested, NoScorer, EngineError, NotAllowed, or ProjectNotNamed.
    """
    project = project_for(by, project)
    payload = payload_of(request, project)
    with transaction.atomic():
        unfinished = ScoreEvaluation.objects.unfinished().filter(project=project, unique_key=unique_key)
        for evaluation in unfinished.filter(language_model=request.language_model):
            if evaluation.payload == payload:
                return evaluation
        evaluation = ScoreEvaluation.objects.create(
            kind=ScoreEvaluation.KIND,
            project=project,
            language_model=request.language_model,
            payload=payload,
            unique_key=unique_key,
            lm=language_models.in_words(str(request.language_model), request.device, request.dtype),
            created_by=by,
        )
        ledger.enqueue(evaluation)
    return evaluation


def payload_of(request: ScoreRequest, project: Project) -> dict[str, Any]:
    """Return the inputs of the evaluation as JSON, without its LM. Raises as queue_score_job."""
    language_models.check_where(request.language_model.name, request.device, request.dtype)
    relations, harvests = with_harvests(request, project)
    for run in request.judge_runs:
        if run.project_id != project.pk:
            raise DomainError(
                "NothingHarvested", f"Judge run {run.name} belongs to another project. Choose a run of {project}."
            )
    external = [*request.systems, *(f"judge {run.name} of {run.round.name}" for run in request.judge_runs)]
    more = {
        "more": [name for name in MORE_SCORES if name in request.more],
        "systems": json.loads(json.dumps(request.systems)),
        "judge_runs": [run.pk for run in request.judge_runs],
    }
    return {
        "device": request.device,
        "dtype": request.dtype,
        "seed": request.seed,
        "settings": list(request.settings),
        "harvests": harvests,
        "facts": request.facts,
        "relations": facts_to_json(relations),
        "scorers": scorer_names(request.settings, request.harvested, request.more, external),
        **{name: value for name, value in more.items() if value},
    }


def scorer_names(
    settings: Iterable[str], harvested: Iterable[str], more: Collection[str] = (), others: Iterable[str] = ()
) -> list[str]:
    """Return the scorer names used in the document. others: names of other systems and judge runs."""
    names = list(settings)
    names += [f"{name} (corrected)" for name in names if CORRECTED in more]
    for name in harvested:
        names.append(f"{name} (as harvested)")
        names += [f"{name} (as harvested, corrected)"] if CORRECTED in more else []
    names += [name for key, name in MORE_NAMES.items() if key in more]
    return [*names, *others]


def run_score_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Job runner for score evaluations."""
    evaluation = ScoreEvaluation.objects.select_related("language_model").get(pk=job.pk)
    with heartbeat.kept_alive():
        document = scores_document(evaluation.language_model, job.payload, heartbeat, job.created_by)
    samples = document.pop("samples", [])
    return lambda: ScoreEvaluation.objects.filter(pk=job.pk).update(document=document, samples=samples)


def evaluate_now(
    request: ScoreRequest, on_progress: OnProgress = ignore, project: Project | None = None
) -> ScoreEvaluation:
    """Evaluate in this process and store the result. For commands run by the operator."""
    project = project_for(None, project)
    payload = payload_of(request, project)
    document = scores_document(request.language_model, payload, on_progress)
    samples = document.pop("samples", [])
    now = timezone.now()
    return ScoreEvaluation.objects.create(
        kind=ScoreEvaluation.KIND,
        project=project,
        language_model=request.language_model,
        payload=payload,
        document=document,
        samples=samples,
        status=Job.Status.SUCCEEDED,
        started_at=now,
        finished_at=now,
    )


def scores_document(
    language_model: LanguageModel, payload: Mapping[str, Any], on_progress: OnProgress, user=None
) -> dict[str, Any]:
    """Return the JSON of docs/report-json.md, with the scored tuples under "samples".

    user: see `frequency_scorer`. Raises Outdated, or NoScorer if a scorer has no score for any tuple.

    The order of scorers does not depend on the database (PostgreSQL reorders JSON keys): harvest settings are in the
    order of PROMPT_SETTINGS, and systems are sorted by name.
    """
    if "harvests" not in payload:
        raise DomainError(
            "Outdated", "This evaluation was requested by an older version of kgharvest. Request it again."
        )
    job_ids = [job for by_relation in payload["harvests"].values() for job in by_relation.values()]
    harvests = HarvestJob.objects.in_bulk(job_ids)
    on_progress(Progress("loading the LM", 0))
    device, dtype = payload.get("device", DEFAULT_DEVICE), payload.get("dtype", DEFAULT_DTYPE)
    lm = language_models.load(language_model, device, dtype)
    inputs = facts_from_json(payload["relations"])
    relations = []
    for relation in inputs:  # seed tuples of the harvests may differ from the current ones
        jobs = [harvests[by_relation[relation.name]] for by_relation in payload["harvests"].values()]
        seeds = [tuple(entities) for job in jobs for entities in job.payload["spec"]["seed_tuples"]]
        remaining = relation.without(seeds)
        relations.append(replace(remaining, facts=writable(lm, remaining.facts)))
    scorers = {setting: setting_scorer(lm, setting) for setting in payload["settings"]}
    more = payload.get("more", ())
    if CORRECTED in more:
        scorers |= {f"{name} (corrected)": setting_scorer(lm, name, corrected_scores) for name in payload["settings"]}
    for setting in sorted(payload["harvests"], key=list(PROMPT_SETTINGS).index):
        by_relation = payload["harvests"][setting]
        prompts = {name: stored_prompts(harvests[job]) for name, job in by_relation.items()}
        scorers[f"{setting} (as harvested)"] = stored_scorer(lm, prompts)
        if CORRECTED in more:
            scorers[f"{setting} (as harvested, corrected)"] = stored_scorer(lm, prompts, corrected_scores)
    makers = {PRIOR: (prior_scorer, lm), FREQUENCY: (frequency_scorer, user), LPAQA: (lpaqa_scorer, lm)}
    scorers |= {name: makers[key][0](makers[key][1]) for key, name in MORE_NAMES.items() if key in more}
    scorers |= {system: lookup_scorer(scores) for system, scores in sorted(payload.get("systems", {}).items())}
    for run in JudgeRun.objects.filter(pk__in=payload.get("judge_runs", ())).select_related("round").order_by("pk"):
        scorers[f"judge {run.name} of {run.round.name}"] = lookup_scorer(judge_scores(run))
    report = Reporter(on_progress, "scoring relations", len(relations))
    scored = score_samples(relations, scorers, payload["seed"], report)
    for name, scores in scored.scores.items():
        if np.isnan(scores).all():
            raise DomainError(
                "NoScorer",
                f"{name} has no score for any of the {len(scores):,} facts and false tuples of this evaluation. "
                "Download these tuples from an evaluation with the same LM, facts, and prompts. Then score them and "
                "upload the scores.",
            )
    evaluated = {**document_of(scored, payload["seed"]), "samples": scored.rows()}
    n_left_out = sum(len(before.facts) - len(after.facts) for before, after in zip(inputs, relations, strict=True))
    stamp = {"created_at": timezone.now().isoformat(timespec="seconds"), "code_version": code_version()}
    head = {"facts": payload["facts"], "model": str(language_model), "device": device, "dtype": dtype}
    return {**head, "harvests": payload["harvests"], "n_left_out": n_left_out, **evaluated, **stamp}
