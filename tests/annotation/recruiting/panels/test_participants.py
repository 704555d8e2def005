"""People who come from a panel: the entry link, consent, judging, and the code at the end."""

import pytest
from django.test import Client
from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.models import Annotator, Panel
from tests.factories import judge, judging_page, make_panel, make_round

pytestmark = pytest.mark.django_db

NOW = timezone.now()
CODE = "C0DE-4711"


def make_pilot(n_tasks: int = 4, **spec):
    return make_round(n_tasks, name="pilot", **spec)


def link(panel: Panel, **parameters: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in (parameters or {"participant": "p1"}).items())
    return f"/enter/{panel.token}/?{query}"


def come(client: Client, panel: Panel, participant: str = "p1") -> None:
    """Enter, agree and start."""
    client.get(link(panel, participant=participant))
    response = client.post(link(panel, participant=participant), {"agrees": "on"})
    assert response.url == f"/judge/{panel.round_id}/"


def judge_batch(annotator: Annotator) -> None:
    for task in next_batch(annotator, timezone.now()):
        judge(annotator, task)


# -- entering ----------------------------------------------------------------------------------------------------------


def test_a_person_comes_by_the_link_agrees_and_judges(client):
    panel = make_panel(make_pilot(consent="Be **honest**."), statements_per_place=3)

    page = client.get(link(panel)).text
    refused = client.post(link(panel)).text
    come(client, panel)

    assert "Your part is 3 statements" in page
    assert "<strong>honest</strong>" in page
    assert "Tick that you agree" in refused
    submission = panel.submissions.get()
    assert submission.participant_id == "p1"
    assert submission.annotator.place_size == 3
    assert submission.annotator.consented_at is not None
    assert client.get(judging_page()).status_code == 200


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("", "lacks “worker”"),
        ("worker=", "lacks “worker”"),
        ("worker=p1", "lacks “session”"),
        ("worker=p1&worker=p2&session=s1", "has “worker” more than once"),
        ("worker=%25SURVEY_CODE%25&session=s1", "“worker” in your link is nothing that names a person"),
        ("worker=p%071&session=s1", "“worker” in your link is nothing that names a person"),
        (f"worker={'p' * 201}&session=s1", "“worker” in your link is nothing that names a person"),
    ],
)
def test_a_link_that_lacks_something_is_answered_with_a_sentence(client, query, sentence):
    panel = make_panel(make_pilot(), participant_parameter="worker", session_parameter="session")

    response = client.get(f"/enter/{panel.token}/?{query}")

    assert response.status_code == 400
    assert sentence in response.text
    assert not panel.submissions.exists()
