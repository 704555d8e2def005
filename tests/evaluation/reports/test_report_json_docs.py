"""docs/report-json.md describes every report key, in the first table or in the sections that its row links to."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from annotation.judges.models import JudgeKind
from annotation.quality.exclusion import exclude_annotator
from annotation.rounds.services import open_round
from evaluation.reports.services import create_report
from tests.factories import (
    judge_all,
    make_gold,
    make_harvest,
    make_judge_answer,
    make_judge_run,
    make_language_model,
    make_relation,
)
from tests.kgharvest.contrib.publishing.preregistration.planning import SIDES, freeze, planned

pytestmark = pytest.mark.django_db

PAGE = Path("docs/report-json.md").read_text().split("# The JSON of `evaluate_scores`")[0]
SECTIONS = {
    re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-"): text
    for heading, text in re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE)
}
ROWS = {
    key: row
    for row in SECTIONS["the-whole"].splitlines()
    if row.startswith("| `")
    for key in re.findall(r"`(\w+)`", row.split("|")[1])
}


def documented_names(text: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """Return the code names in a text and in all sections that it links to."""
    names = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
    for section in set(re.findall(r"\(#([\w-]+)\)", text)) - seen:
        names |= documented_names(SECTIONS[section], seen | {section})
    return names


def keys_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key of a document with its path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key, f"{path}.{key}"
            yield from keys_of(inner, f"{path}.{key}")
    if isinstance(value, list):
        for inner in value:
            yield from keys_of(inner, f"{path}[]")


@pytest.fixture
def document(tmp_path) -> dict:
    """Report document with all sections filled: two settings, six relations, strata, gold, judges, and a reference."""
    jobs, model = [], make_language_model("lm")
    for name in "pqrstu":
        relation = make_relation(name)
        for setting in ("human", "multi"):
            tuples = [(f"{setting} {number}", name) for number in range(12)]
            job = make_harvest(tuples, relation=relation, setting=setting, language_model=model)
            job.job_prompts.create(prompt=relation.known_prompts.create(text=f"{setting}", origin="initial"), weight=1)
            jobs.append(job)
    cells = [{"job": job.pk, "n": 4, "strata": 2} for job in jobs]
    round = open_round({"name": "pilot", "cells": cells, "batch_size": 100})
    freeze(round, planned(hypotheses=[{**SIDES, "expects": "alike", "margin": 5}]))
    labels = [["true", "false"] * 24, ["true", "true", "false"] * 16, ["false", "true", "true"] * 16]
    first, *_ = judge_all(round, *labels)
    exclude_annotator(first, "guesses")
    judge_all(round, ["true", "unjudgeable", "false"] * 16)
    make_gold(round, list(round.tasks.order_by("position")[:2]), "true")
    reference = tmp_path / "known.csv"
    reference.write_text("human 1,is,p\n")
    judges = [make_judge_run(round, judge_kind=JudgeKind.CAUSAL, repeats=2, panel="jury") for _ in range(2)]
    for judge, task, repeat in product(judges, round.tasks.without_gold().order_by("position"), range(2)):
        label = "true" if task.position % 3 else "false"
        make_judge_answer(judge, task.knowledge_tuple, label, repeat=repeat, score=0.7)
    return create_report(round, reference=reference, judge=judges[0]).document


def test_every_report_key_is_documented(document):
    undescribed = [
        path
        for top, value in document.items()
        for key, path in [(top, top), *keys_of(value, top)]
        if key not in (documented_names(ROWS[top]) if top in ROWS else ())
    ]

    assert sorted(set(undescribed)) == []


def test_example_report_has_no_empty_sections(document):
    empty = {key for key, value in document.items() if value in (None, [], {})}

    assert empty <= {"demonstrators", "closed_at_half_width"}


def test_documented_keys_exist_in_report(document):
    assert set(ROWS) - set(document) == set()
