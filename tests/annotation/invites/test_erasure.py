"""Erasure of personal data: identities are deleted and judgments are kept."""

from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from annotation.invites.erasure import erase_account, erase_annotator
from annotation.invites.services import BadReturnCode, find_by_return_code, join_round, make_invites, return_code
from annotation.judging.assignment import next_batch
from annotation.models import Annotator, Assignment, Judgment, Round
from kgharvest.accounts.projects import create_project, set_role
from kgharvest.audit.verification import Verification
from kgharvest.models import Event, Role
from tests.factories import (
    judge,
    judging_page,
    make_member,
    make_project,
    make_researcher,
    make_round,
    make_user,
)
from tests.refusals import refused

pytestmark = pytest.mark.django_db

WHO = "ada.lovelace"


@pytest.fixture
def round(researcher):
    return make_round(4, name="pilot", by=researcher, who_can_join="link", batch_size=4)


def judge_first_task(annotator: Annotator) -> Annotator:
    judge(annotator, next_batch(annotator, timezone.now())[0], comment="a comment")
    return annotator


def test_erasure_deletes_cached_statistics_with_names(round):
    guest = judge_first_task(join_round(round, name=WHO))
    round.snapshots.create(subject="strips", content=[{"name": WHO}], counted_at=timezone.now(), took_s=1)

    erase_annotator(guest)

    assert not round.snapshots.exists()


def stored_rows() -> str:
    """Return all rows of the tables that could contain names."""
    models = (Annotator, Event, Judgment, get_user_model())
    return "\n".join(str(list(model.objects.values())) for model in models)


def test_erasing_a_guest_keeps_the_judgments(round, researcher, researcher_client):
    set_role(round.project, researcher, Role.OWNER)
    guest = judge_first_task(join_round(round, name=WHO))
    code, browser = return_code(guest), Client()
    browser.post(f"/return/{code}/", {"code": code})
    assert browser.get(judging_page()).status_code == 200

    page = researcher_client.post(f"/projects/default/rounds/pilot/annotators/{guest.code}/erase/", follow=True).text

    assert WHO not in page
    assert WHO not in stored_rows()
    assert Judgment.objects.counted().get().annotator == guest
    assert Round.objects.get().tasks.filter(n_leased__gt=0).count() == 0
    assert set(guest.assignments.values_list("status", flat=True)) == {"done", "expired"}
    with pytest.raises(BadReturnCode):
        find_by_return_code(code)
    assert browser.get(judging_page()).status_code == 302
    assert Event.objects.get(kind="erased").by == researcher


def test_erased_annotator_cannot_return_by_invite(round):
    [invite] = make_invites(round, 1, timezone.now() + timedelta(days=1))
    guest = join_round(round, invite=invite)

    erase_annotator(guest)

    assert not round.invites.exists()


def test_erasure_is_idempotent(round):
    guest = join_round(round, name=WHO)

    for _ in range(2):
        erase_annotator(guest)

    assert Event.objects.filter(kind="erased").count() == 1


def test_erasure_requires_manage_permission(round):
    guest, stranger = join_round(round, name=WHO), Client()
    stranger.force_login(make_researcher(project=make_project()))

    assert stranger.post(f"/projects/default/rounds/pilot/annotators/{guest.code}/erase/").status_code == 404
    guest.refresh_from_db()
    assert guest.name == WHO


def test_account_erasure_deletes_all_identifying_data(round):
    user = make_user(WHO)
    annotator = judge_first_task(join_round(round, user))

    assert erase_account(user) == 1

    assert WHO not in stored_rows()
    assert Judgment.objects.counted().get().annotator == annotator
    assert not Assignment.objects.filter(status=Assignment.Status.LEASED).exists()
    annotator.refresh_from_db()
    assert (annotator.user, annotator.who) == (None, "")


def test_sole_owner_of_a_project_cannot_be_erased(round, researcher):
    round.project.members.update(role=Role.OWNER)
    with refused("SoleOwner", match="only owner of the project 'Default'"):
        erase_account(researcher)

    make_member(Role.OWNER)
    erase_account(researcher)
    assert Round.objects.get().created_by is None


def test_command_erases_accounts_and_guests(round, capsys):
    make_user(WHO)
    guest = join_round(round, name="Bea")

    call_command("erase_person", WHO)
    call_command("erase_person", round="pilot", annotator=guest.code)

    assert f"Account {WHO} deleted" in capsys.readouterr().out
    assert "Bea" not in stored_rows()
    with pytest.raises(CommandError, match="either an account, or a round"):
        call_command("erase_person")
    with pytest.raises(CommandError, match="has no annotator 'nobody'"):
        call_command("erase_person", round="pilot", annotator="nobody")


# Erasure by owners


def test_owners_erase_only_members_of_their_own_projects(client):
    owner, stranger = make_researcher("owner"), make_researcher("stranger")
    member = make_user(WHO, email="ada@example.org")
    project = create_project("Animals", owner)
    for person in (member, stranger):
        set_role(project, person, Role.RESEARCHER, owner)
    create_project("Elsewhere", stranger)
    client.force_login(owner)
    erase = partial(client.post, "/projects/animals/erase/")

    assert "No account" in erase({"username": "nobody"}).text
    assert "projects that you do not own" in erase({"username": "stranger"}).text
    assert "your own account" in erase({"username": "owner"}).text
    assert "Erase a person" in client.get("/projects/animals/").text
    page = client.post("/projects/animals/erase/", {"username": WHO}, follow=True).text

    assert "Account erased" in page
    assert WHO not in stored_rows()
    assert list(Verification()) == []
    client.force_login(stranger)
    assert erase({"username": "owner"}).status_code == 403
