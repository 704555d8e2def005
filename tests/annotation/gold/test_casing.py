"""Casing of gold statements: matches the casing of the other statements."""

import pytest

from annotation.gold.candidates import decide_on_gold, gold_candidates
from annotation.gold.selection import Casing, casings
from annotation.rounds.services import open_round
from tests.factories import make_harvest, make_relation


@pytest.mark.parametrize(
    ("others", "entity", "expected"),
    [
        (["rome", "oslo"], "Paris", "paris"),
        (["rome", "oslo"], "USA", "usa"),
        (["Rome", "New York"], "new delhi", "New Delhi"),
        (["Rome", "Oslo"], "USA", "USA"),
        (["Rome", "dog", "cat", "Oslo"], "Paris", "Paris"),
        (["Rome", "dog", "cat", "Oslo"], "bird", "bird"),
        (["rome", "OSLO", "bonn", "kyiv"], "Oslo", "OSLO"),
        ([*["rome"] * 19, "Oslo"], "Paris", "paris"),
        ([], "Paris", "Paris"),
    ],
)
def test_entity_gets_the_casing_of_its_slot(others, entity, expected):
    assert Casing(others).write(entity) == expected


def test_casing_is_determined_per_slot():
    heads, tails = casings([("Rome", "city"), ("Oslo", "town")])

    assert (heads.write("paris"), tails.write("Village")) == ("Paris", "village")


@pytest.mark.django_db
@pytest.mark.parametrize("write", [str.lower, str.title])
def test_gold_has_casing_of_harvest_and_training_that_of_seeds(write):
    seeds = [[f"Town {letter}", f"land {letter}"] for letter in "ABCDEFGH"]
    relation = make_relation(seed_tuples=seeds)
    decide_on_gold(relation, {candidate.code: True for candidate in gold_candidates(relation)[:6]})
    drawn = [(write(f"place {letter}"), write(f"realm {letter}")) for letter in "ABCDEFGH"]
    job = make_harvest(drawn, relation=relation)

    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None}], "gold_share": 0.3, "training_size": 4})

    gold = [entity for task in round.tasks.gold() for entity in task.entities]
    assert len(gold) == 8
    assert gold == [write(entity) for entity in gold]
    assert all("Town" in statement.statement for statement in round.training_statements.all())
