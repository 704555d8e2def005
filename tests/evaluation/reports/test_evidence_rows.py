"""Rows behind a report: they reproduce its numbers and are rejected if they have changed."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from copy import deepcopy
from urllib.parse import parse_qs

import pytest
from django.core.management import call_command

from annotation.models import Judgment, JudgmentTask
from annotation.quality.exclusion import exclude_annotator
from annotation.rounds.services import open_round
from evaluation.rendering.evidence_page import write_evidence_page
from evaluation.reports import evidence_rows
from evaluation.reports.evidence_rows import gather_rows
from evaluation.reports.services import create_report
from kgharvest.knowledge.curation import curate
from kgharvest.management.command import CommandError
from kgharvest.pages.number_format import interval
from tests import factories
from tests.api import client_of, error_of
from tests.evaluation.reports.studies import WORDS, make_study
from tests.refusals import refused

pytestmark = pytest.mark.django_db

EMBEDDED = re.compile(r'<script type="application/json" id="evidence">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def report_of_module(module_rows):
    researcher = factories.make_researcher()
    return create_report(make_study(researcher), by=researcher)


@pytest.fixture
def report(report_of_module):
    return deepcopy(report_of_module)


def page_of(report) -> str:
    return write_evidence_page(report.document, gather_rows(report))


def rows_in(page: str) -> dict:
    [content] = EMBEDDED.findall(page)
    return json.loads(content)


def test_evidence_page_has_no_scores_for_unscored_harvest(researcher):
    jobs = [factories.make_harvest([("a", "b")], score_scale=scale) for scale in ("nats", "order")]
    round = open_round({"name": "scores", "cells": [{"job": job.pk, "n": None} for job in jobs]}, by=researcher)
    factories.judge_all(round, ["true"] * 2, ["true"] * 2, ["true"] * 2)

    rows = gather_rows(create_report(round, by=researcher))

    assert sorted(rows["draws"]["score"], key=str) == [-1.0, None]
    assert rows["draws"]["rank"] == [1, 1]


def test_single_relation_average_has_interval(researcher):
    round = open_round(
        {
            "name": "single",
            "cells": [{"job": factories.make_harvest([(f"head {n}", f"tail {n}") for n in range(9)]).pk, "n": 6}],
        },
        by=researcher,
    )
    factories.judge_all(round, *[["true"] * 6] * 3)
    report = create_report(round, by=researcher)

    [total] = report.document["totals"]
    shown = interval(total["macro_accuracy_these_low"], total["macro_accuracy_these_high"])
    averages = page_of(report).split('id="averages"')[1].split("</table>")[0]
    assert f'<td class="num">{shown}</td>' in averages


def outcomes_of(rows: dict, number: int) -> list[tuple[int, str]]:
    """Return the stratum and verdict of each row of a cell."""
    draws, verdicts = rows["draws"], rows["verdicts"]
    return [
        (stratum, verdicts[rows["tasks"]["verdict"][task]])
        for cell, stratum, task in zip(draws["cell"], draws["stratum"], draws["task"], strict=True)
        if cell == number
    ]


def verdict_of(labels: list[str]) -> str:
    """Independent implementation of the majority rule of reports."""
    for label, verdict in (("true", "accepted"), ("false", "rejected")):
        if 2 * labels.count(label) > len(labels):
            return verdict
    return "undecided"


def test_rows_reproduce_report_counts_and_rates(report):
    rows = rows_in(page_of(report))

    assert len(rows["cells"]) == len(report.document["cells"]) == 6
    for number, cell in enumerate(report.document["cells"]):
        outcomes = outcomes_of(rows, number)
        for verdict in ("accepted", "rejected", "undecided", "incomplete"):
            assert [verdict for _, own in outcomes if own == verdict] == [verdict] * cell[verdict]
        strata = rows["cells"][number]["strata"]
        for verdict, share in (("accepted", "accuracy"), ("rejected", "rejection")):
            shares = [
                sum(own == verdict for part, own in outcomes if part == place)
                / sum(part == place for part, _ in outcomes)
                for place in range(len(strata))
            ]
            sizes = [stratum["population"] for stratum in strata]
            weighted = sum(size * share for size, share in zip(sizes, shares, strict=True)) / sum(sizes)
            assert weighted == pytest.approx(cell[share], abs=1e-12)
    assert any(cell["weighting"] == "stratified" for cell in report.document["cells"])


def test_labels_reproduce_verdicts(report):
    rows = rows_in(page_of(report))

    tasks = rows["tasks"]
    for labels, verdict in zip(tasks["labels"], tasks["verdict"], strict=True):
        names = [rows["labels"][label] for label in labels[1::2]]
        assert len(names) == 3
        assert verdict_of(names) == rows["verdicts"][verdict]
    assert sum(map(len, tasks["labels"])) == 2 * report.document["n_judgments"]


def test_texts_are_complete_and_do_not_close_script(report):
    page = page_of(report)
    rows = rows_in(page)

    stored = set(JudgmentTask.objects.values_list("statement", flat=True))
    assert set(rows["tasks"]["statement"]) == stored
    assert any(WORDS[0] in statement for statement in stored)
    assert page.count("<script") == page.count("</script>") == 2
    assert next(iter(rows["tasks"]["comments"].values())).popitem()[1] == "Nobody <b>knows</b> that."
    for statement, spans in zip(rows["tasks"]["statement"], rows["tasks"]["spans"], strict=True):
        assert "tail" in statement[spans[-2] : spans[-1]]


def test_csp_allows_only_inline_script_and_style_of_page(report):
    page = page_of(report)

    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    rules = dict(rule.split(" ", 1) for rule in html.unescape(policy).split("; "))
    for name, pattern in (("style-src", r"<style>(.*?)</style>"), ("script-src", r"<script>(.*?)</script>")):
        [text] = re.findall(pattern, page, re.DOTALL)
        assert rules.pop(name) == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert rules == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert set(re.findall(r'(?:src|srcset|href)="([^"#]{0,5})', page)) <= {"data:", ""}
    assert "style=" not in page.replace("data:", "")


def test_annotators_appear_as_codes(report):
    page = page_of(report)

    judged = Judgment.objects.select_related("annotator__user")
    assert set(rows_in(page)["annotators"]) == {judgment.annotator.code for judgment in judged}
    for judgment in judged:
        assert judgment.annotator.user.username not in page
    assert report.created_by.username not in page


def test_number_links_have_existing_rows(report):
    page = page_of(report)

    links = {html.unescape(link) for link in re.findall(r'href="#([^"]*=[^"]*)"', page)}
    rows = rows_in(page)
    for link in links:
        named = parse_qs(link, keep_blank_values=True)
        cells = [
            cell
            for cell in rows["cells"]
            if all(
                (cell[part] or "") in named.get(part, [cell[part] or ""]) for part in ("relation", "model", "setting")
            )
        ]
        assert cells, link
        assert set(named) <= {"relation", "model", "setting", "verdict"}
    assert len(links) > 20


def test_hidden_tuples_have_labels_but_no_text(report, researcher):
    task = report.round.tasks.first()
    curate(task.knowledge_tuple, "hide", "offensive", researcher)

    page = page_of(report)
    rows = rows_in(page)

    assert rows["tasks"]["statement"].count(None) == 1
    assert task.statement not in rows["tasks"]["statement"]
    assert "1 statement of hidden tuples is shown" in page


@pytest.mark.parametrize("third_only_if_split", [False, True])
def test_rows_of_a_report_on_an_open_round_stay_the_same(researcher, third_only_if_split):
    round = factories.make_round(4, name="small", third_only_if_split=third_only_if_split)
    first, _ = factories.judge_all(round, ["true"] * 4, ["true", "false", "false", "true"])
    report = create_report(round, by=researcher)
    page = page_of(report)

    factories.judge(first, round.tasks.order_by("position")[0], "false")  # a changed answer
    factories.judge_all(round, ["false"] * 4)

    assert page_of(report) == page
    assert rows_in(page) != rows_in(page_of(create_report(round, by=researcher)))


def test_changed_labels_are_detected_even_if_no_verdict_changes(report):
    first, second = Judgment.objects.counted().filter(task__verdict="accepted").order_by("task__position")[:2]
    assert first.label == "true"

    Judgment.objects.filter(pk=second.pk).update(label="unjudgeable")

    with refused("RowsChanged", match="has changed labels"):
        gather_rows(report)


def test_exclusion_after_report_is_detected(report, researcher):
    exclude_annotator(report.round.annotators.order_by("pk").first(), "guesses", by=researcher)

    with refused("RowsChanged", match="has changed since this report was created"):
        gather_rows(report)


def test_too_many_rows_for_the_page_are_rejected(report, monkeypatch):
    monkeypatch.setattr(evidence_rows, "MOST_ROWS", 40)

    with refused(
        "TooManyRows", match=r"^The report has 45 rows; the limit of the evidence page is 40\. Export the judgments"
    ):
        gather_rows(report)


def test_judge_labels_are_shown_next_to_statements(researcher):
    round = factories.make_round(3, name="small")
    factories.judge_all(round, *[["true"] * 3] * 3)
    run = factories.make_judge_run(round, "lm-judge", model="judge-lm")
    first, second, _ = round.tasks.order_by("position")
    for task, label in ((first, "false"), (second, "")):
        factories.make_judge_answer(run, task.knowledge_tuple, label)
    report = create_report(round, by=researcher, judge=run)

    page = page_of(report)
    judge = rows_in(page)["judge"]

    by_statement = dict(zip(rows_in(page)["tasks"]["statement"], judge["label"], strict=True))
    assert (judge["run"], judge["model"]) == ("lm-judge", "judge-lm")
    assert sorted(map(str, by_statement.values())) == ["", "None", "false"]
    assert by_statement[first.statement] == "false"
    factories.make_judge_answer(run, round.tasks.last().knowledge_tuple, "true")
    with refused("RowsChanged", match="judge run lm-judge now has labels for 3 tuples"):
        gather_rows(report)


def test_page_api_and_command_return_the_same_file(report, client, researcher, tmp_path):
    client.force_login(researcher)
    of_page = client.get(f"{report.get_absolute_url()}report.evidence")
    of_api = client_of(researcher).get(f"/api/v1/reports/{report.pk}/report.evidence")
    call_command("report", round="pilot", file_format="evidence", output=tmp_path / "evidence.html")

    assert of_page["Content-Disposition"] == 'attachment; filename="pilot-evidence.html"'
    assert of_page.content == of_api.content == page_of(report).encode()
    assert rows_in((tmp_path / "evidence.html").read_text()) == rows_in(of_page.content.decode())


def test_page_api_and_command_explain_row_limit(report, client, researcher, monkeypatch):
    monkeypatch.setattr(evidence_rows, "MOST_ROWS", 1)
    client.force_login(researcher)

    of_page = client.get(f"{report.get_absolute_url()}report.evidence", follow=True)
    of_api = client_of(researcher).get(f"/api/v1/reports/{report.pk}/report.evidence")

    assert "the limit of the evidence page is 1. Export the judgments of pilot instead." in of_page.content.decode()
    assert (of_api.status_code, error_of(of_api)["code"]) == (409, "TooManyRows")
    with pytest.raises(CommandError, match="the limit of the evidence page is 1"):
        call_command("report", round="pilot", file_format="evidence")
