"""Documents about a study: complete, consistent with the report, valid in their formats, and without names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from annotation.models import Annotator, Judgment, Round
from evaluation.models import Report
from kgharvest.contrib.publishing.datasheets.croissant import MANY, responsible_ai
from kgharvest.contrib.publishing.datasheets.documents import TEMPLATES, card_file, datasheets, study_of
from kgharvest.contrib.publishing.datasheets.facts import LEAST_PEOPLE, Facts, gather_facts, with_answers
from kgharvest.contrib.publishing.datasheets.filters import people
from kgharvest.contrib.publishing.datasheets.heds import CRITERION, QUESTIONS, Answer, Source, coverage
from kgharvest.contrib.publishing.packs.archive import PackFile, RowColumn, write_pack
from kgharvest.contrib.publishing.packs.pack import pack_files
from kgharvest.contrib.publishing.statements.services import MAIL, missing, save_statements
from kgharvest.pages.number_format import share
from tests.factories import judge, make_judge_run, make_round, make_user, next_batch
from tests.kgharvest.contrib.publishing.study import (
    SAID,
    add_guest,
    exclude_first,
    make_owner,
    make_study,
    report_on,
    row_files,
)
from tests.refusals import refused

pytestmark = pytest.mark.django_db  # so that the database of `facts` is set up

NAMES = {
    "instructions.md", "methods.tex", "responsible-nlp.md", "heds.md", "heds.json", "CITATION.cff", "LICENSE",
    "MISSING.md", "croissant.json", "ro-crate-metadata.json",
}  # fmt: skip
RAI = {
    "dataAnnotationProtocol", "dataAnnotationPlatform", "dataAnnotationAnalysis", "annotationsPerItem",
    "annotatorDemographics", "machineAnnotationTools", "dataCollection", "dataCollectionType", "dataCollectionRawData",
    "dataCollectionMissingData", "dataCollectionTimeframe", "dataLimitations", "dataBiases",
    "personalSensitiveInformation", "dataUseCases", "dataSocialImpact", "dataReleaseMaintenancePlan",
    "dataPreprocessingProtocol",
}  # fmt: skip


@pytest.fixture(scope="module")
def facts(django_db_setup, django_db_blocker) -> Facts:
    """Gathered once, as a report takes a while; the documents are functions of the facts."""
    with django_db_blocker.unblock(), transaction.atomic():
        gathered = gather_facts(report_on(make_study(6, judgments_per_task=6)))
        transaction.set_rollback(True)
    return gathered


def written(facts: Facts) -> dict[str, PackFile]:
    return {file.path: file for file in datasheets(facts, row_files())}


def text_of(facts: Facts, path: str) -> str:
    return written(facts)[path].content.decode()


def stated(facts: Facts, **answers: str) -> Facts:
    """Return the facts with the given answers, or with all answers."""
    return {**facts, "answers": answers or SAID}


def reported(facts: Facts, **changed: Any) -> Facts:
    """Return the facts with other values in the report's document."""
    return {**facts, "document": {**facts["document"], **changed}}


def conducted(facts: Facts, block: str = "design", **changed: Any) -> Facts:
    """Return the facts with other values in a block of `conduct`."""
    conduct = facts["document"]["conduct"]
    return reported(facts, conduct={**conduct, block: {**conduct[block], **changed}})


def recruited(facts: Facts, **changed: int) -> Facts:
    return {**facts, "recruited": {**facts["recruited"], **changed}}


def said_in(facts: Facts, sentence: str) -> str:
    return study_of(facts)["say"][sentence]


def answers_in(facts: Facts) -> dict[str, Answer]:
    return study_of(facts)["heds"]


# -- all of them -------------------------------------------------------------------------------------------------------


def test_every_document_is_written_and_two_runs_are_byte_equal(facts):
    first, again = written(facts), written(facts)

    assert set(first) == NAMES
    assert {path: file.content for path, file in first.items()} == {path: file.content for path, file in again.items()}


@pytest.mark.django_db
def test_gathering_twice_gives_the_same_facts():
    report = report_on(make_study(2, judgments_per_task=2))

    assert gather_facts(report) == gather_facts(type(report).objects.get(pk=report.pk))


@pytest.mark.parametrize("source", ["people", "simulated", "imported"])
def test_templates_use_only_values_that_exist(facts, source, monkeypatch):
    monkeypatch.setattr(TEMPLATES, "string_if_invalid", "INVALID[%s]")

    for study in (facts, stated(facts)):
        for path, file in written(reported(study, source=source)).items():
            names = re.findall(r"INVALID\[([^]]*)\]", file.content.decode())
            assert [name for name in names if not name.startswith("answers.")] == [], path


def test_missing_answers_are_named_in_each_document_with_a_place_for_them(facts):
    unanswered, answered = written(facts), written(stated(facts))
    labels = {
        "methods.tex": ["Title of the data", "Funding", "License of the data"],
        "responsible-nlp.md": [
            "Recruitment",
            "Were the annotators paid?",
            "Funding",
            "Consent",
            "Ethics board",
            "Demographics",
        ],
        "heds.md": ["Contact author", "Languages", "Preregistration", "Impact assessment"],
        "heds.json": [],
        "CITATION.cff": ["Title of the data", "Authors", "License of the data"],
        "LICENSE": ["License of the data"],
        "croissant.json": ["Intended use", "Biases", "Maintenance"],
    }

    for path, expected in labels.items():
        for label in expected:
            assert f"Missing answer: {label}" in unanswered[path].content.decode(), path
        assert b"Missing answer" not in answered[path].content, path
    asked = re.findall(r"^- \*\*(.+)\*\*", unanswered["MISSING.md"].content.decode(), re.MULTILINE)
    assert asked == [question.label for question in missing(facts["answers"], facts["document"])]
    assert b"No answers are missing" in answered["MISSING.md"].content


@pytest.mark.django_db
def test_a_report_without_conduct_is_refused():
    report = Report(round=make_round(1), document={"conduct": None})

    with refused("NoConduct", "Create a new report"):
        gather_facts(report)


# -- nobody can be told ------------------------------------------------------------------------------------------------

PLANTED = ("zorblax", "quuxley", "grault", "plughson", "xyzzyname", "mail-of-nobody", "wibblepath", "fredcomment")


@pytest.fixture
def planted_round(db) -> Round:
    """A round in which names and mail addresses stand wherever people can write them."""
    owner = make_owner("zorblax")
    owner.first_name, owner.last_name, owner.email = "Quuxley", "Grault", "mail-of-nobody@example.org"
    owner.save()
    round = make_study(
        by=owner,
        instructions="Ask Zorblax or mail-of-nobody@example.org.",
        consent="Quuxley Grault keeps your data; mail-of-nobody@example.org.",
        judgments_per_task=7,
    )
    user = make_user("plughson", email="plughson@example.org")
    joined = round.annotators.first()
    Annotator.objects.filter(pk=joined.pk).update(user=user)
    guest = add_guest(round, "Xyzzyname")
    for task in next_batch(guest, round.opened_at):
        judge(guest, task, comment="fredcomment by Xyzzyname", seconds=3.0)
    exclude_first(round, "plughson (plughson@example.org) and Xyzzyname sat together")
    round.relation_instructions = {
        key: f"{text} Ask zorblax." for key, text in round.relation_instructions.items()
    }  # fmt: skip
    round.save()
    make_judge_run(round, "lm", model="/home/wibblepath/models/judge-lm")
    return round


@pytest.mark.django_db
def test_no_file_holds_a_name_or_a_mail_address_of_anybody_but_the_contact_author_s(planted_round):
    facts = gather_facts(report_on(planted_round))

    assert Judgment.objects.filter(comment__contains="fredcomment").exists()
    for path, file in written(facts).items():
        text = file.content.decode().casefold()
        assert [name for name in PLANTED if name in text] == [], path
        assert not MAIL.search(text), path
    stated_too = (file.content.decode() for file in written(stated(facts)).values())
    assert {address for text in stated_too for address in MAIL.findall(text)} == {SAID["contact_email"]}


def test_few_people_of_a_kind_are_not_counted():
    assert people(0) == "no annotator"
    assert {people(n) for n in range(1, LEAST_PEOPLE)} == {"fewer than 5 annotators"}
    assert people(LEAST_PEOPLE) == "5 annotators"


def test_times_of_fewer_than_five_annotators_are_not_reported(facts):
    few = reported(facts, annotators=facts["document"]["annotators"][: LEAST_PEOPLE - 1])

    assert " 4.0 s " in said_in(facts, "pace")
    assert not re.search(r"\d s\b", said_in(few, "pace"))
    assert "fewer than 5 annotators" in said_in(few, "pace")


@pytest.mark.django_db
def test_how_people_came_is_counted_of_those_who_judged():
    round = make_study(1, judgments_per_task=2)
    guest = add_guest(round, "somebody")
    add_guest(round, "nobody who judged")
    judge(guest, next_batch(guest, timezone.now())[0])

    counts = gather_facts(report_on(round))["recruited"]

    assert counts == {"n_accounts": 1, "n_guests": 1, "n_by_invite": 1, "n_members": 0, "n_agreed": 0}


# -- sentences follow from what the round was --------------------------------------------------------------------------


def test_third_judgments_appear_only_for_rounds_with_third_judgments(facts):
    split = conducted(facts, third_only_if_split=True, judgments_per_task=3)

    assert "third annotator" in text_of(split, "methods.tex")
    assert "first two judgments" in said_in(split, "agreement")
    assert "third" not in said_in(facts, "judging")
    assert "first two" not in said_in(facts, "agreement")
    assert "6 different annotators" in text_of(facts, "methods.tex")
    assert responsible_ai(study_of(split))["annotationsPerItem"] == "2 or 3"
    assert responsible_ai(study_of(facts))["annotationsPerItem"] == "6"


def test_numbers_are_those_of_the_report(facts):
    plain, document = text_of(facts, "methods.tex").replace("$-$", "−"), facts["document"]

    assert share(document["alpha"]["value"]) in plain
    assert f"over {document['alpha']['n_units']} statements" in plain
    assert f"pairs of judgments is {share(document['percent_agreement'])}." in plain
    for total in document["totals"]:
        assert f"{share(total['macro_accuracy'])} (" in plain
    assert f"{document['n_judgments']} judgments" in plain


@pytest.mark.parametrize(
    ("rule", "words"),
    [("manual", "no stopping rule"), ("complete", "every statement"), ("date", "a date"), ("narrow", "interval")],
)
def test_the_stopping_rule_is_that_of_the_round(facts, rule, words):
    assert words in said_in(conducted(facts, closes_when=rule), "stopping")
    assert rule in Round.ClosesWhen.values


def test_a_preregistration_that_was_frozen_here_is_described_and_not_asked_for(facts):
    registered = {"version": 2, "sha256": "f" * 64, "frozen_at": "2026-01-02T03:04:05+00:00", "deviations": [{}]}
    frozen = reported(facts, preregistration=registered)

    assert answers_in(frozen)["3.3.1"].options == {1: "Yes"}
    assert answers_in(stated(frozen))["3.3.1"] == answers_in(frozen)["3.3.1"]
    for fact in ("version 2", "2026-01-02", "f" * 64, "1 deviation "):
        assert fact in said_in(frozen, "preregistration")
    assert "version 2 of a preregistration" in text_of(frozen, "methods.tex")
    assert "**Preregistration**" in text_of(facts, "MISSING.md")
    assert "**Preregistration**" not in text_of(frozen, "MISSING.md")


def test_strata_are_described_by_their_kind(facts):
    by_judge, by_rank = (
        reported(
            facts,
            cells=[{**cell, "strata": [cell["strata"][0] | mark] * 2} for cell in facts["document"]["cells"]],
        )
        for mark in ({"judge_label": "true"}, {})
    )

    assert "simple random sample" in said_in(facts, "sample")
    assert "strata by the label of an LM judge" in said_in(by_judge, "sample")
    assert "strata by rank" in said_in(by_rank, "sample")
    assert answers_in(facts)["3.1.2"].options == {1: "Simple random sample"}
    assert answers_in(by_judge)["3.1.2"].options == {2: "Stratified random sample"}


@pytest.mark.django_db
def test_exclusions_and_judges_are_described(enqueued):
    round = make_study(3)
    exclude_first(round, "answers within a second")
    make_judge_run(round, "lm", model="folder/judge-lm", repeats=3)
    Round.objects.filter(pk=round.pk).update(judge="lm")
    round.refresh_from_db()

    facts = gather_facts(report_on(round))

    assert "1 annotator was excluded" in text_of(facts, "methods.tex")
    assert "answers within a second." in answers_in(facts)["3.3.3.2"].text
    assert set(answers_in(facts)["3.3.3.1"].options) == {3, 4}
    [run] = facts["judges"]
    judge_sentence = said_in(facts, "judge")
    assert "lm (chat model behind an OpenAI-compatible endpoint, judge-lm, temperature 0, 3 repeats" in judge_sentence
    assert run["prompt_sha256"] in judge_sentence
    assert "#judge-lm" in graph_of(facts)


def test_gold_and_consent_are_described_if_the_round_has_them(facts):
    with_gold = conducted(facts, "gold", n_true=2, n_false=1)
    asked = {**facts, "consent": "I agree that my answers are published.", "consent_sha256": "0" * 64}

    assert "2 true (seed tuples), 1 false" in said_in(with_gold, "gold")
    assert said_in(facts, "gold") == "No statements with known answers were mixed in."
    assert 2 in answers_in(with_gold)["3.3.3.1"].options
    for path in ("responsible-nlp.md", "instructions.md"):
        assert "> I agree that my answers are published." in text_of(asked, path)
        assert "0" * 64 in text_of(asked, path)
    assert "no consent text" in text_of(facts, "responsible-nlp.md")


def test_training_is_described_if_the_round_has_it(facts):
    trained = conducted(facts, "training", n_statements=4, n_begun=6, n_finished=5, n_answered=20, n_right=18)

    assert "4 training statements" in said_in(trained, "training")
    assert "5 annotators finished" in said_in(trained, "training")
    assert said_in(facts, "training") == "There was no training."


def test_no_claim_is_made_about_the_collection_of_imported_judgments(facts):
    imported = reported(facts, source="imported")

    files = {path: file.content.decode() for path, file in written(imported).items()}
    collected = "".join(file.content.decode() for file in written(facts).values())

    for claim in ("did not see", "web browser", "had no consent text", "saw the instructions before", " account"):
        assert claim in collected
        assert [path for path, text in files.items() if claim in text] == [], claim
    answers = answers_in(imported)
    assert {answers[number].source for number in ("3.3.4.2", "3.3.5", "3.3.6", "3.3.7", "3.3.8")} == {Source.MISSING}
    assert answers_in(stated(imported))["3.2.5"] == Answer(SAID["demographics"], source=Source.PEOPLE)
    assert json.loads(files["croissant.json"])["rai:annotationsPerItem"] == "as many as were imported"


def test_simulated_judgments_are_marked_and_never_called_judgments_of_people(facts):
    files = {path: file.content.decode() for path, file in written(reported(facts, source="simulated")).items()}

    assert "judged by people" in text_of(facts, "croissant.json")
    assert [path for path, text in files.items() if "judged by people" in text] == []
    for path in ("methods.tex", "responsible-nlp.md", "croissant.json", "heds.md", "heds.json"):
        assert "simulated, not made by people" in files[path]
    assert "Manual Human Curator" not in files["croissant.json"]
    graph = json.loads(files["ro-crate-metadata.json"])["@graph"]
    assert {kind for entity in graph if "#annotator" in entity["@id"] for kind in entity["@type"]} == {
        "SoftwareApplication", "prov:Agent",
    }  # fmt: skip


# -- HEDS --------------------------------------------------------------------------------------------------------------


def test_the_sheet_has_the_62_questions_of_one_criterion_in_their_order():
    numbers = [tuple(map(int, question.number.split("."))) for question in QUESTIONS]

    assert len(numbers) == 62
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == ((1, 1, 1), (5, 4))


def test_four_in_five_questions_are_answered_from_the_records(facts):
    for judged in (facts, recruited(facts, n_guests=2)):
        covered = coverage(answers_in(judged))
        assert len(covered["records"]) / len(covered["applicable"]) >= 0.8
        assert len(covered["records"]) + len(covered["missing"]) == len(covered["applicable"])


def test_every_question_is_answered_once_all_is_said(facts):
    answers = answers_in(stated(facts))

    assert coverage(answers)["missing"] == []
    assert answers["3.2.2.2"].options == {1: "Paid with money"}
    assert answers["3.3.1"].options == {2: "No"}
    assert answers["3.2.2.2"].source == Source.PEOPLE


def test_whether_researchers_judged_is_told_of_accounts_only(facts):
    guests = answers_in(recruited(facts, n_guests=7))["3.2.2.4"]

    assert answers_in(facts)["3.2.2.4"].options == {2: "No"}
    assert answers_in(recruited(facts, n_members=1))["3.2.2.4"].options == {1: "Yes"}
    assert guests.options == {3: "Unknown for guests"}
    assert "7 annotators" in guests.text


def test_the_form_reads_the_json(facts):
    """As its script does: an entry for each field, its value by the criterion, empty where there is none."""
    form = json.loads(text_of(stated(facts), "heds.json"))
    by_number = {question.number: question for question in QUESTIONS}

    [criterion] = form[CRITERION]["control"]
    for name, entry in form.items():
        if name == CRITERION:
            continue
        [(part, value)] = entry["data"].items()
        assert part == (criterion if name.startswith(CRITERION) else "")
        assert entry["control"] == {}
        question = by_number.get(entry["number"])
        if name.endswith("-other_text") or question.kind == "text":
            assert isinstance(value, str)
            assert value
        else:
            assert value is True
            assert re.fullmatch(re.escape(question.field) + r"-\d+", name)
    answered = {entry.get("number") for entry in form.values()} - {None}
    assert answered == set(by_number)
    one_of_several = [question.field for question in QUESTIONS if question.kind == "one"]
    assert all(
        sum(name.startswith(f"{field}-") and name[-1].isdigit() for name in form) == 1 for field in one_of_several
    )
    assert form["heds-sample_evaluators_design-evaluators-number_of_evaluators"]["data"][""].isdigit()


# -- data set card -----------------------------------------------------------------------------------------------------


def test_the_card_configures_the_tables_and_lists_files_and_columns(facts):
    columns = (RowColumn("label", "string", "Label of the judgment."),)
    tables = [
        PackFile(f"rows/{name}.parquet", b"", "application/vnd.apache.parquet", f"Rows_of {name}.", columns)
        for name in ("statements", "judgments")
    ]

    card = card_file(stated(facts), tables).content.decode()
    _, header, text = card.split("---\n", 2)

    assert header.splitlines()[:2] == [f'pretty_name: "{SAID["title"]}"', 'license: "cc-by-4.0"']
    assert header.endswith(
        "configs:\n"
        "- config_name: statements\n  data_files: rows/statements.parquet\n"
        "- config_name: judgments\n  data_files: rows/judgments.parquet\n  default: true\n"
    )
    assert f"# {SAID['title']}\n" in text
    assert f"{facts['document']['n_judgments']} counted judgments" in text
    assert "- `rows/judgments.parquet`: Rows\\_of judgments." in text
    assert "### rows/judgments.parquet\n\n- `label` (string): Label of the judgment.\n" in text
    assert "license:" not in card_file(facts, []).content.decode()


# -- Croissant ---------------------------------------------------------------------------------------------------------


def test_a_title_with_braces_and_percent_is_cited_as_it_is(facts):
    study = stated(facts, title="50% {of} it", authors="Doe_, Jane")

    cited = json.loads(text_of(study, "croissant.json"))["citeAs"]

    assert r"title = {50\% \{of\} it}" in cited
    assert r"author = {Doe\_, Jane}" in cited


def test_croissant_describes_files_with_hashes_and_records_with_columns(facts):
    described = json.loads(text_of(facts, "croissant.json"))

    assert described["conformsTo"] == ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
    objects = {entry["@id"]: entry for entry in described["distribution"]}
    for file in row_files():
        assert objects[file.path]["sha256"] == file.sha256
    records = {entry["@id"]: entry for entry in described["recordSet"]}
    assert set(records) == {"judgments", "extra"}
    assert {field["source"]["fileObject"]["@id"] for field in records["judgments"]["field"]} == {
        "data/judgments.parquet"
    }
    assert [field["dataType"] for field in records["judgments"]["field"]] == ["sc:Integer", "sc:Text", "sc:Float"]


def test_every_field_of_responsible_ai_is_there_and_has_its_kind(facts):
    fields = responsible_ai(study_of(facts))

    assert set(fields) == RAI
    assert all(isinstance(value, list if field in MANY else str) for field, value in fields.items())
    assert fields["dataUseCases"] == ["Missing answer: Intended use."]


def test_no_licence_is_named_that_nobody_has_said(facts):
    unsaid, said = (json.loads(text_of(study, "croissant.json")) for study in (facts, stated(facts)))

    assert "license" not in unsaid
    assert said["license"] == "https://spdx.org/licenses/CC-BY-4.0"


def save(folder: Path, facts: Facts) -> None:
    for file in [*row_files(), *written(facts).values()]:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes(file.content)


COUNT_RECORDS = """
import json, sys, mlcroissant
dataset = mlcroissant.Dataset(jsonld=sys.argv[1])
assert not dataset.metadata.ctx.issues.errors, dataset.metadata.ctx.issues.report()
print(json.dumps({own.id: sum(1 for _ in dataset.records(own.id)) for own in dataset.metadata.record_sets}))
"""


def loaded_by_mlcroissant(folder) -> dict[str, int]:
    """Return how many records each set has; in a process of its own, as absl's logging closes the streams of pytest."""
    if find_spec("mlcroissant") is None:
        pytest.skip("mlcroissant is not installed")
    command = [sys.executable, "-c", COUNT_RECORDS, str(folder / "croissant.json")]
    counted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert counted.returncode == 0, counted.stderr
    return json.loads(counted.stdout.splitlines()[-1])


@pytest.mark.parametrize("said", [{}, SAID])
def test_mlcroissant_finds_no_error_and_loads_the_records(facts, tmp_path, said):
    save(tmp_path, {**facts, "answers": said})

    assert loaded_by_mlcroissant(tmp_path) == {"judgments": 3, "extra": 1}


@pytest.mark.django_db
def test_a_pack_holds_the_documents_and_what_they_describe(tmp_path):
    files = {file.path: file for file in pack_files(report_on(make_study(2, judgments_per_task=2)))}

    described = json.loads(files["croissant.json"].content)
    records = {entry["@id"]: entry for entry in described["recordSet"]}
    assert set(files) >= NAMES
    assert {entry["@id"]: entry["sha256"] for entry in described["distribution"]}.items() <= {
        (path, file.sha256) for path, file in files.items()
    }
    assert [field["name"] for field in records["judgments"]["field"]] == [
        column.name for column in files["rows/judgments.parquet"].columns
    ]
    write_pack(list(files.values()), tmp_path / "pack")
    n_records = loaded_by_mlcroissant(tmp_path / "pack")
    assert n_records.keys() == records.keys()
    assert n_records["judgments"] == 12


@pytest.mark.django_db
def test_a_licence_and_authors_given_for_a_pack_go_before_those_said():
    study = make_study(1)
    save_statements(study, SAID)

    given = with_answers(gather_facts(report_on(study)), "CC0-1.0", ["Doe, Jane", "The Society"])

    citation = text_of(given, "CITATION.cff")
    assert "license: CC0-1.0" in citation
    assert 'family-names: "Doe"' in citation
    assert '  - name: "The Society"' in citation
    assert "Lovelace" not in citation
    assert "SPDX-License-Identifier: CC0-1.0" in text_of(given, "LICENSE")


# -- RO-Crate ----------------------------------------------------------------------------------------------------------


def graph_of(facts: Facts) -> dict[str, dict]:
    crate = json.loads(text_of(facts, "ro-crate-metadata.json"))
    return {entity["@id"]: entity for entity in crate["@graph"]}


def references(value) -> set[str]:
    if isinstance(value, dict):
        return {value["@id"]} if set(value) == {"@id"} else set().union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_reference_of_the_crate_leads_somewhere(facts):
    graph = graph_of(facts)
    specification = {"https://w3id.org/ro/crate/1.1"}

    named = set().union(*(references({k: v for k, v in e.items() if k != "@id"}) for e in graph.values()))

    assert named - specification <= set(graph)
    assert {file.path for file in row_files()} <= {part["@id"] for part in graph["./"]["hasPart"]}


def test_the_pack_is_traced_back_to_the_lm(facts):
    graph = graph_of(facts)
    makers = {made["@id"]: act["@id"] for act in graph.values() for made in as_list(act.get("result"))}

    def origins(name: str) -> set[str]:
        act = graph[makers[name]] if name in makers else None
        return {name} | set().union(*(origins(used["@id"]) for used in act["prov:used"])) if act else {name}

    reached = origins("croissant.json")

    assert {"#numbers", "#judgments", "#sample", "#tuples-1", "#tuples-2", "#instructions"} <= reached
    assert any(name.startswith("#lm-") for name in reached)


def as_list(value) -> list:
    return value if isinstance(value, list) else [value] if value else []


def test_people_in_the_crate_are_codes(facts):
    codes = {annotator["annotator"] for annotator in facts["document"]["annotators"]}

    names = {e["name"] for e in graph_of(facts).values() if "Person" in as_list(e["@type"])}

    assert names
    assert names <= {f"annotator {code}" for code in codes}


def test_rocrate_loads_it(facts, tmp_path):
    rocrate = pytest.importorskip("rocrate.rocrate")
    save(tmp_path, facts)

    crate = rocrate.ROCrate(str(tmp_path))

    assert {entity.id for entity in crate.data_entities} >= NAMES - {"ro-crate-metadata.json"}


# -- LaTeX -------------------------------------------------------------------------------------------------------------


def test_the_fragment_is_balanced_and_escaped(facts):
    awkward = stated(facts, recruitment="5 % & more_ #1 {of} ~ ^ \\")

    lines = [line for line in text_of(awkward, "methods.tex").splitlines() if not line.startswith("%")]
    text = "\n".join(lines)

    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    begun, ended = re.findall(r"\\begin{(\w+)}", text), re.findall(r"\\end{(\w+)}", text)
    assert sorted(begun) == sorted(ended)
    assert not re.search(r"(?<!\\)[%#_]", re.sub(r"\\(label|begin|end|setlength){[^}]*}", "", text))
    assert r"5 \% \& more\_ \#1" in text


def test_an_author_without_given_names_has_no_affiliation_in_the_citation(facts):
    consortium = stated(facts, authors="The Consortium,; Analytical Society\nLovelace, Ada; Society")

    _, authors = text_of(consortium, "CITATION.cff").split("authors:\n")

    assert authors.splitlines()[:4] == [
        '  - name: "The Consortium"',
        '  - family-names: "Lovelace"',
        '    given-names: "Ada"',
        '    affiliation: "Society"',
    ]
