"""Small study with two LMs, a stratified relation, disputes, a comment, and names with special characters."""

from __future__ import annotations

from annotation.models import Judgment
from annotation.rounds.services import open_round
from tests import factories

WORDS = ("</script><script>alert(1)</script>", "emoji 😀 town", "a & b", "plain")


def make_study(by=None, n: int = 8, name: str = "pilot"):
    """Create a round whose heads cycle through WORDS. Every third statement is false, and every fifth is disputed."""
    jobs = []
    models = [factories.make_language_model(name) for name in ("lm-a", "lm-b")]
    for relation_name in ("capital_of", "part_of", "near"):
        relation = factories.make_relation(relation_name)
        for model in models:
            tuples = [(f"{WORDS[k % len(WORDS)]} {model} {k}", f"{relation_name} tail {k}") for k in range(n)]
            jobs.append(factories.make_harvest(tuples, relation=relation, language_model=model))
    cells = [{"job": job.pk, "n": None} for job in jobs[1:]]
    round = open_round({"name": name, "cells": [{"job": jobs[0].pk, "n": 5, "strata": [1, 3]}, *cells]}, by=by)
    tasks = list(round.tasks.order_by("position"))
    labels = ["false" if number % 3 == 0 else "true" for number in range(len(tasks))]
    others = ["unjudgeable" if number % 5 == 0 else label for number, label in enumerate(labels)]
    factories.judge_all(round, labels, labels, others)
    judgment = Judgment.objects.filter(task=tasks[0]).order_by("pk").first()
    Judgment.objects.filter(pk=judgment.pk).update(comment="Nobody <b>knows</b> that.")
    return round
