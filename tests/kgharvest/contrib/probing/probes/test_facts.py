"""Facts of probes: relation types and uploaded files."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from io import BytesIO

import pytest

from kgharvest.contrib.probing.probes.facts import (
    NotProbed,
    documents_in,
    documents_of,
    read_facts,
    read_prompts,
    relation_type,
    split_facts,
)
from kgharvest.errors import ImportRefused


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


FACTS = {
    "train": tuple((f"x{n}", f"y{n % 7}") for n in range(60)),
    "dev": tuple((f"x{n}", f"y{n % 7}") for n in range(50, 80)),  # ten of them are also in train
    "test": tuple((f"x{n}", f"y{n % 7}") for n in range(80, 100)),
}
ALL_FACTS = {pair for pairs in FACTS.values() for pair in pairs}


@pytest.mark.parametrize(("split", "sizes"), [("random", (80, 10, 10)), ("extended", (60, 20, 20))])
def test_split_pools_distinct_facts_and_depends_on_the_seed(split, sizes):
    first, again, other = (split_facts(FACTS, split, seed) for seed in (0, 0, 1))

    assert tuple(map(len, first.values())) == sizes
    assert {pair for pairs in first.values() for pair in pairs} == ALL_FACTS
    assert first == again != other


def test_original_split_divides_only_facts_outside_the_test_part():
    parts = split_facts(FACTS | {"dev": (*FACTS["dev"], FACTS["test"][0])}, "original", 0)

    assert parts["test"] == FACTS["test"]
    assert (len(parts["train"]), len(parts["dev"])) == (64, 16)
    assert {*parts["train"], *parts["dev"]} == ALL_FACTS - {*FACTS["test"]}


@pytest.mark.parametrize("seed", range(5))
def test_split_by_object_has_no_common_objects_and_nearly_the_right_sizes(seed):
    """Frequencies of objects as in LAMA: one of them has a third of the facts."""
    frequencies = {"french": 330, **{f"y{n}": 60 // (n + 1) + 5 for n in range(80)}}
    pairs = tuple((f"{y} {n}", y) for y, frequency in frequencies.items() for n in range(frequency))

    parts = split_facts({"train": pairs}, "distinct-objects", seed)

    objects = [{y for _, y in pairs} for pairs in parts.values()]
    assert Counter(pair for part in parts.values() for pair in part) == Counter(pairs)
    assert sum(map(len, objects)) == len(frequencies)
    shares = [len(part) / len(pairs) for part in parts.values()]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def read_lines(read, lines, relations=("place_of_birth",), **options):
    return read(documents_of("facts.jsonl", "\n".join(map(json.dumps, lines)).encode()), relations, **options)


def test_google_re_lines_are_read_without_facts_that_raters_reject():
    def line(subject, *judgments):
        ids = {"pred": "/people/person/place_of_birth", "sub": "/m/02bbdh", "obj": "/m/0f04v"}
        labels = {"sub_label": subject, "obj_label": "rome", "masked_sentences": [f"{subject} was born in [MASK] ."]}
        return ids | labels | {"judgments": [{"rater": "1", "judgment": judgment} for judgment in judgments]}

    lines = [line("ada", "yes", "no"), line("bob", "no", "no", "yes"), line("eve", "yes"), line("joe")]

    facts = read_lines(read_facts, lines, ["place_of_birth", "place_of_death"], split="random")

    assert facts == {
        "place_of_birth": {"train": (("ada", "rome"), ("eve", "rome"), ("joe", "rome")), "dev": (), "test": ()}
    }


def test_masked_sentences_of_concept_net_are_prompts_if_common():
    def line(subject, sentence):
        return {"pred": "AtLocation", "sub": subject, "obj_label": "room", "masked_sentences": [sentence]}

    common = [line(f"thing {n}", f"You find thing {n} in a [MASK].") for n in range(11)]
    rare = [line(f"thing {n}", f"A Thing {n} is in the [MASK].") for n in range(10)]
    ambiguous = [line("cat", "The cat likes cat food on the [MASK].")] * 11

    prompts = read_lines(read_prompts, common + rare + ambiguous, ["AtLocation"])

    assert prompts.texts == {"AtLocation": ["You find <ENT0> in a <ENT1>."]}


def test_origin_of_prompts_is_stated_by_folder_or_line(tmp_path):
    for folder in ("mine", "paraphrased", "mine_of_another_kind"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "P19.jsonl").write_text(json.dumps({"template": f"[X] {folder} [Y] ."}))
    stated = read_lines(read_prompts, [{"template": "[X] , [Y]", "origin": "mined"}], ["P19"])
    inside = read_prompts(documents_in(tmp_path / "mine"), ["P19"])

    prompts = read_prompts(documents_in(tmp_path), ["P19"])

    assert prompts.origins == {
        "P19": {"mined": ["<ENT0> mine <ENT1> ."], "paraphrased": ["<ENT0> paraphrased <ENT1> ."]}
    }
    assert len(prompts.texts["P19"]) == 3
    assert stated.origins == {"P19": {"mined": ["<ENT0> , <ENT1>"]}}
    assert inside.origins == {"P19": {"mined": ["<ENT0> mine <ENT1> ."]}}
    with pytest.raises(ImportRefused, match="has the origin 'dreamed'; use mined, paraphrased, manual"):
        read_lines(read_prompts, [{"template": "[X] , [Y]", "origin": "dreamed"}], ["P19"])
