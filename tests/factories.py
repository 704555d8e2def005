"""Factories: functions that create one valid object each. Tests pass only relevant values; others have defaults."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from uuid import uuid4

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judges.prompts import sha256_of
from annotation.judging.assignment import next_batch
from annotation.judging.judgments import Answer, submit_judgment
from annotation.models import Annotator, Draw, JudgeAnswer, JudgeKind, JudgeRun, Judgment, JudgmentTask, Label, Round
from annotation.rounds.services import open_round
from kgharvest.accounts.projects import create_project, default_project
from kgharvest.harvests.language_models import in_words
from kgharvest.jobs.queues import QUEUES
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import (
    HarvestJob,
    Job,
    LanguageModel,
    Launch,
    Project,
    ProjectMember,
    Relation,
    RelationSet,
    Role,
    Worker,
)

_numbers = count(1)


# Users and projects


def make_user(username: str | None = None, **fields):
    """Create a user without a password, as hashing is slow. Tests use `client.force_login`."""
    return get_user_model().objects.create_user(username or f"person-{next(_numbers)}", **fields)


def make_project(name: str | None = None) -> Project:
    return create_project(name or f"Project {next(_numbers)}")


def make_member(role: str = Role.RESEARCHER, project: Project | None = None, username: str | None = None):
    """Create a user with a role in the project. Defaults to the default project, which all factories use."""
    user = make_user(username)
    ProjectMember.objects.create(project=project or default_project(), user=user, role=role)
    return user


def make_researcher(username: str | None = None, project: Project | None = None):
    return make_member(Role.RESEARCHER, project, username)


# App kgharvest


def make_relation_set(name: str | None = None, **fields) -> RelationSet:
    """Create a relation set of the default project, or a built-in set."""
    project = None if fields.get("is_shipped") else fields.pop("project", None) or default_project()
    return RelationSet.objects.create(name=name or f"set-{next(_numbers)}", project=project, **fields)


def make_launch(**fields) -> Launch:
    return Launch.objects.create(project=fields.pop("project", None) or default_project(), **fields)


def make_relation(name: str | None = None, *, arity: int = 2, **fields) -> Relation:
    slots = [f"<ENT{slot}>" for slot in range(arity)]
    sentence = " goes with ".join(slots) + " ."
    values = {
        "relation_set": fields.pop("relation_set", None) or make_relation_set(),
        "statement": sentence,
        "initial_prompts": [sentence],
        "seed_tuples": [[f"seed {row} {slot}" for slot in range(arity)] for row in range(2)],
        **fields,
    }
    return Relation.objects.create(name=name or f"relation-{next(_numbers)}", arity=arity, **values)


def make_language_model(name: str | None = None, **fields) -> LanguageModel:
    return LanguageModel.objects.create(name=name or f"lm-{next(_numbers)}", **fields)


def make_harvest_job(status: str = Job.Status.QUEUED, **fields) -> HarvestJob:
    """Create a job without tuples. A running job needs `owner_token` and `lease_expires_at`."""
    language_model = fields.pop("language_model", None) or make_language_model()
    values = {
        "kind": "harvest",
        "project": fields.pop("project", None) or default_project(),
        "relation": fields.pop("relation", None) or make_relation(),
        "language_model": language_model,
        "setting": "multi",
        "lm": in_words(str(language_model), "cpu", "float32"),
        **fields,
    }
    return HarvestJob.objects.create(status=status, **values)


def make_harvest(tuples: Sequence[Sequence[str]], **fields) -> HarvestJob:
    """Create a finished job with `tuples`, best first, scored -1.0, -2.0, ..."""
    job = make_harvest_job(Job.Status.SUCCEEDED, finished_at=timezone.now(), n_tuples=len(tuples), **fields)
    rows = [
        TupleRow(tuple(entity.casefold() for entity in entities), tuple(entities), -float(rank), None)
        for rank, entities in enumerate(tuples, start=1)
    ]
    with transaction.atomic():
        store_tuples(job, rows)
    return job


# App annotation


def make_round(
    tuples: int | Sequence[Sequence[str]] = 3,
    *,
    name: str | None = None,
    by=None,
    project: Project | None = None,
    **spec,
) -> Round:
    """Open a round on all tuples of one harvest.

    tuples: the tuples, or the number of generated tuples. project: defaults to the default project.
    """
    project = project or default_project()
    if isinstance(tuples, int):
        tuples = [(f"head {number}", f"tail {number}") for number in range(tuples)]
    job = make_harvest(tuples, project=project)
    document = {"name": name or f"round-{next(_numbers)}", "cells": [{"job": job.pk, "n": None}], **spec}
    return open_round(document, by, project)


def make_round_on(relation: Relation, tuples: Sequence[Sequence[str]], n: int | None = None) -> Round:
    """Open a round on a sample of `n` tuples, by default all, of a harvest of `relation`."""
    job = make_harvest(tuples, relation=relation)
    document = {"name": f"round-{next(_numbers)}", "cells": [{"job": job.pk, "n": n}]}
    return open_round(document, None, default_project())


def judging_page(name: str = "pilot", page: str = "") -> str:
    """Return the URL of the judging page of the round, or of a page below it."""
    return f"/judge/{Round.objects.get(name=name).pk}/{page}"


def make_annotators(round: Round, n: int) -> list[Annotator]:
    return [join_round(round, make_user()) for _ in range(n)]


def judge(annotator: Annotator, task: JudgmentTask, label: str = Label.TRUE, **fields) -> Judgment:
    """Submit a judgment. By default, only its label matters."""
    return submit_judgment(annotator, Answer(task.pk, label, uuid4(), **fields), timezone.now())


def judge_all(round: Round, *labels: Sequence[str]) -> list[Annotator]:
    """Judge the round's tasks, in their order, with one sequence of labels per annotator."""
    annotators = make_annotators(round, len(labels))
    for annotator, annotator_labels in zip(annotators, labels, strict=True):
        while batch := next_batch(annotator, timezone.now()):
            for task in batch:
                judge(annotator, task, annotator_labels[task.position])
    return annotators


def make_gold(round, tasks, label: str) -> None:
    """Turn tasks of the round into gold statements, which have no draws. Reused gold has no slots."""
    Draw.objects.filter(task__in=tasks).delete()
    counters = ("n_wanted", "n_leased", "n_judgments", "n_true", "n_false", "n_unjudgeable") if round.gold_reuse else ()
    gold = round.tasks.filter(pk__in=[task.pk for task in tasks])
    gold.update(is_gold=True, gold_label=label, verdict="", **dict.fromkeys(counters, 0))
    Round.objects.filter(pk=round.pk).update(n_gold=round.tasks.gold().count())
    judgments = Judgment.objects.filter(task__in=tasks)
    judgments.update(is_counted=False, fills_gold_slot=False if round.gold_reuse else F("is_counted"))


def make_judge_run(round: Round, name: str | None = None, **fields) -> JudgeRun:
    """Create a finished run of a chat judge, without answers."""
    values = {"judge_kind": JudgeKind.CHAT, "model": "judge-lm", "status": Job.Status.SUCCEEDED, **fields}
    values["prompt_sha256"] = sha256_of(values.get("prompt", ""))
    name = name or f"judge-{next(_numbers)}"
    return JudgeRun.objects.create(kind=JudgeRun.KIND, project=round.project, round=round, name=name, **values)


def make_judge_answer(run: JudgeRun, knowledge_tuple, label: str, **fields) -> JudgeAnswer:
    values = {"raw": label, "prompt_sha256": run.prompt_sha256, "model_reported": run.model, **fields}
    return JudgeAnswer.objects.create(
        run=run, knowledge_tuple=knowledge_tuple, label=label, answered_at=timezone.now(), **values
    )


def make_worker(seen_at, name: str | None = None, **fields) -> Worker:
    """Create a worker for all queues, last seen at `seen_at`."""
    name = name or f"worker-{next(_numbers):09}@here"  # lists are sorted by name
    values = {"queues": list(QUEUES), "started_at": seen_at, "token": uuid4(), **fields}
    return Worker.objects.create(name=name, seen_at=seen_at, **values)
