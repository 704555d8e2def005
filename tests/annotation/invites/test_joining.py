"""Joining a round: accounts, guests, invites, consent, return codes, and rejected attempts."""

import csv
import hashlib
import io
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from annotation.invites.services import (
    BadReturnCode,
    InviteNotUsable,
    find_by_return_code,
    join_round,
    make_invites,
    return_code,
    revoke_invites,
    use_invite,
)
from annotation.models import Annotator, Invite, Round
from annotation.rounds.services import clone_round, close_round, create_draft, pause_round, set_who_can_join
from kgharvest.models import Role
from tests.factories import (
    judging_page,
    make_annotators,
    make_harvest,
    make_member,
    make_project,
    make_round,
    make_user,
)
from tests.refusals import refused

pytestmark = pytest.mark.django_db

PILOT = "/projects/default/rounds/pilot/"

NOW = timezone.now()
TOMORROW = NOW + timedelta(days=1)


def guest_round(**fields) -> Round:
    return make_round(4, name="pilot", who_can_join="link", **fields)


def make_invite(round: Round, expires_at=TOMORROW) -> Invite:
    return make_invites(round, 1, expires_at)[0]


def join_url(round: Round) -> str:
    return f"/join/{round.join_token}/"


# Who can join

# Whether a person can join by the join link, by choice: account, link, invite
BY_LINK = {
    "guest": (False, True, False),
    "guest without a name": (False, False, False),
    "account": (True, True, False),
    "member of the project": (True, True, False),
    "owner of another project": (True, True, False),
}


def account_of(person: str):
    if person == "account":
        return make_user()
    return make_member(Role.OWNER, None if person == "member of the project" else make_project())


@pytest.mark.parametrize("who_can_join", Round.WhoCanJoin)
def test_who_can_join_decides_on_people_without_an_invite(who_can_join):
    round = make_round(4, who_can_join=who_can_join)
    joined = {}
    for person in BY_LINK:
        client, n = Client(), Annotator.objects.count()
        if "guest" not in person:
            client.force_login(account_of(person))
        client.post(join_url(round), {"name": "Ada"} if person == "guest" else {})
        joined[person] = Annotator.objects.count() > n

    column = Round.WhoCanJoin.values.index(who_can_join)
    assert joined == {person: row[column] for person, row in BY_LINK.items()}


@pytest.mark.parametrize("who_can_join", Round.WhoCanJoin)
@pytest.mark.parametrize("person", ["guest", "account", "owner of another project"])
def test_personal_invite_works_for_every_choice(client, who_can_join, person):
    round = make_round(4, who_can_join=who_can_join)
    if person != "guest":
        client.force_login(account_of(person))

    client.post(make_invite(round).get_absolute_url())

    assert round.annotators.count() == 1


def test_choice_changes_while_the_round_is_open(client):
    round, by = guest_round(), make_member(Role.RESEARCHER)
    client.post(join_url(round), {"name": "Ada"})
    researcher = Client()
    researcher.force_login(by)

    researcher.post(f"{PILOT}invites/joining/", {"who_can_join": "invite"})
    researcher.post(f"{PILOT}invites/joining/", {"who_can_join": "everybody"})

    round.refresh_from_db()
    assert (round.who_can_join, round.takes_guests) == ("invite", False)
    assert clone_round(round, by).who_can_join == "invite"
    assert client.get(judging_page()).status_code == 200  # Ada continues
    assert Client().post(join_url(round), {"name": "Bea"}).status_code == 409
    with refused("InviteMissing"):
        join_round(Round.objects.get(pk=round.pk), make_user())
    event = round.events.get(kind="who_can_join_set")
    assert (event.by, event.known_facts["who"]) == (by, "invite")


def test_choice_of_a_draft_or_closed_round_does_not_change_by_the_service():
    draft = create_draft({"name": "draft", "cells": [{"job": make_harvest([("a", "b")]).pk, "n": 1}]})
    closed = guest_round()
    close_round(closed)

    for round in (draft, closed):
        with refused("WrongStatus"):
            set_who_can_join(round, "invite")


@pytest.mark.parametrize("source", ["imported", "simulated"])
def test_choice_is_refused_for_rounds_without_people(source):
    round = guest_round()
    Round.objects.filter(pk=round.pk).update(source=source, spec={})

    with refused("NotForPeople"):
        set_who_can_join(Round.objects.get(pk=round.pk), "link")
    assert Round.objects.get(pk=round.pk).spec == {}


def test_join_of_a_guest_is_refused_if_the_choice_changes_meanwhile():
    """`round` was loaded before the change."""
    round = guest_round()
    set_who_can_join(Round.objects.get(pk=round.pk), "account")

    with refused("NoGuests"):
        join_round(round, name="Ada")


# Guests


def test_guest_joins_with_a_name_and_judges(client):
    round = guest_round()

    response = client.post(join_url(round), {"name": "  Ada \t 7 "})

    assert response.url == judging_page()
    assert Annotator.objects.get().name == "Ada 7"
    assert client.get(judging_page()).status_code == 200


def test_guest_name_is_required(client):
    page = client.post(join_url(guest_round()), {"name": "  "}).text

    assert "This field is required" in page
    assert not Annotator.objects.exists()


def test_guest_name_is_unique_in_a_round():
    round = guest_round()
    join_round(round, name="Ada")

    with refused("NameTaken", match="use your return code"):
        join_round(round, name="ADA")


def test_guest_name_can_be_reused_in_another_round():
    join_round(guest_round(), name="Ada")

    join_round(make_round(who_can_join="link"), name="Ada")


def test_round_without_guests_requires_an_account(client):
    round = make_round()

    assert client.get(join_url(round)).url == f"/accounts/login/?next={join_url(round)}"
    with refused("NoGuests"):
        join_round(round, name="Ada")


def test_guest_reopening_the_link_continues_judging(client):
    round = guest_round()
    client.post(join_url(round), {"name": "Ada"})

    assert client.get(join_url(round)).url == judging_page()


def test_guest_has_no_access_to_other_rounds(client):
    client.post(join_url(guest_round()), {"name": "Ada"})
    make_round(name="other", who_can_join="link")

    assert client.get(judging_page("other")).url.startswith("/return/?next=")
    assert client.get(judging_page("other"), headers={"accept": "application/json"}).status_code == 403


def test_account_takes_precedence_over_guest(client):
    round, user = guest_round(), make_user()
    client.post(join_url(round), {"name": "Ada"})
    account = join_round(round, user)
    client.force_login(user)

    assert client.get(judging_page()).context["annotator"] == account


def test_start_page_lists_rounds_of_a_guest(client):
    client.post(join_url(guest_round()), {"name": "Ada"})

    assert judging_page() in client.get("/").text


@pytest.mark.parametrize(("end", "status"), [(close_round, 409), (pause_round, 200)])
def test_closed_round_rejects_new_annotators(client, end, status):
    round = guest_round()
    end(round)

    response = client.get(join_url(round))

    assert response.status_code == status
    assert ("The round pilot is closed. You can no longer join it." in response.text) == (status == 409)


# Consent


def test_consent_is_required_for_joining(client):
    round = guest_round(consent="Your answers are **published**.")

    page = client.post(join_url(round), {"name": "Ada"}).text

    assert "<strong>published</strong>" in page
    assert "You must agree" in page
    assert not Annotator.objects.exists()


def test_consent_is_recorded_with_time_and_text(client):
    round = guest_round(consent="Your answers are published.")

    client.post(join_url(round), {"name": "Ada", "agrees": "on"})

    annotator = Annotator.objects.get()
    assert annotator.consent_sha256 == hashlib.sha256(b"Your answers are published.").hexdigest()
    assert annotator.consented_at is not None


def test_consent_is_required_for_accounts():
    round = guest_round(consent="Yes?")

    with refused("ConsentMissing"):
        join_round(round, make_user())


# Return codes


def test_return_code_restores_the_annotator_on_another_device(client):
    guest = join_round(guest_round(), name="Ada")
    code = return_code(guest)

    page = client.get(f"/return/{code}/")
    response = client.post("/return/", {"code": page.context["form"].initial["code"]})

    assert guest.code in page.text
    assert response.url == judging_page()
    assert client.get(response.url).context["annotator"] == guest


def test_opening_a_return_link_does_not_log_in(client):
    guest = join_round(guest_round(), name="Ada")

    client.get(f"/return/{return_code(guest)}/")

    assert client.get(judging_page()).status_code == 302


@pytest.mark.parametrize("change", [str.lower, lambda code: code.replace("-", " "), lambda code: f" {code}\n"])
def test_return_code_ignores_case_and_spacing(change):
    guest = join_round(guest_round(), name="Ada")
    number, _, signature = return_code(guest).partition("-")

    assert find_by_return_code(f"{number}-{change(signature)}") == guest


@pytest.mark.parametrize("code", ["", "1", "1-AAAA-AAAA-AAAA-AAAA", "x" * 1000, "٣-AAAAAAAAAAAAAAAA", "1-\x00"])
def test_forged_return_code_is_rejected(client, code):
    join_round(guest_round(), name="Ada")

    with pytest.raises(BadReturnCode, match="Invalid return code"):
        find_by_return_code(code)
    assert client.post("/return/", {"code": code}).status_code in {200, 404}


def test_return_code_signature_is_valid_for_one_annotator_only():
    annotator, other = (join_round(round, name="Ada") for round in (guest_round(), make_round(who_can_join="link")))

    with pytest.raises(BadReturnCode):
        find_by_return_code(return_code(annotator).replace(f"{annotator.pk}-", f"{other.pk}-", 1))


def test_return_code_of_an_account_is_rejected(client):
    account = join_round(guest_round(), make_user())

    with pytest.raises(BadReturnCode):
        find_by_return_code(return_code(account))


# Invites


def test_invite_admits_one_person_without_name_or_account(client):
    invite = make_invite(make_round(name="pilot"))

    assert client.post(invite.get_absolute_url()).url == judging_page()

    invite.refresh_from_db()
    assert invite.annotator == Annotator.objects.get()
    assert client.get(invite.get_absolute_url()).url == judging_page()


def test_used_invite_is_rejected_for_other_people(client):
    invite = make_invite(make_round())
    client.post(invite.get_absolute_url())

    response = Client().post(invite.get_absolute_url())

    assert response.status_code == 410
    assert "This invite was already used" in response.text
    assert Annotator.objects.count() == 1


def test_expired_and_revoked_invites_are_rejected(client):
    round = make_round()
    expired, revoked = make_invite(round, NOW - timedelta(seconds=1)), make_invite(round)
    revoke_invites(round, [revoked.token], NOW)

    assert "This invite has expired" in client.get(expired.get_absolute_url()).text
    assert "This invite was revoked" in client.get(revoked.get_absolute_url()).text
    assert client.post(revoked.get_absolute_url()).status_code == 410


def test_stale_invite_object_cannot_be_used_again():
    round = make_round()
    invite = make_invite(round)
    first, second = make_annotators(round, 2)
    use_invite(Invite.objects.get(), first, NOW)

    with pytest.raises(InviteNotUsable, match="already used"):
        use_invite(invite, second, NOW)


def test_invite_opened_with_account_joins_that_account(client):
    invite, user = make_invite(make_round(name="pilot")), make_user()
    client.force_login(user)

    assert client.post(invite.get_absolute_url()).url == judging_page()

    assert Annotator.objects.get().user == user


def test_unused_invite_on_shared_device_offers_current_annotator(client):
    round = make_round(name="pilot")
    first, second = make_invites(round, 2, TOMORROW)
    client.post(first.get_absolute_url())

    page = client.get(second.get_absolute_url()).text
    client.post(second.get_absolute_url())

    first.refresh_from_db()
    second.refresh_from_db()
    assert f"continue as {first.annotator.code}" in page
    assert client.get(judging_page()).context["annotator"] == second.annotator


def test_guest_can_sign_out_of_a_browser(client):
    client.post(join_url(guest_round()), {"name": "Ada"})

    client.post(judging_page("pilot", "device/"))

    assert client.get(judging_page()).status_code == 302


def test_used_invite_cannot_be_revoked(client):
    round = make_round()
    invite = make_invite(round)
    client.post(invite.get_absolute_url())

    assert revoke_invites(round, [invite.token], NOW) == 0


def test_invites_of_another_round_cannot_be_revoked():
    assert revoke_invites(make_round(), [make_invite(make_round()).token], NOW) == 0


def test_researchers_can_create_and_download_invites(researcher_client, researcher):
    round = make_round(name="pilot", by=researcher)

    researcher_client.post(f"{PILOT}invites/", {"n": 3, "days": 30})
    Client().post(Invite.objects.first().get_absolute_url())
    lines = b"".join(researcher_client.get(f"{PILOT}invites.csv").streaming_content).decode()

    rows = list(csv.DictReader(io.StringIO(lines)))
    assert [row["status"] for row in rows] == ["used", "open", "open"]
    assert rows[0]["annotator"] == Annotator.objects.get().code
    assert {row["link"] for row in rows} == {
        f"http://testserver{invite.get_absolute_url()}" for invite in round.invites.all()
    }


def test_annotators_with_invites_are_listed_by_invite(researcher_client, researcher):
    invite = make_invite(make_round(name="pilot", by=researcher))
    Client().post(invite.get_absolute_url())
    code = Annotator.objects.get().code
    token_start = f"{invite.token[:6]}…"

    for path in ("", "annotators/", f"annotators/{code}/"):
        assert f"invite {token_start}" in researcher_client.get(f"{PILOT}{path}").text
    invites = researcher_client.get(f"{PILOT}invites/").text
    assert token_start in invites
    assert f'href="{PILOT}annotators/{code}/"' in invites


def test_invite_can_be_revoked_on_the_invites_page(researcher_client, researcher):
    invite = make_invite(make_round(name="pilot", by=researcher))

    page = researcher_client.post(f"{PILOT}invites/revoke/", {"token": invite.token}, follow=True).text

    assert "1 invite revoked." in page
    assert invite.token not in page


def test_invite_token_with_nul_does_not_reach_the_database(django_assert_num_queries):
    round = make_round()

    with django_assert_num_queries(0):
        assert revoke_invites(round, ["\x00"], NOW) == 0


def test_viewers_cannot_see_invites(client):
    make_round(name="pilot")
    client.force_login(make_member(Role.VIEWER))

    assert {client.get(f"{PILOT}{path}").status_code for path in ("invites/", "invites.csv")} == {403}
    assert client.post(f"{PILOT}invites/revoke/").status_code == 403


# Wrong links


@pytest.mark.parametrize("path", ["/join/forged/", "/invite/forged/", "/return/1-AAAA-AAAA-AAAA-AAAA/"])
def test_forged_link_returns_404(client, path):
    response = client.get(path)

    assert response.status_code == 404
    assert "Invalid link" in response.text or "Invalid return code" in response.text


def test_repeated_wrong_links_are_throttled(client, settings):
    settings.LIMITS = settings.LIMITS | {"wrong_links": (3, 900)}
    for _ in range(3):
        assert client.get("/invite/forged/").status_code == 404

    assert client.get("/join/forged/").status_code == 429
    assert Client(REMOTE_ADDR="10.0.0.9").get("/join/forged/").status_code == 404


def test_valid_link_works_despite_throttling(client, settings):
    settings.LIMITS = settings.LIMITS | {"wrong_links": (0, 900)}
    round = guest_round()
    assert client.get("/join/forged/").status_code == 429

    assert client.get(join_url(round)).status_code == 200
    assert client.get(make_invite(round).get_absolute_url()).status_code == 200
    guest = join_round(round, name="Ada")
    assert client.get(f"/return/{return_code(guest)}/").status_code == 200


# Guest limits and names


def join_as(round, name: str, address: str = "192.0.2.7") -> int:
    return Client(REMOTE_ADDR=address).post(join_url(round), {"name": name}).status_code


def test_guests_from_one_address_are_limited_to_thirty():
    round, other = guest_round(), make_round(2, who_can_join="link")

    statuses = [join_as(round, f"Ada {number}") for number in range(60)]

    assert statuses == [302] * 30 + [429] * 30
    assert round.annotators.count() == 30
    assert join_as(other, "Ada") == 302
    assert join_as(round, "Bea", "192.0.2.8") == 302


def test_ipv6_addresses_of_one_network_share_the_guest_limit(settings):
    settings.LIMITS = settings.LIMITS | {"guests": (1, 600)}
    round = guest_round()

    assert join_as(round, "Ada", "2001:db8::1") == 302
    assert join_as(round, "Bea", "2001:db8::ffff:1") == 429
    assert join_as(round, "Bea", "2001:db8:0:1::1") == 302


def test_invites_are_exempt_from_the_network_limit(settings):
    settings.LIMITS = settings.LIMITS | {"guests": (0, 600)}
    round = guest_round()

    assert join_as(round, "Ada") == 429
    assert Client().post(make_invite(round).get_absolute_url()).status_code == 302


@pytest.mark.parametrize("name", ["Ada", "ADA", " Ada ", "A\u200bda", "\uff21da", "\U0001d400da"])
def test_lookalike_guest_names_count_as_equal(name):
    round = guest_round()
    join_round(round, name="ada")

    with refused("NameTaken"):
        join_round(round, name=name)


@pytest.mark.parametrize("name", ["Ad\u0430", "\u0391da"])  # Cyrillic and Greek letters
def test_name_with_mixed_alphabets_is_rejected(name):
    with refused("BadName", match="mixes alphabets"):
        join_round(guest_round(), name=name)


@pytest.mark.parametrize("name", ["\u0410\u0434\u0430 12", "\u5f20\u4f1f Wei", "P01"])
def test_names_in_any_single_alphabet_are_accepted(name):
    assert join_round(guest_round(), name=name).name == name


def test_links_to_a_draft_return_404(client):
    round = guest_round()
    invite = make_invite(round)
    Round.objects.update(status=Round.Status.DRAFT)

    assert client.get(join_url(round)).status_code == client.get(invite.get_absolute_url()).status_code == 404
