"""Facts from ConceptNet's assertions, filtered as in Appendix B of BertNet. The assertions are made up."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from evaluation.scores.facts import facts_of_content
from kgharvest.contrib.knowledge_graphs.imports.conceptnet import filtered_facts
from kgharvest.errors import ImportRefused
from tests.factories import make_relation, make_relation_set


def assertion(relation: str, head: str, tail: str, weight: float, language: str = "en") -> str:
    start, end = f"/c/{language}/{head}", f"/c/{language}/{tail}/n/wn"
    return f"/a/[{relation}]\t/r/{relation}\t{start}\t{end}\t{json.dumps({'weight': weight})}\n"


LINES = [
    assertion("UsedFor", "ice_cream", "dessert", 2.0),
    assertion("UsedFor", "ice_cream", "dessert", 4.0),
    assertion("UsedFor", "pen", "writing", 1.5),
    assertion("UsedFor", "pen", "stabbing", 1.0),
    assertion("UsedFor", "stylo", "ecrire", 2.0, "fr"),
    assertion("IsA", "oak", "tree", 3.0),
    assertion("IsA", "cod", "fish", 3.0),
    assertion("RelatedTo", "oak", "tree", 9.0),
    assertion("EtymologicallyDerivedFrom", "oak", "ac", 9.0),
    assertion("Causes", "rain", "flood", 2.0),
    assertion("HasA", "car", "wheel", 2.0),
    assertion("HasA", "dog", "tail", 2.0),
]


def write(folder, lines):
    (folder / "assertions.csv").write_text("".join(lines))
    return folder / "assertions.csv"


def test_facts_pass_the_filter_of_the_appendix(tmp_path):
    facts, skipped = filtered_facts(write(tmp_path, LINES), {"used_for", "kind_of", "causes"}, min_facts=2)

    assert [(row["relation"], row["entities"], row["weight"]) for row in sorted(facts, key=str)] == [
        ("kind_of", ["cod", "fish"], 3.0),
        ("kind_of", ["oak", "tree"], 3.0),
        ("used_for", ["ice cream", "dessert"], 4.0),
        ("used_for", ["pen", "writing"], 1.5),
    ]
    assert skipped == {
        "duplicates": 1,
        "with a weight of at most 1": 1,
        "not English": 1,
        "of linguistic or trivial relations": 2,
        "of relations with fewer than 2": 1,
        "of relations that the set lacks": 2,
    }


def test_facts_with_empty_or_equal_entities_are_skipped(tmp_path):
    lines = [
        assertion("UsedFor", "pen", "writing", 2.0),
        assertion("UsedFor", "/n", "writing", 2.0),
        assertion("UsedFor", "pen", "_", 2.0),
        assertion("UsedFor", "knife", "knife", 2.0),
    ]

    facts, skipped = filtered_facts(write(tmp_path, lines), {"used_for"}, min_facts=1)

    assert [row["entities"] for row in facts] == [["pen", "writing"]]
    assert skipped == {"with an empty or invalid entity": 2, "with equal entities": 1}


def test_sample_depends_on_the_seed_only(tmp_path):
    path = write(tmp_path, [assertion("UsedFor", f"tool_{number}", "work", 2.0) for number in range(100)])

    samples = [[row["entities"] for row in filtered_facts(path, {"UsedFor"}, 1, 10, 5, seed)[0]] for seed in (0, 0, 1)]

    assert samples[0] == samples[1] != samples[2]
    assert len({*map(tuple, samples[0])}) == 5


@pytest.mark.django_db
def test_command_writes_facts_for_evaluate_scores(tmp_path):
    relation = make_relation("used_for")
    source, output, out = tmp_path / "assertions.csv", tmp_path / "facts.jsonl", StringIO()
    source.write_text("".join(LINES))

    options = ["--set", relation.relation_set.name, "--min-facts", "2", "--output", str(output)]
    call_command("conceptnet_facts", str(source), *options, stdout=out)

    [scored] = facts_of_content(output.read_bytes(), "facts.jsonl")
    assert scored.path == relation.path
    assert sorted(scored.facts) == [("ice cream", "dessert"), ("pen", "writing")]
    assert out.getvalue().startswith(f"{output}: 2 facts of 1 relation.\nSkipped: ")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a,b,c\n", "line 2: is not an assertion of ConceptNet"),
        ("/a\t/r/IsA\t/c/en/a\t/c/en/b\t{}\n", "line 2: is not an assertion"),
        ("/a\t/r/IsA\t/c/en/a\t/c/en/b\t{\n", "line 2: is not an assertion"),
    ],
)
def test_other_files_are_refused(tmp_path, line, complaint):
    with pytest.raises(ImportRefused, match=complaint):
        filtered_facts(write(tmp_path, [LINES[0], line]), {"used_for"})


@pytest.mark.django_db
def test_empty_files_are_refused(tmp_path):
    make_relation("used_for", relation_set=make_relation_set("facts"))
    output = tmp_path / "facts.jsonl"

    with pytest.raises(CommandError, match=r"assertions\.csv is empty\. .*ConceptNet"):
        call_command("conceptnet_facts", write(tmp_path, []), set_name="facts", output=output)

    assert not output.exists()
