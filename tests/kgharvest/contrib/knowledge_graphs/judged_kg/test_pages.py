"""Pages of the judged KG, and reports on imported KGs."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from annotation.rounds.services import open_round
from evaluation.models import Report
from evaluation.reports.files import DOCUMENT_FORMATS as REPORT_FORMATS
from evaluation.reports.services import compute_report, create_report
from kgharvest.accounts.projects import default_project
from kgharvest.contrib.knowledge_graphs.imports.kg_import import import_kg
from kgharvest.contrib.knowledge_graphs.imports.mapping import new_target
from kgharvest.contrib.knowledge_graphs.imports.statements import StagedKG
from kgharvest.contrib.knowledge_graphs.judged_kg.formats import FORMATS, Export
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import JudgedKG
from tests import factories
from tests.kgharvest.contrib.knowledge_graphs.judged_kg.judged_rounds import make_judged_round

pytestmark = pytest.mark.django_db


@pytest.fixture
def report(client, settings, tmp_path) -> Report:
    settings.DATA_DIR = tmp_path
    client.force_login(factories.make_researcher())
    return create_report(make_judged_round())


def test_page_shows_verdict_counts_and_file_formats(client, report):
    assert f"/reports/{report.pk}/kg/" in client.get(report.get_absolute_url()).content.decode()

    page = client.get(f"/reports/{report.pk}/kg/").content.decode()

    for n in JudgedKG(report.round).outcomes().values():
        assert f"<dd>{n}</dd>" in page
    for form in FORMATS.values():
        assert form.label in page


@pytest.mark.parametrize("file_format", FORMATS)
def test_download_equals_the_command_output(client, report, file_format, tmp_path):
    answer = client.get(f"/reports/{report.pk}/kg/file/", {"format": file_format, "verdict": "judged"})
    content = b"".join(answer)

    export = Export(JudgedKG(report.round), file_format, "judged")
    export.write_to(tmp_path / "out")
    if export.format.is_folder:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        assert files == {
            str(path.relative_to(tmp_path / "out")): path.read_bytes()
            for path in (tmp_path / "out").rglob("*")
            if path.is_file()
        }
    else:
        assert content == (tmp_path / "out").read_bytes()
    assert answer["Content-Disposition"] == f'attachment; filename="{export.file_name}"'


@pytest.mark.parametrize("query", [{}, {"format": "doc"}, {"format": "nt", "verdict": "some"}])
def test_invalid_format_or_verdict_is_404(client, report, query):
    assert client.get(f"/reports/{report.pk}/kg/file/", query).status_code == 404


@pytest.fixture
def unscored(tmp_path):
    """Create a completely judged round on half of a KG without scores."""
    (tmp_path / "kg.tsv").write_text("".join(f"head {n}\tr\ttail {n}\n" for n in range(30)))
    with StagedKG(tmp_path / "kg.tsv") as staged:
        [job] = import_kg(staged, "GPTKB", {"r": new_target("r", "[HEAD] has [TAIL].")}).jobs
    document = {"name": "outside", "cells": [{"job": job.pk, "n": 15}]}
    round = open_round(document, None, default_project())
    labels = ["true" if task.position % 3 else "false" for task in round.tasks.order_by("position")]
    factories.judge_all(round, *[labels] * round.judgments_per_task)
    return round


def test_report_of_unscored_kg_has_accuracy_and_a_note(unscored):
    report = compute_report(unscored)
    document = report.document

    [cell] = document["cells"]
    assert (cell["model"], cell["setting"], cell["accuracy"]) == ("GPTKB", "imported", pytest.approx(10 / 15))
    assert any("GPTKB × imported: the harvests have no scores" in note for note in document["notes"])
    assert "NaN" not in json.dumps(document)
    for form in REPORT_FORMATS.values():
        assert form.bytes_of(document)


def test_export_of_unscored_kg_has_no_scores(unscored):
    assert "vocabulary:score>" not in b"".join(Export(JudgedKG(unscored), "nt").download()).decode()


def test_report_pages_of_unscored_kg_are_shown(unscored, client):
    client.force_login(factories.make_researcher())
    report = create_report(unscored)

    assert "no scores" in client.get(report.get_absolute_url()).content.decode()
    assert client.get(f"/reports/{report.pk}/tuples/").status_code == 200
