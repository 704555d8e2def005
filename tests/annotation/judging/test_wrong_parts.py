"""The second question after False: which part of the statement is wrong."""

import csv
import io
from random import Random
from uuid import uuid4

import pytest
from django.db import IntegrityError
from django.utils import timezone

from annotation.exchange.judgment_export import judgment_table
from annotation.exchange.judgment_import import import_judgments
from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch
from annotation.judging.sealing import JUDGMENTS
from annotation.judging.simulation import fill_with_simulated_judgments
from annotation.models import Judgment, JudgmentTask, Round
from annotation.rounds.services import close_round
from evaluation.reports.document import report_tables
from evaluation.reports.services import create_report
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.tables.formats import FORMATS
from tests.annotation.judging.test_api import answer, judge_of
from tests.api import error_of
from tests.factories import default_project, judge, judging_page, make_annotators, make_round, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def round(db) -> Round:
    return make_round([("dog", "fly"), ("cat", "bark")], name="pilot", judgments_per_task=1, asks_wrong_part=True)


@pytest.fixture
def task(round) -> JudgmentTask:
    return round.tasks.first()


@pytest.fixture
def annotator(round):
    [annotator] = make_annotators(round, 1)
    next_batch(annotator, timezone.now())
    return annotator


@pytest.mark.parametrize("part", ["0", "1", "relation"])
def test_wrong_part_is_stored_with_false(part, annotator, task):
    assert judge(annotator, task, "false", wrong_part=part).wrong_part == part


@pytest.mark.parametrize(("label", "part"), [("false", ""), ("false", "2"), ("false", "x"), ("true", "0")])
def test_invalid_wrong_part_is_rejected(label, part, annotator, task):
    with pytest.raises(DomainError) as refusal:
        judge(annotator, task, label, wrong_part=part)
    assert refusal.value.code == "BadAnswer"
    assert not Judgment.objects.exists()


def test_other_rounds_reject_wrong_parts():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = next_batch(annotator, timezone.now())

    with pytest.raises(DomainError):
        judge(annotator, task, "false", wrong_part="0")
    assert judge(annotator, task, "false").wrong_part == ""


def test_changed_answer_replaces_the_wrong_part(annotator, task):
    for label, part in (("false", "0"), ("true", ""), ("false", "relation")):
        judge(annotator, task, label, wrong_part=part)

    [current] = Judgment.objects.current()
    assert current.wrong_part == "relation"
    task.refresh_from_db()
    assert (task.n_judgments, task.n_false) == (1, 1)


@pytest.mark.parametrize("change", [{"wrong_part": "0"}, {"label": "false", "wrong_part": "9"}])
def test_database_rejects_invalid_wrong_parts(change, annotator, task):
    judge(annotator, task, "true")

    with pytest.raises(IntegrityError):
        Judgment.objects.update(**change)


def test_api_sends_slots_and_returns_the_wrong_part(round):
    client, address = judge_of(round)
    statements = client.get(address).json()["tasks"]
    assert sorted(statement["slots"] for statement in statements) == [["cat", "bark"], ["dog", "fly"]]

    missing = answer(client, address, statements[0]["task"], "false")
    assert (missing.status_code, error_of(missing)["code"]) == (409, "BadAnswer")
    assert answer(client, address, statements[0]["task"], "false", wrong_part="1").status_code == 200
    [recent] = client.get(f"{address}recent/").json()["answers"]
    assert (recent["label"], recent["wrong_part"]) == ("false", "1")


def page_client(client, round):
    user = make_user()
    join_round(round, user)
    client.force_login(user)
    return client


def test_form_asks_after_false_without_scripts(client, round):
    client = page_client(client, round)
    [row, *_] = client.get(judging_page()).context["rows"]
    sent = {"task": row["task"], "client_uuid": str(uuid4())}

    asked = client.post(judging_page(), sent | {"label": "false"})
    assert asked.status_code == 409
    assert '<fieldset class="wrong-part" data-wrong-part>' in asked.text

    client.post(judging_page(), sent | {"label": "false", "wrong_part": "relation"})
    assert Judgment.objects.values_list("label", "wrong_part").get() == ("false", "relation")


def test_page_of_statements_stores_wrong_parts_without_scripts(client, round):
    client = page_client(client, round)
    Round.objects.update(layout="page")
    tokens = [row["task"] for row in client.get(judging_page()).context["rows"]]
    form = {"row": tokens}
    for token, label in zip(tokens, ("false", "true"), strict=True):
        form |= {f"{token}-task": token, f"{token}-client_uuid": str(uuid4()), f"{token}-label": label}
        form[f"{token}-wrong_part"] = "0"  # the second row was False before it was changed to True

    client.post(judging_page(page="page/"), form)

    assert sorted(Judgment.objects.values_list("label", "wrong_part")) == [("false", "0"), ("true", "")]


def test_simulation_chooses_wrong_parts():
    round = make_round(20, source="simulated", judgments_per_task=1, asks_wrong_part=True)

    fill_with_simulated_judgments(round, lambda _: 0.2, Random(1), n_annotators=1)

    parts = Judgment.objects.filter(label="false").values_list("wrong_part", flat=True)
    assert set(parts) == {"0", "1", "relation"}


def test_sealed_wrong_part_cannot_be_altered(annotator, task):
    judgment = judge(annotator, task, "false", wrong_part="0")
    recorded = JUDGMENTS.row_hashes([judgment.pk])

    Judgment.objects.update(wrong_part="1")

    assert JUDGMENTS.are_as_recorded(recorded, 1) == {str(judgment.pk): False}


# Files and reports


def exported_rows(round) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(FORMATS["csv"].write(judgment_table(round))))))


def test_export_has_the_columns_of_the_options_only(round):
    plain = [column.title for column in judgment_table(make_round(1)).columns]

    assert [column.title for column in judgment_table(round).columns] == [*plain, "wrong_part"]


def test_exported_wrong_parts_can_be_imported(tmp_path, round, annotator):
    for task in round.tasks.all():
        judge(annotator, task, "false", wrong_part="01"[task.position])
    path = tmp_path / "judgments.csv"
    path.write_text("".join(FORMATS["csv"].write(judgment_table(round))), encoding="utf-8")

    import_judgments(path, "again", create=True, project=default_project())

    again = Round.objects.get(name="again")
    rows = [sorted((row["statement"], row["wrong_part"]) for row in exported_rows(part)) for part in (round, again)]
    assert [part for _, part in sorted(rows[1])] == [part for _, part in sorted(rows[0])]


@pytest.mark.parametrize(("label", "part"), [("true", "0"), ("false", "2"), ("false", "x")])
def test_invalid_wrong_part_in_a_file_is_rejected(label, part, tmp_path):
    path = tmp_path / "judgments.csv"
    path.write_text(f'relation,entities,annotator,label,wrong_part\ncan,"[""a"", ""b""]",ann,{label},{part}\n')

    with pytest.raises(ImportRefused):
        import_judgments(path, "again", create=True, project=default_project())


def test_report_counts_wrong_parts_by_relation(round):
    annotators = make_annotators(round, 1)
    labels = iter([("false", "0"), ("true", "")])
    for annotator in annotators:
        for task in next_batch(annotator, timezone.now()):
            label, part = next(labels)
            judge(annotator, task, label, wrong_part=part)
    close_round(round)

    [table] = [table for table in report_tables(create_report(round).document) if table.name == "wrong-parts"]

    relation = round.tasks.first().knowledge_tuple.relation.name
    assert [tuple(row.values) for row in table.rows] == [(relation, "slot 0", 1, 1.0)]
