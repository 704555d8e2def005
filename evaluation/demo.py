"""Demo data: sample harvests, an open round, and a round with simulated judgments.

Each step creates only missing objects, so the demo can be repeated.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.utils.crypto import get_random_string

from annotation.invites.services import join_round
from annotation.judges.models import JudgeRun
from annotation.judges.runs import queue_run
from annotation.judging.simulation import Truth, fill_with_simulated_judgments
from annotation.models import Round
from annotation.rounds.services import open_round
from evaluation.models import Report
from evaluation.reports.services import create_report
from kgharvest.accounts.projects import create_project, set_role
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.types import HarvestParams
from kgharvest.harvests.language_models import get_language_model
from kgharvest.harvests.runner import HarvestRequest, queue_harvest, unique_key_of
from kgharvest.models import HarvestJob, Job, KnowledgeTuple, Project, Role
from kgharvest.relations.names import resolve_relation

MODEL = "embedded"
RELATIONS = ("capital_of", "a_do_b_at", "need_a_to_do_b", "help", "place_for", "prevent")  # two of them are ternary
SETTINGS = ("human", "multi")
PARAMS = HarvestParams(candidates=300, max_tuples=150)

RESEARCHER = "researcher"
ANNOTATORS = ("annotator-1", "annotator-2", "annotator-3")
PASSWORD_LENGTH = 12
LEGIBLE = "abcdefghijkmnpqrstuvwxyz23456789"  # without l, o, 0, and 1

PROJECT = "Demo"
PEOPLE_ROUND = "demo"
PEOPLE_N = 3  # statements per cell; three people need 15 minutes
SIMULATED_ROUND = "demo-simulated"
SIMULATED_N = 25
SIMULATION_SEED = 2023
CHANCE_OF_TRUE = {True: 0.9, False: 0.15}  # probability of the label True for facts and for other tuples


# The smaller embedded LM, trained on the same world, judges the tuples of the larger one. Both are demonstrators. The
# threshold gives a sensitivity of .88 and a specificity of .65 on the demo's tuples: a moderately useful judge.
JUDGE = {"name": "small-sibling", "kind": "score", "model": "embedded-small", "threshold": -7.0}


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


def queue_missing_harvests() -> list[HarvestJob]:
    """Return one job per cell of the demo: the newest finished or running one, otherwise a new queued job."""
    language_model = get_language_model(MODEL)
    useful = [Job.Status.QUEUED, Job.Status.RUNNING, Job.Status.SUCCEEDED]
    of_demo = HarvestJob.objects.filter(project=project(), status__in=useful).order_by("-pk")
    jobs = []
    for relation in [resolve_relation(f"demo/{name}") for name in RELATIONS]:
        for setting in SETTINGS:
            request = HarvestRequest(relation, language_model, setting, PARAMS)
            existing = of_demo.filter(unique_key=unique_key_of(request)).first()  # the cell can have other harvests
            jobs.append(existing or queue_harvest(request, researcher(), project=project()))
    return jobs


def open_people_round(jobs: Sequence[HarvestJob]) -> Round:
    """Return the round for people, after adding the demo's annotators to it."""
    round = _find_or_open(PEOPLE_ROUND, jobs, PEOPLE_N, source=Round.Source.PEOPLE)
    if round.is_open:
        for annotator in get_user_model().objects.filter(username__in=ANNOTATORS):
            join_round(round, annotator)
    return round


def open_simulated_round(jobs: Sequence[HarvestJob]) -> Round:
    """Return the round judged by simulated annotators, who know most facts of the embedded LM's world."""
    round = _find_or_open(SIMULATED_ROUND, jobs, SIMULATED_N, source=Round.Source.SIMULATED)
    if not round.annotators.exists():
        fill_with_simulated_judgments(round, truth_of_the_world(), Random(SIMULATION_SEED))
    return round


def _find_or_open(name: str, jobs: Sequence[HarvestJob], n: int, source: str) -> Round:
    if existing := project().rounds.filter(name=name).first():
        return existing
    cells = [{"job": job.pk, "n": min(n, job.n_tuples)} for job in jobs]
    return open_round({"name": name, "source": source, "cells": cells}, researcher(), project())


def truth_of_the_world() -> Truth:
    facts = {(relation.name, entities) for relation in load_world() for entities in relation.facts}

    def chance_of_true(claim: KnowledgeTuple) -> float:
        return CHANCE_OF_TRUE[(claim.relation.name, tuple(claim.entities)) in facts]

    return chance_of_true


def queue_missing_judge_run(round: Round) -> JudgeRun:
    """Return the run of the demo's judge in the round; queue a new one if there is none."""
    return round.judge_runs.filter(name=JUDGE["name"]).first() or queue_run(round, JUDGE, researcher())


def report_on(round: Round, judge: JudgeRun) -> Report:
    """Return the newest report on the round, or create one. judge: a successful run."""
    return round.reports.first() or create_report(round, by=researcher(), judge=judge)
