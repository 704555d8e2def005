"""Real exports are complete data sets for an upload."""

from __future__ import annotations

import pytest

from kgharvest.contrib.knowledge_graphs.judged_kg.formats import Export
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import JudgedKG
from kgharvest.contrib.publishing.hub_upload import read_data_set
from kgharvest.contrib.publishing.packs.archive import PackFile, write_pack
from tests.kgharvest.contrib.knowledge_graphs.judged_kg.judged_rounds import make_judged_round

pytestmark = pytest.mark.django_db


def test_judged_kg(tmp_path):
    Export(JudgedKG(make_judged_round("pilot")), "hf").write_to(tmp_path / "kg")

    data_set = read_data_set(tmp_path / "kg")

    assert data_set.title == "Judged tuples of the round pilot"
    assert sorted(data_set.contents) == ["README.md", "data/train-00000-of-00001.parquet"]


@pytest.mark.parametrize("name", ["pack", "pack.zip"])
def test_replication_package(pack_of, tmp_path, name):
    contents = pack_of("of_samples")
    write_pack([PackFile(path, content, "", "") for path, content in contents.items()], tmp_path / name)

    data_set = read_data_set(tmp_path / name)

    assert data_set.contents == contents
    assert data_set.title
