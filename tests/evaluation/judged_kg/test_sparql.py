"""Queries over judged KGs: the report's numbers, and what hostile queries cannot do."""

from __future__ import annotations

import csv
import io
import json
import socket
import time

import pytest
from django.core.management import call_command

from annotation.models import JudgmentTask, Round
from annotation.rounds.services import open_round
from evaluation.judged_kg import sparql
from evaluation.judged_kg.rows import JudgedKG
from evaluation.judged_kg.sparql import (
    EXAMPLES,
    BadQuery,
    QueryTooCostly,
    TooManyQueries,
    as_csv,
    as_json,
    ask,
)
from evaluation.judged_kg.store import StoreTooLarge, in_process, state_of, store_of
from evaluation.reports.services import compute_report
from kgharvest.accounts.projects import default_project
from kgharvest.models import KnowledgeTuple, LanguageModel
from tests import factories
from tests.evaluation.judged_kg.judged_rounds import make_judged_round

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def data_folder(settings, tmp_path):
    settings.DATA_DIR = tmp_path


@pytest.fixture
def kg() -> JudgedKG:
    return JudgedKG(make_judged_round())


def rows_of(kg: JudgedKG, query: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(ask(kg, query)))))


def test_precision_is_the_reports_number_in_strata_of_unequal_shares():
    tuples = [(f"head {number}", f"tail {number}") for number in range(40)]
    relations = [factories.make_relation(name) for name in ("prevent", "cause")]
    jobs = [factories.make_harvest(tuples, relation=relation) for relation in relations]
    cells = [{"job": job.pk, "n": 12, "strata": [1, 11], "allocation": "equal"} for job in jobs]
    round = open_round({"name": "strata", "cells": cells}, None, default_project())
    labels = ["true" if task.position % 3 else "false" for task in round.tasks.order_by("position")]
    factories.judge_all(round, *[labels] * round.judgments_per_task)

    answers = rows_of(JudgedKG(round), EXAMPLES["Precision of each relation, LM and setting"])

    in_report = {cell["relation"]: cell["accuracy"] for cell in compute_report(round).document["cells"]}
    assert {row["relation"]: float(row["precision"]) for row in answers} == pytest.approx(in_report)
    assert [row["judged"] for row in answers] == ["12", "12"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_has_an_answer(kg, name):
    assert rows_of(kg, EXAMPLES[name])


def test_provenance_leads_from_a_tuple_to_lm_setting_job_and_round(kg):
    [row] = rows_of(
        kg,
        'SELECT DISTINCT ?agent ?setting ?name WHERE { ?t kgh:verdict "accepted" ; kgh:relation/rdfs:label "plays" ; '
        "prov:wasGeneratedBy ?h ; kgh:judgedIn ?r . ?h prov:wasAssociatedWith/rdfs:label ?agent ; kgh:setting "
        "?setting . ?r prov:used ?h ; rdfs:label ?name }",
    )

    assert row == {"agent": "org/lm", "setting": "top1", "name": "pilot"}


def test_ask_and_construct(kg):
    yes = ask(kg, 'ASK { ?t kgh:verdict "accepted" }')
    made = ask(kg, 'CONSTRUCT { ?t kgh:is true } WHERE { ?t kgh:verdict "rejected" }')

    assert as_json(yes) == {"head": {}, "boolean": True, "is_complete": True}
    assert len(made.rows) == kg.outcomes()["rejected"]
    assert as_json(made)["results"]["bindings"][0]["object"] == {
        "type": "literal",
        "value": "true",
        "datatype": "http://www.w3.org/2001/XMLSchema#boolean",
    }


def test_rows_are_cut_at_the_limit_and_it_is_said(kg):
    answer = ask(kg, "SELECT * WHERE { ?s ?p ?o }", most_rows=7)

    assert (len(answer.rows), answer.is_complete) == (7, False)


def test_answers_are_cut_at_a_number_of_bytes(kg, monkeypatch):
    monkeypatch.setattr(sparql, "MOST_BYTES", 1000)

    answer = ask(kg, "SELECT * WHERE { ?s ?p ?o }")

    assert 0 < len(answer.rows) < 30
    assert not answer.is_complete


@pytest.mark.parametrize(
    "query",
    [
        'INSERT DATA { <urn:a> <urn:b> "c" }',
        "DELETE WHERE { ?s ?p ?o }",
        "DROP ALL",
        "LOAD <http://127.0.0.1/x>",
        "SELEC ?s",
        "",
        " " * 20_000,
        "SELECT * { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }",
        "SELECT * { service silent ?x { ?s ?p ?o } }",
    ],
)
def test_what_is_no_question_to_this_store_is_refused(kg, query):
    before = sum(1 for _ in kg.rows())
    with pytest.raises(BadQuery):
        ask(kg, query)
    assert ask(kg, "SELECT ?t { ?t a kgh:HarvestedTuple }").rows
    assert sum(1 for _ in kg.rows()) == before


@pytest.mark.parametrize("text", ['"a service"', "?service", "<urn:service:1>", "kgh:service"])
def test_the_word_service_may_occur_where_it_calls_nobody(text):
    sparql.check_query(f"SELECT * {{ ?s ?p {text} }}")


def test_a_process_that_asks_has_no_network_even_if_a_service_were_let_through(kg):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        query = f"SELECT * {{ SERVICE <http://127.0.0.1:{server.getsockname()[1]}/> {{ ?s ?p ?o }} }}"
        asked = {"query": query, "rows": 5, "bytes": 1000, "seconds": 5}

        ended = in_process("query", store_of(kg), json.dumps(asked).encode(), 20)

        assert "error" in json.loads(ended.output)
        with pytest.raises(TimeoutError):
            server.accept()


HOSTILE = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
GREEDY = "SELECT ?a { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l } ORDER BY ?g ?l"


@pytest.mark.parametrize("query", [HOSTILE, GREEDY])
def test_a_query_without_end_is_killed(kg, monkeypatch, query):
    monkeypatch.setattr(sparql, "MOST_SECONDS", 2)
    store_of(kg)
    began = time.monotonic()

    with pytest.raises(QueryTooCostly):
        ask(kg, query)

    assert time.monotonic() - began < 30  # and not for ever


def test_only_so_many_queries_of_pages_run_at_once(kg):
    with sparql._slot(), sparql._slot(), pytest.raises(TooManyQueries):
        ask(kg, "ASK {}", most_tuples=1000)
    assert ask(kg, "ASK {}", most_tuples=1000).value


def test_the_store_is_kept_until_a_verdict_changes(kg):
    first = store_of(kg)
    made_at = first.stat().st_mtime_ns

    assert store_of(kg) == first
    assert first.stat().st_mtime_ns == made_at

    task = JudgmentTask.objects.filter(round=kg.round, verdict="rejected").first()
    JudgmentTask.objects.filter(pk=task.pk).update(verdict="accepted", n_true=3, n_false=0)
    count = 'SELECT (COUNT(?t) AS ?n) { ?t kgh:verdict "accepted" }'
    assert rows_of(kg, count) == [{"n": str(kg.outcomes()["accepted"])}]
    assert not first.exists()


def test_hiding_a_tuple_changes_the_store(kg):
    before = state_of(kg)

    KnowledgeTuple.objects.filter(pk=KnowledgeTuple.objects.first().pk).update(curation="hidden")

    assert state_of(kg) != before


def test_another_sensitive_tuple_changes_the_store(kg):
    first, second = KnowledgeTuple.objects.order_by("pk")[:2]
    KnowledgeTuple.objects.filter(pk=first.pk).update(is_sensitive=True)
    before = state_of(kg)

    KnowledgeTuple.objects.filter(pk=first.pk).update(is_sensitive=False)
    KnowledgeTuple.objects.filter(pk=second.pk).update(is_sensitive=True)

    assert state_of(kg) != before


@pytest.mark.parametrize("named", [Round, LanguageModel])
def test_another_name_changes_the_store(kg, named):
    before = state_of(kg)

    named.objects.update(name="other")

    assert state_of(JudgedKG(Round.objects.get())) != before


def test_a_page_makes_no_store_of_a_large_round(kg):
    with pytest.raises(StoreTooLarge, match="sparql --round"):
        ask(kg, "ASK {}", most_tuples=5)
    ask(kg, "ASK {}")  # the command
    assert ask(kg, "ASK {}", most_tuples=5).value


def test_no_text_of_an_answer_is_a_formula_but_numbers_stay(kg):
    query = 'SELECT ("=1+1" AS ?t) (-1 AS ?n) (STRLANG("=1+1", "en") AS ?l) (STRDT("=1+1", xsd:integer) AS ?d) {}'
    [text] = csv.reader(io.StringIO(as_csv(ask(kg, query)).split("\n", 1)[1]))

    assert text == ["'=1+1", "-1", "'=1+1", "'=1+1"]


def test_the_command_prints_csv_and_json(kg, capsys, tmp_path):
    (tmp_path / "q.rq").write_text('SELECT ?v { BIND("ä" AS ?v) }')

    call_command("sparql", "ASK {}", "--round", "pilot")
    call_command("sparql", "--file", str(tmp_path / "q.rq"), "--round", "pilot", "--format", "json")

    answer, truth, document = capsys.readouterr().out.splitlines()
    assert (answer, truth) == ("answer", "true")
    assert json.loads(document)["results"]["bindings"] == [{"v": {"type": "literal", "value": "ä"}}]
