"""Import of KGs as finished harvests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import call_command

from kgharvest.contrib.knowledge_graphs.imports.kg_import import import_kg
from kgharvest.contrib.knowledge_graphs.imports.mapping import (
    BadMapping,
    existing_target,
    new_target,
    read_mapping,
    targets_by_name,
)
from kgharvest.contrib.knowledge_graphs.imports.statements import StagedKG, read_ntriples
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.models import HarvestJob, Job, KnowledgeTuple, LanguageModel, Launch, Relation
from tests import factories

pytestmark = pytest.mark.django_db


def write(folder: Path, text: str, name: str = "kg.tsv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def import_file(path: Path, labels: Path | None = None, **templates: str) -> dict[str, list[tuple]]:
    """Import with a template for each relation; return rank, surface, and score of the tuples by relation."""
    with StagedKG(path, labels=labels) as staged:
        targets = {name: new_target(name.rpartition("/")[2], template) for name, template in templates.items()}
        result = import_kg(staged, "GPTKB", targets)
    return {
        job.relation.name: list(job.tuples.order_by("rank").values_list("rank", "surface", "score"))
        for job in result.jobs
    }


BORN = "[HEAD] was born in [TAIL]."
FILES = {
    "kg.tsv": "Ada\tborn\tLondon\t0.5\nAlan\tborn\tMaida Vale\t0.75\n",
    "named.tsv": "subject\tconfidence\tobject\tpredicate\nAda\t0.5\tLondon\tborn\nAlan\t0.75\tMaida Vale\tborn\n",
    "kg.csv": 'head,relation,tail,score\nAda,born,London,0.5\nAlan,born,"Maida Vale",0.75\n',
    "kg.jsonl": '{"head": "Ada", "relation": "born", "tail": "London", "score": 0.5}\n\n'
    '{"entities": ["Alan", "Maida Vale"], "relation": "born", "score": 0.75}\n',
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_format_imports_the_same_tuples(tmp_path, name):
    tuples = import_file(write(tmp_path, FILES[name], name), born=BORN)

    assert tuples == {"born": [(1, ["Alan", "Maida Vale"], 0.75), (2, ["Ada", "London"], 0.5)]}
    job = HarvestJob.objects.get()
    assert (job.status, job.origin, job.setting, job.score_scale) == ("succeeded", "imported", "imported", "own")
    assert job.language_model.name == "GPTKB"


def test_iris_without_labels_use_their_last_part(tmp_path):
    text = (
        "# a comment\n"
        "<http://kb.org/Ada_Lovelace> <http://kb.org/p#born> <http://kb.org/S%C3%A3o_Paulo> .\n"
        '<http://kb.org/Alan> <http://kb.org/p#born> "Maida \\u0056ale"@en . # here\n'
        '_:b <http://kb.org/p#born> "1912"^^<http://www.w3.org/2001/XMLSchema#gYear> .\n'
    )

    with StagedKG(write(tmp_path, text, "kg.nt")) as staged:
        import_kg(staged, "KB", {"http://kb.org/p#born": new_target("born", BORN)})

    surfaces = [tuple_.surface for tuple_ in HarvestJob.objects.get().tuples.order_by("rank")]
    assert surfaces == [["Ada Lovelace", "São Paulo"], ["Alan", "Maida Vale"], ["_:b", "1912"]]


def test_labels_replace_ids(tmp_path):
    labels = write(tmp_path, "Q1\tAda Lovelace\n<http://kb.org/Q2>\tLondon\n", "labels.tsv")

    assert import_file(write(tmp_path, "Q1\tborn\tQ3\n"), labels, born=BORN)["born"] == [
        (1, ["Ada Lovelace", "Q3"], -1.0)
    ]
    with StagedKG(write(tmp_path, "<http://kb.org/Q2> <urn:p:in> <urn:x:Q1> .\n", "kg.nt"), labels=labels) as staged:
        [statement] = staged.statements("urn:p:in")
    assert (statement.head, statement.tail) == ("London", "Q1")


def test_unscored_tuples_rank_in_file_order(tmp_path):
    path = write(tmp_path, "b\tr\tx\na\tr\tx\nB\tr\tx\nc\tr\tx\n")

    tuples = import_file(path, r="[HEAD] has [TAIL].")

    assert tuples == {"r": [(1, ["b", "x"], -1.0), (2, ["a", "x"], -2.0), (3, ["c", "x"], -3.0)]}
    assert HarvestJob.objects.get().score_scale == "order"
    assert not HarvestJob.objects.get().is_scored


def test_qualifiers_fill_further_slots(tmp_path):
    lines = [
        {"head": "Ada", "relation": "born", "tail": "London", "qualifiers": {"P585": 1815, "source": "gptkb"}},
        {"head": "Alan", "relation": "born", "tail": "London", "qualifiers": {"P585": "1912"}},
    ]

    tuples = import_file(
        write(tmp_path, "\n".join(map(json.dumps, lines)), "kg.jsonl"),
        born="[HEAD] was born in [TAIL] in the year [P585].",
    )

    assert [surface for _, surface, _ in tuples["born"]] == [["Ada", "London", "1815"], ["Alan", "London", "1912"]]
    assert Relation.objects.get().statement == "<ENT0> was born in <ENT1> in the year <ENT2>."


def test_mapped_relations_form_one_launch_and_unmapped_are_counted(tmp_path):
    path = write(tmp_path, "a\tr\tb\na\ts\tb\na\tu\tb\nA\tr\tB\nc\tr2\td\n")
    has = factories.make_relation("has", relation_set=factories.make_relation_set("own"))

    with StagedKG(path) as staged:
        assert next((relation.name, relation.n_statements) for relation in staged.relations()) == ("r", 2)
        existing = existing_target("own/has", Relation.objects.all())
        result = import_kg(
            staged, "KB 1", {"r": existing, "r2": existing, "s": new_target("sees", "[TAIL] is seen by [HEAD].")}
        )

    assert [(job.relation.path, job.n_tuples) for job in result.jobs] == [("own/has", 2), ("kb-1/sees", 1)]
    assert (result.n_left_out, result.n_repeated) == (1, 1)
    assert result.launch.jobs.count() == 2
    assert result.jobs[1].tuples.get().surface == ["b", "a"]
    assert has.knowledge_tuples.count() == 2


def test_repeated_import_reuses_new_relations(tmp_path):
    path = write(tmp_path, "a\tr\tb\n")

    import_file(path, r="[HEAD] has [TAIL].")
    import_file(path, r="[HEAD] has [TAIL].")

    assert Relation.objects.count() == 1
    assert len(set(HarvestJob.objects.values_list("fingerprint", flat=True))) == 1
    with pytest.raises(ImportRefused, match="with a different statement"):
        import_file(path, r="[HEAD] owns [TAIL].")


@pytest.mark.parametrize(
    ("name", "text", "location"),
    [
        ("kg.tsv", "a\tr\tb\na\tr\n", "line 2: has 2 columns instead of 3"),
        ("kg.tsv", "a\tr\tb\n\na\t\tb\n", "line 3, column 2: has no relation"),
        ("kg.tsv", "a\tr\tb\t0.1\na\tr\tc\thigh\n", "line 2, column 4: the score 'high' is not a number"),
        ("kg.tsv", "a\tr\tb\tnan\n", "line 1, column 4"),
        ("kg.tsv", "a\tr\tb\t0.1\na\tr\tc\t\n", "line 2: has no score, but other"),
        ("kg.tsv", "a\tr\t" + "x" * 5000 + "\n", "line 1: has an entity of more than"),
        ("kg.tsv", "a\tr\tb\x00\n", "line 1: has an entity with a control"),
        ("kg.tsv", "", "file: has no statements"),
        ("kg.csv", 'head,relation,tail\na,r,"b\n', "line 2: is not CSV"),
        (
            "kg.nt",
            "<urn:a> <urn:r> <urn:b> .\n<urn:a> r <urn:b> .\n",
            "line 2, column 9: is not a valid N-Triples statement",
        ),
        ("kg.nt", '<urn:a> <urn:r> "b\\uD800" .\n', "line 1: has an escape sequence for an invalid character"),
        ("kg.jsonl", '{"head": "a", "relation": "r"}\n', 'line 1: has neither "head"'),
        ("kg.jsonl", '{"head": "a" "b"}\n', "line 1, column 14: is not JSON"),
        ("kg.tsv", "head\trelation\ttail\nA\tr\t\n", "line 2, column 3: has no tail"),
    ],
)
def test_errors_are_located_and_nothing_is_stored(tmp_path, name, text, location):
    with pytest.raises(ImportRefused) as refusal:
        import_file(write(tmp_path, text, name), r="[HEAD] has [TAIL].")

    assert f"{name}: rejected because of an error in {location}" in str(refusal.value)
    for model in (Job, KnowledgeTuple, Relation, LanguageModel, Launch):
        assert not model.objects.exists()


def test_mapping_file_maps_relations_to_targets(tmp_path):
    relation = factories.make_relation("lives", relation_set=factories.make_relation_set("own"), arity=3)
    mapping = {
        "relations": {
            "r": {"relation": "own/lives", "slots": ["since"]},
            "s": {"name": "sees", "template": "[HEAD] sees [TAIL]."},
        }
    }

    targets = read_mapping(json.dumps(mapping), "m.json", Relation.objects.all())

    assert targets["r"].relation == relation
    assert list(targets["r"].slots) == ["HEAD", "TAIL", "since"]
    assert targets["s"].statement == "<ENT0> sees <ENT1>."


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ("[]", "is missing or empty"),
        ('{"relations": {"r": 5}}', "Expected a relation name"),
        ('{"relations": {"r": "made/up"}}', "There is no relation"),
        ('{"relations": {"r": {"template": "[HEAD] sees."}}}', "must contain both [HEAD] and [TAIL]"),
        ('{"relations": {"r": {"template": "[HEAD] [TAIL]"}}}', "contains only slots"),
        ('{"relations": {"r": {"relation": "x", "template": "[HEAD] is [TAIL]"}}}', "Use either relation"),
        ('{"relations": {"r": {"relation": "x", "sltos": []}}}', "Unknown keys: sltos"),
        ("{", "is not JSON"),
    ],
)
def test_bad_mapping_is_rejected(mapping, reason):
    with pytest.raises(ImportRefused) as refusal:
        read_mapping(mapping, "m.json", Relation.objects.all())
    assert reason in str(refusal.value)


def test_mapped_relation_missing_from_the_file_is_rejected(tmp_path):
    with StagedKG(write(tmp_path, "a\tr\tb\n")) as staged, pytest.raises(BadMapping, match="has no relation 'q'"):
        import_kg(staged, "KB", {"q": new_target("q", "[HEAD] has [TAIL].")})


def test_relations_with_the_same_name_are_mapped_automatically(tmp_path):
    factories.make_relation("born_in")

    targets = targets_by_name(["http://kb.org/born_in", "died"], Relation.objects.all())

    assert list(targets) == ["http://kb.org/born_in"]


def test_command_imports_by_name_and_prints_skipped_statements(tmp_path, capsys):
    factories.make_relation("r")

    call_command("import_kg", write(tmp_path, "a\tr\tb\nc\ts\td\n"), "--name", "GPTKB")

    out = capsys.readouterr().out
    assert "1 tuple of r × GPTKB × imported" in out
    assert "1 statements of unmapped relations" in out


def test_command_lists_relations_without_an_existing_name(tmp_path):
    with pytest.raises(Exception, match=r"2  r"):
        call_command("import_kg", write(tmp_path, "a\tr\tb\nc\tr\td\n"), "--name", "GPTKB")
    assert issubclass(BadMapping, DomainError)


def test_apostrophe_is_kept_alone_and_removed_before_a_formula(tmp_path):
    with StagedKG(write(tmp_path, "head,relation,tail\n','is,'=1+1\n".replace("','", "',"), "kg.csv")) as kg:
        assert [(row.head, row.tail) for row in kg.statements("is")] == [("'", "=1+1")]


def test_long_invalid_triple_is_rejected_in_linear_time():
    line = f"<urn:a> <urn:b> <urn:c> .{' ' * 300_000}x"  # quadratic time would take hours

    [error] = read_ntriples([line], lambda name, default: default)
    assert error.where == "line 1, column 17"
