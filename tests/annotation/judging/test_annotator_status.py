"""Paused and excluded annotators."""

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


def set_status(annotator: Annotator, status: str) -> None:
    Annotator.objects.filter(pk=annotator.pk).update(status=status)


@pytest.mark.parametrize("status", ["paused", "excluded"])
def test_paused_or_excluded_annotator_gets_no_statements(annotator, status):
    set_status(annotator, status)

    with pytest.raises(AnnotatorNotActive, match="You are paused in round"):
        next_batch(annotator, timezone.now())


def test_paused_annotator_can_judge_assigned_tasks(annotator):
    [task, _] = next_batch(annotator, timezone.now())
    set_status(annotator, "paused")

    assert judge(annotator, task).is_counted


def test_judgment_of_excluded_annotator_is_rejected(annotator):
    [task, _] = next_batch(annotator, timezone.now())
    set_status(annotator, "excluded")

    with pytest.raises(AnnotatorNotActive):
        judge(annotator, task)


def test_judging_page_of_paused_annotator_reassures(client, annotator):
    set_status(annotator, "paused")
    client.force_login(annotator.user)

    page = client.get(judging_page(annotator.round.name))

    assert page.status_code == 409
    assert "You do not need to do anything" in page.text
