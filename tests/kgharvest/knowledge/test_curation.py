"""Curation decisions: history, restoring, and effect on exports."""

from __future__ import annotations

import json

import pytest

from kgharvest.harvests.tuple_files import Cell, export_tuples, import_tuples
from kgharvest.knowledge.curation import curate
from kgharvest.models import Curation, HarvestJob, KnowledgeTuple
from tests import factories
from tests.refusals import refused

pytestmark = pytest.mark.django_db


@pytest.fixture
def job():
    return factories.make_harvest([["Paris", "Germany"], ["dam", "flood"], ["Nazi", "party"]])


def claim(key: str) -> KnowledgeTuple:
    return KnowledgeTuple.objects.get(key__startswith=key)


def exported(job, **options) -> list[dict]:
    return [json.loads(line) for line in export_tuples(job, **options)]


def test_all_decisions_are_stored_and_the_latest_applies(job):
    researcher = factories.make_researcher()
    HarvestJob.objects.update(created_by=researcher)

    curate(claim("dam"), "hide", "private", researcher)
    curate(claim("dam"), "correct", "too short", researcher, entities=["Dam", " flooding "])
    curate(claim("dam"), "restore", "was fine", researcher)
    curate(claim("dam"), "hide", "private after all", researcher)

    history = Curation.objects.values_list("decision", "entities", "reason", "decided_by")
    assert list(history) == [
        ("hide", None, "private after all", researcher.pk),
        ("restore", None, "was fine", researcher.pk),
        ("correct", ["Dam", "flooding"], "too short", researcher.pk),
        ("hide", None, "private", researcher.pk),
    ]
    assert (claim("dam").curation, claim("dam").corrected_entities) == ("hidden", None)


def test_export_omits_hidden_and_sensitive_tuples_but_keeps_ranks(job):
    curate(claim("paris"), "hide", "wrong")

    assert [row["rank"] for row in exported(job)] == [2]
    assert [row["rank"] for row in exported(job, include_hidden=True)] == [1, 2]
    assert [row["rank"] for row in exported(job, include_hidden=True, include_sensitive=True)] == [1, 2, 3]


def test_a_correction_is_exported_with_the_original_and_imports_again(job, tmp_path):
    curate(claim("paris"), "correct", "wrong country", entities=["Paris", "France"])
    job.relation.refresh_from_db()

    row = exported(job)[0]
    table = "".join(export_tuples(job, None, "csv"))
    path = tmp_path / "tuples.csv"
    path.write_text(table)
    again = import_tuples(path, Cell(job.relation, job.language_model, "multi"))

    assert (row["entities"], row["surface"]) == (["paris", "france"], ["Paris", "France"])
    assert row["original"] == ["Paris", "Germany"]
    assert claim("paris\x1fgermany").entities == ["paris", "germany"]
    assert again.tuples.get(rank=1).surface == ["Paris", "France"]


@pytest.mark.parametrize(
    ("decide", "why"),
    [
        (lambda row: curate(row, "hide", "  "), "reason is empty"),
        (lambda row: curate(row, "hide", "x" * 1001), "1,001 characters"),
        (lambda row: curate(row, "restore", "?"), "already neither hidden nor corrected"),
        (lambda row: curate(row, "correct", "?", entities=["dam"]), "no list of 2 entities"),
        (lambda row: curate(row, "correct", "?", entities=["dam", " "]), "empty"),
    ],
)
def test_an_invalid_decision_is_rejected(job, decide, why):
    with refused("BadCuration", match=why):
        decide(claim("dam"))

    assert not Curation.objects.exists()
    assert claim("dam").curation is None
