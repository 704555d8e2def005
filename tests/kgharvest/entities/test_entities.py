"""Entity canonicalization: rules, entity tables, and their effect on harvests, imports, rounds, and exports."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.urls import reverse

from annotation.exchange.judgment_import import import_judgments
from annotation.gold.candidates import gold_candidates
from annotation.gold.selection import known_answers, store_gold_tuple
from annotation.models import JudgmentTask
from annotation.rounds.services import open_round
from kgharvest.accounts.projects import default_project
from kgharvest.engine.types import HarvestResult, ScoredTuple
from kgharvest.entities.canonical_form import canonical_form, singular
from kgharvest.entities.models import EntityTable
from kgharvest.entities.tables import canonicalizer, delete_table, parse_names, save_table
from kgharvest.errors import ImportRefused
from kgharvest.harvests.runner import store_result
from kgharvest.harvests.tuple_files import Cell, export_tuples, import_tuples
from kgharvest.models import KnowledgeTuple
from tests import factories
from tests.api import JSON, client_of, error_of
from tests.refusals import refused

LABELS = (
    b"label\taliases\tid\n"
    b"United States\tUSA|US|America\tQ30\n"
    b"dog\thound|puppy\tQ144\n"
    b"American Samoa\tAmerica\tQ16641\n"
    b"Paris\t\tQ90\n"
)

# Rules


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("dogs", "dog"), ("flies", "fly"), ("boxes", "box"), ("dishes", "dish"), ("children", "child"),
        ("houses", "house"), ("glasses", "glass"), ("shoes", "shoe"), ("tomatoes", "tomato"),
        ("news", "news"), ("paris", "paris"), ("texas", "texas"), ("physics", "physics"), ("glass", "glass"),
        ("virus", "virus"), ("gas", "gas"), ("bus", "bus"), ("netherlands", "netherlands"), ("dog", "dog"),
    ],
)  # fmt: skip
def test_english_nouns_are_singularized(word, expected):
    assert singular(word) == expected


@pytest.mark.parametrize(
    ("entity", "rules", "expected"),
    [
        ("The  Dogs", (False, False), "the dogs"),
        ("The  Dogs", (True, False), "dogs"),
        ("an old DOG", (True, True), "old dog"),
        ("the", (True, True), "the"),
        ("theatre", (True, False), "theatre"),
        ("guard dogs", (True, True), "guard dog"),
        ("islands", (True, True), "island"),
        ("The United States", (True, True), "united states"),
        ("united arab emirates", (True, True), "united arab emirates"),
        ("Indiana Jones", (True, True), "indiana jones"),
        ("fish and chips", (True, True), "fish and chips"),
        ("sons & daughters", (True, True), "sons & daughters"),
        ("Cafe\u0301", (False, False), "caf\u00e9"),
    ],
)
def test_the_canonical_form_follows_the_selected_rules(entity, rules, expected):
    assert canonical_form(entity, *rules) == expected


# Files


def test_a_file_is_parsed_into_labels_aliases_and_ids_without_ambiguous_names():
    names = parse_names(LABELS, "labels.tsv")

    assert names.by_name["usa"] == names.by_name["united states"] == ("United States", "Q30")
    assert "america" not in names.by_name
    assert (names.n_labels, names.n_ambiguous) == (4, 1)


def test_label_takes_precedence_over_equal_alias():
    names = parse_names(b"Georgia\t\tQ230\nPeach State\tGeorgia\tQ1428\n", "f")

    assert names.by_name["georgia"] == ("Georgia", "Q230")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "contains no labels"),
        (b"\talias\tQ1\n", "has no label"),
        (b"label,aliases\nFrance,Gaul\n", "the header has ',' between its cells; use tabs"),
        (b'Label; "Aliases"; ID\nFrance;Gaul;Q142\n', "the header has ';' between its cells; use tabs"),
        (b"a\tb\tc\td\n", "has 4 cells; expected label, aliases, id"),
        (b"a\t" + b"x" * 201, "has a name of more than 200 characters"),
        (b"a\x01\n", "has a control character"),
    ],
)
def test_an_invalid_file_is_rejected(content, reason):
    with pytest.raises(ImportRefused) as refusal:
        parse_names(content, "f.tsv")

    assert [entry.reason for entry in refusal.value.entries] == [reason]


# Effects


@pytest.fixture
def relation(db):
    return factories.make_relation(
        "owns", relation_set=factories.make_relation_set("own"), seed_tuples=[["a", "b"]] * 2
    )


@pytest.fixture
def linked(relation):
    """The relation, with an entity table that has all rules and LABELS."""
    save_table(relation.relation_set, True, True, ("labels.tsv", LABELS))
    return relation


def harvest(relation, *tuples):
    job = factories.make_harvest_job(relation=relation)
    found = tuple(
        ScoredTuple(tuple(map(str.casefold, entities)), entities, -float(rank), None)
        for rank, entities in enumerate(tuples, start=1)
    )
    store_result(job, HarvestResult((), found, {}, {}), None)
    type(job).objects.filter(pk=job.pk).update(status="succeeded")
    job.refresh_from_db()
    return job


def test_an_entity_becomes_its_label_or_its_canonical_form(linked):
    canonical = canonicalizer(linked)

    names = ["usa", "the usa", "united states", "hounds", "the dogs", "cats", "america", "paris"]
    assert list(map(canonical, names)) == [
        "united states", "united states", "united states", "dog", "dog", "cat", "america", "paris",
    ]  # fmt: skip


def test_a_harvest_keeps_the_best_scored_spelling_of_each_fact(linked):
    job = harvest(linked, ("USA", "dogs"), ("the United States", "hound"), ("USA", "cats"))

    rows = list(job.tuples.order_by("rank").values_list("rank", "surface", "knowledge_tuple__entities"))
    assert rows == [(1, ["USA", "dogs"], ["united states", "dog"]), (2, ["USA", "cats"], ["united states", "cat"])]
    assert (job.n_tuples, job.summary["rejected"]) == (2, {"same_fact": 1})


def test_without_a_table_entities_are_not_canonicalized(relation):
    job = harvest(relation, ("USA", "dogs"), ("the United States", "hound"))

    assert (job.n_tuples, job.summary["rejected"]) == (2, {})
    assert job.tuples.order_by("rank").first().knowledge_tuple.entities == ["usa", "dogs"]


def test_one_fact_of_two_harvests_is_judged_once(linked):
    jobs = [harvest(linked, ("USA", "dogs"), ("Paris", "cats")), harvest(linked, ("America", "cat"), ("US", "a dog"))]
    document = {"name": "both", "cells": [{"job": job.pk, "n": None} for job in jobs]}

    round = open_round(document)

    statements = sorted(" ".join(task.entities) for task in round.tasks.all())
    assert statements == ["America cat", "Paris cats", "USA dogs"]
    assert sum(stratum.draws.count() for stratum in round.strata.all()) == 4


def test_an_import_is_canonicalized_and_matches_harvested_tuples(linked, tmp_path):
    harvest(linked, ("USA", "dogs"))
    file = tmp_path / "tuples.jsonl"
    rows = [{"entities": ["US", "the dog"], "score": -2}, {"entities": ["usa", "puppy"], "score": -1}]
    file.write_text("\n".join(map(json.dumps, rows)))

    job = import_tuples(file, Cell(linked, factories.make_language_model(), "multi"))

    assert list(job.tuples.values_list("surface", flat=True)) == [["usa", "puppy"]]
    assert KnowledgeTuple.objects.get().n_harvests == 2


def test_imported_judgments_of_two_spellings_count_for_one_statement(linked, tmp_path):
    harvest(linked, ("USA", "dogs"))
    file = tmp_path / "judgments.csv"
    rows = ['owns,"[""the US"", ""hound""]",ann,true', 'owns,"[""USA"", ""dogs""]",bob,true']
    file.write_text("\n".join(["relation,entities,annotator,label", *rows]))

    import_judgments(file, "imported", create=True, project=default_project())

    task = JudgmentTask.objects.get()
    assert (task.n_true, task.knowledge_tuple) == (2, KnowledgeTuple.objects.get())


def test_exports_have_the_ids_of_entities(linked):
    job = harvest(linked, ("USA", "dogs"), ("Paris", "cats"))

    rows = [json.loads(line) for line in export_tuples(job)]
    header, first, _ = "".join(export_tuples(job, file_format="csv")).splitlines()

    assert [row["ids"] for row in rows] == [["Q30", "Q144"], ["Q90", None]]
    assert header.strip().endswith(",ids")
    assert first.strip().endswith('"[""Q30"", ""Q144""]"')


def test_rdf_names_the_ids_of_entities(linked):
    job = harvest(linked, ("USA", "cats"))

    triples = "".join(export_tuples(job, file_format="nt"))
    turtle = "".join(export_tuples(job, file_format="ttl"))

    assert '<urn:kgharvest:entity:united%20states> <urn:kgharvest:vocabulary:identifier> "Q30" .' in triples
    assert triples.count("vocabulary:identifier") == 1
    assert 'kgh:identifier "Q30"' in turtle


def test_exports_without_a_table_have_no_ids(relation):
    job = harvest(relation, ("USA", "dogs"))

    assert "ids" not in json.loads(next(export_tuples(job)))
    assert "ids" not in next(export_tuples(job, file_format="csv"))


@pytest.mark.parametrize("has_table", [True, False])
def test_pages_of_tuples_in_the_api_have_the_ids(linked, has_table):
    job = harvest(linked, ("USA", "dogs"), ("Paris", "cats"))
    if not has_table:
        delete_table(linked.relation_set)

    rows = client_of(factories.make_researcher()).get(f"/api/v1/harvests/{job.pk}/tuples/").json()["results"]

    assert [row.get("ids") for row in rows] == ([["Q30", "Q144"], ["Q90", None]] if has_table else [None, None])


def test_gold_candidates_are_compared_by_canonical_entities(linked):
    type(linked).objects.filter(pk=linked.pk).update(seed_tuples=[["USA", "dogs"], ["Paris", "cats"]])
    linked.refresh_from_db()

    def candidates():
        return {" ".join(candidate.entities) for candidate in gold_candidates(linked)}

    assert candidates() == {"USA cats", "Paris dogs"}
    harvest(linked, ("the United States", "a cat"), ("US", "hound"))
    assert candidates() == {"Paris dogs", "Paris hound"}  # excludes harvested and seed tuples in every spelling

    statement, _ = known_answers([linked], None)[linked.pk][0]
    assert store_gold_tuple(statement) == KnowledgeTuple.objects.get(entities=["united states", "dog"])


# Storage


def test_a_file_replaces_the_names_and_rules_change_independently(linked):
    table = save_table(linked.relation_set, False, False)
    assert (table.n_labels, table.names.count(), canonicalizer(linked)("the dog")) == (4, 8, "the dog")

    save_table(linked.relation_set, False, False, ("b.tsv", b"cat\n"))

    assert list(EntityTable.objects.get().names.values_list("name", "identifier")) == [("cat", "")]


def test_a_bad_file_changes_nothing(linked):
    with pytest.raises(ImportRefused):
        save_table(linked.relation_set, False, False, ("b.tsv", b"\tx\n"))

    assert EntityTable.objects.get().without_articles
    assert EntityTable.objects.get().names.count() == 8


def test_a_table_is_deleted(linked):
    delete_table(linked.relation_set)

    assert canonicalizer(linked) is None


@pytest.mark.django_db
def test_a_built_in_set_is_read_only():
    with refused("SetIsShipped"):
        save_table(factories.make_relation_set(is_shipped=True), True, True)


# Command, page, and API


def test_the_command_saves_and_removes_a_table(relation, tmp_path, capsys):
    file = tmp_path / "labels.tsv"
    file.write_bytes(LABELS)

    call_command("link_entities", file, set_name="own", singular=True)
    table = EntityTable.objects.get()
    assert (table.without_articles, table.in_singular, table.source) == (True, True, "labels.tsv")
    assert "own: 4 labels, 4 aliases, 1 ambiguous name (not linked)" in capsys.readouterr().out

    call_command("link_entities", set_name="own", remove=True)
    assert not EntityTable.objects.exists()


def test_the_command_reports_invalid_lines(relation, tmp_path):
    file = tmp_path / "labels.tsv"
    file.write_text("a\tb\tc\td\n")

    with pytest.raises(CommandError, match="line 1"):
        call_command("link_entities", file, set_name="own")


@pytest.mark.usefixtures("installation_owner")
def test_the_page_saves_shows_and_removes_a_table(researcher_client, relation):
    address = reverse("kgharvest:set_entities", args=[relation.relation_set_id])
    labels = SimpleUploadedFile("<labels>.tsv", LABELS)

    empty = researcher_client.get(address).text
    researcher_client.post(address, {"without_articles": "on", "file": labels})
    page = researcher_client.get(address).text
    refused = researcher_client.post(address, {"file": SimpleUploadedFile("b.tsv", b"\tx\n")}).text

    assert "No entity table" in empty
    assert "&lt;labels&gt;.tsv" in page
    assert EntityTable.objects.get().n_labels == 4
    assert "Import failed: b.tsv" in refused
    researcher_client.post(address, {"delete": "1"})
    assert not EntityTable.objects.exists()


def test_the_api_saves_shows_and_deletes_a_table(relation):
    api = client_of(factories.make_researcher())
    address = f"/api/v1/relation-sets/{relation.relation_set_id}/entities/"

    assert api.get(address).status_code == 404
    saved = api.post(address, {"in_singular": "true", "file": SimpleUploadedFile("l.tsv", LABELS)})
    assert (saved.status_code, saved.json()["n_labels"], saved.json()["in_singular"]) == (200, 4, True)
    assert api.get(address).json() == saved.json()
    assert api.post(address, {"articles": True}, JSON).status_code == 400
    bad = api.post(address, {"file": SimpleUploadedFile("l.tsv", b"\tx\n")})
    assert (bad.status_code, "line 1" in str(error_of(bad))) == (400, True)
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404
