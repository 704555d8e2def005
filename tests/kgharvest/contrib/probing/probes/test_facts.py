"""Types of relations."""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest

from kgharvest.contrib.probing.probes.facts import NotProbed, documents_in, documents_of, read_facts, relation_type


@pytest.mark.parametrize(
    ("pairs", "its_type"),
    [
        ([("a", "x"), ("b", "y"), ("c", "z")], "1-1"),
        ([("a", "x"), ("b", "x"), ("c", "y")], "N-1"),  # 3 facts on 2 objects: 1.5
        ([("a", "x"), ("b", "x"), ("c", "y"), ("d", "z")], "1-1"),  # 4 on 3
        ([("a", "x"), ("a", "y"), ("b", "x")], "N-M"),  # 3 on 2 subjects
        ([("a", "x")] * 9, "1-1"),
    ],
)
def test_the_type_of_a_relation_follows_from_how_many_go_with_how_many(pairs, its_type):
    """By hand, with the 1.5 of Bordes et al. (2013)."""
    assert relation_type(pairs) == its_type


def test_a_folder_without_facts_has_none(tmp_path):
    assert read_facts(documents_in(tmp_path), ["capital"]) == {}


@pytest.mark.parametrize("n_lost", [10, 40, 60])
def test_a_zip_file_that_lost_its_beginning_is_said(n_lost):
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("capital/train.jsonl", '{"sub": "france", "obj": "paris"}')

    with pytest.raises(NotProbed, match="cannot be unpacked"):
        read_facts(documents_of("facts.zip", b"PK" + archive.getvalue()[n_lost:]), ["capital"])
