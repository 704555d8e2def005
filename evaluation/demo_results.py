"""Saved results of the demo's harvests and LM judge. With these results, the demo is ready within seconds.

`demo --save-results` writes the file for a release. A result is used only for a job with the same parameters, relation,
and LM; other jobs run as usual.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from annotation.judges.models import JudgeRun
from annotation.judges.runs import Answered, open_questions, store_answers
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.engine.types import HarvestResult, ScoredTuple, WeightedPrompt
from kgharvest.harvests.runner import fingerprint, store_result
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, Relation

FILE = Path(__file__).parent / "demo_results.jsonl"
Record = Mapping[str, Any]


@cache
def saved_results() -> Sequence[Record]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def write_results(harvests: Iterable[HarvestJob], judge_run: JudgeRun) -> None:
    """Write the results of finished jobs to the file. Raises NotWritable."""
    records = [*map(record_of_harvest, harvests), record_of_judge_run(judge_run)]
    write_atomically(FILE, (json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    saved_results.cache_clear()


# Harvests


def record_of_harvest(job: HarvestJob) -> Record:
    prompts = job.job_prompts.order_by("pk").values("prompt__text", "compatibility", "weight")
    tuples = job.tuples.order_by("rank").values_list("knowledge_tuple__entities", "surface", "score", "mtl")
    copied = ("revision", "code_version", "rejected", "stats", "notice", "warning", "codes", "unknown_seed_tuples")
    return {
        "fingerprint": job.fingerprint,
        **{name: job.summary[name] for name in (*copied, "seconds")},
        "prompts": [list(prompt.values()) for prompt in prompts],
        "tuples": list(tuples),
    }


def store_saved_harvests(jobs: Iterable[HarvestJob]) -> None:
    """Finish the queued harvests whose results are saved."""
    for job in jobs:
        if job.status == Job.Status.QUEUED and _saved_harvest(job):
            ledger.run_job(job.pk, runner=run_saved_harvest)


def _saved_harvest(job: HarvestJob) -> Record | None:
    harvests = (record for record in saved_results() if "fingerprint" in record)
    return next((record for record in harvests if record["fingerprint"] == fingerprint(job, record["revision"])), None)


def run_saved_harvest(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Job runner: return the function that stores the saved result."""
    harvest_job = HarvestJob.objects.select_related("relation", "language_model").get(pk=job.pk)
    record = _saved_harvest(harvest_job)
    assert record
    result = HarvestResult(
        prompts=tuple(WeightedPrompt(*prompt) for prompt in record["prompts"]),
        tuples=tuple(
            ScoredTuple(tuple(entities), tuple(surface), *scores) for entities, surface, *scores in record["tuples"]
        ),
        rejected=record["rejected"],
        stats=record["stats"],
        notice=record["notice"],
        warning=record["warning"],
        codes=tuple(record.get("codes", ())),
        unknown_seed_tuples=tuple(map(tuple, record.get("unknown_seed_tuples", ()))),
    )
    version = {"code_version": record["code_version"]}
    return lambda: store_result(harvest_job, result, record["revision"], record["seconds"], version)


# LM judge


def record_of_judge_run(run: JudgeRun) -> Record:
    names = _relation_names(run)
    columns = ("knowledge_tuple__relation", "knowledge_tuple__entities", "raw", "model_reported", "score", "label")
    answers = run.answers.order_by("knowledge_tuple").values_list(*columns)
    return {"judge": _identity(run), "answers": [[names[relation], *values] for relation, *values in answers]}


def store_saved_judge_run(run: JudgeRun) -> None:
    """Finish the queued run if all its answers are saved."""
    if run.status == Job.Status.QUEUED and _saved_answers(run) is not None:
        ledger.run_job(run.pk, runner=run_saved_judge)


def run_saved_judge(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Job runner: return the function that stores the saved answers."""
    run = JudgeRun.objects.get(pk=job.pk)
    answers = _saved_answers(run)
    assert answers is not None

    def store() -> None:
        store_answers(run, answers)
        JudgeRun.objects.filter(pk=run.pk).update(done=len(answers), total=len(answers))

    return store


def _saved_answers(run: JudgeRun) -> list[Answered] | None:
    """Return an answer to each open question, or None if one is missing."""
    identity, names = _identity(run), _relation_names(run)
    record = next((record for record in saved_results() if record.get("judge") == identity), None)
    if record is None:
        return None
    values_of = {(relation, *entities): values for relation, entities, *values in record["answers"]}
    answers = []
    for question in open_questions(run)[0]:
        judged = question.judged
        values = values_of.get((names[judged.relation_id], *(entity.casefold() for entity in judged.entities)))
        if values is None:
            return None
        raw, reported, score, label = values
        answers.append(Answered(question, raw, reported, score=score, label=label))
    return answers


def _relation_names(run: JudgeRun) -> dict[int, str]:
    return dict(Relation.objects.filter(pk__in=map(int, run.relation_texts)).values_list("pk", "name"))


def _identity(run: JudgeRun) -> str:
    """Return a hash of everything that determines the judge's labels.

    Runs with equal hashes give equal tuples the same label.
    """
    names = _relation_names(run)
    texts = sorted((names[int(relation)], texts) for relation, texts in run.relation_texts.items())
    options = [run.judge_kind, run.model, run.revision, run.dtype, run.threshold, run.repeats]
    return hashlib.sha256(json.dumps([options, texts], sort_keys=True).encode()).hexdigest()
