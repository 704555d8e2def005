"""The list of sensitive words and its updates."""

from __future__ import annotations

import pytest

from kgharvest.jobs import ledger, messages
from kgharvest.knowledge import sensitive_words
from kgharvest.knowledge.sensitive_words import default_words, matcher, read_words, replace_words
from kgharvest.models import Job, KnowledgeTuple, SensitiveWord
from tests import factories
from tests.refusals import refused

pytestmark = pytest.mark.django_db


def marked() -> set[str]:
    keys = KnowledgeTuple.objects.filter(is_sensitive=True).values_list("key", flat=True)
    return {key.replace("\x1f", "|") for key in keys}


def test_word_list_has_case_folded_lines_and_comments():
    assert read_words("# why\n\n Gas   Chamber \nnude\nNUDE\n") == ["gas chamber", "nude"]


@pytest.mark.parametrize(
    ("key", "is_found"),
    [("sex", True), ("a\x1fsex", True), ("sex-change", True), ("sextant", False), ("essex", False), ("s.e.x", False)],
)
def test_only_whole_words_are_found(key, is_found):
    assert matcher(["sex"])(key) is is_found


def test_an_empty_list_finds_nothing():
    assert not matcher([])("anything")


def test_words_are_not_regular_expressions():
    assert matcher(["c++", "a.b"])("c++") is True
    assert matcher(["a.b"])("axb") is False


def test_a_changed_list_updates_all_tuples_in_batches(enqueued, monkeypatch):
    monkeypatch.setattr(sensitive_words, "ROWS_AT_ONCE", 2)
    factories.make_harvest([[f"head {n}", "nazi" if n % 2 else "tulip"] for n in range(7)])
    factories.make_harvest([["lily", "tulip"]])

    job = replace_words(["tulip"])
    ledger.run_job(job.pk)

    assert marked() == {"head 0|tulip", "head 2|tulip", "head 4|tulip", "head 6|tulip", "lily|tulip"}
    assert Job.objects.get(pk=job.pk).status == Job.Status.SUCCEEDED
    assert enqueued == [job.pk]


@pytest.mark.django_db(transaction=True)
def test_updates_of_the_sensitivity_flag_have_their_own_queue(monkeypatch):
    queues = []
    monkeypatch.setattr(messages.app, "send_task", lambda name, queue, **others: queues.append(queue))

    ledger.enqueue(replace_words(["tulip"]))
    ledger.enqueue(factories.make_harvest_job())

    assert queues == ["urgent", "urgent", "harvest"]


def test_an_unchanged_list_queues_no_job(enqueued):
    assert replace_words(default_words()) is None
    assert not Job.objects.exists()


def test_an_invalid_word_list_is_rejected():
    with refused("BadWordList", match="more than 100 characters"):
        replace_words(["x" * 101])
    with refused("BadWordList", match="5,001 entries"):
        replace_words([str(n) for n in range(5001)])
    assert SensitiveWord.objects.filter(word="nazi").exists()
