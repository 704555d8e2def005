"""Facts of probes: relation types and uploaded files."""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest

from kgharvest.contrib.probing.probes.facts import NotProbed, documents_in, documents_of, read_facts, relation_type


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("a", "x"), ("b", "y"), ("c", "z")], "1-1"),
        ([("a", "x"), ("b", "x"), ("c", "y")], "N-1"),  # 3 facts per 2 objects: 1.5
        ([("a", "x"), ("b", "x"), ("c", "y"), ("d", "z")], "1-1"),  # 4 facts per 3 objects
        ([("a", "x"), ("a", "y"), ("b", "x")], "N-M"),  # 3 facts per 2 subjects
        ([("a", "x")] * 9, "1-1"),
    ],
)
def test_relation_type_follows_from_facts_per_subject_and_object(pairs, expected):
    """Computed by hand with the threshold of 1.5 from Bordes et al. (2013)."""
    assert relation_type(pairs) == expected


def test_empty_folder_yields_no_facts(tmp_path):
    assert read_facts(documents_in(tmp_path), ["capital"]) == {}


@pytest.mark.parametrize("n_lost", [10, 40, 60])
def test_zip_file_with_missing_start_is_rejected(n_lost):
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("capital/train.jsonl", '{"sub": "france", "obj": "paris"}')

    with pytest.raises(NotProbed, match="cannot be unpacked"):
        read_facts(documents_of("facts.zip", b"PK" + archive.getvalue()[n_lost:]), ["capital"])
