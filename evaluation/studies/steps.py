"""Steps of a study. Each one finds out from the database whether it is done, so `advance` continues after any stop.

`advance` does everything that does not have to wait and returns the jobs to wait for. Each change is one transaction
that locks the study, so several processes can advance a study at the same time.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from django.db import transaction
from django.urls import reverse

from annotation.judges.models import JudgeRun
from annotation.judges.runs import continue_run, queue_run
from annotation.judging.simulation import Truth, fill_with_simulated_judgments
from annotation.models import Round
from annotation.rounds.services import create_draft, open_draft
from evaluation.models import Report, Study
from evaluation.reports.forms import report_options
from evaluation.reports.services import prepare_report, store_report
from evaluation.studies.schema import SimulationSection, validated_report
from evaluation.studies.sections import StudySection, sections_of
from evaluation.studies.services import (
    check_round,
    check_simulation,
    import_study_relations,
    jobs_of,
    locked,
    own_set_name,
    plan_of,
    relations_of,
    requests_of,
    round_spec,
    section_jobs,
)
from kgharvest.embedded_lm.world import load_world
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests.launches import start_launch
from kgharvest.harvests.runner import unique_key_of
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, KnowledgeTuple, Project
from kgharvest.pages.number_format import counted


def advance(study: Study, by=None) -> list[Job]:
    """Do the remaining steps up to the first one that has to wait; return the unfinished jobs that it waits for.

    Without jobs, the study is complete, or waits for people (`is_judged`). Failed and cancelled jobs run again. Raises
    the errors of the services of each step; the study can be advanced again.
    """
    steps = [partial(queue_section, section) for section in sections_of(study.document)]
    if "round" in study.document:
        steps += [queue_harvests, open_study_round, queue_judges, simulate, make_report]
    for step in steps:
        if jobs := step(study, by):
            return jobs
    return []


def queue_section(section: StudySection, study: Study, by=None) -> list[Job]:
    """Queue the missing jobs of the section, and failed ones again; return the unfinished ones."""
    with transaction.atomic():
        import_study_relations(locked(study, by), by)
    requests = section.requests(study)  # outside transactions: it reads files
    with transaction.atomic():
        current = locked(study, by)
        Project.objects.select_for_update(no_key=True).get(pk=study.project_id)  # its studies share jobs
        current.section_keys = study.section_keys = current.section_keys | {section.key: list(requests)}
        current.save(update_fields=["section_keys", "changed_at"])
        existing = {job.unique_key: job for job in section_jobs(current, section)}
        for key, request in requests.items():
            if key not in existing:
                section.queue(request, key, current, by)
            elif existing[key].can_retry:
                ledger.retry(existing[key], by)
        return [job for job in section_jobs(current, section) if job.is_unfinished]


@transaction.atomic
def queue_harvests(study: Study, by=None) -> list[Job]:
    """Import the relations and launch the missing harvests; return the unfinished ones. Nothing if a round exists."""
    current = locked(study, by)
    study.harvest_keys = current.harvest_keys
    if current.round:
        return []
    import_study_relations(current, by)
    check_simulation(current)
    requests = requests_of(current)
    check_round(current, requests)
    plan = plan_of(current, by)
    if plan.refusals:
        raise DomainError("BadStudy", " ".join(plan.refusals))
    study.harvest_keys = list(map(unique_key_of, requests))
    if current.harvest_keys != study.harvest_keys:
        current.harvest_keys = study.harvest_keys
        current.save(update_fields=["harvest_keys", "changed_at"])
    if plan.requests:
        start_launch(plan, by)
    return [job for job in jobs_of(current) if job.is_unfinished]


def open_study_round(study: Study, by=None) -> list[Job]:
    """Open the round; return the run of the judge whose labels define its strata while it is unfinished.

    Raises HarvestMissing.
    """
    with transaction.atomic():
        current = locked(study, by)
        if current.round is None:
            current.round = create_draft(round_spec(current, _finished_harvests(current)), by, current.project)
            current.save(update_fields=["round", "changed_at"])
        study.round = round = current.round
        if round.status != Round.Status.DRAFT:
            return []
        if round.judge and (runs := _queue_runs(current, {round.judge}, by)):
            return runs
        study.round = open_draft(round, by)
        return []


def _finished_harvests(study: Study) -> list[HarvestJob]:
    """Return the harvests of the study. Raises HarvestMissing if one has not finished."""
    jobs = [job for job in jobs_of(study) if job.status == Job.Status.SUCCEEDED]
    if not jobs or len(jobs) < len(study.harvest_keys):
        raise DomainError(
            "HarvestMissing",
            f"Study {study.name} has finished {len(jobs)} of {counted(len(study.harvest_keys), 'harvest')}. Continue "
            "it with study run.",
        )
    return jobs


@transaction.atomic
def queue_judges(study: Study, by=None) -> list[Job]:
    """Queue the missing judge runs, and failed ones again; return the unfinished runs."""
    return _queue_runs(locked(study, by), {judge["name"] for judge in study.document.get("judges", [])}, by)


def _queue_runs(study: Study, names: set[str], by) -> list[Job]:
    existing = {run.name: run for run in study.round.judge_runs.all()}
    runs: list[JudgeRun] = []
    for document in study.document.get("judges", []):
        run = existing.get(document["name"])
        if document["name"] not in names:
            continue
        if run is None:
            run = queue_run(study.round, document, by)
        elif run.can_retry:
            run = continue_run(run, {}, by)
        runs.append(run)
    return [run for run in runs if run.is_unfinished]


@transaction.atomic
def simulate(study: Study, by=None) -> list[Job]:
    """Let simulated annotators judge the round, if the study has simulated annotators."""
    study = locked(study, by)
    if "simulation" in study.document and not study.round.annotators.exists():
        section = SimulationSection(data=study.document["simulation"])
        section.is_valid(raise_exception=True)
        options = section.validated_data
        truth = truth_of_the_world(options["facts_called_true"], options["others_called_true"])
        fill_with_simulated_judgments(study.round, truth, Random(options["seed"]), options["n_annotators"])
    return []


def truth_of_the_world(facts_called_true: float, others_called_true: float) -> Truth:
    """Return the probability that simulated annotators call a tuple True, by the facts of the embedded LM's world."""
    facts = {(relation.name, entities) for relation in load_world() for entities in relation.facts}

    def chance_of_true(claim: KnowledgeTuple) -> float:
        is_fact = (claim.relation.name, tuple(claim.entities)) in facts
        return facts_called_true if is_fact else others_called_true

    return chance_of_true


def is_judged(round: Round) -> bool:
    """Return True if no more judgments are expected: every statement has a verdict, or the round is closed."""
    return round.status == Round.Status.CLOSED or not round.tasks.without_gold().filter(verdict="").exists()


def make_report(study: Study, by=None) -> list[Job]:
    """Create the report of a complete round, unless the study has one."""
    study.refresh_from_db(fields=["round", "report"])
    if study.report or not is_judged(study.round):
        return []
    report = prepare_report(study.round, by, **options_of_report(study))  # outside transactions: it takes a snapshot
    with transaction.atomic():
        current = locked(study, by)
        if current.report is None:
            current.report = store_report(report, by)
            current.save(update_fields=["report", "changed_at"])
    study.report = current.report
    return []


def report_now(study: Study, by=None) -> Report:
    """Create a report on the present state of the round. It becomes the study's report if the round is complete.

    Raises NotFound without an open round.
    """
    study.refresh_from_db(fields=["round", "report"])
    if study.round is None or study.round.status == Round.Status.DRAFT:
        raise NotFound(f"Study {study.name} has no open round yet. Continue it with study run.")
    is_final = is_judged(study.round)
    report = prepare_report(study.round, by, **options_of_report(study))
    with transaction.atomic():
        current = locked(study, by)
        store_report(report, by)
        if is_final:
            current.report = report
            current.save(update_fields=["report", "changed_at"])
    return report


def options_of_report(study: Study) -> dict[str, object]:
    return report_options(validated_report(study.document.get("report", {})), study.round)


# Status


class Stage(NamedTuple):
    """state: "done", "under way", "waiting" (for people), "failed", or "not started". links: (label, URL)."""

    name: str
    state: str
    text: str
    links: list[tuple[str, str]]


def stages(study: Study) -> list[Stage]:
    """Return the stages of the study with their states, for pages and commands."""
    of_round = (_harvests, _round, _judges, _judgments, _report) if "round" in study.document else ()
    of_sections = [
        _jobs(section.key.capitalize(), section.noun, jobs, len(study.section_keys.get(section.key, [])))
        for section in sections_of(study.document)
        for jobs in [section_jobs(study, section)]
    ]
    return [_relations(study), *of_sections, *(stage(study) for stage in of_round)]


def _relations(study: Study) -> Stage:
    try:
        relations = relations_of(study)
    except DomainError:
        return Stage("Relations", "not started", "Not imported yet", [])
    written = any("name" in section for section in study.document["relations"])
    names = {section["set"] for section in study.document["relations"] if "set" in section}
    names |= {own_set_name(study)} if written else set()
    links = [(name, f"{reverse('kgharvest:relation_list')}?set={name}") for name in sorted(names)]
    return Stage("Relations", "done", counted(len(relations), "relation"), links)


def _harvests(study: Study) -> Stage:
    jobs = jobs_of(study)
    is_drawn = study.round is not None and study.round.status != Round.Status.DRAFT
    return _jobs("Harvests", "harvest", jobs, len(jobs) if is_drawn else len(study.harvest_keys))


def _jobs(name: str, noun: str, jobs: Sequence[Any], n_jobs: int) -> Stage:
    """Return a stage of `n_jobs` jobs, some of which can be missing."""
    if not jobs:
        return Stage(name, "not started", "Not queued yet", [])
    n_done = sum(job.status == Job.Status.SUCCEEDED for job in jobs)
    text = f"{n_done} of {counted(n_jobs, noun)} finished"
    if failed := _failed(jobs):
        reasons = " ".join(f"{job}: {job.error}" for job in failed)
        return Stage(name, "failed", f"{text}. {reasons}", _links(failed))
    return Stage(name, "done" if n_done == n_jobs else "under way", text, _links(jobs))


def failed_jobs(study: Study) -> list[Any]:
    """Return the harvests and the jobs of sections that have failed and were not queued again."""
    of_sections = (job for section in sections_of(study.document) for job in section_jobs(study, section))
    return _failed([*jobs_of(study), *of_sections])


def _failed(jobs: Iterable[Any]) -> list[Any]:
    return [job for job in jobs if job.status == Job.Status.FAILED]


def _links(jobs: Iterable[Any]) -> list[tuple[str, str]]:
    return [(str(job), job.get_absolute_url()) for job in jobs]


def _round(study: Study) -> Stage:
    round = study.round
    if round is None:
        return Stage("Round", "not started", "Opens when the harvests have finished", [])
    is_draft = round.status == Round.Status.DRAFT
    text = "Draft" if is_draft else f"{counted(round.n_tasks, 'statement')}, {round.get_status_display()}"
    return Stage("Round", "under way" if is_draft else "done", text, [(round.name, round.get_absolute_url())])


def _judges(study: Study) -> Stage:
    names = [judge["name"] for judge in study.document.get("judges", [])]
    if not names:
        return Stage("LM judges", "done", "None", [])
    runs = list(study.round.judge_runs.filter(name__in=names)) if study.round else []
    n_done = sum(run.status == Job.Status.SUCCEEDED for run in runs)
    state = "done" if n_done == len(names) else "under way" if runs else "not started"
    if any(run.can_retry for run in runs):
        state = "failed"
    text = f"{n_done} of {counted(len(names), 'judge run')} finished"
    return Stage("LM judges", state, text, [(run.name, run.get_absolute_url()) for run in runs])


def _judgments(study: Study) -> Stage:
    round = study.round
    if round is None or round.status == Round.Status.DRAFT:
        return Stage("Judgments", "not started", "The round is not open yet", [])
    tasks = round.tasks.without_gold()
    n_left = tasks.filter(verdict="").count()
    text = f"{tasks.count() - n_left:,} of {counted(round.n_tasks - round.n_gold, 'statement')} complete"
    join = [("Join link", reverse("annotation:join", args=[round.join_token]))]
    is_for_people = round.source == Round.Source.PEOPLE and round.is_open
    return Stage("Judgments", "done" if is_judged(round) else "waiting", text, join if is_for_people else [])


def _report(study: Study) -> Stage:
    if study.report is None:
        return Stage("Report", "not started", "Created when all statements are judged", [])
    return Stage("Report", "done", f"Report {study.report.pk}", [("Report", study.report.get_absolute_url())])
