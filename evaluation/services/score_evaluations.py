"""Evaluations of scores that are kept: asked for on a page and done by a worker, or made by the command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from django.db import transaction
from django.utils import timezone

from evaluation.models import ScoreEvaluation
from evaluation.services.score_evaluation import (
    SETTINGS,
    ScoredRelation,
    built_in_facts,
    evaluate_scores,
    prompt_scorer,
)
from kgharvest.engine.types import Progress
from kgharvest.models import Job, LanguageModel
from kgharvest.services import jobs, language_models
from kgharvest.version import code_version

BUILT_IN = "embedded LM's world"
SEED = 0
DEVICE = "cpu"


def queue_score_evaluation(language_model: LanguageModel, by) -> ScoreEvaluation:
    """Ask a worker to evaluate an LM's scores on the built-in facts, unless that is under way already."""
    with transaction.atomic():
        own = ScoreEvaluation.objects.filter(language_model=language_model)
        if (under_way := own.unfinished().first()) is not None:
            return under_way
        evaluation = ScoreEvaluation.objects.create(
            kind=ScoreEvaluation.KIND, language_model=language_model, payload={"seed": SEED}, created_by=by
        )
        jobs.ring(evaluation.pk)
    return evaluation


def run_score_evaluation(job: Job, heartbeat: jobs.Heartbeat) -> jobs.Store:
    """Runner of its kind of job."""
    evaluation = ScoreEvaluation.objects.select_related("language_model").get(pk=job.pk)
    relations = built_in_facts()
    done = count(1)

    def on_relation() -> None:
        heartbeat(Progress("scoring relations", next(done), len(relations)))

    with heartbeat.kept_alive():
        document = scores_document(
            evaluation.language_model, relations, BUILT_IN, job.payload["seed"], DEVICE, on_relation
        )
    return lambda: ScoreEvaluation.objects.filter(pk=job.pk).update(document=document)


def scores_document(
    language_model: LanguageModel,
    relations: Sequence[ScoredRelation],
    facts: str,
    seed: int,
    device: str,
    on_relation: Callable[[], None],
) -> dict[str, Any]:
    """Return the JSON of docs/report-json.md. facts: what the relations' facts are called."""
    lm = language_models.load(language_model, device, "float32")
    scorers = {setting: prompt_scorer(lm, setting) for setting in SETTINGS}
    found = evaluate_scores(relations, scorers, seed, on_relation)
    stamp = {"created_at": timezone.now().isoformat(timespec="seconds"), "code_version": code_version()}
    return {"facts": facts, "model": str(language_model), **found, **stamp}


def keep_score_evaluation(language_model: LanguageModel, document: dict[str, Any]) -> ScoreEvaluation:
    """Keep what was computed elsewhere, so that the pages show it."""
    now = timezone.now()
    over = {"status": Job.Status.SUCCEEDED, "started_at": now, "finished_at": now}
    return ScoreEvaluation.objects.create(
        kind=ScoreEvaluation.KIND,
        language_model=language_model,
        payload={"seed": document["seed"]},
        document=document,
        **over,
    )
