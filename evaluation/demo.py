"""Demo data: sample harvests, an open round, and a round with simulated judgments.

Each step creates only missing objects, so the demo can be repeated.
"""

from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone
from django.utils.crypto import get_random_string

from annotation.invites.services import join_round
from annotation.judges.models import JudgeRun
from annotation.models import Round
from evaluation.demo_results import store_saved_harvests, store_saved_judge_run
from evaluation.models import Report, Study
from evaluation.studies import steps
from evaluation.studies.files import read_study, study_path
from evaluation.studies.services import find_study, jobs_of, store_study
from kgharvest.accounts.projects import create_project, set_role
from kgharvest.engine.types import HarvestParams
from kgharvest.harvests.launches import plan_launch, start_launch
from kgharvest.harvests.runner import requests_for
from kgharvest.models import HarvestJob, LanguageModel, Launch, Project, Role
from kgharvest.relations.names import resolve_relation

RESEARCHER = "researcher"
ANNOTATORS = ("annotator-1", "annotator-2", "annotator-3")
PASSWORD_LENGTH = 12
LEGIBLE = "abcdefghijkmnpqrstuvwxyz23456789"  # without l, o, 0, and 1, which look alike

PROJECT = "Demo"
PEOPLE, SIMULATED = "demo", "demo-simulated"  # built-in studies that use the same harvests
# The worker harvests these relations while the demo's pages are open.
MORE_RELATIONS = ("currency_of", "eats", "language_of", "made_of", "part_of", "used_for")
MORE_PARAMS = HarvestParams(candidates=300, max_tuples=150)


class Login(NamedTuple):
    """Login of a demo user. password: None for an existing user, whose password is unknown."""

    username: str
    password: str | None


def create_logins() -> list[Login]:
    """Create missing users and return all logins, the researcher's first. New passwords are not stored elsewhere."""
    users, logins = get_user_model().objects, []
    for username in (RESEARCHER, *ANNOTATORS):
        password = None
        if not users.filter(username=username).exists():
            password = get_random_string(PASSWORD_LENGTH, LEGIBLE)
            users.create_user(username, password=password)
        logins.append(Login(username, password))
    if not project().members.filter(user=researcher()).exists():
        set_role(project(), researcher(), Role.OWNER)
    return logins


def project() -> Project:
    return Project.objects.filter(name=PROJECT).first() or create_project(PROJECT)


def researcher() -> AbstractBaseUser:
    return get_user_model().objects.get(username=RESEARCHER)


def study(name: str) -> Study:
    """Return the built-in study, created if it is missing.

    If the study already has a round, for example from an older version's demo, its document is kept: the new version
    may contain a different document.
    """
    document = read_study(study_path(name))
    stored = find_study(document, researcher())
    if stored is None or stored.round is None:
        stored = store_study(document, researcher())
    if stored.round is None and (existing := stored.project.rounds.filter(name=name).first()):
        stored.round, stored.report = existing, existing.reports.first()
        stored.save()
    return stored


def queue_missing_harvests() -> list[HarvestJob]:
    """Return one job per cell of the demo: the newest finished or running one, otherwise a new queued job."""
    people = study(PEOPLE)
    steps.queue_harvests(people, researcher())
    return jobs_of(people)


def finished_or_queued_harvests() -> list[HarvestJob]:
    """Return the jobs of `queue_missing_harvests`, finished if their results are saved."""
    store_saved_harvests(queue_missing_harvests())
    return jobs_of(study(PEOPLE))


def launch_more_harvests(lm: LanguageModel) -> Launch | None:
    """Launch the missing harvests of MORE_RELATIONS. Return the launch, or None if no harvest is missing."""
    relations = [resolve_relation(f"demo/{name}") for name in MORE_RELATIONS]
    requests = requests_for(relations, [lm], ("human", "multi"), params=MORE_PARAMS)
    plan = plan_launch(requests, timezone.now(), by=researcher(), project=project())
    return start_launch(plan, researcher())[0] if plan.requests else None


def open_people_round() -> Round:
    """Return the round for people, joined by the demo's annotators."""
    people = study(PEOPLE)
    steps.open_study_round(people, researcher())
    if people.round.is_open:
        for annotator in get_user_model().objects.filter(username__in=ANNOTATORS):
            join_round(people.round, annotator)
    return people.round


def open_simulated_round() -> Round:
    """Return the round judged by simulated annotators, who know most facts of the embedded LM's world."""
    simulated = study(SIMULATED)
    steps.queue_harvests(simulated, researcher())
    steps.open_study_round(simulated, researcher())
    steps.simulate(simulated, researcher())
    return simulated.round


def queue_missing_judge_run() -> JudgeRun:
    """Return the run of the demo's judge in the simulated round; queue a new one if there is none."""
    simulated = study(SIMULATED)
    steps.queue_judges(simulated, researcher())
    return simulated.round.judge_runs.get(name=simulated.document["judges"][0]["name"])


def finished_or_queued_judge_run() -> JudgeRun:
    """Return the run of `queue_missing_judge_run`, finished if its answers are saved."""
    run = queue_missing_judge_run()
    store_saved_judge_run(run)
    run.refresh_from_db()
    return run


def simulated_report() -> Report:
    """Return the report on the simulated round, or create it. Its judge run must have succeeded."""
    simulated = study(SIMULATED)
    steps.make_report(simulated, researcher())
    return simulated.report
