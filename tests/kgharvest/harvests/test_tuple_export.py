"""Export of tuples to files."""

from __future__ import annotations

import json

import pytest

from kgharvest.errors import NotFound
from kgharvest.harvests.cuts import parse_cut
from kgharvest.harvests.tuple_files import export_tuples, find_harvest_job
from kgharvest.models import Job
from tests import factories
from tests.refusals import refused

pytestmark = pytest.mark.django_db


def test_export_writes_one_json_object_per_tuple():
    job = factories.make_harvest([["Dam", "flood"], ["Müll", "Ärger"]], fingerprint="0123456789abcdef")

    first, second = export_tuples(job)

    assert json.loads(first) == {
        "relation": job.relation.name,
        "model": job.language_model.name,
        "setting": "multi",
        "rank": 1,
        "entities": ["dam", "flood"],
        "surface": ["Dam", "flood"],
        "score": -1.0,
        "mtl": None,
        "job": "0123456789abcdef",
    }
    assert '"Müll"' in second


def test_cut_exports_only_the_best_tuples(django_assert_num_queries):
    job = factories.make_harvest([["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]])

    with django_assert_num_queries(2):  # one for entity labels; a share needs no scores
        kept = list(export_tuples(job, parse_cut("share:0.5")))

    assert [json.loads(line)["entities"] for line in kept] == [["a", "b"], ["c", "d"]]


def test_failed_job_cannot_be_exported():
    with refused("NothingToExport", match="is failed"):
        export_tuples(factories.make_harvest_job(Job.Status.FAILED))


def test_a_job_is_found_by_number_and_by_fingerprint():
    job = factories.make_harvest([["a", "b"]], fingerprint="0123456789abcdef")

    assert find_harvest_job(str(job.pk)) == find_harvest_job("0123456789abcdef") == job
    with pytest.raises(NotFound, match="4711 not found"):
        find_harvest_job("4711")
