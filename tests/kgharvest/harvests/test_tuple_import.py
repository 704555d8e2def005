"""Import of tuples from files."""

from __future__ import annotations

import json
from math import log
from pathlib import Path

import pytest

from kgharvest.errors import ImportRefused
from kgharvest.harvests.tuple_files import Cell, export_tuples, import_tuples
from kgharvest.models import HarvestedTuple, HarvestJob, Job, KnowledgeTuple, Relation
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def cell() -> Cell:
    return Cell(factories.make_relation("prevent"), factories.make_language_model("roberta-large"), "multi")


def write(folder: Path, text: str, name: str = "tuples.jsonl") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def ranked(job: HarvestJob) -> list[tuple]:
    return list(job.tuples.order_by("rank").values_list("rank", "knowledge_tuple__entities", "surface", "score"))


def test_jsonl_becomes_a_finished_job_ranked_by_score(tmp_path, cell):
    text = lines(
        {"entities": ["dam", "flood"], "score": -3.5, "mtl": -2},
        {"entities": ["vaccine", "measles"], "surface": ["Vaccine", "measles"], "score": -1},
    )

    job = import_tuples(write(tmp_path, text), cell)

    assert ranked(job) == [
        (1, ["vaccine", "measles"], ["Vaccine", "measles"], -1.0),
        (2, ["dam", "flood"], ["dam", "flood"], -3.5),
    ]
    assert (job.status, job.origin, job.score_scale, job.n_tuples) == ("succeeded", "imported", "nats", 2)
    assert job.tuples.get(rank=2).mtl == -2


def test_reference_format_yields_log_shares(tmp_path, cell):
    text = '[\n [["Vaccine", "measles"], 0.75],\n [["dam", "flood"], 0.25]\n]'

    job = import_tuples(write(tmp_path, text, "ent_tuples.json"), cell)

    assert job.score_scale == HarvestJob.ScoreScale.LOG_SHARE
    assert [score for *_, score in ranked(job)] == pytest.approx([log(0.75), log(0.25)])


def test_exported_csv_can_be_imported(tmp_path, cell):
    exported = "".join(export_tuples(factories.make_harvest([["dam", "flood"]], relation=cell.relation), None, "csv"))

    job = import_tuples(write(tmp_path, exported, "tuples.csv"), cell)

    assert ranked(job) == [(1, ["dam", "flood"], ["dam", "flood"], -1.0)]


def test_best_of_tuples_equal_after_case_folding_is_kept(tmp_path, cell):
    text = lines(
        {"entities": ["DAM", "flood"], "score": -2}, {"entities": ["dam", "Flood"], "score": -1},
    )  # fmt: skip

    job = import_tuples(write(tmp_path, text), cell)

    assert ranked(job) == [(1, ["dam", "flood"], ["dam", "Flood"], -1.0)]
    assert job.summary["rows"] == 2


def test_jobs_share_equal_knowledge_tuples(tmp_path, cell):
    path = write(tmp_path, lines({"entities": ["dam", "flood"], "score": -2}))

    import_tuples(path, cell)
    import_tuples(path, cell)

    assert KnowledgeTuple.objects.count() == 1
    assert HarvestedTuple.objects.count() == 2


def test_all_bad_rows_are_listed_with_their_lines_and_nothing_stored(tmp_path, cell):
    text = (
        lines({"entities": ["dam", "flood"], "score": -2})
        + '{"entities": ["dam" 1]}\n\n'
        + lines(
            {"entities": ["dam"], "score": -1},
            {"entities": ["dam", ""], "score": -1},
            {"entities": ["dam", "x\u0000"], "score": -1},
            {"entities": ["dam", "mud"]},
            {"entities": ["dam", "mud"], "score": "high"},
            {"entities": ["dam", "mud"], "score": -1, "relation": "help"},
        )
        + "[1, 2]\n"
    )

    with pytest.raises(ImportRefused) as refusal:
        import_tuples(write(tmp_path, text), cell)

    assert [entry.where for entry in refusal.value.entries] == [
        "line 2, column 21",
        *(f"line {number}" for number in range(4, 11)),
    ]
    assert "belongs to the relation 'help', not 'prevent'" in str(refusal.value)
    assert not Job.objects.exists()
    assert not KnowledgeTuple.objects.exists()


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ('[[["dam", "flood"], 0.5],\n [["dam"], 0.5]]', "line 2: has no list of 2 entities"),
        ('[[["dam", "flood"], 0.5],\n\n [["dam", "mud"] 0.5]]', "line 3, column 18"),
        ('[[["dam", "flood"], 0.5]\n [["dam", "mud"], 0.5]]', "line 2, column 2"),
        ('[[["dam", "flood"], 1.5]]', "line 1: has the weight 1.5"),
        ('[[["dam", "flood"], 0.5]', "line 1, column 25"),
        ("[]", "file: has no tuples"),
        ("", "line 1: missing column: entities, score"),
        ('entities,score\n"[""dam"", ""flood""]",-1\n"[""dam""",-1', "line 3: column entities"),
        ("entities,mtl\n", "line 1: missing column: score"),
    ],
)
def test_malformed_file_error_names_the_location(tmp_path, cell, text, location):
    with pytest.raises(ImportRefused) as refusal:
        import_tuples(write(tmp_path, text, "tuples"), cell)

    assert f"rejected because of an error in {location}" in str(refusal.value)
    assert not Job.objects.exists()


@pytest.mark.slow
def test_all_published_harvests_are_imported(public_data):
    paths = sorted((public_data / "bertnet/results/human").rglob("ent_tuples.json"))
    model = factories.make_language_model()
    relations: dict[str, Relation] = {}

    assert len(paths) >= 42
    for path in paths:
        published = json.loads(path.read_text())
        name, arity = path.parent.name, len(published[0][0])
        relations[name] = relations.get(name) or factories.make_relation(name, arity=arity)
        job = import_tuples(path, Cell(relations[name], model, "human"))

        distinct = {tuple(entity.casefold() for entity in entities) for entities, _ in published}
        assert job.n_tuples == len(distinct) == job.tuples.count()
        assert job.tuples.get(rank=1).surface == published[0][0]


@pytest.mark.slow
def test_importing_ten_thousand_tuples_takes_about_a_second(tmp_path, cell):
    from time import process_time

    text = lines(*({"entities": [f"dog {i}", f"trick {i % 97}"], "score": -i / 10} for i in range(10_000)))
    path = write(tmp_path, text)

    started = process_time()
    import_tuples(path, cell)

    assert process_time() - started < 3  # 0.6 s on a quiet machine
