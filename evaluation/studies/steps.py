"""Steps of a study. Each one finds out from the database whether it is done, so `advance` continues after any stop.

`advance` does everything that does not have to wait and returns the jobs to wait for. Each change is one transaction
that locks the study, so several processes can advance a study at the same time.
"""

from contextlib import suppress
from random import Random

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from annotation.judges.models import JudgeRun
from annotation.judges.runs import continue_run, queue_run
from annotation.judging.simulation import Truth, fill_with_simulated_judgments
from annotation.models import Round
from annotation.rounds.services import close_due_rounds, create_draft, open_draft
from evaluation.models import Report, Study
from evaluation.reports.forms import report_options
from evaluation.reports.services import prepare_report, store_report
from evaluation.studies.plan import checked_plan
from evaluation.studies.schema import SimulationSection, validated_report
from evaluation.studies.sections import Stage, job_sections_of, sections_of
from evaluation.studies.services import (
    jobs_of,
    locked,
    relations_of,
    round_spec,
)
from kgharvest.embedded_lm.world import load_world
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests.launches import NothingToLaunch, start_launch
from kgharvest.harvests.runner import unique_key_of
from kgharvest.models import HarvestJob, Job, KnowledgeTuple
from kgharvest.pages.number_format import counted


def advance(study: Study, by=None) -> list[Job]:
    """Do the remaining steps up to the first one that has to wait; return the unfinished jobs that it waits for.

    Without jobs, the study is complete, or waits for people (`waits_for_people`). Failed and cancelled jobs run again.
    Raises the errors of the services of each step; the study can be advanced again.
    """
    has_round = "round" in study.document
    of_round = [open_study_round, queue_judges, simulate] if has_round else []
    for step in [queue_harvests, *of_round, queue_sections, *([make_report] if has_round else [])]:
        if jobs := step(study, by):
            return jobs
    return []


@transaction.atomic
def queue_harvests(study: Study, by=None) -> list[Job]:
    """Import the relations, check the study, and launch the missing harvests; return the unfinished ones.

    Nothing if a round exists.
    """
    current = locked(study, by)
    study.harvest_keys = current.harvest_keys
    if current.round:
        return []
    plan = checked_plan(current, by)
    study.harvest_keys = list(map(unique_key_of, plan.all_requests))
    if current.harvest_keys != study.harvest_keys:
        current.harvest_keys = study.harvest_keys
        current.save(update_fields=["harvest_keys", "changed_at"])
    if plan.requests:
        with suppress(NothingToLaunch):  # another request has just launched the same harvests
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
        if round.status == Round.Status.DRAFT:
            if round.judge and (runs := _queue_runs(current, {round.judge}, by)):
                return runs
            study.round = current.round = open_draft(round, by)
        for section in sections_of(current.document):
            section.round_opened(current, by)
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
    """Queue the missing judge runs, and stopped ones again; return the unfinished runs.

    Raises BudgetTooSmall, and the errors of queue_run.
    """
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
            run = continue_run(run, {name: getattr(run, name) for name in run.LIMITS}, by)
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


@transaction.atomic
def queue_sections(study: Study, by=None) -> list[Job]:
    """Queue the missing jobs of other sections, such as evaluations of scores; return the unfinished ones."""
    current = locked(study, by)
    jobs = [job for section in sections_of(current.document) for job in section.queue(current, by)]
    study.section_keys = current.section_keys
    return jobs


def waits_for_people(study: Study) -> bool:
    return study.round is not None and not is_judged(study.round)


def is_judged(round: Round) -> bool:
    """Return True if no more judgments are expected: every statement has a verdict, or the round is closed."""
    return round.status == Round.Status.CLOSED or not round.tasks.without_gold().filter(verdict="").exists()


def make_report(study: Study, by=None) -> list[Job]:
    """Close the round if it is due, and create the report of a complete round, unless the study has one."""
    close_due_rounds(timezone.now(), Round.objects.filter(pk=study.round_id))
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


def report_now(study: Study, by=None, is_stored: bool = False) -> Report:
    """Create a report on the present state of the round. It becomes the study's report if the round is complete.

    A report without judgments is stored only if `is_stored`. Raises NotFound without an open round.
    """
    study.refresh_from_db(fields=["round", "report"])
    if study.round is None or study.round.status == Round.Status.DRAFT:
        raise NotFound(f"Study {study.name} has no open round yet. Continue it with study run.")
    is_final = is_judged(study.round)
    report = prepare_report(study.round, by, **options_of_report(study))
    if not report.document["n_judgments"] and not is_stored:
        return report
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


def stages(study: Study) -> list[Stage]:
    """Return the stages of the study with their states, for pages and commands."""
    document = study.document
    of_harvests = [_harvests] if "harvests" in document else []
    of_round = [_round, _judges, _judgments, _report] if "round" in document else []
    of_sections = [stage for section in sections_of(document) for stage in section.stages(study)]
    return [*(stage(study) for stage in [_relations, *of_harvests, *of_round]), *of_sections]


def _relations(study: Study) -> Stage:
    try:
        relations = relations_of(study)
    except DomainError:
        return Stage("Relations", "not started", "Not imported yet", [])
    names = sorted({relation.relation_set.name for relation in relations})
    links = [(name, f"{reverse('kgharvest:relation_list')}?set={name}") for name in names]
    return Stage("Relations", "done", counted(len(relations), "relation"), links)


def _harvests(study: Study) -> Stage:
    jobs = jobs_of(study)
    if not jobs:
        return Stage("Harvests", "not started", "Not queued yet", [])
    is_drawn = study.round is not None and study.round.status != Round.Status.DRAFT
    n_cells = len(jobs) if is_drawn else len(study.harvest_keys)
    n_done = sum(job.status == Job.Status.SUCCEEDED for job in jobs)
    text = f"{n_done} of {counted(n_cells, 'harvest')} finished"
    if failed := [job for job in jobs if job.status == Job.Status.FAILED]:
        reasons = " ".join(f"{job}: {job.error}" for job in failed)
        return Stage("Harvests", "failed", f"{text}. {reasons}", _links(failed))
    return Stage("Harvests", "done" if n_done == n_cells else "under way", text, _links(jobs))


def failed_jobs(study: Study) -> list[Job]:
    """Return the jobs of the study that have failed and were not queued again."""
    jobs = [
        *jobs_of(study),
        *(job for section in job_sections_of(study.document) for job in section.existing_jobs(study)),
    ]
    return [job for job in jobs if job.status == Job.Status.FAILED]


def _links(jobs: list[HarvestJob]) -> list[tuple[str, str]]:
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
