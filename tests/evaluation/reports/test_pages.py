"""Report pages."""

import json
import re
from html import unescape

import pytest
from django.urls import reverse

from annotation.models import Round
from annotation.rounds.services import open_round
from evaluation.models import Report
from evaluation.reports.services import create_report
from tests.factories import (
    judge_all,
    make_harvest,
    make_language_model,
    make_project,
    make_relation,
    make_researcher,
    make_round,
    make_user,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def report(researcher):
    round = make_round(4, name="pilot", by=researcher)
    judge_all(round, ["true", "true", "true", "false"], ["true", "true", "false", "false"], ["true"] * 4)
    return create_report(round, by=researcher)


def test_list_shows_only_reports_of_own_projects(researcher_client, report):
    create_report(make_round(name="secret", project=make_project()))

    page = researcher_client.get("/reports/").text

    assert "pilot" in page
    assert "secret" not in page


def test_empty_list_shows_hint(researcher_client):
    assert "No reports yet" in researcher_client.get("/reports/").text


def test_list_can_be_searched(researcher_client, report):
    assert "No matching reports" in researcher_client.get("/reports/", {"q": "nothing like it"}).text


def test_list_query_count_is_constant(researcher_client, report, django_assert_max_num_queries):
    for _ in range(5):
        create_report(report.round)

    with django_assert_max_num_queries(7):
        researcher_client.get("/reports/")


def test_report_shows_table_with_intervals(researcher_client, report):
    page = researcher_client.get(f"/reports/{report.pk}/?all").text

    assert '<span class="acc-value">.75</span> / <span class="rej-value">.25</span>' in page
    assert "acc-8" in page  # .75 rounds to shade 8
    assert ".75 to .75, n = 4" in page  # all four tuples of the harvest are judged


def test_first_table_has_number_interval_rejected_share_k_and_alpha(researcher_client, report):
    page = researcher_client.get(f"/reports/{report.pk}/").text

    row = re.search(r"<tbody>\s*<tr>(.*?)</tr>", page[page.index('id="table"') :], re.DOTALL)[1]
    # Three of four statements are accepted. All four tuples of the harvest are judged, by three annotators.
    relation = report.document["cells"][0]["relation"]
    alpha = f"{report.document['agreement'][0]['alpha']['value']:.2f}".lstrip("0")
    assert re.sub(r"<[^>]+>", " ", row).split() == [relation, "4", ".75", ".75", "to", ".75", ".25", "3", alpha]
    assert f"/reports/{report.pk}/tuples/?relation={relation}" in row


def test_appendix_sections_are_served_one_by_one(researcher_client, report):
    page = researcher_client.get(f"/reports/{report.pk}/").text

    sections = re.findall(r'data-section="([^"]+)"', page)
    titles = [re.search(r"<h2>(.*?)</h2>", researcher_client.get(section).text)[1] for section in sections]
    contents = [researcher_client.get(section).context["part"]["html"] for section in sections]
    everything = researcher_client.get(f"/reports/{report.pk}/?all").text

    assert {"Sensitivity", "Study log", "Method"} < set(titles)
    assert "Comparisons" not in titles  # the report has one LM and one setting
    assert all(content in everything and content not in page for content in contents)
    assert researcher_client.get(f"/reports/{report.pk}/sections/comparisons/").status_code == 404


def test_report_shows_pairwise_agreement(researcher_client, report):
    page = researcher_client.get(f"/reports/{report.pk}/?all").text

    # Hand-calculated: the first two of three annotators agree on three of four statements.
    matrix = page[page.index("Pairwise agreement") : page.index('id="sensitivity"')]
    assert matrix.count('<td class="num">.75</td>') == 4
    assert matrix.count('<td class="num">.50</td>') == 2


def test_page_of_older_report_ignores_removed_keys(researcher_client, report):
    stability = {"k": 3, "flips": 0.2, "low": 0.1, "high": 0.3, "reason": None}
    report.document["verdict_stability"] = stability
    for part in report.document["agreement"]:
        part["verdict_stability"] = stability
    for annotator in report.document["annotators"]:
        annotator["mace"] = {"competence": 0.6}
    for cell in report.document["cells"]:
        cell["pooled"] = {"value": 0.5, "low": 0.4, "high": 0.6, "reason": None}
    [model] = report.document["annotator_models"]
    report.document["annotator_models"].append(model | {"model": "mace", "sentence": "MACE and the majority differ."})
    report.save()

    page = researcher_client.get(f"/reports/{report.pk}/?all").text

    assert "Pairwise agreement" in page
    assert not {name for name in ("MACE", "flip rate", "competence", "pooled") if name in page}


def test_agreement_matrix_is_hidden_for_many_annotators(researcher_client, report):
    report.document["annotators"] *= 10
    report.save()

    page = researcher_client.get(f"/reports/{report.pk}/?all").text

    assert "Pairwise agreement" not in page
    assert "There are too many pairs of annotators" in page


def test_simulated_report_is_labeled_next_to_its_numbers(researcher_client, researcher):
    round = make_round(1, by=researcher, source="simulated")
    report = create_report(round)

    page = researcher_client.get(f"/reports/{report.pk}/?all").text

    assert page.count("simulated, not people") >= 3
    assert "simulated, not people" in researcher_client.get("/reports/").text


def test_empty_report_explains_missing_alpha(researcher_client, researcher):
    report = create_report(make_round(1, by=researcher))

    assert "No statement has two judgments" in researcher_client.get(f"/reports/{report.pk}/").text


def test_names_are_escaped(researcher_client, researcher, report):
    model = report.document["totals"][0]["model"]
    text = json.dumps(report.document).replace(json.dumps(model), json.dumps("<script>alert(1)</script>"))
    report.document = json.loads(text)
    report.save()

    assert "<script>alert" not in researcher_client.get(f"/reports/{report.pk}/?all").text


def test_report_can_be_created_from_round_page(researcher_client, report):
    response = researcher_client.post("/projects/default/rounds/pilot/report/")

    newest = Report.objects.first()
    assert newest != report
    assert response.url == f"/reports/{newest.pk}/"


def test_equivalence_margin_is_set_when_creating_report(researcher_client, compared):
    page = researcher_client.get("/projects/default/rounds/sides/").text
    assert re.search(r'<input[^>]*name="equivalence_margin"[^>]*value="5"', page)

    url = researcher_client.post("/projects/default/rounds/sides/report/", {"equivalence_margin": "70"}).url
    assert url == "/projects/default/rounds/sides/"
    url = researcher_client.post("/projects/default/rounds/sides/report/", {"equivalence_margin": "12.5"}).url

    report = Report.objects.first()
    [comparison] = report.document["comparisons"]
    assert report.document["equivalence_margin"] == comparison["equivalence"]["margin"] == 0.125
    assert "points apart" not in researcher_client.get(url).text
    assert Report.objects.count() == 2


def test_equivalence_margin_out_of_range_is_rejected(researcher_client, compared):
    page = researcher_client.post(
        "/projects/default/rounds/sides/report/", {"equivalence_margin": "0.05"}, follow=True
    ).text

    assert "percentage points from 0.1 to 50" in page


def test_cached_report_page_does_not_load_document(researcher_client, report, django_assert_max_num_queries):
    first = researcher_client.get(f"/reports/{report.pk}/").text

    with django_assert_max_num_queries(6) as queries:
        second = researcher_client.get(f"/reports/{report.pk}/").text

    assert first[first.index("<table") :] == second[second.index("<table") :]
    assert not any('"document"' in query["sql"] for query in queries.captured_queries)


def test_cached_report_page_respects_permissions(researcher_client, report, client):
    researcher_client.get(f"/reports/{report.pk}/")
    client.force_login(make_researcher(project=make_project()))

    assert client.get(f"/reports/{report.pk}/").status_code == 404


def test_report_of_another_project_is_not_found(researcher_client):
    round = make_round(name="secret", project=make_project())
    report = create_report(round)

    assert researcher_client.get(f"/reports/{report.pk}/").status_code == 404
    assert researcher_client.get(f"/reports/{report.pk}/report.csv").status_code == 404
    assert researcher_client.post("/projects/default/rounds/secret/report/").status_code == 404
    assert Report.objects.count() == 1


def test_reports_are_forbidden_for_annotators(client, report):
    client.force_login(make_user())

    assert client.get("/reports/").status_code == 403
    assert client.get(f"/reports/{report.pk}/").status_code == 403


@pytest.mark.parametrize(
    ("file_format", "content_type"),
    [
        ("json", "application/json"),
        ("csv", "text/csv"),
        ("md", "text/markdown"),
        ("tex", "application/x-tex"),
        ("html", "text/html"),
    ],
)
def test_downloaded_report_is_named_after_round(researcher_client, report, file_format, content_type):
    response = researcher_client.get(f"/reports/{report.pk}/report.{file_format}")

    assert response["Content-Type"].startswith(content_type)
    assert f'filename="pilot-report.{file_format}"' in response["Content-Disposition"]
    assert b".75" in response.content


def test_unknown_report_format_is_not_found(researcher_client, report):
    assert researcher_client.get(f"/reports/{report.pk}/report.exe").status_code == 404


def test_superuser_can_see_every_report(client, report, django_user_model):
    client.force_login(django_user_model.objects.create_superuser("root"))

    assert client.get(f"/reports/{report.pk}/").status_code == 200
    assert Round.objects.visible_to(report.created_by).count() == 1


# Evidence


def test_cell_links_to_its_tuples_with_judgments(researcher_client, report):
    page = researcher_client.get(f"/reports/{report.pk}/").text
    cell = report.document["cells"][0]

    tuples = f"/reports/{report.pk}/tuples/?relation={cell['relation']}&amp;model={cell['model']}&amp;setting=multi"
    assert tuples in page
    evidence_page = researcher_client.get(tuples.replace("&amp;", "&"), {"verdict": "rejected"}, follow=True).text
    assert evidence_page.count('class="badge is-rejected"') == 1
    assert len(re.findall(r'<li><span class="label is-\w+">', evidence_page)) == 3


def test_agreement_and_annotator_tables_link_to_evidence(researcher_client, report):
    page = researcher_client.get(f"/reports/{report.pk}/?all").text
    sections = page[page.index('id="agreement"') : page.index('id="method"')]

    addresses = {unescape(address) for address in re.findall(r'<th scope="row"><a href="([^"]+)"', sections)}

    people = {
        f"/projects/default/rounds/pilot/annotators/{annotator.code}/" for annotator in report.round.annotators.all()
    }
    assert people < addresses
    assert f"/reports/{report.pk}/tuples/?" in addresses
    assert {researcher_client.get(address).status_code for address in addresses} == {200}
    relation = report.document["cells"][0]["relation"]
    assert any(f"relation={relation}" in address for address in addresses)


def test_evidence_statements_link_to_statement_pages(researcher_client, report):
    page = researcher_client.get(f"/reports/{report.pk}/tuples/").text

    for task in report.round.tasks.all():
        assert f'href="/projects/default/rounds/{report.round.name}/statements/{task.pk}/"' in page


def test_tuples_page_query_count_is_constant(researcher_client, researcher, django_assert_num_queries):
    reports = [create_report(make_round(n, by=researcher)) for n in (2, 40)]
    researcher_client.get("/reports/")

    for report in reports:
        with django_assert_num_queries(9):
            researcher_client.get(f"/reports/{report.pk}/tuples/")


def test_long_report_shows_first_relations_and_link_to_all(researcher_client, report):
    report.document["cells"] = [report.document["cells"][0] | {"relation": f"r{number:03}"} for number in range(487)]
    report.save()

    address = f"/reports/{report.pk}/sections/relations/"
    page = researcher_client.get(address).text

    assert "Show all 487 relations" in page
    assert "r486" not in page
    assert "r486" in researcher_client.get(f"{address}?all").text
    assert "r000" not in researcher_client.get(f"/reports/{report.pk}/").text  # the first table has averages only


def test_report_tables_can_be_downloaded_as_csv(researcher_client, report):
    response = researcher_client.get(f"/reports/{report.pk}/tables/agreement.csv")

    assert response.content.startswith(b"measure,")
    assert researcher_client.get(f"/reports/{report.pk}/tables/nothing.csv").status_code == 404


# Report comparisons


def test_two_reports_can_be_compared(researcher_client, report):
    other = create_report(report.round)

    page = researcher_client.get("/reports/compare/", {"a": report.pk, "b": other.pk}).text

    assert page.count(".75 / .25") == 4  # both reports, cell and average
    assert "No tests are possible" in page  # one relation


def test_report_can_be_compared_with_paper_table(researcher_client, report):
    report.document["cells"] = [
        report.document["cells"][0] | {"relation": relation, "setting": "multi"} for relation in ("Help", "A do B at")
    ]
    report.save()

    page = researcher_client.get("/reports/compare/", {"a": report.pk, "b": "paper"}).text

    assert ".97 / .03" in page  # A DO B AT by RoBERTa-large with multi
    assert "roberta-large (the paper)" in page
    assert "as printed in the paper" in page


def test_comparison_without_common_relation_is_explained(researcher_client, report):
    page = researcher_client.get("/reports/compare/", {"a": report.pk, "b": "paper"}).text

    assert "no relation names in common" in page


def test_report_of_another_project_cannot_be_compared(researcher_client, report):
    secret = create_report(make_round(project=make_project()))

    response = researcher_client.get("/reports/compare/", {"a": report.pk, "b": secret.pk})

    assert response.status_code == 404
    assert researcher_client.get(f"/reports/{secret.pk}/tuples/").status_code == 404


def test_published_table_is_shown_with_significance_tests(researcher_client):
    page = researcher_client.get("/reports/published/").text

    assert ".97 / .03" in page
    assert 'human and multi are not distinguishable: <a href="#table">12.6 points</a> in favor of multi' in page
    assert 'id="table"' in page
    assert "p = .019" in page  # sign-flip test over the 14 relations of the printed table


def test_comparison_selects_same_lm_of_paper(researcher_client, report):
    report.document["cells"] = [
        report.document["cells"][0] | {"relation": relation, "model": "FacebookAI/roberta-large", "setting": "multi"}
        for relation in ("help", "prevent")
    ]
    report.document["source"] = "simulated"
    report.save()

    page = researcher_client.get("/reports/compare/", {"a": report.pk, "b": "paper"}).text

    assert "roberta-large (the paper)" in page
    assert "distilbert (the paper)" not in page
    assert re.search(r'<li>[^<]*<a href="#differences">[\d.]+ points', page)
    assert 'id="differences"' in page
    assert f'<a href="/reports/{report.pk}/">{report.round.name}</a>' in page
    assert 'Comparisons <strong class="simulated">simulated, not people</strong>' in page


@pytest.fixture
def compared(researcher):
    """Report on two settings and two relations. Accuracies: multi 2/2 and 2/2, human 1/2 and 0/2."""
    jobs, labels = [], {}
    for name, n_true in (("r", 1), ("s", 0)):
        relation = make_relation(name)
        for setting, tuples in (("human", ["a", "b"]), ("multi", ["c", "d"])):
            lm = jobs[0].language_model if jobs else make_language_model("lm")
            jobs.append(
                make_harvest([(head, name) for head in tuples], relation=relation, language_model=lm, setting=setting)
            )
        labels |= {("a", name): n_true > 0, ("b", name): False, ("c", name): True, ("d", name): True}
    cells = [{"job": job.pk, "n": None} for job in jobs]
    round = open_round({"name": "sides", "cells": cells}, by=researcher)
    row_labels = ["true" if labels[tuple(task.entities)] else "false" for task in round.tasks.order_by("position")]
    judge_all(round, row_labels, row_labels, row_labels)
    return create_report(round, by=researcher)


def test_comparison_sentence_links_to_its_relations(researcher_client, compared):
    page = researcher_client.get(f"/reports/{compared.pk}/?all").text

    sentences = page[: page.index('id="averages"')]
    [(words, address)] = re.findall(r'<li>([^<]*)<a href="(/reports/\d+/comparisons/1/)">75\.0 points', sentences)
    assert words == "With lm, multi beats human by "  # all tuples of both settings are judged
    evidence_page = researcher_client.get(address).text
    assert evidence_page.count(">1.00</a>") == 2
    assert ">.50</a>" in evidence_page
    assert "−50.0" in evidence_page
    assert "−100.0" in evidence_page
    tuples = unescape(re.search(r'href="([^"]*)">.50</a>', evidence_page)[1])
    assert 'All <span class="count">2</span>' in researcher_client.get(tuples).text


def test_planner_numbers_link_to_evidence(researcher_client, compared):
    compared.round.strata.update(population=20)
    compared = create_report(compared.round)

    page = researcher_client.get(f"/reports/{compared.pk}/?all").text

    plan = page[page.index('id="plan"') :]
    [tuples] = re.findall(r'<li>lm · human: [^<]*<a href="([^"]*)">[\d.]+ points</a>', plan)
    assert 'All <span class="count">4</span>' in researcher_client.get(unescape(tuples)).text
    [link] = re.findall(r'<li>human and multi: [^<]*<a href="([^"]*)">75.0 points</a>', plan)
    assert link == f"/reports/{compared.pk}/comparisons/1/"


def test_unknown_comparison_is_not_found(researcher_client, compared):
    assert researcher_client.get(f"/reports/{compared.pk}/comparisons/2/").status_code == 404
    assert researcher_client.get(f"/reports/{compared.pk}/comparisons/0/").status_code == 404


def test_page_creates_no_report_without_judgments(researcher_client):
    round = make_round()

    response = researcher_client.post(reverse("evaluation:report_new", args=[round.path]))

    assert response.url == round.get_absolute_url()
    assert not Report.objects.exists()


def test_round_page_links_to_newest_reports(researcher_client, report):
    reports = [create_report(report.round) for _ in range(5)]

    page = researcher_client.get(report.round.get_absolute_url()).text

    assert all(newer.get_absolute_url() in page for newer in reports)
    assert report.get_absolute_url() not in page  # not among the five newest
    assert "All reports on this round" in page


def test_round_page_without_reports_shows_only_the_form_of_a_report(researcher_client, researcher):
    page = researcher_client.get(make_round(name="new", by=researcher).get_absolute_url()).text

    assert 'aria-label="Reports"' not in page  # the table
    assert 'name="equivalence_margin"' in page


@pytest.mark.parametrize(("source", "sentence"), [("people", "Invite annotators"), ("imported", "import_")])
def test_only_people_rounds_mention_join_link(researcher_client, researcher, source, sentence):
    round = make_round(name="new", by=researcher, source=source)

    page = researcher_client.get(round.get_absolute_url()).text

    assert ("Join link" in page) == (source == "people")
    assert sentence in page
