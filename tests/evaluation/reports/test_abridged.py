"""Abridged report documents: pages look the same as with the complete document, which is much larger."""

import json

import pytest

from evaluation.models import Report
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.document import abridged, build_document, tables_to_read
from evaluation.reports.sections.rates import scores_by_relation
from evaluation.reports.views import render_parts
from kgharvest.statistics.paired_tests import CellKey
from tests.evaluation.evidence_factory import make_evidence
from tests.factories import make_round


@pytest.fixture(scope="module")
def document():
    settings = ("human", "multi")
    cells = {
        CellKey(f"r{n:02}", "lm", setting): (n % 5 + 8, n % 7 + 2, 1, 1) for n in range(40) for setting in settings
    }
    return {**build_document(make_evidence(cells)), "cuts": [], "created_at": "2026-01-02", "code_version": "1.0"}


def test_abridged_document_has_same_tables_and_figures(document):
    short = abridged(json.loads(json.dumps(document)))

    assert tables_to_read(short) == tables_to_read(document)
    assert [figure.name for figure in figures_of(short)] == [figure.name for figure in figures_of(document)]
    for figure in figures_of(document):
        assert figure.render(short) == figure.render(document), figure.name
        assert figure.alt(short) == figure.alt(document)


@pytest.mark.django_db
def test_abridged_document_renders_same_page_from_a_third(document):
    report = Report.objects.create(
        round=make_round(), document=document, method="M.", code_version="1.0", created_at="2026-01-02T00:00Z"
    )
    short = render_parts(report, everything=True)

    report.abridged = {}

    assert render_parts(report, everything=True) == short
    assert 3 * len(json.dumps(abridged(document))) < len(json.dumps(document))


def test_old_abridged_document_falls_back_to_complete_document(document):
    old = {key: value for key, value in abridged(document).items() if key != "scored_relations"}

    assert Report(document=document, abridged=old | {"curves": []}).document_for_pages is document
    assert Report(document=document, abridged=abridged(document)).document_for_pages is not document


@pytest.mark.django_db
def test_relation_scores_load_without_the_document(document, django_assert_num_queries):
    report = Report.objects.create(
        round=make_round(), document=document, method="M.", code_version="1.0", created_at="2026-01-02T00:00Z"
    )
    shown = Report.objects.for_list().get()

    with django_assert_num_queries(1):
        scores = shown.scores_of("r07")

    assert scores == scores_by_relation(document)["r07"]
    report.scores_of_relations.all().delete()
    assert Report.objects.get().scores_of("r07") == scores, "reports without separately stored scores"
    assert report.scores_of("nowhere") is None
