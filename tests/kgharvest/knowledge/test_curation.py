"""Curation decisions: history, restoring, and effect on exports."""

from __future__ import annotations

import json

import pytest

from kgharvest.harvests.tuple_files import Cell, export_tuples, import_tuples
from kgharvest.knowledge.curation import correct, hide, restore
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

    hide(claim("dam"), "private", researcher)
    correct(claim("dam"), ["Dam", " flooding "], "too short", researcher)
    restore(claim("dam"), "was fine", researcher)
    hide(claim("dam"), "private after all", researcher)

    history = Curation.objects.values_list("decision", "entities", "reason", "decided_by")
    assert list(history) == [
        ("hide", None, "private after all", researcher.pk),
        ("restore", None, "was fine", researcher.pk),
        ("correct", ["Dam", "flooding"], "too short", researcher.pk),
        ("hide", None, "private", researcher.pk),
    ]
    assert (claim("dam").curation, claim("dam").corrected_entities) == ("hidden", None)


def test_hidden_and_sensitive_tuples_leave_gaps_in_an_export_by_default(job):
    hide(claim("paris"), "wrong")

    assert [row["rank"] for row in exported(job)] == [2]
    assert [row["rank"] for row in exported(job, include_hidden=True)] == [1, 2]
    assert [row["rank"] for row in exported(job, include_hidden=True, include_sensitive=True)] == [1, 2, 3]


def test_a_correction_is_exported_with_the_original_and_imports_again(job, tmp_path):
    correct(claim("paris"), ["Paris", "France"], "wrong country")
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
        (lambda known: hide(known, "  "), "reason is empty"),
        (lambda known: hide(known, "x" * 1001), "1,001 characters"),
        (lambda known: restore(known, "?"), "already neither hidden nor corrected"),
        (lambda known: correct(known, ["dam"], "?"), "no list of 2 entities"),
        (lambda known: correct(known, ["dam", " "], "?"), "empty"),
    ],
)
def test_an_invalid_decision_is_rejected(job, decide, why):
    with refused("BadCuration", match=why):
        decide(claim("dam"))

    assert not Curation.objects.exists()
    assert claim("dam").curation is None
