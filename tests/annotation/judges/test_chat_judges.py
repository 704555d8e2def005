"""Chat judge runs against an HTTP server on the loopback interface."""

from __future__ import annotations

from contextlib import contextmanager
from decimal import Decimal
from ipaddress import ip_network

import pytest

from annotation.judges.labels import judge_labels
from annotation.judges.prompts import fill
from annotation.judges.runs import API_KEY_VARIABLE, continue_run, create_run, estimated_usage, usage_of
from annotation.models import Judgment
from kgharvest.engine import chat_completions
from kgharvest.events.models import Event
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.webhooks.addresses import BadAddress
from tests.factories import make_researcher, make_round
from tests.fake_chat_endpoint import Reply, completion, serving, stream
from tests.refusals import refused

pytestmark = pytest.mark.django_db

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def api_key_and_short_waits(monkeypatch):
    """Set the API key and shorten the waiting time between attempts."""
    monkeypatch.setenv(API_KEY_VARIABLE, KEY)
    monkeypatch.setattr(chat_completions, "FIRST_WAIT_S", 0.01)


def truth(body) -> Reply:
    """Return True for heads with even numbers and False for the others."""
    prompt = body["messages"][0]["content"]
    statement = prompt.rpartition("Statement: head ")[2]
    return completion("True" if int(statement.split()[0]) % 2 == 0 else "False")


@contextmanager
def judging(answer=truth, n: int = 6, by=None, **spec):
    with serving(answer) as fake:
        round = make_round(n)
        document = {"name": "judge", "kind": "chat", "model": "gpt-x", "base_url": fake.url, **spec}
        yield fake, create_run(round, document, by)


def finish(run):
    ledger.run_job(run.pk)
    run.refresh_from_db()
    return run


def raw_answers(run) -> set[str]:
    return set(run.answers.values_list("raw", flat=True))


def test_every_tuple_is_asked_once_and_answers_are_stored():
    with judging(prompt_price=2, completion_price=10) as (fake, run):
        finish(run)

        assert (run.status, run.done, run.total) == (Job.Status.SUCCEEDED, 6, 6)
        assert sorted(judge_labels(run).values()) == ["false"] * 3 + ["true"] * 3
        answer = run.answers.first()
        assert (answer.model_reported, answer.n_prompt_tokens, answer.n_completion_tokens) == ("judge-1 fp_1", 50, 2)
        assert answer.cost == Decimal("0.00012")  # 50 x 2 and 2 x 10 per million tokens
        assert answer.prompt_sha256 == run.prompt_sha256
        assert len(fake.requests) == 6
        assert fake.requests[0]["temperature"] == 0
        assert fake.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert not Judgment.objects.exists()
        [entry] = Event.objects.filter(action="judge_run.made")
        assert "gpt-x" in entry.sentence


def test_repeats_use_different_seeds():
    with judging(n=2, repeats=3, seed=7, temperature=1.0) as (fake, run):
        finish(run)

        assert sorted(body["seed"] for body in fake.requests) == [7, 7, 8, 8, 9, 9]
        assert run.answers.count() == 6


def test_concurrent_requests_are_limited_by_n_parallel():
    def slow(body):
        return truth(body)._replace(delay_s=0.05)

    with judging(slow, n=12, n_parallel=3) as (fake, run):
        finish(run)

        assert run.answers.count() == 12
        assert 2 <= fake.most_at_once <= 3


def first_of(*replies: Reply):
    """Return an answer function that sends these replies first and then the truth."""
    left = list(replies)

    def answer(body):
        return left.pop(0) if left else truth(body)

    return answer


@pytest.mark.parametrize(
    "reply",
    [
        Reply(429, headers=(("Retry-After", "0"),)),
        Reply(503),
        Reply(body=b"x" * 100, is_cut=True),
        Reply(body=b'{"choices": [{"mess'),
        Reply(body=b"<html>Welcome</html>"),
        stream("Tr", "u", is_whole=False),
    ],
    ids=["429", "503", "truncated body", "truncated JSON", "no JSON", "truncated stream"],
)
def test_transient_errors_are_retried(reply):
    with judging(first_of(reply), n=3) as (fake, run):
        finish(run)

        assert run.status == Job.Status.SUCCEEDED
        assert set(judge_labels(run).values()) == {"true", "false"}
        assert len(fake.requests) == 4


def test_timeout_is_retried():
    with judging(first_of(Reply(body=b"{}", delay_s=1.5)), n=2, timeout_s=1) as (fake, run):
        finish(run)

        assert run.status == Job.Status.SUCCEEDED
        assert len(fake.requests) == 3


@pytest.mark.parametrize(
    ("reply", "raw"),
    [
        (completion("I cannot judge people."), "I cannot judge people."),
        (completion(None, refusal="No."), "No."),
        (completion(""), ""),
        (Reply(body=b"<html>Welcome</html>"), "<html>Welcome</html>"),
        (Reply(body=b'{"choices": [], "stream": false}'), '{"choices": [], "stream": false}'),
        (
            Reply(400, b'{"error": {"code": "content_filter", "filtered": true}}'),
            '{"error": {"code": "content_filter", "filtered": true}}',
        ),
        (completion("No \ud800 \x00 idea."), "No ? \N{REPLACEMENT CHARACTER} idea."),
        (
            Reply(400, b'{"error": {"code": "content_filter", "message": "No."}}'),
            '{"error": {"code": "content_filter", "message": "No."}}',
        ),
    ],
    ids=[
        "refusal",
        "refusal field",
        "empty",
        "no completion",
        "no choices",
        "filtered",
        "invalid text",
        "content filter",
    ],
)
def test_unparsable_answer_is_stored_without_label(reply, raw):
    with judging(lambda body: reply, n=2) as (_, run):
        finish(run)

        assert run.status == Job.Status.SUCCEEDED
        assert raw_answers(run) == {raw}
        assert set(judge_labels(run).values()) == {""}


def test_unrequested_stream_is_joined():
    with judging(lambda body: stream("Fal", "se"), n=2) as (_, run):
        finish(run)

        assert raw_answers(run) == {"False"}


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(401), "status 401"),
        (Reply(404), "no model 'gpt-x'"),
        (Reply(400, b'{"error": {"message": "temperature must be 1"}}'), "'temperature must be 1'"),
        (Reply(503), "status 503 in 5 attempts"),
        (Reply(429, headers=(("Retry-After", "7200"),)), "7200 s"),
    ],
    ids=["key", "model", "parameter", "always busy", "hours"],
)
def test_permanent_error_fails_run_and_keeps_answers(reply, says):
    n_true = 3
    with judging(lambda body: truth(body) if len(fake.requests) <= n_true else reply, n=6, n_parallel=1) as (fake, run):
        finish(run)

        assert run.status == Job.Status.FAILED
        assert says in run.error
        assert KEY not in run.error
        assert run.answers.count() == n_true

        fake.answer = truth
        ledger.retry(run)
        finish(run)

        assert run.status == Job.Status.SUCCEEDED
        assert run.answers.count() == 6
        assert fake.n_answered == 6


# Budgets


@pytest.mark.parametrize("limit", [{"max_tokens_total": 2200}, {"budget": 0.0022, "completion_price": 1}])
def test_run_stops_within_budget_and_continues_with_larger_one(limit):
    spec = {"prompt_price": 1, "n_parallel": 3, "max_completion_tokens": 10, **limit}

    with judging(n=80, **spec) as (fake, run):
        finish(run)

        used = usage_of(run)
        assert run.is_out_of_budget
        assert "Continue the run with a larger budget" in run.error
        assert used.n_tokens <= 2200  # one token costs a millionth of a unit
        # It stops before the worst case of the next question.
        assert used.n_tokens > 2200 - 52 - 10 - 50 - len(fake.prompts[0])
        assert fake.n_answered == used.n_answers

        with refused("BudgetTooSmall", match=f"has used {used.n_tokens} tokens"):
            continue_run(run, {"max_tokens_total": used.n_tokens})
        continue_run(run, {"max_tokens_total": 1_000_000, "budget": Decimal(1)})
        finish(run)

        assert run.status == Job.Status.SUCCEEDED
        assert fake.n_answered == run.answers.count() == 80


NO_COMPLETION = Reply(body=b"<html>Welcome</html>")


def tokens_of(prompt: str) -> int:
    return -(-len(prompt) // 4) + -(-len(NO_COMPLETION.body) // 4)


def test_replies_without_completion_count_as_usage():
    with judging(lambda _: NO_COMPLETION, n=1) as (fake, run):
        finish(run)

        assert len(fake.requests) == 3
        assert usage_of(run).n_tokens == 3 * tokens_of(fake.prompts[0])

    with judging(first_of(NO_COMPLETION), n=1) as (fake, run):
        finish(run)

        assert set(judge_labels(run).values()) <= {"true", "false"}
        assert usage_of(run).n_tokens == 52 + tokens_of(fake.prompts[0])


def test_question_without_completion_stays_open_at_budget_end():
    with judging(first_of(NO_COMPLETION), n=1) as (fake, run):
        run.max_tokens_total = len(fill(run.prompt, "1234567890", next(iter(run.relation_texts.values())))) + 200
        run.save()
        finish(run)

        assert (len(fake.requests), run.answers.count()) == (1, 0)
        assert run.is_out_of_budget
        assert "1 questions are open" in run.error
        assert usage_of(run).n_tokens == tokens_of(fake.prompts[0])

        finish(continue_run(run, {"max_tokens_total": 100_000}))

        assert run.status == Job.Status.SUCCEEDED
        assert set(judge_labels(run).values()) <= {"true", "false"}
        assert usage_of(run).n_tokens == 52 + tokens_of(fake.prompts[0])


def test_reply_without_completion_counts_before_permanent_error():
    replies = [NO_COMPLETION, Reply(401)]
    with judging(lambda _: replies[min(len(fake.requests), 2) - 1], n=2, n_parallel=1, prompt_price=1) as (fake, run):
        finish(run)

        assert run.status == Job.Status.FAILED
        assert (run.answers.count(), usage_of(run).n_tokens) == (0, tokens_of(fake.prompts[0]))
        assert usage_of(run).cost == Decimal(-(-len(fake.prompts[0]) // 4)) / 1_000_000


def test_estimated_usage_is_close_to_actual_usage():
    def counted(body):
        return truth(body)._replace(body=completion("True", len(body["messages"][0]["content"]) // 4).body)

    with judging(counted, n=10, prompt_price=3) as (_, run):
        spec = {"name": "other", "kind": "chat", "model": "gpt-x", "base_url": run.base_url, "prompt_price": 3}
        expected = estimated_usage(run.round, spec)
        finish(run)

        used = usage_of(run)
        assert expected.n_answers == used.n_answers == 10
        assert expected.n_prompt_tokens == pytest.approx(used.n_prompt_tokens, rel=0.1)
        assert expected.cost == pytest.approx(used.cost, rel=Decimal("0.1"))


# Endpoint addresses


def test_private_address_is_rejected_unless_configured(settings):
    with serving(truth) as fake:
        round, researcher = make_round(2), make_researcher()
        spec = {"name": "judge", "kind": "chat", "model": "gpt-x", "base_url": fake.url}

        settings.WEBHOOK_PORTS = range(65536)
        with pytest.raises(BadAddress, match=r"127\.0\.0\.1, which is not a public internet address"):
            create_run(round, spec, researcher)
        settings.JUDGE_BASE_URL = fake.url
        run = finish(create_run(round, spec, researcher))

        assert run.status == Job.Status.SUCCEEDED


def test_api_key_is_not_sent_to_addresses_set_by_researchers(settings):
    """Prevent researchers from reading the installation's key on a server of their own."""
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    with serving(truth) as fake:
        spec = {"name": "judge", "kind": "chat", "model": "gpt-x", "base_url": fake.url}
        run = finish(create_run(make_round(2), spec, make_researcher()))

        assert run.status == Job.Status.SUCCEEDED
        assert all("Authorization" not in headers for headers in fake.headers)


# Cancellation


def test_cancelled_run_stops_and_continues_after_retry(monkeypatch):
    monkeypatch.setattr(ledger, "REPORT_EVERY_S", 0.0)

    def cancel_after_four(progress):
        if progress.done == 4:
            ledger.cancel_all(Job.objects.filter(pk=run.pk))

    with judging(n=12, n_parallel=1) as (fake, run):
        ledger.run_job(run.pk, cancel_after_four)
        run.refresh_from_db()

        assert run.status == Job.Status.CANCELLED
        assert run.answers.count() == 4

        ledger.retry(run)
        finish(run)

        assert run.status == Job.Status.SUCCEEDED
        assert run.answers.count() == 12
        assert fake.n_answered <= 13  # one request was in progress
