"""Report files with options: selected LaTeX tables, compared reports, and the table of contents in HTML."""

import re

import pytest

from evaluation.reports.files import write_html
from evaluation.reports.services import create_report
from tests.evaluation.report_documents import TWO_SETTINGS, make_comparison, make_document
from tests.factories import judge_all, make_round


@pytest.fixture
def report(researcher):
    round = make_round(4, name="pilot", by=researcher)
    labels = ["true", "true", "true", "false"]
    judge_all(round, labels, labels, labels)
    return create_report(round, by=researcher)


def test_html_contents_link_to_every_table_and_figure():
    document = make_document(TWO_SETTINGS, comparisons=[make_comparison()])

    page = write_html(document)

    contents = page[page.index('aria-label="Contents"') : page.index("</nav>")]
    targets = re.findall(r'href="#([^"]+)"', contents)
    assert {"relations", "settings", "comparisons", "figure-heat-map", "method"} <= set(targets)
    assert sorted(targets) == sorted(set(re.findall(r' id="([^"]+)"', page)))


@pytest.mark.django_db
def test_latex_tables_can_be_selected_on_page(researcher_client, report):
    page = researcher_client.get(f"/reports/{report.pk}/sections/files/").text
    file = researcher_client.get(f"/reports/{report.pk}/report.tex?table=agreement").content.decode()

    assert '<input type="checkbox" name="table" value="agreement"' in page
    assert "Krippendorff" in file
    assert all(label.startswith("tab:pilot-agreement") for label in re.findall(r"label\{(tab:[^}]*)\}", file))
    assert researcher_client.get(f"/reports/{report.pk}/report.tex?table=nothing").status_code == 404


@pytest.mark.django_db
def test_compared_reports_can_be_downloaded(researcher_client, report):
    address = f"/reports/compare/?a={report.pk}&b={create_report(report.round).pk}"

    tex = researcher_client.get(f"{address}&format=tex")
    table = researcher_client.get(f"{address}&format=csv&table=report-comparison")

    assert "attachment" in tex["Content-Disposition"]
    assert tex.content.decode().count("begin{table}") + tex.content.decode().count("begin{longtable}") == 2
    assert table.content.decode().startswith("relation,")
    assert ",0.75," in table.content.decode()
    assert researcher_client.get(f"{address}&format=csv&table=nothing").status_code == 404
    assert researcher_client.get(f"{address}&format=exe").status_code == 404
