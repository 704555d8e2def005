"""Example reports of every kind, for tests of packs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from django.utils import timezone

from annotation.exchange.judgment_import import import_judgments
from annotation.judging.assignment import next_batch
from annotation.models import Round
from annotation.quality.adjudication import adjudicate
from annotation.quality.exclusion import exclude_annotator, reinstate_annotator
from annotation.quality.limits import set_limits
from annotation.questionnaire.services import answer_who_questions
from annotation.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds.services import open_draft, open_round
from evaluation.models import Report
from evaluation.reports.services import create_report
from kgharvest.accounts.projects import default_project
from kgharvest.knowledge.curation import curate
from kgharvest.models import JobPrompt, Prompt
from tests.factories import (
    judge,
    judge_all,
    make_annotators,
    make_harvest,
    make_judge_answer,
    make_judge_run,
    make_language_model,
    make_relation,
    make_round,
)
from tests.kgharvest.contrib.publishing.preregistration.planning import SIDES, freeze, make_draft, planned

T, F, U = "true", "false", "unjudgeable"


def preregistered(folder: Path) -> Report:
    """Create a report on an open preregistered round: a planned comparison and unplanned ones."""
    draft = make_draft(3, ("multi", "human", "top1"))
    freeze(draft, planned(hypotheses=[{**SIDES, "expects": "first"}]))
    round = open_draft(draft)
    judge_all(round, [T, F, T] * 9, [T, F, F] * 9)
    return create_report(round)


def without_judgments(folder: Path) -> Report:
    return create_report(make_round(3))


def incomplete(folder: Path) -> Report:
    round = make_round(12)
    judge_all(round, [T, T, F, F] * 3, [T, F, F, T] * 3)
    [third] = make_annotators(round, 1)
    judge(third, next_batch(third, timezone.now())[0], U)
    return create_report(round)


def with_gold(folder: Path) -> Report:
    """Create a report with gold statements judged by all annotators, one of them excluded."""
    round = make_round(6)
    people = judge_all(round, [T, T, F, U, T, F], [T, F, F, F, T, T], [T] * 6)
    for number, gold_label in enumerate([T, F, F]):
        known = make_harvest([(f"gold {number}", "tail")]).tuples.get().knowledge_tuple
        gold = round.tasks.create(
            knowledge_tuple=known, statement=f"gold {number}", entities=["gold", "tail"], spans=[], is_gold=True,
            gold_label=gold_label, position=100 + number, n_wanted=0,
        )  # fmt: skip
        for annotator, label in zip(people, [T, F, gold_label], strict=True):
            fields = {"label": label, "judged_at": timezone.now(), "is_counted": False}
            annotator.judgments.create(client_uuid=uuid4(), task=gold, **fields)
    exclude_annotator(people[0], "says True to gold")
    return create_report(round)


def of_clusters(folder: Path) -> Report:
    """Create a report on a round whose statements were drawn in clusters of at most two tuples of a subject."""
    job = make_harvest([(f"head {number // 3}", f"tail {number}") for number in range(30)])
    round = open_round({"name": "clusters", "cluster_size": 2, "cells": [{"job": job.pk, "n": 12}]})
    judge_all(round, [T, T, F] * 4, [T, F, F] * 4, [T, T, F] * 4)
    return create_report(round)


def with_third_judgments(folder: Path) -> Report:
    round = make_round(12, third_only_if_split=True)
    first, *_ = judge_all(round, [T, T, F, F] * 3, [T, F, F, T] * 3, [T] * 12)
    judge(first, round.tasks.get(position=1), F)  # a changed judgment keeps its position
    return create_report(round)


def with_exclusions(folder: Path) -> Report:
    round = make_round(12, batch_size=12)
    set_limits(round, median_seconds=1.5)
    first, second, *_ = judge_all(round, [T] * 12, [T, F] * 6, [F] * 12, [T, T, F, F] * 3)
    exclude_annotator(first, "says True to everything")
    exclude_annotator(second, "a mistake")
    reinstate_annotator(second)
    judge_all(round, [T, F, U] * 4)
    [late] = make_annotators(round, 1)
    late.judgments.create(
        client_uuid=uuid4(), task=round.tasks.first(), label=T, is_counted=False, judged_at=timezone.now()
    )
    adjudicate(round.tasks.complete().first(), U, uuid4(), by=None)
    return create_report(round)


def with_withdrawals(folder: Path) -> Report:
    """Create a report on three judging annotators; one withdraws. One of twelve speaks a unique language."""
    round = make_round(6, batch_size=6, ask_language="optional", on_withdrawal="delete")
    people = make_annotators(round, 12)
    for annotator, language in zip(people, ["Maltese", "", *["Welsh"] * 10], strict=True):
        answer_who_questions(annotator, {"language": language}, timezone.now())
    for annotator in people[:3]:
        for task in next_batch(annotator, timezone.now()):
            judge(annotator, task, T if task.position % 2 else F)
    withdraw_annotator(people[2])
    return create_report(round)


def _two_settings(n: int, **spec) -> Round:
    """Open a round on samples of two relations in two settings, with prompts, cuts, and a hidden tuple."""
    lm = make_language_model("a/lm", revision="main")
    cells = []
    for name in ("helps", "causes"):
        relation = make_relation(name)
        prompt = Prompt.objects.create(relation=relation, text="<ENT0> does <ENT1>", origin="created")
        for setting, shift in (("multi", 0), ("top1", 3)):
            tuples = [(f"{name} {number + shift}", f"tail {number}") for number in range(n)]
            job = make_harvest(tuples, relation=relation, language_model=lm, setting=setting)
            JobPrompt.objects.create(job=job, prompt=prompt, weight=1.0, compatibility=-2.5)
            cells.append({"job": job.pk, "n": n // 2, "cut": f"top:{n - 2}"})
    curate(job.tuples.get(rank=2).knowledge_tuple, "hide", "made up")
    return open_round({"name": "study", "cells": cells, **spec}, None, default_project())


def of_samples(folder: Path) -> Report:
    round = _two_settings(14)
    labels = [T, F, T, T, F, U]
    judge_all(round, *([labels[(number + shift) % 6] for number in range(round.n_tasks)] for shift in range(3)))
    return create_report(round)


def of_strata(folder: Path) -> Report:
    """Create a report on strata by rank: 8 of the top 10 tuples and 8 of the next 30."""
    job = make_harvest([(f"head {number}", f"tail {number}") for number in range(40)])
    cell = {"job": job.pk, "n": 16, "strata": [1, 11], "allocation": "equal"}
    round = open_round({"name": "strata", "cells": [cell]}, None, default_project())
    judge_all(round, *([[T, F, T][(number + shift) % 3] for number in range(round.n_tasks)] for shift in range(3)))
    return create_report(round)


def of_imported_judgments(folder: Path) -> Report:
    """Create a report on imported judgments without model and setting, one to three per statement."""
    lines = ["relation,entities,annotator,label"]
    for number in range(8):
        for annotator in range(1 + number % 3):
            lines.append(f'likes,"[""cat {number}"", ""fish""]",w{annotator},{(T, F)[number % 2]}')
    path = folder / "judgments.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    import_judgments(path, "imported", create=True)
    return create_report(Round.objects.get(name="imported"))


def with_judge(folder: Path) -> Report:
    """Create a report with a judge run of three repeats, a second judge run, and their panel."""
    round = _two_settings(16)
    labels = [T, F, T, T, F, U]
    judge_all(round, *([labels[(number + shift) % 6] for number in range(round.n_tasks)] for shift in range(3)))
    run = make_judge_run(round, "main", repeats=3, panel="both")
    other = make_judge_run(round, "other", model="other-lm", prompt="{statement} False or True?", panel="both")
    for job in {stratum.job for stratum in round.strata.all()}:
        for number, row in enumerate(job.tuples.order_by("rank")):
            if not run.answers.filter(knowledge_tuple=row.knowledge_tuple).exists():
                for repeat in range(3):
                    label = labels[(number + (repeat == 2)) % 6]
                    make_judge_answer(run, row.knowledge_tuple, label, repeat=repeat)
                make_judge_answer(other, row.knowledge_tuple, labels[number % 5])
    return create_report(round, judge=run)


def with_causal_judge(folder: Path) -> Report:
    """Create a report with a judge that returns probabilities and skips some statements."""
    round = make_round(12)
    judge_all(round, [T, T, F, F] * 3, [T, F, F, T] * 3, [T] * 12)
    run = make_judge_run(round, "causal", judge_kind="causal")
    for task in round.tasks.filter(position__lt=9):
        make_judge_answer(run, task.knowledge_tuple, T if task.position % 3 else F, score=0.1 * task.position)
    return create_report(round, judge=run)


def with_reference(folder: Path) -> Report:
    round = make_round(6)
    judge_all(round, [T] * 6, [T, F] * 3, [F, T, T] * 2)
    reference = folder / "reference.jsonl"
    reference.write_text(json.dumps(["head 1", "goes with", "tail 1"]) + "\n", encoding="utf-8")
    return create_report(round, reference=reference)


def of_outside_kgs(folder: Path) -> Report:
    """Create a report on harvests with foreign scores and without scores."""
    relation = make_relation()
    tuples = [(f"head {number}", f"tail {number}") for number in range(12)]
    jobs = [make_harvest(tuples, relation=relation, score_scale=scale) for scale in ("own", "order")]
    round = open_round(
        {"name": "outside", "cells": [{"job": job.pk, "n": None} for job in jobs]}, None, default_project()
    )
    judge_all(round, [T, T, F] * 4, [T, F, T] * 4, [T] * 12)
    return create_report(round)


STUDIES: dict[str, Callable[[Path], Report]] = {
    study.__name__: study
    for study in (
        without_judgments, incomplete, with_gold, with_third_judgments, with_exclusions, with_withdrawals, of_samples,
        of_clusters,
        of_strata, of_imported_judgments, of_outside_kgs, with_judge, with_causal_judge, with_reference, preregistered,
    )
}  # fmt: skip
