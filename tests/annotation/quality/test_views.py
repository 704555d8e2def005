"""Quality pages of a round: permissions, content, and query counts."""

import json
from copy import deepcopy
from uuid import uuid4

import pytest
from django.utils import timezone

from annotation.models import Adjudication, Annotator, Judgment, Limits, Round, StatementReport
from annotation.quality import statement_list
from annotation.quality.exclusion import exclude_annotator
from annotation.quality.limits import pause_annotator, set_limits
from kgharvest.models import Role
from tests.factories import (
    judge_all,
    make_annotators,
    make_member,
    make_project,
    make_researcher,
    make_round,
)

pytestmark = pytest.mark.django_db

PILOT = "/projects/default/rounds/pilot/"

LABELS = ["true", "true", "false"], ["true", "false", "unjudgeable"], ["true", "false", "true"]


@pytest.fixture(scope="module")
def round_of_module(module_rows):
    round = make_round(3, name="pilot")
    judge_all(round, *LABELS)
    return round


@pytest.fixture
def round(round_of_module):
    return deepcopy(round_of_module)


def make_pilot(n: int, **options) -> Round:
    """Create another round named pilot, after renaming the round of the module."""
    Round.objects.filter(name="pilot").update(name="of-module")
    return make_round(n, name="pilot", **options)


@pytest.fixture
def annotator(round) -> Annotator:
    return round.annotators.order_by("pk").first()


def as_member(client, round, role: str):
    client.force_login(make_member(role, round.project))
    return client


def all_page_urls(round) -> list[str]:
    code, task = round.annotators.first().code, round.tasks.first()
    pages = ["", "progress.json", "events/", "events.jsonl", "statements/", f"statements/{task.pk}/", "adjudicate/"]
    pages += ["limits/", "annotators/", f"annotators/{code}/", f"annotators/{code}/exclude/"]
    return [f"/projects/default/rounds/{round.name}/{page}" for page in pages]


# Access


def test_owner_can_open_all_pages(researcher_client, round):
    for path in all_page_urls(round):
        assert researcher_client.get(path).status_code == 200, path


def test_pages_of_other_projects_are_not_found(client, round):
    client.force_login(make_researcher(project=make_project()))

    for path in all_page_urls(round):
        assert client.get(path).status_code == 404, path


def test_annotators_have_no_access(client, round, annotator):
    client.force_login(annotator.user)

    for path in all_page_urls(round):
        assert client.get(path).status_code == 403, path


def test_viewer_can_read_but_not_change(client, round, annotator):
    as_member(client, round, Role.VIEWER)
    annotator_url = f"{PILOT}annotators/{annotator.code}/"

    page = client.get(annotator_url)

    assert page.status_code == 200
    assert "Exclude" not in page.text
    for verb in ("exclude", "pause", "resume", "reinstate"):
        assert client.post(f"{annotator_url}{verb}/", {"reason": "guesses"}).status_code == 403
    for path in (f"{PILOT}limits/", f"{PILOT}adjudicate/"):
        assert client.post(path).status_code == 403
    assert Annotator.objects.filter(status="active").count() == 3


def test_adjudicator_can_only_adjudicate(client, round, annotator):
    as_member(client, round, Role.ADJUDICATOR)

    assert client.get(f"{PILOT}adjudicate/").status_code == 200
    assert client.post(f"{PILOT}annotators/{annotator.code}/pause/").status_code == 403


def test_statement_of_another_round_returns_404(researcher_client, round):
    other = make_round(1).tasks.get()

    assert researcher_client.get(f"{PILOT}statements/{other.pk}/").status_code == 404
    fields = {"task": other.pk, "label": "true", "client_uuid": uuid4()}
    assert researcher_client.post(f"{PILOT}adjudicate/", fields).status_code == 404


# Round page


def test_round_counts_match_manual_counts(researcher_client, round):
    context = researcher_client.get(PILOT).context
    progress = context["progress"]

    # TTT, TFF, F U T
    assert (progress["accepted"], progress["rejected"], progress["undecided"]) == (1, 1, 1)
    assert progress["percent_agreement"] == pytest.approx((6 + 2 + 0) / 18)
    # Nine values: 5 True, 3 False, 1 Unjudgeable. D_o = (4 + 6) / 2 = 5, 81 - 35 = 46: alpha = 1 - 8 * 5 / 46.
    assert progress["alpha"] == pytest.approx(1 - 40 / 46, abs=1e-6)
    [cell] = context["cells"]["rows"]
    assert (cell["drawn"], cell["accepted"], cell["rejected"], cell["undecided"]) == (3, 1, 1, 1)


def test_progress_json_matches_the_page(researcher_client, round):
    page = researcher_client.get(PILOT)
    fetched = researcher_client.get(f"{PILOT}progress.json").json()

    assert fetched["status"] == "open"
    assert (fetched["done"], fetched["total"]) == (9, 9)
    for name in ("accepted", "alpha", "percent_agreement"):
        assert f'data-figure="{name}">{fetched["figures"][name]}<' in page.text


def test_round_without_judgments_shows_no_estimates(researcher_client, researcher):
    make_round(2, name="fresh", by=researcher)

    figures = researcher_client.get("/projects/default/rounds/fresh/").context["figures"]

    assert (figures["alpha"], figures["percent_agreement"], figures["per_hour"], figures["time_left"]) == ("–",) * 4
    assert figures["open"] == "2"


def test_query_count_is_constant_for_200_annotators(researcher_client, researcher, django_assert_max_num_queries):
    round = make_round(2, name="crowd", by=researcher)
    annotators = [Annotator(round=round, code=f"a-{number}") for number in range(200)]
    annotators = Annotator.objects.bulk_create(annotators)
    task, now = round.tasks.first(), timezone.now()
    Judgment.objects.bulk_create(
        Judgment(client_uuid=uuid4(), task=task, annotator=annotator, label="true", is_counted=False, judged_at=now)
        for annotator in annotators
    )

    with django_assert_max_num_queries(38):
        page = researcher_client.get("/projects/default/rounds/crowd/")
    assert page.text.count("/annotators/a-") == 10
    with django_assert_max_num_queries(18):
        page = researcher_client.get("/projects/default/rounds/crowd/annotators/?sort=-gold")
    assert page.text.count("/annotators/a-") == 50


# Annotators


@pytest.mark.parametrize("sort", ["code", "-judged", "gold", "agreement", "seconds", "fast", "true", "run", "flags"])
def test_annotator_list_can_be_sorted_by_each_column(researcher_client, round, sort):
    rows = researcher_client.get(f"{PILOT}annotators/", {"sort": sort}).context["page_obj"].object_list

    assert len(rows) == 3


def test_annotator_with_lowest_agreement_is_listed_first(researcher_client, round, annotator):
    rows = researcher_client.get(f"{PILOT}annotators/", {"sort": "agreement"}).context["page_obj"].object_list

    assert rows[0]["agreement"] == pytest.approx(2 / 6)
    assert rows[0]["code"] == annotator.code


def test_exclusion_preview_changes_nothing_and_requires_a_reason(researcher_client, round, annotator):
    path = f"{PILOT}annotators/{annotator.code}/exclude/"

    page = researcher_client.get(path)
    refused = researcher_client.post(path, {"reason": " "})

    assert "1 accepted statement loses its verdict and needs another judgment" in page.text
    assert "This field is required" in refused.text
    assert Annotator.objects.filter(status="active").count() == 3


def test_exclude_and_reinstate_forms_change_counts(researcher_client, round, annotator):
    annotator_url = f"{PILOT}annotators/{annotator.code}/"

    page = researcher_client.post(f"{annotator_url}exclude/", {"reason": "Guesses."}, follow=True)
    assert "3 judgments no longer count" in page.text
    assert "excluded: Guesses." in page.text
    page = researcher_client.post(f"{annotator_url}reinstate/", follow=True)

    assert "3 judgments count again" in page.text
    decision = annotator.exclusions.get()
    assert decision.effect["n_judgments"] == 3
    assert decision.excluded_by == decision.reinstated_by is not None


def test_paused_annotator_can_be_resumed(researcher_client, round, annotator):
    pause_annotator(annotator)

    researcher_client.post(f"{PILOT}annotators/{annotator.code}/resume/")

    annotator.refresh_from_db()
    assert annotator.status == "active"


def test_invalid_changes_show_a_message(researcher_client, round, annotator):
    page = researcher_client.post(f"{PILOT}annotators/{annotator.code}/reinstate/", follow=True)

    assert f"{annotator.code} is not excluded." in page.text


def test_limits_form_sets_and_removes_limits(researcher_client, round):
    researcher_client.post(f"{PILOT}limits/", {"gold_accuracy": "0.8", "n_gold": "5", "longest_run": "40"})
    assert "gold accuracy below 0.8 after 5 gold statements; more than 40" in (
        researcher_client.get(f"{PILOT}annotators/").text
    )

    researcher_client.post(f"{PILOT}limits/", {"n_gold": "5"})

    assert Limits.objects.get().gold_accuracy is None
    assert round.events.filter(kind="limits_set").count() == 2


@pytest.mark.parametrize(
    "fields", [{"gold_accuracy": "80"}, {"n_gold": "0"}, {"longest_run": "1"}, {"median_seconds": "-1"}]
)
def test_invalid_limits_are_rejected(researcher_client, round, fields):
    page = researcher_client.post(f"{PILOT}limits/", {"n_gold": "5"} | fields)

    assert page.context["form"].errors
    assert not Limits.objects.exists()


# Statements


def listed_positions(client, **filters) -> list[int]:
    page = client.get(f"{PILOT}statements/", filters)
    return [task.position for task in page.context["tasks"]]


def test_disagreements_are_sorted_and_agreements_excluded(researcher_client, round):
    assert listed_positions(researcher_client) == [2, 1]
    assert listed_positions(researcher_client, show="all") == [0, 1, 2]


def test_list_pages_contain_each_statement_once(researcher_client, researcher):
    labels = ["true", "false", "unjudgeable"] * 20
    round = make_pilot(60, by=researcher, batch_size=60)
    judge_all(round, ["true"] * 60, labels, ["true"] * 30 + ["false"] * 30)

    pages = [listed_positions(researcher_client, page=page) for page in (1, 2)]

    tasks = list(round.tasks.all())
    differing = [task for task in tasks if max(task.n_true, task.n_false) < 3]
    assert [len(page) for page in pages] == [25, len(differing) - 25]
    assert sorted(pages[0] + pages[1]) == sorted(task.position for task in differing)
    spread = {task.position: (task.n_true > 0) + (task.n_false > 0) + (task.n_unjudgeable > 0) for task in tasks}
    in_order = [spread[position] for position in pages[0] + pages[1]]
    assert in_order == sorted(in_order, reverse=True)


def test_unanimous_unjudgeable_is_undecided_without_disagreement(researcher_client, researcher):
    round = make_pilot(1, by=researcher)
    judge_all(round, *[["unjudgeable"]] * 3)

    assert listed_positions(researcher_client) == []
    assert researcher_client.get(f"{PILOT}adjudicate/").context["task"] == round.tasks.get()


def test_statements_can_be_filtered(researcher_client, round):
    relation = round.strata.get().relation_id

    assert listed_positions(researcher_client, pattern="1-2-0") == [1]
    assert listed_positions(researcher_client, show="all", verdict="accepted") == [0]
    assert listed_positions(researcher_client, verdict="undecided") == [2]
    assert listed_positions(researcher_client, relation=relation) == [2, 1]
    assert listed_positions(researcher_client, relation=relation + 1) == []
    assert listed_positions(researcher_client, relation="x", pattern="1-2", verdict="good", page="99") == [2, 1]


def test_statement_list_pages_follow_round_order(researcher_client, researcher):
    make_pilot(60, by=researcher)
    first = researcher_client.get(f"{PILOT}statements/", {"show": "all"}).context

    second = researcher_client.get(f"{PILOT}statements/", {"show": "all", "after": str(first["page"].after)}).context
    previous = researcher_client.get(
        f"{PILOT}statements/", {"show": "all", "before": str(second["page"].before)}
    ).context

    positions = [[task.position for task in page["tasks"]] for page in (first, second, previous)]
    assert positions == [list(range(25)), list(range(25, 50)), list(range(25))]
    assert first["n"] == 60


@pytest.mark.parametrize("few", [0, 10])
def test_commented_list_is_independent_of_id_limit(researcher_client, round, annotator, monkeypatch, few):
    monkeypatch.setattr(statement_list, "MAX_MARKED_IDS", few)
    Judgment.objects.filter(task__position__in=(0, 2)).update(comment="only in summer")

    assert listed_positions(researcher_client, show="commented") == [0, 2]
    assert listed_positions(researcher_client, show="commented", verdict="accepted") == [0]


def test_reported_and_commented_statements_are_found(researcher_client, round, annotator):
    task = round.tasks.get(position=0)
    now = timezone.now()
    StatementReport.objects.create(task=task, annotator=annotator, reason="other", comment="two dots", reported_at=now)
    Judgment.objects.filter(task__position=1, annotator=annotator).update(comment="only in summer")

    assert listed_positions(researcher_client, show="reported") == [0]
    assert listed_positions(researcher_client, show="commented") == [1]
    assert "1 reported</a>" in researcher_client.get(PILOT).text
    assert "two dots" in researcher_client.get(f"{PILOT}statements/{task.pk}/").text


def test_statement_list_query_count_is_constant(researcher_client, researcher, django_assert_max_num_queries):
    round = make_pilot(30, by=researcher)
    judge_all(round, ["true"] * 30, ["false"] * 30)

    with django_assert_max_num_queries(13):
        assert len(listed_positions(researcher_client)) == 25


# Adjudication


def test_adjudication_empties_queue_without_changing_verdicts(researcher_client, round):
    page = researcher_client.get(f"{PILOT}adjudicate/")
    task = page.context["task"]
    assert task.position == 2
    codes = round.annotators.values_list("code", flat=True)
    assert not any(code in page.text for code in codes)

    fields = {"task": task.pk, "label": "true", "client_uuid": uuid4(), "comment": "seen it"}
    for _ in range(2):  # simulate a double click
        page = researcher_client.post(f"{PILOT}adjudicate/", fields, follow=True)

    assert "Nothing to adjudicate" in page.text
    adjudication = Adjudication.objects.get()
    assert (adjudication.verdict, adjudication.comment, adjudication.is_blind) == ("accepted", "seen it", True)
    task.refresh_from_db()
    assert (task.verdict, task.n_true) == ("undecided", 1)
    assert round.events.filter(kind="adjudicated").count() == 1


def test_second_adjudication_supersedes_the_first(researcher_client, round):
    task = round.tasks.get(position=1)

    for label in ("true", "unjudgeable"):
        fields = {"task": task.pk, "label": label, "client_uuid": uuid4()}
        researcher_client.post(f"{PILOT}adjudicate/?queue=disagreements&votes=1", fields)

    assert Adjudication.objects.count() == 2
    assert Adjudication.objects.current().get().label == "unjudgeable"
    assert not Adjudication.objects.current().get().is_blind


def test_skipping_the_last_statement_returns_to_the_first(researcher_client, round):
    query = {"queue": "disagreements", "after": 1}
    assert researcher_client.get(f"{PILOT}adjudicate/", query).context["task"].position == 2
    query["after"] = 2
    assert researcher_client.get(f"{PILOT}adjudicate/", query).context["task"].position == 1


@pytest.mark.parametrize(("field", "value"), [("label", "maybe"), ("client_uuid", "1"), ("task", "x")])
def test_invalid_adjudication_is_rejected(researcher_client, round, field, value):
    fields = {"task": round.tasks.first().pk, "label": "true", "client_uuid": uuid4()} | {field: value}

    assert researcher_client.post(f"{PILOT}adjudicate/", fields).status_code == 400


# Events


def test_events_are_shown_and_exported(researcher_client, round, annotator, researcher):
    set_limits(round, by=researcher, longest_run=30)
    exclude_annotator(annotator, "guesses", by=researcher)

    page = researcher_client.get(f"{PILOT}events/").text
    file = researcher_client.get(f"{PILOT}events.jsonl")
    lines = b"".join(file.streaming_content).splitlines()

    assert "excluded the annotator, 3 judgments no longer counted: guesses" in page
    assert file.headers["Content-Type"] == "application/x-ndjson"
    kinds = [json.loads(line)["kind"] for line in lines]
    assert (kinds[0], kinds[-2:]) == ("opened", ["limits_set", "excluded"])


def test_reading_pages_logs_no_events(researcher_client, round):
    n_before = round.events.count()

    for path in all_page_urls(round):
        researcher_client.get(path)

    assert round.events.count() == n_before
    assert make_annotators(round, 1)


def test_exports_contain_the_adjudication_next_to_the_judgments(researcher_client, round):
    task = round.tasks.get(position=2)
    fields = {"task": task.pk, "label": "unjudgeable", "client_uuid": uuid4()}
    researcher_client.post(f"{PILOT}adjudicate/", fields)

    lines = b"".join(researcher_client.get(f"{PILOT}judgments.jsonl").streaming_content).splitlines()

    rows = [json.loads(line) for line in lines]
    adjudications = {row["statement"]: row["adjudication"] for row in rows}
    assert adjudications.pop(task.statement) == "Unjudgeable"
    assert set(adjudications.values()) == {None}
