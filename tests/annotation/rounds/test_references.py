"""References: links and imported texts under the statements of a round."""

import json

import pytest

from annotation.judging.assignment import next_batch
from annotation.rounds.models import Round
from annotation.rounds.references import additions_of
from annotation.rounds.services import open_round
from evaluation.reports.services import create_report
from kgharvest.bulk.file_values import BadValue, read_references
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.harvests.tuple_files import Cell, export_tuples, import_tuples
from tests import factories
from tests.annotation.gold.test_gold import gold_round
from tests.annotation.judging.test_api import answer, judge_of
from tests.factories import default_project, judge, make_annotators, make_round

pytestmark = pytest.mark.django_db

SEARCH = "https://en.wikipedia.org/w/index.php?search={head}+{relation}+{tail}"


def references_of(**options) -> list[tuple[str, str]]:
    round = Round(**options)
    additions = additions_of(
        round, "capital_of", ["Paris & co", "Île"], "Paris & co is the capital of Île.", ["a text"]
    )
    return [(reference["text"], reference["url"]) for reference in additions["references"]]


def test_placeholders_are_percent_encoded():
    assert references_of(reference_links=SEARCH) == [
        ("en.wikipedia.org", "https://en.wikipedia.org/w/index.php?search=Paris%20%26%20co+capital%20of+%C3%8Ele")
    ]


def test_entity_placeholder_gives_a_link_per_entity():
    links = "Wiki pedia https://w.org/{entity}\n\nhttp://s.org/?q={statement}"

    assert references_of(reference_links=links) == [
        ("Wiki pedia: Paris & co", "https://w.org/Paris%20%26%20co"),
        ("Wiki pedia: Île", "https://w.org/%C3%8Ele"),
        ("s.org", "http://s.org/?q=Paris%20%26%20co%20is%20the%20capital%20of%20%C3%8Ele."),
    ]


@pytest.mark.parametrize(
    "links",
    [
        *("javascript:alert(1)", "ftp://x.org/{head}", "//x.org/{head}", "x.org/{head}", "https:///{head}"),
        *("https://{head}.org/", "https://x.org/{score}", "https://x.org/{head", "https://x.org/{}", "https://["),
        "https://x.org/\n" * 11,
    ],
)
def test_invalid_links_are_rejected(links):
    with pytest.raises(DomainError, match=r"^reference_links: ") as refusal:
        make_round(3, reference_links=links)
    assert refusal.value.code == "BadRoundSpec"


def test_rounds_without_options_send_only_statements():
    client, address = judge_of(make_round(3))

    assert [statement.keys() for statement in client.get(address).json()["tasks"]] == [{"task", "parts"}] * 3


def test_gold_has_the_same_links_as_other_statements():
    round = gold_round(8, 2, gold_share=0.2, reference_links="https://x.org/{head}\nTail https://x.org/{tail}")

    assert round.tasks.gold().exists()
    for task in round.tasks.all():
        head, tail = (entity.replace(" ", "%20") for entity in task.entities)
        assert task.additions["references"] == [
            {"text": "x.org", "url": f"https://x.org/{head}"},
            {"text": "Tail", "url": f"https://x.org/{tail}"},
        ]


# Imported references


def import_file(tmp_path, text: str, setting: str = "multi", relation=None):
    path = tmp_path / f"tuples-{setting}"
    path.write_text(text, encoding="utf-8")
    relation = relation or factories.make_relation("can")
    return import_tuples(path, Cell(relation, factories.make_language_model(), setting), project=default_project())


def jsonl(*rows) -> str:
    return "".join(
        json.dumps({"entities": entities, "score": -1, **({"references": references} if references else {})}) + "\n"
        for entities, references in rows
    )


def round_on(*jobs, **options):
    document = {"name": "imported", "cells": [{"job": job.pk, "n": None} for job in jobs], "imported_references": True}
    return open_round(document | options, None, default_project())


def test_imported_references_are_shown_and_exported(tmp_path):
    rows = [(["dog", "swim"], ["https://x.org/dogs/", "Dogs paddle."]), (["cat", "fly"], None)]
    job = import_file(tmp_path, jsonl(*rows))

    tasks = {task.entities[0]: task.additions["references"] for task in round_on(job).tasks.all()}

    assert tasks["dog"] == [{"text": "x.org/dogs", "url": "https://x.org/dogs/"}, {"text": "Dogs paddle.", "url": ""}]
    assert tasks["cat"] == []
    exported = {row["entities"][0]: row.get("references") for row in map(json.loads, export_tuples(job))}
    assert exported == {"dog": ["https://x.org/dogs/", "Dogs paddle."], "cat": None}


def test_exported_csv_restores_references(tmp_path):
    job = import_file(tmp_path, jsonl((["dog", "swim"], ["https://x.org", "[a]"]), (["cat", "fly"], None)))
    again = import_file(tmp_path, "".join(export_tuples(job, file_format="csv")), "again", job.relation)

    assert sorted(again.tuples.values_list("knowledge_tuple__key", "references")) == [
        ("cat\x1ffly", None),
        ("dog\x1fswim", ["https://x.org", "[a]"]),
    ]


@pytest.mark.parametrize(
    ("value", "references"),
    [
        (None, ()),
        ("", ()),
        ("https://x.org http://y.org/a", ("https://x.org", "http://y.org/a")),
        ("See https://x.org", ("See https://x.org",)),
        ('["a", "b c"]', ("a", "b c")),
    ],
)
def test_references_are_read_from_texts(value, references):
    assert read_references(value) == references


@pytest.mark.parametrize("value", ["[1", 5, {}, ["a"] * 11, [""], [1], ["a\x00"], "a" * 2001])
def test_invalid_references_are_rejected(value):
    with pytest.raises(BadValue, match=r"^references: "):
        read_references(value)


def test_invalid_reference_names_its_line(tmp_path):
    with pytest.raises(ImportRefused) as refusal:
        import_file(tmp_path, jsonl((["dog", "swim"], None), (["cat", "fly"], ["\x00"])))
    assert [entry.where for entry in refusal.value.entries] == ["line 2"]


def test_imported_references_exclude_gold(tmp_path):
    job = import_file(tmp_path, jsonl((["dog", "swim"], ["a"])))

    with pytest.raises(DomainError, match=r"^imported_references: "):
        round_on(job, gold_share=0.1)


def test_several_settings_need_references_on_all_statements(tmp_path):
    job = import_file(tmp_path, jsonl((["dog", "swim"], ["a"])))
    other = import_file(tmp_path, jsonl((["dog", "swim"], ["b"]), (["cat", "fly"], None)), "other", job.relation)

    with pytest.raises(DomainError) as refusal:
        round_on(job, other)
    assert refusal.value.code == "MissingReferences"

    complete = import_file(tmp_path, jsonl((["dog", "swim"], ["b", "a"])), "complete", job.relation)
    [task] = round_on(job, complete).tasks.all()
    assert [reference["text"] for reference in task.additions["references"]] == ["a", "b"]


def test_references_are_required_if_none_was_imported(tmp_path):
    with pytest.raises(DomainError) as refusal:
        round_on(import_file(tmp_path, jsonl((["dog", "swim"], None))))
    assert refusal.value.code == "MissingReferences"


# Opened references


def test_opened_reference_is_stored_with_the_answer():
    round = make_round(3, name="pilot", reference_links="https://x.org/{head}")
    client, address = judge_of(round)
    tasks = client.get(address).json()["tasks"]
    assert [len(statement["references"]) for statement in tasks] == [1, 1, 1]

    for statement, opened in zip(tasks, ({"opened_reference": True}, {"opened_reference": False}, {}), strict=True):
        answer(client, address, statement["task"], **opened)

    recent = client.get(f"{address}recent/").json()["answers"]
    assert [entry["opened_reference"] for entry in recent] == [None, False, True]


def test_changed_answer_keeps_the_opened_reference():
    round = make_round(1, reference_links="https://x.org/{head}")
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, factories.timezone.now())

    judge(annotator, task, opened_reference=True)
    assert judge(annotator, task, "false", opened_reference=False).opened_reference is True


def test_rounds_without_references_store_nothing():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = next_batch(annotator, factories.timezone.now())

    assert judge(annotator, task, opened_reference=True).opened_reference is None


def test_report_counts_opened_references():
    round = make_round(4, judgments_per_task=1, reference_links="https://x.org/{head}")
    [annotator] = make_annotators(round, 1)
    for number, task in enumerate(next_batch(annotator, factories.timezone.now())):
        judge(annotator, task, opened_reference=[True, False, False, None][number])

    answers = create_report(round).document["conduct"]["answers"]

    assert answers == {"n_with_references": 3, "n_opened_reference": 1, "wrong_parts": []}
