"""Novelty: entities and tuples that are missing from a reference KG."""

import json

import pytest
from django.core.management import CommandError, call_command

from annotation.rounds.services import open_round
from evaluation.evidence.reference_kg import ReferenceIndex, read_triples
from evaluation.models import Report
from evaluation.reports.services import create_report
from tests.factories import judge_all, make_harvest, make_language_model, make_relation, make_round
from tests.refusals import refused


def test_novelty_matches_hand_calculation():
    index = ReferenceIndex()
    harvested = [["New York", "big city"], ["oslo", "norway"], ["rome", "italy"]]
    for entities in harvested:
        index.add_harvested(entities)

    n_triples = index.read_reference([("new_york", "Big  City"), ("italy", "rome"), ("paris", "france")])

    # Four entities are in the reference. Of the tuples, only the first is, because the order of entities matters.
    assert n_triples == 3
    assert index.novelty(harvested) == (6, 2, 3, 2)


def test_ternary_tuple_is_compared_by_first_and_last_entity():
    index = ReferenceIndex()
    index.add_harvested(["student", "study", "library"])
    index.read_reference([("student", "library")])

    assert index.novelty([["student", "study", "library"]]) == (3, 1, 1, 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kg.csv", 'a,is,b\n"c, d",is,e\n'),
        ("kg.tsv", "a\tis\tb\nc, d\tis\te\t1.0\n"),
        ("kg.jsonl", '["a", "is", "b"]\n{"head": "c, d", "relation": "is", "tail": "e"}\n'),
        ("kg.jsonl", '{"relation": "is", "entities": ["a", "b"]}\n\n{"entities": ["c, d", "x", "e"]}\n'),
    ],
)
def test_triples_are_read_from_three_formats(tmp_path, name, text):
    (tmp_path / name).write_text("\ufeff" + text)

    assert list(read_triples(tmp_path / name)) == [("a", "b"), ("c, d", "e")]


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("kg.csv", b"a,b,c\na,b\n", "line 2: missing column"),
        ("kg.jsonl", b'{"head": "a"}', "line 1: invalid triple"),
        ("kg.jsonl", b"[1, 2, 3]", "line 1: invalid triple"),
        ("kg.jsonl", b"[" * 100_000, "line 1: invalid triple"),
        ("kg.tsv", b"\xff\xfe", "Cannot read"),
        ("kg.csv", b"a,b," + b"c" * 131_073, "is not valid CSV"),
        ("kg.ttl", b"", "Unknown format"),
    ],
)
def test_invalid_triples_are_rejected(tmp_path, name, text, complaint):
    (tmp_path / name).write_bytes(text)

    with refused("BadReference", match=complaint):
        list(read_triples(tmp_path / name))


@pytest.mark.django_db
def test_report_novelty_counts_all_tuples_within_cut(tmp_path):
    lm = make_language_model("lm")
    first = make_harvest([("a", "b"), ("c", "d"), ("e", "f")], relation=make_relation("one"), language_model=lm)
    second = make_harvest([("a", "z")], relation=make_relation("two"), language_model=lm)
    cells = [{"job": first.pk, "n": 1, "cut": "top:2"}, {"job": second.pk, "n": None}]
    round = open_round({"name": "pilot", "cells": cells})
    reference = tmp_path / "kg.csv"
    reference.write_text("a,to,b\n")

    novelty = create_report(round, reference=reference).document["novelty"]

    shares = {cell["relation"]: (cell["entity_novelty"], cell["tuple_novelty"]) for cell in novelty["cells"]}
    assert shares == {"one": (0.5, 0.5), "two": (0.5, 1.0)}
    [total] = novelty["totals"]
    assert (total["n_entities"], total["n_new_entities"], total["n_tuples"], total["n_new_tuples"]) == (5, 3, 3, 2)
    assert novelty["reference"]["n_triples"] == 1


@pytest.mark.django_db
def test_unreadable_reference_creates_no_report(tmp_path):
    judge_all(make_round(1, name="pilot"), ["true"])

    with pytest.raises(CommandError, match=r"Cannot read none.csv"):
        call_command("report", "--round", "pilot", "--reference", str(tmp_path / "none.csv"))

    assert not Report.objects.exists()


@pytest.mark.django_db
def test_report_without_reference_has_no_novelty():
    assert json.dumps(create_report(make_round(1)).document["novelty"]) == "null"
