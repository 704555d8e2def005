from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import transaction

from kgharvest.contrib.publishing.packs.pack import pack_files
from tests.kgharvest.contrib.publishing.packs.studies import STUDIES
from tests.made_once import made_once


@pytest.fixture
def without_figures(monkeypatch) -> None:
    """Omit figures from new packs, because drawing them is slow."""
    monkeypatch.setattr("kgharvest.contrib.publishing.packs.pack.rendered_figures", lambda document: [])


@pytest.fixture
def pack_of(shared_folder, tmp_path, without_figures) -> Callable[[str], dict[str, bytes]]:
    """Return a function that maps the name of a study to the contents of its pack, without figures.

    All test processes share the packs. The study is rolled back, because verification reads no database.
    """

    def make(path: Path, name: str) -> None:
        with transaction.atomic():
            report = STUDIES[name](tmp_path)
            report.refresh_from_db()
            path.write_bytes(pickle.dumps({file.path: file.content for file in pack_files(report)}))
            transaction.set_rollback(True)

    def contents_of(name: str) -> dict[str, bytes]:
        path = made_once(shared_folder / f"pack-{name}.pickle", lambda new: make(new, name))
        return pickle.loads(path.read_bytes())

    return contents_of
