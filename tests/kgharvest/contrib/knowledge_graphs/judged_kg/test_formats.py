"""Judged KG in every format, read with the standard library for each format."""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
import yaml
from django.core.management import call_command
from rdflib import RDF, Graph, Namespace

from annotation.models import Draw, Round
from annotation.rounds.services import open_round
from evaluation.reports.services import compute_report
from kgharvest.accounts.projects import default_project
from kgharvest.contrib.knowledge_graphs.imports.statements import read_tsv
from kgharvest.contrib.knowledge_graphs.judged_kg.formats import FORMATS, Export
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import NOT_JUDGED, JudgedKG, Selection
from kgharvest.models import HarvestJob, KnowledgeTuple
from tests import factories
from tests.kgharvest.contrib.knowledge_graphs.judged_kg.judged_rounds import make_judged_round
from tests.refusals import refused

pytestmark = pytest.mark.django_db
KGH = Namespace("urn:kgharvest:vocabulary:")
PROV = Namespace("http://www.w3.org/ns/prov#")

# relation, entities (case-folded), verdict, rank
Read = tuple[str, tuple[str, ...], str, int]


@pytest.fixture
def round() -> Round:
    return make_judged_round()


@pytest.fixture
def expected(round) -> Counter[Read]:
    """Return the expected rows with a query that differs from the export's query."""
    verdicts = {
        draw.harvested_tuple_id: draw.task.verdict or "incomplete"
        for draw in Draw.objects.filter(stratum__round=round).select_related("task")
    }
    return Counter(
        (job.relation.path, tuple(tuple_.knowledge_tuple.entities), verdicts.get(tuple_.pk, NOT_JUDGED), tuple_.rank)
        for job in HarvestJob.objects.all()
        for tuple_ in job.tuples.all()
    )


def write_format(round: Round, folder: Path, file_format: str, kept: Selection | None = None) -> Path:
    path = folder / file_format
    Export(JudgedKG(round), file_format, kept).write_to(path)
    return path


def test_pykeen_export_joins_lines_of_an_entity(tmp_path):
    harvest = factories.make_harvest([("two\nlines", "tail")])
    open_round({"name": "lines", "cells": [{"job": harvest.pk, "n": None}]}, None, default_project())

    path = write_format(Round.objects.get(), tmp_path, "pykeen", Selection.ALL)

    assert path.read_text() == f"two lines\t{harvest.relation.path}\ttail\n"


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_pykeen_export_neutralizes_formulas_and_the_import_restores_them(tmp_path, start):
    formula = f"{start}1+cmd|' /C calc'!A0"
    harvest = factories.make_harvest([(formula, "tail")])
    open_round({"name": "formulas", "cells": [{"job": harvest.pk, "n": None}]}, None, default_project())

    path = write_format(Round.objects.get(), tmp_path, "pykeen", Selection.ALL)

    assert path.read_text() == f"'{formula}\t{harvest.relation.path}\ttail\n"
    [statement] = read_tsv(path.read_text().splitlines(), lambda _, label: label)
    assert statement.head == formula


def read_hugging_face(path: Path) -> Counter[Read]:
    rows = pq.read_table(path / "data").to_pylist()
    return Counter(
        (row["relation"], tuple(map(str.casefold, row["entities"])), row["verdict"], row["rank"]) for row in rows
    )


def read_rdf(path: Path, file_format: str) -> Counter[Read]:
    graph = Graph().parse(path, format=file_format)
    read: Counter[Read] = Counter()
    for subject in graph.subjects(RDF.type, KGH.HarvestedTuple):
        slots = sorted(
            (str(predicate), unquote(str(value).removeprefix("urn:kgharvest:entity:")))
            for predicate, value in graph.predicate_objects(subject)
            if predicate.startswith(KGH.entity)
        )
        relation = unquote(str(graph.value(subject, KGH.relation)).removeprefix("urn:kgharvest:relation:"))
        verdict, rank = graph.value(subject, KGH.verdict), graph.value(subject, KGH["rank"])
        read[relation, tuple(entity for _, entity in slots), str(verdict), int(rank)] += 1
        harvest = graph.value(subject, PROV.wasGeneratedBy)
        assert (harvest, RDF.type, PROV.Activity) in graph
        assert graph.value(harvest, PROV.wasAssociatedWith) is not None
    return read


READERS = {
    "hf": read_hugging_face,
    "nt": lambda path: read_rdf(path, "nt"),
    "ttl": lambda path: read_rdf(path, "turtle"),
}


@pytest.mark.parametrize("file_format", READERS)
def test_export_contains_the_judged_tuples(round, expected, tmp_path, file_format):
    assert READERS[file_format](write_format(round, tmp_path, file_format)) == expected


@pytest.mark.parametrize("file_format", READERS)
def test_accepted_or_judged_tuples_can_be_selected(round, expected, tmp_path, file_format):
    accepted = Counter({row: n for row, n in expected.items() if row[2] == "accepted"})
    judged = Counter({row: n for row, n in expected.items() if row[2] in ("accepted", "rejected", "undecided")})

    assert READERS[file_format](write_format(round, tmp_path / "a", file_format, Selection.ACCEPTED)) == accepted
    assert READERS[file_format](write_format(round, tmp_path / "b", file_format, Selection.JUDGED)) == judged


@pytest.fixture(autouse=True)
def folders(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()


def test_every_format_has_the_counts_of_the_report(round):
    cells = compute_report(round).document["cells"]
    in_report = {
        verdict: sum(cell[verdict] for cell in cells) for verdict in ("accepted", "rejected", "undecided", "incomplete")
    }

    for file_format in FORMATS:
        export = Export(JudgedKG(round), file_format, Selection.ALL)
        for _ in export.download():
            pass
        counts = dict(export.rows.by_verdict)
        n_not_judged = counts.pop(NOT_JUDGED)
        if file_format == "pykeen":
            assert sum(counts.values()) + n_not_judged + export.rows.n_left_out == 22
        else:
            assert (counts, n_not_judged) == (in_report, 10)
    assert JudgedKG(round).outcomes() == in_report
    assert all(in_report.values())


def test_pykeen_contains_accepted_pairs_by_default(round, expected, tmp_path):
    path = write_format(round, tmp_path, "pykeen")

    triples = Counter(tuple(line.split("\t")) for line in path.read_text().split("\n")[:-1])
    accepted = {row: n for row, n in expected.items() if row[2] == "accepted" and len(row[1]) == 2}
    assert Counter((head.casefold(), relation, tail.casefold()) for head, relation, tail in triples) == Counter(
        (head, relation, tail) for relation, (head, tail), *_ in accepted
    )


def test_dataset_card_lists_the_file_and_the_counts(round, tmp_path):
    path = write_format(round, tmp_path, "hf")

    _, front, text = (path / "README.md").read_text().split("---\n", 2)
    [config] = yaml.safe_load(front)["configs"]
    [split] = config["data_files"]
    assert [file.name for file in path.glob(split["path"])] == ["train-00000-of-00001.parquet"]
    assert yaml.safe_load(front)["size_categories"] == ["n<1K"]
    counts = dict(re.findall(r"^\| (\w+) \| (\d+) \|$", text, re.MULTILINE))
    assert {**counts} == {verdict: str(n) for verdict, n in JudgedKG(round).outcomes().items()} | {NOT_JUDGED: "10"}


def test_turtle_and_ntriples_contain_the_same_graph(round, tmp_path):
    nt, ttl = (write_format(round, tmp_path, file_format) for file_format in ("nt", "ttl"))

    assert set(Graph().parse(nt, format="nt")) == set(Graph().parse(ttl, format="turtle"))


def test_only_accepted_pairs_are_plain_triples(round, tmp_path):
    graph = Graph().parse(write_format(round, tmp_path, "nt"), format="nt")

    [relation] = set(graph.subjects(RDF.type, RDF.Property))
    n_accepted = sum(
        row.verdict == "accepted" and len(row.entities) == 2 for row in JudgedKG(round).rows(Selection.ALL)
    )
    assert len(list(graph.subject_objects(relation))) == n_accepted > 0


def test_hidden_tuple_is_excluded_unless_drawn(round):
    drawn = set(Draw.objects.filter(stratum__round=round).values_list("task__knowledge_tuple", flat=True))
    undrawn = KnowledgeTuple.objects.exclude(pk__in=drawn).first()
    KnowledgeTuple.objects.filter(pk__in=[undrawn.pk, *drawn]).update(curation="hidden")

    assert sum(1 for _ in JudgedKG(round).rows()) == 21


def test_archive_contains_the_files_of_the_folder(round, tmp_path):
    content = b"".join(Export(JudgedKG(round), "hf").download())

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "archive")
    assert read_hugging_face(tmp_path / "archive") == read_hugging_face(write_format(round, tmp_path, "hf"))


def test_command_prints_counts_and_keeps_existing_folders(round, tmp_path, capsys):
    call_command("export_kg", "--round", "pilot", "--format", "pykeen", "--output", tmp_path / "kg.tsv")
    assert "accepted" in capsys.readouterr().out

    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with refused("NotWritable", match="Choose a new folder"):
        Export(JudgedKG(round), "hf").write_to(tmp_path / "full")
