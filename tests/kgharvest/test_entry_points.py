"""Registries read the entry points of installed distributions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.test import RequestFactory

from evaluation.reports.document import report_tables
from evaluation.reports.services import create_report
from evaluation.reports.views import render_parts
from evaluation.studies.schema import faults_of, json_schema
from kgharvest.entry_points import Registry, entry_points
from kgharvest.pages.panels import panels_of
from tests import factories
from tests.kgharvest.test_settings import run_python

MODULE = """
from rest_framework import serializers
from evaluation.reports.report_sections import ReportSection
from evaluation.studies.sections import StudySection
from kgharvest.engine.settings import Setting
from kgharvest.pages.panels import button
from kgharvest.tables.formats import Format
from kgharvest.tables.table import Column, Row, Table


def tab_lines(table):
    return ("\\t".join(map(str, row.values)) for row in table.rows)


SETTING = Setting("acme", "the prompts of Acme", "Prompts from Acme.", "acme:prompts")
FORMAT = Format("TSV", "text/tab-separated-values", tab_lines)


def panel(request, report):
    yield button("Acme", "/acme/")


def find_family(config, tokenizer):
    return ("loader", "family") if config == "acme" else None


def acme_table(document):
    rows = [Row((document["acme"]["n"],))] if "acme" in document else []
    return Table("acme", "Acme", (Column("n"),), tuple(rows))


class AcmeSection(ReportSection):
    key, title, method, tables = "acme", "Acme section", "Acme counts twice.", (acme_table,)

    def gather(self, round):
        return {"factor": 2}

    def entry(self, document, facts):
        return {"n": facts["factor"] * document["n_tasks"]}


SECTION = AcmeSection()


class Numbers(serializers.Serializer):
    number = serializers.IntegerField(min_value=1)


class AcmeNumbers(StudySection):
    key, published_row = "acme", Numbers

    def field(self):
        return Numbers(many=True, required=False)


STUDY_SECTION = AcmeNumbers()
"""
ENTRY_POINTS = {
    "kgharvest.prompt_settings": {"acme": "acme:SETTING"},
    "kgharvest.exports": {"tsv": "acme:FORMAT"},
    "kgharvest.panels": {"report_actions.acme": "acme:panel"},
    "kgharvest.lm_families": {"acme": "acme:find_family"},
    "kgharvest.report_sections": {"acme": "acme:SECTION"},
    "kgharvest.study_sections": {"acme": "acme:STUDY_SECTION"},
}


def write_distribution(folder: Path, name: str, groups: dict[str, dict[str, str]], module: str = MODULE) -> None:
    """Write a module and the metadata that pip writes when it installs a distribution."""
    (folder / f"{name}.py").write_text(module)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in groups.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def install(tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """Return a function that installs a distribution for one test."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(*distribution) -> None:
        write_distribution(tmp_path, *distribution)
        importlib.invalidate_caches()
        entry_points.cache_clear()

    yield install
    entry_points.cache_clear()
    for name in ("acme", "other", "broken"):
        sys.modules.pop(name, None)


@pytest.mark.django_db
def test_report_sections_of_a_distribution_are_used(install):
    round = factories.make_round(3, judgments_per_task=1)
    factories.judge_all(round, ["true", "false", "true"])
    before = create_report(round)
    install("acme", ENTRY_POINTS)

    report = create_report(round)

    assert report.document["acme"] == {"n": 6}
    assert report.method == f"{before.method}\n\nAcme counts twice."
    assert [table.name for table in report_tables(report.document)].count("acme") == 1
    [section] = [part for part in render_parts(report, everything=False)[1] if part["key"] == "acme"]
    assert "<table" in section["html"]
    assert "acme" not in before.document
    assert "Acme section" not in render_parts(before, everything=False)[0]


def test_study_files_have_the_sections_of_a_distribution(install):
    study = {"name": "study", "relations": [{"set": "demo"}], "acme": [{"number": 0}]}
    assert ("acme",) in [fault.path for fault in faults_of(study)]  # not a key
    install("acme", ENTRY_POINTS)

    assert [fault.path for fault in faults_of(study)] == [("acme", 0, "number")]
    assert faults_of(study | {"acme": [{"number": 1}]}) == []
    assert json_schema()["properties"]["acme"]["items"]["required"] == ["number"]


def test_panel_name_starts_with_its_region(install, monkeypatch, settings):
    install("acme", ENTRY_POINTS)
    monkeypatch.setitem(settings.PANELS, "report_actions", [])

    [panel] = panels_of("report_actions", RequestFactory().get("/"), None)

    assert panel.context == {"label": "Acme", "url": "/acme/", "is_primary": False}


def test_settings_and_formats_of_a_distribution_are_registered(tmp_path):
    """Use a separate process, as modules read some registries on import."""
    write_distribution(tmp_path, "acme", ENTRY_POINTS)
    code = """
import django
django.setup()
from annotation.exchange.judgment_export import FILE_FORMATS
from kgharvest.engine.settings import PROMPT_SETTINGS, find_setting
from kgharvest.tables.formats import FORMATS
from kgharvest.tables.table import Column, Row, Table
assert find_setting("acme").strategy == "acme:prompts" and [*PROMPT_SETTINGS][-1] == "acme"
assert FILE_FORMATS == ("csv", "jsonl", "parquet", "tsv")
assert [*FORMATS["tsv"].write(Table("t", "T", (Column("a"),), (Row((1,)),)))] == ["1"]
"""

    done = run_python(tmp_path, "-c", code, PYTHONPATH=str(tmp_path))

    assert done.returncode == 0, done.stderr


def test_lm_families_of_a_distribution_take_precedence(install):
    pytest.importorskip("torch")
    from kgharvest.engine.language_models.families import family_of

    install("acme", ENTRY_POINTS)

    assert family_of("acme", None, "acme/lm") == ("loader", "family")


def test_error_of_an_entry_point_names_its_distribution(install):
    install("broken", {"kgharvest.exports": {"odf": "broken:WRITER"}}, "import nothing_of_this_name")

    with pytest.raises(
        ImportError, match=r"'odf' of broken .*No module named 'nothing_of_this_name'.*uninstall broken"
    ):
        entry_points("kgharvest.exports")


def test_two_distributions_cannot_add_the_same_name(install):
    for name in ("acme", "other"):
        install(name, {"kgharvest.exports": {"tsv": "acme:FORMAT"}})

    with pytest.raises(ImportError, match="'tsv'"):
        entry_points("kgharvest.exports")


def test_a_distribution_cannot_replace_a_built_in_entry(install):
    install("acme", {"kgharvest.exports": {"csv": "acme:FORMAT"}})

    with pytest.raises(ImportError, match=r"'csv' to kgharvest\.exports, but kgharvest already has it"):
        len(Registry("kgharvest.exports", {"csv": None}))


def test_a_registry_without_distributions_has_the_built_in_entries():
    registry = Registry("kgharvest.nothing", {"a": 1, "b": 2}, lambda number: number > 1)

    assert dict(registry) == {"b": 2}
