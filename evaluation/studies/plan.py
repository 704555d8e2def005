"""Check and plan a study: work, duration, people's hours, margins of error, and cost of judges. Nothing is stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from annotation.judges.runs import estimated_usage
from annotation.models import Round
from annotation.rounds.plan import (
    ASSUMED_DESIGN_EFFECT,
    half_width,
    macro_half_width,
    measured_pace,
    plan_lines,
    plan_round,
    workload,
)
from annotation.rounds.serializers import round_from_spec
from annotation.rounds.services import create_draft
from evaluation.models import Study
from evaluation.studies.outputs import check_outputs
from evaluation.studies.schema import SAMPLE
from evaluation.studies.sections import sections_of
from evaluation.studies.services import (
    check_round,
    check_simulation,
    import_study_relations,
    locked,
    plan_of,
    round_spec,
    store_study,
)
from kgharvest.errors import DomainError
from kgharvest.harvests.launches import Plan, summary_of_plan
from kgharvest.models import Job
from kgharvest.pages.number_format import counted, in_points, seconds


@contextmanager
def planned_study(document: dict[str, Any], by=None) -> Iterator[tuple[Study, Plan]]:
    """Yield the study and the plan of its harvests as if it was stored; roll everything back at the end.

    Checks all that can be checked without loading an LM. Raises DomainError, ImportRefused, or EngineError.
    """
    with transaction.atomic():
        study = locked(store_study(document, by), by)
        yield study, checked_plan(study, by)
        transaction.set_rollback(True)


def checked_plan(study: Study, by=None) -> Plan:
    """Import the relations of a locked study, check the study, and return the plan of its harvests.

    Raises as planned_study.
    """
    import_study_relations(study, by)
    check_simulation(study)
    plan = plan_of(study, by)
    check_round(study, plan.all_requests)
    check_outputs(study)
    for section in sections_of(study.document):
        section.check(study, plan.all_requests)
    if plan.refusals:
        raise DomainError("BadStudy", " ".join(plan.refusals))
    return plan


def study_plan_lines(document: dict[str, Any], by=None) -> Iterator[str]:
    """Yield the plan as lines. Raises as planned_study."""
    with planned_study(document, by) as (study, plan):
        if plan.n_cells:
            yield f"harvests: {summary_of_plan(plan)}"
        for request in plan.requests:
            n = request.params.n_candidates_in_all(request.relation.arity)
            yield f"  {request.cell}: {counted(n, 'candidate')}"
        for section in sections_of(document):
            yield from section.plan_lines(study, plan.all_requests)
        if "round" not in document:
            return
        if study.round and study.round.status != Round.Status.DRAFT:
            yield f"round: {study.round.name} is {study.round.status}, with {counted(study.round.n_tasks, 'statement')}"
            return
        jobs = [job for _, job in plan.skipped]
        if not plan.requests and all(job.status == Job.Status.SUCCEEDED for job in jobs):
            draft = study.round or create_draft(round_spec(study, jobs), by, study.project)
            yield from plan_lines(plan_round(draft, by=by))
            for judge in study.document.get("judges", []):
                used = estimated_usage(draft, judge, by)
                yield f"judge {judge['name']}: {counted(used.n_answers, 'answer')}, cost about {used.cost:.4f}"
        else:
            yield from _bounds(study, plan)


def _bounds(study: Study, plan: Plan) -> Iterator[str]:
    """Yield the work before the harvests: harvests can overlap or find fewer tuples."""
    section = study.document["round"]
    cells = section.get("cells") or [{}] * plan.n_cells
    sizes = [cell.get("n", section.get("n")) for cell in cells]
    if None in sizes:
        most = {request.params.max_tuples or request.params.n_candidates_in_all(2) for request in plan.requests}
        yield f"statements: all tuples, at most {max(most, default=0):,} per cell"
        return
    spec = {name: value for name, value in section.items() if name not in (*SAMPLE, "cells")}
    draft = round_from_spec({"name": study.name, **spec, "cells": [{"job": 1, "n": 1}]})
    work = workload(draft, sum(sizes), sum(sizes), measured_pace())
    yield f"statements: at most {work.n_tasks:,} ({counted(len(sizes), 'cell')})"
    yield f"judgments: at most {work.n_judgments:,}"
    effect = ASSUMED_DESIGN_EFFECT if draft.cluster_size else 1
    pace = "measured" if work.is_measured else "assumed"
    yield f"annotator time: at most {work.hours:.1f} h at {seconds(work.seconds_per_judgment)} per judgment ({pace})"
    yield f"expected 95 % interval of a cell at 50 % accuracy: +- {in_points(half_width(max(sizes) / effect))}"
    n_relations = len({request.relation.pk for request in plan.all_requests})
    if n_relations > 1 and "cells" not in section:
        width = macro_half_width([0.25 * effect / sizes[0]] * n_relations)
        yield f"expected 95 % interval of the average of {n_relations} relations: +- {in_points(width)}"
    if study.document.get("judges"):
        yield "judges: the cost is known when the harvests have finished"
