"""Chat-model harvests, tested against a real HTTP server on the loopback interface."""

from __future__ import annotations

import json
from contextlib import contextmanager
from decimal import Decimal
from ipaddress import ip_network

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from annotation.rounds.services import open_round
from evaluation.reports.services import create_report
from kgharvest.chat_models.options import ChatOptions, from_json, to_json
from kgharvest.chat_models.services import API_KEY_VARIABLE
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine import chat_completions
from kgharvest.engine.chat_completions import logprobs_of
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.types import HarvestParams
from kgharvest.harvests import language_models
from kgharvest.harvests.language_models import name_language_model
from kgharvest.harvests.launches import plan_launch
from kgharvest.harvests.runner import HarvestRequest, create_harvest_job, requests_for
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job
from kgharvest.webhooks.addresses import BadAddress
from tests import factories
from tests.api import JSON, client_of, error_of
from tests.fake_chat_endpoint import Reply, completion, serving
from tests.refusals import refused

pytestmark = pytest.mark.django_db

KEY = "sk-very-secret"
DEFAULTS = HarvestParams()
FACTS = [("umbrella", "rain"), ("helmet", "injury"), ("fence", "escape"), ("soap", "germs"), ("lock", "theft")]


@pytest.fixture(autouse=True)
def api_key_and_short_waits(monkeypatch):
    """Set the API key and shorten the wait before the first retry to 10 ms."""
    monkeypatch.setenv(API_KEY_VARIABLE, KEY)
    monkeypatch.setattr(chat_completions, "FIRST_WAIT_S", 0.01)


def reply_with_new_facts(body, n_prompt: int = 100, n_completion: int = 10) -> Reply:
    """Reply with the next two facts that the question does not contain."""
    question = body["messages"][0]["content"]
    new = [fact for fact in FACTS if json.dumps(fact) not in question][:2]
    return completion("\n".join(map(json.dumps, new)), n_prompt, n_completion)


def make_relation():
    return factories.make_relation(
        "prevents",
        initial_prompts=["<ENT0> prevents <ENT1> ."],
        prompts=["<ENT0> prevents <ENT1> .", "<ENT1> is prevented by <ENT0> ."],
        seed_tuples=[["vaccine", "disease"], ["curtain", "light"]],
    )


@contextmanager
def harvesting(answer=reply_with_new_facts, by=None, params=DEFAULTS, **options):
    """Start a fake endpoint and create a harvest job for it. Yields both."""
    with serving(answer) as fake:
        chat = ChatOptions(**{"base_url": fake.url, **options})
        request = HarvestRequest(make_relation(), name_language_model("gpt-x"), "llm", params, chat=chat)
        yield fake, create_harvest_job(request, by)


def run_to_end(job: HarvestJob) -> HarvestJob:
    ledger.run_job(job.pk)
    job.refresh_from_db()
    return job


def surfaces(job: HarvestJob) -> list[tuple[str, ...]]:
    return [tuple(harvested.surface) for harvested in job.tuples.order_by("rank")]


def test_harvest_stops_when_responses_add_no_new_tuples():
    with harvesting(prompt_price=Decimal(2), completion_price=Decimal(10)) as (fake, job):
        run_to_end(job)

    assert (job.status, job.error) == (Job.Status.SUCCEEDED, "")
    assert surfaces(job) == FACTS
    assert len(fake.requests) == 5  # 2, 2, and 1 new facts, then two responses without new facts
    assert fake.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert job.summary["chat"] == {
        "n_answers": 5,
        "n_prompt_tokens": 500,
        "n_completion_tokens": 50,
        "cost": "0.0015",  # (500 x 2 + 50 x 10) / 1,000,000
        "model_reported": "judge-1 fp_1",
        "scorer": None,
    }


def test_responses_are_requested_in_a_json_schema_and_text_parts_are_joined():
    def answer(body) -> Reply:
        schema = body["response_format"]["json_schema"]["schema"]
        names = schema["properties"]["facts"]["items"]["required"]
        facts = [dict(zip(names, fact, strict=True)) for fact in FACTS]
        text = json.dumps({"facts": facts})
        return completion([{"type": "text", "text": text[:20]}, {"type": "text", "text": text[20:]}])

    with harvesting(answer) as (_, job):
        run_to_end(job)

    assert (job.status, surfaces(job)) == (Job.Status.SUCCEEDED, FACTS)


def test_endpoint_without_json_schemas_is_asked_without_them():
    def answer(body) -> Reply:
        if "response_format" in body:
            return Reply(400, json.dumps({"error": {"message": "response_format is not supported"}}).encode())
        return reply_with_new_facts(body)

    with harvesting(answer) as (fake, job):
        run_to_end(job)

    assert (job.status, surfaces(job)) == (Job.Status.SUCCEEDED, FACTS)
    assert ["response_format" in body for body in fake.requests] == [True, False, False, False, False, False]


def test_unscored_tuples_rank_in_order_of_appearance():
    with harvesting() as (_, job):
        run_to_end(job)

    assert job.score_scale == HarvestJob.ScoreScale.ORDER
    assert not job.is_scored
    assert [(found.score, found.mtl) for found in job.tuples.order_by("rank")] == [(-n, None) for n in range(1, 6)]


def with_logprobs(reply: Reply, logprob_of) -> Reply:
    """Add one token per character to a reply. logprob_of: log-probability of each line of the answer."""
    document = json.loads(reply.body)
    [choice] = document["choices"]
    lines = choice["message"]["content"].splitlines(keepends=True)
    tokens = [{"token": letter, "logprob": logprob_of(line)} for line in lines for letter in line]
    choice["logprobs"] = {"content": tokens}
    return reply._replace(body=json.dumps(document).encode())


def test_tokens_that_split_a_character_are_joined():
    content = [
        {"token": "caf", "bytes": [99, 97, 102], "logprob": -1},
        {"token": "\\xc3", "bytes": [0xC3], "logprob": -2.0},
        {"token": "\\xa9", "bytes": [0xA9], "logprob": -0.5},
        {"token": "é", "logprob": -1.0},
    ]

    assert logprobs_of({"logprobs": {"content": content}}) == (("caf", -1.0), ("é", -2.5), ("é", -1.0))


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        [],
        {"content": None},
        {"content": [{"token": "a"}]},
        {"content": [{"token": 1, "logprob": 0}]},
        *({"content": [{"token": "a", "logprob": 0, "bytes": value}]} for value in (97, "a", [256], ["a"], {})),
    ],
)
def test_malformed_log_probabilities_are_ignored(logprobs):
    assert logprobs_of({"logprobs": logprobs}) == logprobs_of({}) == ()


def test_log_probabilities_of_responses_score_and_rank_tuples():
    def logprob_of(line: str) -> float:
        return -1.0 - json.dumps(FACTS[0]).startswith(line.strip())  # the first fact is the least likely

    with harvesting(lambda body: with_logprobs(reply_with_new_facts(body), logprob_of)) as (fake, job):
        run_to_end(job)

    assert all(body["logprobs"] for body in fake.requests)
    assert job.score_scale == HarvestJob.ScoreScale.NATS
    alpha = DEFAULTS.alpha
    expected = {
        fact: (2 if fact == FACTS[0] else 1) * -(alpha * sum(map(len, fact)) + (1 - alpha) * max(map(len, fact)))
        for fact in FACTS
    }
    scores = {tuple(found.surface): found.score for found in job.tuples.order_by("rank")}
    assert scores == pytest.approx(expected)
    assert list(scores)[-1] == FACTS[0]
    assert list(scores.values()) == sorted(scores.values(), reverse=True)


def test_tuples_stay_unscored_if_a_response_has_no_log_probabilities():
    def answer(body) -> Reply:
        reply = reply_with_new_facts(body)
        return reply if json.dumps(FACTS[2]) in body["messages"][0]["content"] else with_logprobs(reply, lambda _: -1.0)

    with harvesting(answer) as (_, job):
        run_to_end(job)

    assert job.score_scale == HarvestJob.ScoreScale.ORDER
    assert surfaces(job) == FACTS


@pytest.mark.parametrize(
    ("status", "message"),
    [(400, "Unsupported parameter: 'logprobs'"), (403, "You are not allowed to request logprobs from this model")],
)
def test_endpoint_without_log_probabilities_is_asked_without_them(status, message):
    def answer(body) -> Reply:
        if "logprobs" in body:
            return Reply(status, json.dumps({"error": {"message": message}}).encode())
        return reply_with_new_facts(body)

    with harvesting(answer) as (fake, job):
        run_to_end(job)

    assert (job.status, surfaces(job)) == (Job.Status.SUCCEEDED, FACTS)
    assert ["logprobs" in body for body in fake.requests] == [True, False, False, False, False, False]
    assert all("response_format" in body for body in fake.requests)


def test_resumed_harvest_scores_stored_responses():
    with harvesting(lambda body: with_logprobs(reply_with_new_facts(body), lambda _: -1.0)) as (fake, job):
        run_to_end(job)
        expected = list(job.tuples.order_by("rank").values_list("surface", "score"))
        n_requests = len(fake.requests)
        job.tuples.all().delete()
        Job.objects.filter(pk=job.pk).update(status=Job.Status.QUEUED)
        run_to_end(job)

    assert list(job.tuples.order_by("rank").values_list("surface", "score")) == expected
    assert len(fake.requests) == n_requests


def test_scorer_lm_scores_and_ranks_listed_tuples():
    with harvesting(scorer=factories.make_language_model("embedded").name) as (_, job):
        run_to_end(job)

    scores = [found.score for found in job.tuples.order_by("rank")]
    assert (job.status, job.error, job.score_scale) == (Job.Status.SUCCEEDED, "", HarvestJob.ScoreScale.NATS)
    assert len(scores) + job.summary["rejected"].get("unscored", 0) == len(FACTS)
    assert scores == sorted(scores, reverse=True)
    assert all(score < 0 for score in scores)
    assert job.job_prompts.count() == 2
    assert job.summary["chat"]["scorer"] == "embedded"


def test_scorer_lm_accepts_revision(monkeypatch):
    loaded = []

    def load_small(name, revision, *args):
        loaded.append((name, revision))
        return load_compact(EMBEDDED_LMS["embedded-small"])

    monkeypatch.setattr(language_models, "_load", load_small)
    with harvesting(scorer=str(language_models.get_language_model("some/bert@v1"))) as (_, job):
        run_to_end(job)

    assert (job.status, job.error, loaded) == (Job.Status.SUCCEEDED, "", [("some/bert", "v1")])


def test_max_tuples_stops_requests():
    with harvesting(params=HarvestParams(max_tuples=3)) as (fake, job):
        run_to_end(job)

    assert surfaces(job) == FACTS[:3]
    assert len(fake.requests) == 2


def test_token_budget_is_never_exceeded_and_tuples_are_kept():
    def answer(body):
        return reply_with_new_facts(body, 900, 100)

    with harvesting(answer, max_tokens_total=5_000, max_completion_tokens=3_000) as (fake, job):
        run_to_end(job)

    assert job.status == Job.Status.SUCCEEDED
    assert len(fake.requests) == 2  # a third request could exceed the remaining 3,000 tokens
    assert "budget" in job.summary["notice"]
    assert surfaces(job) == FACTS[: job.n_tuples]


def test_resumed_harvest_sends_only_unanswered_questions():
    n_left = [2]

    def reply_or_reject_key(body):
        if not n_left[0]:
            return Reply(401)
        n_left[0] -= 1
        return reply_with_new_facts(body)

    with harvesting(reply_or_reject_key) as (fake, job):
        run_to_end(job)
        assert job.status == Job.Status.FAILED
        assert "rejected the key" in job.error
        assert KEY not in job.error
        n_left[0] = 100
        ledger.retry(job)
        run_to_end(job)

    assert surfaces(job) == FACTS
    assert len(fake.requests) == 6  # 2 answered, 1 refused, 3 after the retry
    assert job.summary["chat"]["n_answers"] == 5


def test_cancelled_harvest_keeps_answers_but_stores_no_tuples(monkeypatch):
    store = ledger.Heartbeat.store

    def store_and_cancel(self, save):
        store(self, save)
        ledger.cancel(job)

    monkeypatch.setattr(ledger.Heartbeat, "store", store_and_cancel)
    with harvesting() as (_, job):
        run_to_end(job)

    assert job.status == Job.Status.CANCELLED
    assert (job.chat_answers.count(), job.tuples.count()) == (1, 0)


def test_responses_without_tuples_are_reported():
    with harvesting(lambda body: completion("I cannot help with that.")) as (_, job):
        run_to_end(job)

    assert (job.status, job.n_tuples, job.summary["rejected"]) == (Job.Status.SUCCEEDED, 0, {"unparsable": 2})
    assert "No response of the chat model contained a valid tuple" in job.summary["notice"]


def test_malformed_completion_fails_harvest_with_error_message():
    with harvesting(lambda body: Reply(body=b"<html>")) as (_, job):
        run_to_end(job)

    assert job.status == Job.Status.FAILED
    assert "did not return a chat completion" in job.error


# Endpoint permissions


def test_researcher_cannot_use_local_network_address():
    with pytest.raises(BadAddress), harvesting(by=factories.make_researcher()):
        pass


def test_user_supplied_address_receives_no_api_key(settings):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)

    with harvesting(by=factories.make_researcher()) as (fake, job):
        run_to_end(job)

    assert job.status == Job.Status.SUCCEEDED
    assert "Authorization" not in fake.headers[0]


def test_default_endpoint_is_used_if_none_is_given(settings):
    with serving(reply_with_new_facts) as fake:
        settings.CHAT_BASE_URL = fake.url
        request = HarvestRequest(make_relation(), name_language_model("gpt-x"), "llm", chat=ChatOptions())
        job = run_to_end(create_harvest_job(request, factories.make_researcher()))

    assert job.n_tuples == len(FACTS)
    assert fake.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_missing_endpoint_prevents_job_creation():
    request = HarvestRequest(make_relation(), name_language_model("gpt-x"), "llm", chat=ChatOptions())

    with refused("NoEndpoint", match="KGHARVEST_CHAT_BASE_URL"):
        create_harvest_job(request)


# Options and harvest cells


def test_options_survive_payload_round_trip():
    options = ChatOptions(base_url="https://a.example/v1", budget=Decimal("0.0005"), temperature=0.5, patience=3)

    assert from_json(json.loads(json.dumps(to_json(options)))) == options


@pytest.mark.parametrize(
    ("options", "message"),
    [({"patience": 0}, "patience: 0. It must be from 1 to 20"), ({"temperature": 2.5}, "from 0 to 2")],
)
def test_out_of_range_option_is_refused(options, message):
    with refused("BadChatOption", match=message):
        ChatOptions(**options)


def test_llm_setting_pairs_with_chat_models_and_other_settings_with_lms():
    relation, lm, chat = make_relation(), factories.make_language_model("embedded"), name_language_model("gpt-x")

    cells = list(requests_for([relation], [lm], ["multi", "llm"], [chat], chat=ChatOptions(patience=3)))

    assert [(cell.language_model, cell.setting, bool(cell.chat)) for cell in cells] == [
        (lm, "multi", False),
        (chat, "llm", True),
    ]


@pytest.mark.parametrize(("settings", "models"), [(["llm"], []), (["multi"], ["gpt-x"])])
def test_chat_model_and_llm_setting_require_each_other(settings, models):
    chat_models = [name_language_model(name) for name in models]

    with refused("NoChatModel"):
        list(requests_for([make_relation()], [factories.make_language_model()], settings, chat_models))


# Entry points


def test_command_harvests_and_writes_tuples(tmp_path, capsys):
    relation, output = make_relation(), tmp_path / "found.jsonl"
    with serving(reply_with_new_facts) as fake:
        call_command(
            "harvest", relation=[relation.path], setting=["llm"], chat_model=["gpt-x"], chat_base_url=fake.url,
            chat_max_requests=1, wait=True, output=output,
        )  # fmt: skip

    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["model"], row["setting"], row["rank"], row["surface"]) for row in rows] == [
        ("gpt-x", "llm", 1, ["umbrella", "rain"]),
        ("gpt-x", "llm", 2, ["helmet", "injury"]),
    ]
    assert rows[0]["score"] is None
    assert "limit of 1 chat requests" in capsys.readouterr().err


def test_command_error_names_missing_chat_model():
    with pytest.raises(CommandError, match="The setting llm needs a chat model"):
        call_command("harvest", relation=[make_relation().path], setting=["llm"])


def test_api_launches_lm_and_chat_cells_with_validated_options(settings, enqueued):
    settings.CHAT_BASE_URL = "https://llm.example/v1"
    client = client_of(factories.make_researcher())
    document = {
        "relations": [make_relation().pk], "models": ["embedded"], "settings": ["multi", "llm"],
        "chat_models": ["gpt-x"], "chat": {"patience": 4, "budget": "0.25", "scorer": "embedded"},
    }  # fmt: skip

    refused = client.post("/api/v1/launches/", {**document, "chat": {"patience": 40, "pace": 1}}, JSON)
    started = client.post("/api/v1/launches/", document, JSON)

    assert (refused.status_code, [*error_of(refused)["fields"]]) == (400, ["chat"])
    assert started.status_code == 202
    cells = HarvestJob.objects.order_by("pk").values_list("language_model__name", "setting", "score_scale")
    assert list(cells) == [("embedded", "multi", "nats"), ("gpt-x", "llm", "nats")]
    options = from_json(HarvestJob.objects.get(setting="llm").payload["chat"])
    assert options == ChatOptions(scorer="embedded", patience=4, budget=Decimal("0.25"))


def test_round_over_two_harvests_judges_shared_tuples_once():
    with harvesting() as (_, listed):
        run_to_end(listed)
    other = factories.make_harvest([("umbrella", "rain"), ("roof", "water")], relation=listed.relation, setting="multi")
    document = {"name": "both", "cells": [{"job": job.pk, "n": None} for job in (listed, other)]}

    round = open_round(document)
    facts = [tuple(task.knowledge_tuple.entities) for task in round.tasks.order_by("position")]
    factories.judge_all(round, *[["true" if fact in FACTS[:4] else "false" for fact in facts]] * 3)

    assert sorted(facts) == sorted([*FACTS, ("roof", "water")])  # one tuple is in both harvests
    assert round.strata.count() == 2
    cells = {cell["setting"]: (cell["n"], cell["accepted"]) for cell in create_report(round).document["cells"]}
    assert cells == {"llm": (5, 4), "multi": (2, 1)}


@pytest.mark.usefixtures("installation_owner")
def test_launch_form_creates_harvest_with_its_options(researcher_client, settings, enqueued):
    settings.CHAT_BASE_URL = "https://llm.example/v1"
    relation = make_relation()
    form = {
        "relations": [relation.pk], "settings": ["llm"], "chat_models": "gpt-x", "chat_patience": 3,
        "chat_budget": "1.5", "max_entity_tokens": 2,
    }  # fmt: skip

    response = researcher_client.post(reverse("kgharvest:harvest_new"), form)

    job = HarvestJob.objects.get()
    assert response.url == job.get_absolute_url()
    assert (job.language_model.name, job.setting) == ("gpt-x", "llm")
    assert from_json(job.payload["chat"]) == ChatOptions(patience=3, budget=Decimal("1.5"))


@pytest.mark.usefixtures("installation_owner")
def test_launch_form_shows_errors_next_to_field(researcher_client):
    form = {"relations": [make_relation().pk], "settings": ["llm"], "chat_models": "gpt-x", "chat_patience": 30}

    response = researcher_client.post(reverse("kgharvest:harvest_new"), form)

    assert response.context["form"].errors["chat_patience"] == ["Ensure this value is less than or equal to 20."]
    assert 'data-part="chat" open>' in response.text


def test_harvest_page_shows_cost_and_escaped_responses(researcher_client):
    def answer(body):
        return completion('["<b>helmet</b>", "injury"]', 100, 10)

    with harvesting(answer, prompt_price=Decimal(5)) as (_, job):
        run_to_end(job)

    page = researcher_client.get(job.get_absolute_url()).text

    assert "Chat model responses" in page
    assert "0.0010" in page  # 2 x 100 x 5 / 1,000,000
    assert "&lt;b&gt;helmet&lt;/b&gt;" in page
    assert "<b>helmet" not in page


def test_identical_launch_is_skipped_but_changed_option_is_not(settings):
    from django.utils import timezone

    settings.CHAT_BASE_URL = "https://llm.example/v1"
    relation, chat = make_relation(), name_language_model("gpt-x")
    create_harvest_job(HarvestRequest(relation, chat, "llm", chat=ChatOptions()))

    plans = [
        plan_launch([HarvestRequest(relation, chat, "llm", chat=ChatOptions(patience=n))], timezone.now())
        for n in (2, 3)
    ]

    assert [len(plan.skipped) for plan in plans] == [1, 0]
