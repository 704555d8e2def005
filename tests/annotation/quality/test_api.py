"""Annotators, statements, limits, adjudication, and events in the API."""

from __future__ import annotations

from copy import deepcopy
from uuid import uuid4

import pytest
from django.urls import reverse
from django.utils import timezone

from annotation.models import Adjudication, Judgment, Round
from annotation.quality.annotator_statistics import annotator_statistics
from annotation.quality.exclusion import exclusion_effect
from kgharvest.models import HarvestJob, Role
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def round_of_module(module_rows) -> Round:
    round = factories.make_round(4, name="pilot", judgments_per_task=3)
    factories.judge_all(
        round, ["true"] * 4, ["true", "true", "false", "false"], ["true", "false", "unjudgeable", "false"]
    )
    round.address = f"/api/v1/rounds/{round.pk}/"
    return round


@pytest.fixture
def round(round_of_module) -> Round:
    return deepcopy(round_of_module)


@pytest.fixture
def api(db):
    return client_of(factories.make_researcher("ada"))


def test_statement_of_harvest_without_scores_has_no_score(api, round, client, researcher):
    HarvestJob.objects.update(score_scale="order")
    task = round.tasks.first()

    [draw] = api.get(f"{round.address}tasks/{task.pk}/").json()["draws"]

    assert (draw["rank"], draw["score"]) == (1, None)
    client.force_login(researcher)
    assert (
        '<td class="num" data-unit="score">–</td>'
        in client.get(reverse("annotation:statement", args=[round.path, task.pk])).content.decode()
    )


# Annotators


def test_annotator_list_matches_annotator_statistics(api, round):
    rows = annotator_statistics(round, timezone.now()).content
    address = f"{round.address}annotators/"

    page = api.get(address, {"limit": 2}).json()
    shown = page["results"] + api.get(page["next"]).json()["results"]

    assert shown == [{key: row[key] for key in row if key != "pk"} for row in rows]
    assert api.get(f"{address}{rows[0]['code']}/").json() == shown[0] | {"exclusions": []}
    assert api.get(address, {"status": "paused"}).json()["results"] == []
    assert api.get(f"{address}nobody/").status_code == 404


def test_annotator_can_be_paused_resumed_and_erased(api, round):
    annotator = round.annotators.first()
    address = f"{round.address}annotators/{annotator.code}/"

    assert api.post(f"{address}pause/").json()["status"] == "paused"
    assert error_of(api.post(f"{address}pause/"))["code"] == "CannotPause"
    assert api.post(f"{address}resume/").json()["status"] == "active"
    assert error_of(api.post(f"{address}erase/"))["code"] == "NotAllowed"
    assert client_of(factories.make_member(Role.OWNER)).post(f"{address}erase/").json()["who"] == ""
    annotator.refresh_from_db()
    assert annotator.user is None
    kinds = [
        event["kind"] for event in api.get(f"{round.address}events/", {"annotator": annotator.code}).json()["results"]
    ]
    assert kinds == ["erased", "annotator_resumed", "annotator_paused", "joined"]


def test_exclusion_can_be_previewed_created_and_reversed(api, round):
    annotator = round.annotators.first()
    address = f"{round.address}annotators/{annotator.code}/exclusion/"
    before = exclusion_effect(annotator)

    assert api.get(address).json() == before
    assert api.post(address, {"reason": "\n"}, JSON).status_code == 400
    created = api.post(address, {"reason": "Too fast."}, JSON).json()
    assert (created["reason"], created["excluded_by"], created["n_judgments"]) == ("Too fast.", "ada", 4)
    assert Judgment.objects.counted().filter(annotator=annotator).count() == 0
    reversed_exclusion = api.delete(address).json()
    assert (reversed_exclusion["n_counted_again"], reversed_exclusion["reinstated_by"]) == (4, "ada")
    assert error_of(api.delete(address))["code"] == "NotExcluded"
    [listed] = api.get(f"{round.address}annotators/{annotator.code}/").json()["exclusions"]
    assert listed == reversed_exclusion


def test_limits_can_be_set_and_invalid_limits_are_rejected(api, round):
    address = f"{round.address}limits/"

    assert api.get(address).json()["gold_accuracy"] is None
    limits = {"gold_accuracy": 0.7, "n_gold": 12, "median_seconds": 1.5, "longest_run": None}
    assert api.put(address, limits, JSON).json() == limits
    assert api.get(address).json() == limits
    invalid = [
        {"gold_accuracy": 2},
        {"n_gold": 0},
        {"longest_run": 1},
        {"median_seconds": "x"},
        {"x": 1},
        [],
        {"n_gold": 10**30},
    ]
    assert [api.put(address, data, JSON).status_code for data in invalid] == [400] * len(invalid)
    [event, *_] = api.get(f"{round.address}events/", {"kind": "limits_set"}).json()["results"]
    assert (event["by"], event["annotator"], [*event["details"]]) == ("ada", None, ["limits"])
    assert event["sentence"].startswith("set limits: ")


# Statements


def test_statements_have_outcome_labels_and_draws(api, round):
    tasks = api.get(f"{round.address}tasks/").json()["results"]

    assert [task["position"] for task in tasks] == [0, 1, 2, 3]
    assert [task["outcome"] for task in tasks] == ["accepted", "accepted", "undecided", "rejected"]
    assert sorted(label["label"] for label in tasks[2]["labels"]) == ["false", "true", "unjudgeable"]
    one = api.get(f"{round.address}tasks/{tasks[0]['id']}/").json()
    assert (one["draws"][0]["rank"], one["draws"][0]["setting"], one["superseded"]) == (
        round.tasks.first().draws.get().harvested_tuple.rank, "multi", []
    )  # fmt: skip
    assert {key: one[key] for key in tasks[0]} == tasks[0]


def test_statements_can_be_filtered(api, round):
    relation = round.tasks.first().knowledge_tuple.relation_id
    marked = round.tasks.get(position=1)
    marked.reports.create(annotator=round.annotators.first(), reason="other", reported_at=timezone.now())
    factories.make_gold(round, [round.tasks.get(position=3)], "false")

    def positions(**query):
        return [task["position"] for task in api.get(f"{round.address}tasks/", query).json()["results"]]

    assert positions(outcome="accepted") == [0, 1]
    assert positions(disagreement="true") == [1, 2]
    assert positions(mark="reported") == [1]
    assert positions(is_gold="true") == [3]
    assert positions(relation=relation, outcome="undecided") == [2]
    assert positions(relation=relation + 1) == []
    for odd in ({"outcome": "x"}, {"relation": 10**30}, {"disagreement": "x"}, {"mark": "x"}, {"x": 1}, {"after": "é"}):
        assert api.get(f"{round.address}tasks/", odd).status_code == 400


@pytest.mark.parametrize(("rest", "n_queries"), [("tasks/", 7), ("judgments/", 6), ("events/", 4), ("annotators/", 15)])
def test_list_page_takes_few_queries(api, round, rest, n_queries, django_assert_max_num_queries):
    api.get(round.address + rest)

    with django_assert_max_num_queries(n_queries):
        assert len(api.get(round.address + rest).json()["results"]) >= 3


def test_adjudicator_answers_queue_without_seeing_labels(round):
    adjudicator = client_of(factories.make_member(Role.ADJUDICATOR, username="eve"))
    [task] = adjudicator.get(f"{round.address}adjudication/").json()["results"]
    address = f"{round.address}tasks/{task['id']}/adjudications/"
    data = {"label": "false", "client_uuid": str(uuid4()), "comment": "Outdated."}

    stored = [adjudicator.post(address, data, JSON) for _ in range(2)]

    assert task.keys() == {"id", "position", "statement", "relation", "entities"}
    assert [answer.status_code for answer in stored] == [201, 201]
    assert (stored[0].json()["by"], stored[0].json()["is_blind"], Adjudication.objects.count()) == ("eve", True, 1)
    assert adjudicator.get(f"{round.address}adjudication/").json()["results"] == []
    assert len(adjudicator.get(f"{round.address}adjudication/", {"queue": "disagreements"}).json()["results"]) == 2
    other = f"{round.address}tasks/{round.tasks.first().pk}/adjudications/"
    assert error_of(adjudicator.post(other, data, JSON))["code"] == "UuidReused"
    assert adjudicator.get(f"{round.address}adjudication/", {"queue": "x"}).status_code == 400
    assert adjudicator.post(f"{round.address}tasks/999999/adjudications/", data, JSON).status_code == 404


def test_viewers_cannot_change_and_other_projects_get_404(round):
    viewer = client_of(factories.make_member(Role.VIEWER))
    stranger = client_of(factories.make_researcher(project=factories.make_project()))
    code, task = round.annotators.first().code, round.tasks.first().pk
    read_paths = ["tasks/", f"tasks/{task}/", "annotators/", f"annotators/{code}/", "limits/", "events/"]
    write_paths = [f"annotators/{code}/{act}/" for act in ("pause", "resume", "erase", "exclusion")]
    write_paths += [f"tasks/{task}/adjudications/"]

    assert [viewer.get(round.address + rest).status_code for rest in read_paths] == [200] * len(read_paths)
    assert [viewer.post(round.address + rest, {"reason": "x"}, JSON).status_code for rest in write_paths] == [
        403
    ] * len(write_paths)
    assert viewer.put(f"{round.address}limits/", {}, JSON).status_code == 403
    assert viewer.delete(f"{round.address}annotators/{code}/exclusion/").status_code == 403
    for rest in (*read_paths, "adjudication/", f"annotators/{code}/exclusion/"):
        assert stranger.get(round.address + rest).status_code == 404
    assert [stranger.post(round.address + rest, {}, JSON).status_code for rest in write_paths] == [404] * len(
        write_paths
    )
