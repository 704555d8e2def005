"""Factories of rounds with tuples of every verdict."""

from __future__ import annotations

from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.models import JudgmentTask, Round
from annotation.rounds.services import open_round
from kgharvest.accounts.projects import default_project
from tests import factories

ODD = ('a "quoted" | name', "tab-less\\back")


def make_judged_round(name: str = "pilot") -> Round:
    """Open and judge a round on half of the tuples of two harvests: one of pairs, one of triples.

    It contains every verdict, and texts that the formats must escape.
    """
    relation_set = factories.make_relation_set("paper")
    model = factories.make_language_model("org/lm")
    pairs = [*((f"Head {n}", f"tail {n}") for n in range(13)), ODD, ("Österreich", "=1+1"), ("Head 0", "tail 1")]
    triples = [(f"Actor {n}", f"role {n}", f"movie {n}") for n in range(6)]
    jobs = [
        factories.make_harvest(
            tuples, relation=factories.make_relation(relation, relation_set=relation_set, arity=arity),
            language_model=model, setting=setting,
        )
        for relation, arity, tuples, setting in (("goes_with", 2, pairs, "multi"), ("plays", 3, triples, "top1"))
    ]  # fmt: skip
    cells = [{"job": jobs[0].pk, "n": 8}, {"job": jobs[1].pk, "n": 4}]
    round = open_round({"name": name, "cells": cells}, None, default_project())
    judge_with_every_verdict(round)
    return round


def judge_with_every_verdict(round: Round) -> None:
    """Judge so that statements become accepted, rejected, undecided, and incomplete in turn."""
    answers = ("TTF", "FFF", "TFU", "TT")
    labels = {"T": "true", "F": "false", "U": "unjudgeable"}
    for number, annotator in enumerate(factories.make_annotators(round, 3)):
        while batch := [task for task in next_batch(annotator, timezone.now()) if number < len(answers[turn(task)])]:
            for task in batch:
                factories.judge(annotator, task, labels[answers[turn(task)][number]])


def turn(task: JudgmentTask) -> int:
    return task.position % 4
