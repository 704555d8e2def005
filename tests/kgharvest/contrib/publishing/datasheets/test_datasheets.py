"""Documents about a study: complete, consistent with the report, valid in their formats, and anonymous."""

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
    STATEMENTS,
    add_guest,
    exclude_first,
    make_owner,
    make_study,
    report_on,
    row_files,
)
from tests.refusals import refused

pytestmark = pytest.mark.django_db  # sets up the database for `facts`

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
    """Gather the facts once, because a report is slow. The documents depend only on the facts."""
    with django_db_blocker.unblock(), transaction.atomic():
        gathered = gather_facts(report_on(make_study(6, judgments_per_task=6)))
        transaction.set_rollback(True)
    return gathered


def write_documents(facts: Facts) -> dict[str, PackFile]:
    return {file.path: file for file in datasheets(facts, row_files())}


def text_of(facts: Facts, path: str) -> str:
    return write_documents(facts)[path].content.decode()


def with_statements(facts: Facts, **answers: str) -> Facts:
    """Return the facts with the given answers, or with all answers if none are given."""
    return {**facts, "answers": answers or STATEMENTS}


def with_document(facts: Facts, **changes: Any) -> Facts:
    """Return the facts with changed values in the report's document."""
    return {**facts, "document": {**facts["document"], **changes}}


def with_conduct(facts: Facts, block: str = "design", **changes: Any) -> Facts:
    """Return the facts with changed values in a block of `conduct`."""
    conduct = facts["document"]["conduct"]
    return with_document(facts, conduct={**conduct, block: {**conduct[block], **changes}})


def with_recruitment(facts: Facts, **changes: int) -> Facts:
    return {**facts, "recruited": {**facts["recruited"], **changes}}


def sentence_of(facts: Facts, sentence: str) -> str:
    return study_of(facts)["say"][sentence]


def heds_answers(facts: Facts) -> dict[str, Answer]:
    return study_of(facts)["heds"]


# All documents


def test_all_documents_are_written_and_reproducible(facts):
    first, again = write_documents(facts), write_documents(facts)

    assert set(first) == NAMES
    assert {path: file.content for path, file in first.items()} == {path: file.content for path, file in again.items()}


@pytest.mark.django_db
def test_gathering_twice_gives_the_same_facts():
    report = report_on(make_study(2, judgments_per_task=2))

    assert gather_facts(report) == gather_facts(type(report).objects.get(pk=report.pk))


@pytest.mark.parametrize("source", ["people", "simulated", "imported"])
def test_templates_use_only_values_that_exist(facts, source, monkeypatch):
    monkeypatch.setattr(TEMPLATES, "string_if_invalid", "INVALID[%s]")

    for study in (facts, with_statements(facts)):
        for path, file in write_documents(with_document(study, source=source)).items():
            names = re.findall(r"INVALID\[([^]]*)\]", file.content.decode())
            assert [name for name in names if not name.startswith("answers.")] == [], path


def test_documents_name_missing_answers(facts):
    unanswered, answered = write_documents(facts), write_documents(with_statements(facts))
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
    missing_labels = re.findall(r"^- \*\*(.+)\*\*", unanswered["MISSING.md"].content.decode(), re.MULTILINE)
    assert missing_labels == [question.label for question in missing(facts["answers"], facts["document"])]
    assert b"No answers are missing" in answered["MISSING.md"].content


@pytest.mark.django_db
def test_report_without_conduct_is_rejected():
    report = Report(round=make_round(1), document={"conduct": None})

    with refused("NoConduct", "Create a new report"):
        gather_facts(report)


# Anonymity

PLANTED = ("zorblax", "quuxley", "grault", "plughson", "xyzzyname", "mail-of-nobody", "wibblepath", "fredcomment")


@pytest.fixture
def planted_round(db) -> Round:
    """Create a round with names and email addresses in every free-text field."""
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
def test_files_contain_no_names_and_only_the_contact_address(planted_round):
    facts = gather_facts(report_on(planted_round))

    assert Judgment.objects.filter(comment__contains="fredcomment").exists()
    for path, file in write_documents(facts).items():
        text = file.content.decode().casefold()
        assert [name for name in PLANTED if name in text] == [], path
        assert not MAIL.search(text), path
    texts = (file.content.decode() for file in write_documents(with_statements(facts)).values())
    assert {address for text in texts for address in MAIL.findall(text)} == {STATEMENTS["contact_email"]}


def test_small_groups_of_annotators_are_not_counted():
    assert people(0) == "no annotator"
    assert {people(n) for n in range(1, LEAST_PEOPLE)} == {"fewer than 5 annotators"}
    assert people(LEAST_PEOPLE) == "5 annotators"


def test_times_of_fewer_than_five_annotators_are_not_reported(facts):
    few = with_document(facts, annotators=facts["document"]["annotators"][: LEAST_PEOPLE - 1])

    assert " 4.0 s " in sentence_of(facts, "pace")
    assert not re.search(r"\d s\b", sentence_of(few, "pace"))
    assert "fewer than 5 annotators" in sentence_of(few, "pace")


@pytest.mark.django_db
def test_recruitment_counts_only_annotators_with_judgments():
    round = make_study(1, judgments_per_task=2)
    guest = add_guest(round, "somebody")
    add_guest(round, "nobody who judged")
    judge(guest, next_batch(guest, timezone.now())[0])

    counts = gather_facts(report_on(round))["recruited"]

    assert counts == {"n_accounts": 1, "n_guests": 1, "n_by_invite": 1, "n_members": 0, "n_agreed": 0}


# Sentences about the design


def test_third_judgments_appear_only_for_rounds_with_third_judgments(facts):
    split = with_conduct(facts, third_only_if_split=True, judgments_per_task=3)

    assert "third annotator" in text_of(split, "methods.tex")
    assert "first two judgments" in sentence_of(split, "agreement")
    assert "third" not in sentence_of(facts, "judging")
    assert "first two" not in sentence_of(facts, "agreement")
    assert "6 different annotators" in text_of(facts, "methods.tex")
    assert responsible_ai(study_of(split))["annotationsPerItem"] == "2 or 3"
    assert responsible_ai(study_of(facts))["annotationsPerItem"] == "6"


def test_methods_text_contains_the_numbers_of_the_report(facts):
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
def test_stopping_rule_matches_the_round(facts, rule, words):
    assert words in sentence_of(with_conduct(facts, closes_when=rule), "stopping")
    assert rule in Round.ClosesWhen.values


def test_frozen_preregistration_is_described_and_not_missing(facts):
    registered = {"version": 2, "sha256": "f" * 64, "frozen_at": "2026-01-02T03:04:05+00:00", "deviations": [{}]}
    frozen = with_document(facts, preregistration=registered)

    assert heds_answers(frozen)["3.3.1"].options == {1: "Yes"}
    assert heds_answers(with_statements(frozen))["3.3.1"] == heds_answers(frozen)["3.3.1"]
    for fact in ("version 2", "2026-01-02", "f" * 64, "1 deviation "):
        assert fact in sentence_of(frozen, "preregistration")
    assert "version 2 of a preregistration" in text_of(frozen, "methods.tex")
    assert "**Preregistration**" in text_of(facts, "MISSING.md")
    assert "**Preregistration**" not in text_of(frozen, "MISSING.md")


def test_strata_are_described_by_their_kind(facts):
    by_judge, by_rank = (
        with_document(
            facts,
            cells=[{**cell, "strata": [cell["strata"][0] | mark] * 2} for cell in facts["document"]["cells"]],
        )
        for mark in ({"judge_label": "true"}, {})
    )

    assert "simple random sample" in sentence_of(facts, "sample")
    assert "strata by the label of an LM judge" in sentence_of(by_judge, "sample")
    assert "strata by rank" in sentence_of(by_rank, "sample")
    assert heds_answers(facts)["3.1.2"].options == {1: "Simple random sample"}
    assert heds_answers(by_judge)["3.1.2"].options == {2: "Stratified random sample"}


@pytest.mark.django_db
def test_exclusions_and_judges_are_described(enqueued):
    round = make_study(3)
    exclude_first(round, "answers within a second")
    make_judge_run(round, "lm", model="folder/judge-lm", repeats=3)
    Round.objects.filter(pk=round.pk).update(judge="lm")
    round.refresh_from_db()

    facts = gather_facts(report_on(round))

    assert "1 annotator was excluded" in text_of(facts, "methods.tex")
    assert "answers within a second." in heds_answers(facts)["3.3.3.2"].text
    assert set(heds_answers(facts)["3.3.3.1"].options) == {3, 4}
    [run] = facts["judges"]
    judge_sentence = sentence_of(facts, "judge")
    assert "lm (chat model behind an OpenAI-compatible endpoint, judge-lm, temperature 0, 3 repeats" in judge_sentence
    assert run["prompt_sha256"] in judge_sentence
    assert "#judge-lm" in graph_of(facts)


def test_gold_and_consent_are_described_if_the_round_has_them(facts):
    with_gold = with_conduct(facts, "gold", n_true=2, n_false=1)
    with_consent = {**facts, "consent": "I agree that my answers are published.", "consent_sha256": "0" * 64}

    assert "2 true (seed tuples), 1 false" in sentence_of(with_gold, "gold")
    assert sentence_of(facts, "gold") == "No statements with known answers were included."
    assert 2 in heds_answers(with_gold)["3.3.3.1"].options
    for path in ("responsible-nlp.md", "instructions.md"):
        assert "> I agree that my answers are published." in text_of(with_consent, path)
        assert "0" * 64 in text_of(with_consent, path)
    assert "no consent text" in text_of(facts, "responsible-nlp.md")


def test_training_is_described_if_the_round_has_it(facts):
    trained = with_conduct(facts, "training", n_statements=4, n_begun=6, n_finished=5, n_answered=20, n_right=18)

    assert "4 training statements" in sentence_of(trained, "training")
    assert "5 annotators finished" in sentence_of(trained, "training")
    assert sentence_of(facts, "training") == "There was no training."


def test_documents_on_imported_judgments_make_no_collection_claims(facts):
    imported = with_document(facts, source="imported")

    files = {path: file.content.decode() for path, file in write_documents(imported).items()}
    collected = "".join(file.content.decode() for file in write_documents(facts).values())

    for claim in ("did not see", "web browser", "had no consent text", "saw the instructions before", "n account"):
        assert claim in collected
        assert [path for path, text in files.items() if claim in text] == [], claim
    answers = heds_answers(imported)
    assert {answers[number].source for number in ("3.3.4.2", "3.3.5", "3.3.6", "3.3.7", "3.3.8")} == {Source.MISSING}
    assert heds_answers(with_statements(imported))["3.2.5"] == Answer(STATEMENTS["demographics"], source=Source.PEOPLE)
    assert json.loads(files["croissant.json"])["rai:annotationsPerItem"] == "as many as were imported"


def test_simulated_judgments_are_marked_as_simulated(facts):
    simulated = with_document(facts, source="simulated")
    files = {path: file.content.decode() for path, file in write_documents(simulated).items()}

    assert "judged by people" in text_of(facts, "croissant.json")
    assert [path for path, text in files.items() if "judged by people" in text] == []
    for path in ("methods.tex", "responsible-nlp.md", "croissant.json", "heds.md", "heds.json"):
        assert "simulated, not made by people" in files[path]
    assert "Manual Human Curator" not in files["croissant.json"]
    graph = json.loads(files["ro-crate-metadata.json"])["@graph"]
    assert {kind for entity in graph if "#annotator" in entity["@id"] for kind in entity["@type"]} == {
        "SoftwareApplication", "prov:Agent",
    }  # fmt: skip


# HEDS


def test_heds_has_62_ordered_questions_for_one_criterion():
    numbers = [tuple(map(int, question.number.split("."))) for question in QUESTIONS]

    assert len(numbers) == 62
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == ((1, 1, 1), (5, 4))


def test_records_answer_80_percent_of_heds_questions(facts):
    for judged in (facts, with_recruitment(facts, n_guests=2)):
        covered = coverage(heds_answers(judged))
        assert len(covered["records"]) / len(covered["applicable"]) >= 0.8
        assert len(covered["records"]) + len(covered["missing"]) == len(covered["applicable"])


def test_heds_is_complete_with_all_statements(facts):
    answers = heds_answers(with_statements(facts))

    assert coverage(answers)["missing"] == []
    assert answers["3.2.2.2"].options == {1: "Paid with money"}
    assert answers["3.3.1"].options == {2: "No"}
    assert answers["3.2.2.2"].source == Source.PEOPLE


def test_researcher_participation_is_known_only_for_accounts(facts):
    guests = heds_answers(with_recruitment(facts, n_guests=7))["3.2.2.4"]

    assert heds_answers(facts)["3.2.2.4"].options == {2: "No"}
    assert heds_answers(with_recruitment(facts, n_members=1))["3.2.2.4"].options == {1: "Yes"}
    assert guests.options == {3: "Unknown for guests"}
    assert "7 annotators" in guests.text


def test_heds_json_matches_the_form_fields(facts):
    """Read the file like the script of the form: one entry per field, keyed by the criterion or an empty string."""
    form = json.loads(text_of(with_statements(facts), "heds.json"))
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


# Dataset card


def test_card_configures_tables_and_lists_files_and_columns(facts):
    columns = (RowColumn("label", "string", "Label of the judgment."),)
    tables = [
        PackFile(f"rows/{name}.parquet", b"", "application/vnd.apache.parquet", f"Rows_of {name}.", columns)
        for name in ("statements", "judgments")
    ]

    card = card_file(with_statements(facts), tables).content.decode()
    _, header, text = card.split("---\n", 2)

    assert header.splitlines()[:2] == [f'pretty_name: "{STATEMENTS["title"]}"', 'license: "cc-by-4.0"']
    assert header.endswith(
        "configs:\n"
        "- config_name: statements\n  data_files: rows/statements.parquet\n"
        "- config_name: judgments\n  data_files: rows/judgments.parquet\n  default: true\n"
    )
    assert f"# {STATEMENTS['title']}\n" in text
    assert f"{facts['document']['n_judgments']} counted judgments" in text
    assert "- `rows/judgments.parquet`: Rows\\_of judgments." in text
    assert "### rows/judgments.parquet\n\n- `label` (string): Label of the judgment.\n" in text
    assert "license:" not in card_file(facts, []).content.decode()


# Croissant


def test_citation_escapes_braces_and_percent_in_the_title(facts):
    study = with_statements(facts, title="50% {of} it", authors="Doe_, Jane")

    citation = json.loads(text_of(study, "croissant.json"))["citeAs"]

    assert r"title = {50\% \{of\} it}" in citation
    assert r"author = {Doe\_, Jane}" in citation


def test_croissant_describes_files_with_hashes_and_records_with_columns(facts):
    croissant = json.loads(text_of(facts, "croissant.json"))

    assert croissant["conformsTo"] == ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
    objects = {entry["@id"]: entry for entry in croissant["distribution"]}
    for file in row_files():
        assert objects[file.path]["sha256"] == file.sha256
    records = {entry["@id"]: entry for entry in croissant["recordSet"]}
    assert set(records) == {"judgments", "extra"}
    assert {field["source"]["fileObject"]["@id"] for field in records["judgments"]["field"]} == {
        "data/judgments.parquet"
    }
    assert [field["dataType"] for field in records["judgments"]["field"]] == ["sc:Integer", "sc:Text", "sc:Float"]


def test_responsible_ai_fields_are_complete_and_typed(facts):
    fields = responsible_ai(study_of(facts))

    assert set(fields) == RAI
    assert all(isinstance(value, list if field in MANY else str) for field, value in fields.items())
    assert fields["dataUseCases"] == ["Missing answer: Intended use."]


def test_croissant_names_only_a_stated_license(facts):
    studies = (facts, with_statements(facts))
    without_license, with_license = (json.loads(text_of(study, "croissant.json")) for study in studies)

    assert "license" not in without_license
    assert with_license["license"] == "https://spdx.org/licenses/CC-BY-4.0"


def save(folder: Path, facts: Facts) -> None:
    for file in [*row_files(), *write_documents(facts).values()]:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes(file.content)


COUNT_RECORDS = """
import json, sys, mlcroissant
dataset = mlcroissant.Dataset(jsonld=sys.argv[1])
assert not dataset.metadata.ctx.issues.errors, dataset.metadata.ctx.issues.report()
print(json.dumps({own.id: sum(1 for _ in dataset.records(own.id)) for own in dataset.metadata.record_sets}))
"""


def count_records(folder) -> dict[str, int]:
    """Return the number of records per set. A subprocess is used, as absl's logging closes pytest's streams."""
    if find_spec("mlcroissant") is None:
        pytest.skip("mlcroissant is not installed")
    command = [sys.executable, "-c", COUNT_RECORDS, str(folder / "croissant.json")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize("statements", [{}, STATEMENTS])
def test_mlcroissant_loads_the_records_without_errors(facts, tmp_path, statements):
    save(tmp_path, {**facts, "answers": statements})

    assert count_records(tmp_path) == {"judgments": 3, "extra": 1}


@pytest.mark.django_db
def test_pack_contains_the_documents_and_the_described_files(tmp_path):
    files = {file.path: file for file in pack_files(report_on(make_study(2, judgments_per_task=2)))}

    croissant = json.loads(files["croissant.json"].content)
    records = {entry["@id"]: entry for entry in croissant["recordSet"]}
    assert set(files) >= NAMES
    assert {entry["@id"]: entry["sha256"] for entry in croissant["distribution"]}.items() <= {
        (path, file.sha256) for path, file in files.items()
    }
    assert [field["name"] for field in records["judgments"]["field"]] == [
        column.name for column in files["rows/judgments.parquet"].columns
    ]
    write_pack(list(files.values()), tmp_path / "pack")
    n_records = count_records(tmp_path / "pack")
    assert n_records.keys() == records.keys()
    assert n_records["judgments"] == 12


@pytest.mark.django_db
def test_pack_options_override_stated_license_and_authors():
    study = make_study(1)
    save_statements(study, STATEMENTS)

    pack_facts = with_answers(gather_facts(report_on(study)), "CC0-1.0", ["Doe, Jane", "The Society"])

    citation = text_of(pack_facts, "CITATION.cff")
    assert "license: CC0-1.0" in citation
    assert 'family-names: "Doe"' in citation
    assert '  - name: "The Society"' in citation
    assert "Lovelace" not in citation
    assert "SPDX-License-Identifier: CC0-1.0" in text_of(pack_facts, "LICENSE")


# RO-Crate


def graph_of(facts: Facts) -> dict[str, dict]:
    crate = json.loads(text_of(facts, "ro-crate-metadata.json"))
    return {entity["@id"]: entity for entity in crate["@graph"]}


def references(value) -> set[str]:
    if isinstance(value, dict):
        return {value["@id"]} if set(value) == {"@id"} else set().union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_crate_references_resolve(facts):
    graph = graph_of(facts)
    specification = {"https://w3id.org/ro/crate/1.1"}

    named = set().union(*(references({k: v for k, v in e.items() if k != "@id"}) for e in graph.values()))

    assert named - specification <= set(graph)
    assert {file.path for file in row_files()} <= {part["@id"] for part in graph["./"]["hasPart"]}


def test_crate_provenance_reaches_the_lm(facts):
    graph = graph_of(facts)
    makers = {made["@id"]: act["@id"] for act in graph.values() for made in as_list(act.get("result"))}

    def origins(name: str) -> set[str]:
        act = graph[makers[name]] if name in makers else None
        return {name} | set().union(*(origins(used["@id"]) for used in act["prov:used"])) if act else {name}

    origin_names = origins("croissant.json")

    assert {"#numbers", "#judgments", "#sample", "#tuples-1", "#tuples-2", "#instructions"} <= origin_names
    assert any(name.startswith("#lm-") for name in origin_names)


def as_list(value) -> list:
    return value if isinstance(value, list) else [value] if value else []


def test_people_in_the_crate_are_pseudonymous(facts):
    codes = {annotator["annotator"] for annotator in facts["document"]["annotators"]}

    names = {e["name"] for e in graph_of(facts).values() if "Person" in as_list(e["@type"])}

    assert names
    assert names <= {f"annotator {code}" for code in codes}


def test_rocrate_library_loads_the_crate(facts, tmp_path):
    rocrate = pytest.importorskip("rocrate.rocrate")
    save(tmp_path, facts)

    crate = rocrate.ROCrate(str(tmp_path))

    assert {entity.id for entity in crate.data_entities} >= NAMES - {"ro-crate-metadata.json"}


# LaTeX


def test_latex_fragment_is_balanced_and_escaped(facts):
    special = with_statements(facts, recruitment="5 % & more_ #1 {of} ~ ^ \\")

    lines = [line for line in text_of(special, "methods.tex").splitlines() if not line.startswith("%")]
    text = "\n".join(lines)

    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    begun, ended = re.findall(r"\\begin{(\w+)}", text), re.findall(r"\\end{(\w+)}", text)
    assert sorted(begun) == sorted(ended)
    assert not re.search(r"(?<!\\)[%#_]", re.sub(r"\\(label|begin|end|setlength){[^}]*}", "", text))
    assert r"5 \% \& more\_ \#1" in text


def test_citation_omits_affiliation_of_authors_without_given_names(facts):
    consortium = with_statements(facts, authors="The Consortium,; Analytical Society\nLovelace, Ada; Society")

    _, authors = text_of(consortium, "CITATION.cff").split("authors:\n")

    assert authors.splitlines()[:4] == [
        '  - name: "The Consortium"',
        '  - family-names: "Lovelace"',
        '    given-names: "Ada"',
        '    affiliation: "Society"',
    ]
