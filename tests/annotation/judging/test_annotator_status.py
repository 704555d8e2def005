"""Annotators who are paused or excluded."""

import pytest
from django.utils import timezone

from annotation.judging.assignment import AnnotatorNotActive, next_batch
from annotation.models import Annotator
from tests.factories import judge, judging_page, make_annotators, make_round

pytestmark = pytest.mark.django_db


@pytest.fixture
def annotator():
    [annotator] = make_annotators(make_round(4, batch_size=2), 1)
    return annotator


def put(annotator: Annotator, status: str) -> None:
    Annotator.objects.filter(pk=annotator.pk).update(status=status)


@pytest.mark.parametrize("status", ["paused", "excluded"])
def test_who_is_paused_or_excluded_gets_no_statement(annotator, status):
    put(annotator, status)

    with pytest.raises(AnnotatorNotActive, match="You are paused in round"):
        next_batch(annotator, timezone.now())


def test_what_was_in_hand_when_they_were_paused_is_still_taken(annotator):
    [task, _] = next_batch(annotator, timezone.now())
    put(annotator, "paused")

    assert judge(annotator, task).is_counted


def test_nothing_more_is_taken_from_the_excluded(annotator):
    [task, _] = next_batch(annotator, timezone.now())
    put(annotator, "excluded")

    with pytest.raises(AnnotatorNotActive):
        judge(annotator, task)


def test_the_judging_page_says_it_calmly(client, annotator):
    put(annotator, "paused")
    client.force_login(annotator.user)

    page = client.get(judging_page(annotator.round.name))

    assert page.status_code == 409
    assert "You do not need to do anything" in page.text
