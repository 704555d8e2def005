"""Projects and members: creation, invites, roles, removal, and handover. A project always keeps an owner."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from threading import Barrier, Thread
from unittest.mock import patch

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.tokens import default_token_generator
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.utils import timezone

from kgharvest.access import NotAllowed
from kgharvest.accounts import projects
from kgharvest.accounts import views as account_views
from kgharvest.accounts.projects import (
    InviteNotUsable,
    LastOwner,
    accept_invite,
    create_annotator,
    create_invite,
    create_project,
    find_invite,
    hand_over,
    project_for,
    remove_member,
    renew_annotator,
    revoke_invite,
    set_role,
)
from kgharvest.errors import NotFound
from kgharvest.events.models import Event
from kgharvest.models import Project, ProjectInvite, ProjectMember, Role
from tests.factories import default_project, make_member, make_project, make_researcher, make_user
from tests.refusals import refused

PASSWORD = "a-long-enough-one"


def roles_in(project: Project) -> dict[str, str]:
    return dict(project.members.values_list("user__username", "role"))


def client_of(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def owner(db):
    return make_member(Role.OWNER, username="ada")


@pytest.fixture
def project(owner) -> Project:
    return default_project()


# Project selection


@pytest.mark.django_db
def test_project_for_requires_a_choice_among_several():
    assert project_for(None).slug == "default"  # in a new installation
    animals, ada = make_project("Animals"), make_researcher()

    assert project_for(ada).slug == "default"
    assert [project_for(None, name) for name in ("animals", "Animals")] == [animals, animals]
    with refused("ProjectNotNamed", match="animals, default"):
        project_for(None)
    with pytest.raises(NotFound, match=r"'animals' not found\. Existing projects: default"):
        project_for(ada, "animals")
    with pytest.raises(NotAllowed):
        project_for(ada, animals)
    with refused("ProjectNotNamed", match="You cannot work in any project"):
        project_for(make_member(Role.VIEWER))


@pytest.mark.django_db
def test_similar_project_names_get_different_slugs(owner):
    slugs = [create_project(name, owner).slug for name in ("Lab A", "lab-a", "New", "犬")]

    assert slugs == ["lab-a", "lab-a-2", "new-2", "project"]
    with refused("NameTaken"):
        create_project("Lab A ", owner)


# Members


def test_only_owners_change_members(project, owner):
    researcher, viewer = make_researcher(), make_member(Role.VIEWER)

    for change in (
        lambda by: set_role(project, viewer, Role.OWNER, by),
        lambda by: remove_member(project, viewer, by),
        lambda by: create_invite(project, Role.VIEWER, timezone.now(), by),
        lambda by: hand_over(project, viewer, by),
        lambda by: projects.rename_project(project, "Mine", by),
    ):
        with pytest.raises(NotAllowed):
            change(researcher)
    set_role(project, viewer, Role.ADJUDICATOR, owner)
    remove_member(project, researcher, researcher)  # members can remove themselves

    assert roles_in(project) == {"ada": "owner", viewer.username: "adjudicator"}
    entries = Event.objects.filter(project_id=project.pk).order_by("pk")
    assert list(entries.values_list("action", flat=True)) == ["member.role_set", "member.removed"]


def test_last_owner_cannot_leave(project, owner):
    researcher = make_researcher("bea")

    for change in (
        lambda: remove_member(project, owner, owner),
        lambda: set_role(project, owner, Role.VIEWER, owner),
        lambda: remove_member(project, owner),
    ):
        with pytest.raises(LastOwner, match="ada is the last owner of the project Default"):
            change()
    hand_over(project, researcher, owner)

    assert roles_in(project) == {"ada": "researcher", "bea": "owner"}
    with pytest.raises(NotFound):
        hand_over(project, make_user(), researcher)


@pytest.mark.django_db(transaction=True)
def test_one_of_two_simultaneously_leaving_owners_stays():
    project, owners = default_project(), [make_member(Role.OWNER) for _ in range(2)]
    start, refusals = Barrier(2), []

    def leave(owner) -> None:
        start.wait()
        try:
            remove_member(project, owner, owner)
        except (LastOwner, NotAllowed) as refusal:
            refusals.append(refusal)
        finally:
            connection.close()

    threads = [Thread(target=leave, args=[owner]) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (project.members.count(), len(refusals)) == (1, 1)


# Invites


def test_invite_link_works_once_and_is_not_stored(project, owner):
    now = timezone.now()
    invite, secret = create_invite(project, Role.ADJUDICATOR, now + timedelta(days=1), owner)
    ann, bob = make_user("ann"), make_user("bob")

    assert secret not in str(ProjectInvite.objects.values().get())
    assert accept_invite(find_invite(secret), ann, now).role == "adjudicator"
    assert accept_invite(invite, ann, now).role == "adjudicator"  # again
    with pytest.raises(InviteNotUsable):
        accept_invite(invite, bob, now)

    for unusable, at in ((True, now), (False, now + timedelta(days=2))):
        invite, secret = create_invite(project, Role.VIEWER, now + timedelta(days=1), owner)
        if unusable:
            revoke_invite(invite, now, owner)
        with pytest.raises(InviteNotUsable):
            accept_invite(find_invite(secret), bob, at)
    with pytest.raises(NotFound, match="No invitation has this link"):
        find_invite("made-up")
    assert set(roles_in(project)) == {"ada", "ann"}


@pytest.mark.django_db(transaction=True)
def test_one_of_simultaneous_uses_of_an_invite_succeeds():
    project, people = default_project(), [make_user() for _ in range(4)]
    invite, _ = create_invite(project, Role.VIEWER, timezone.now() + timedelta(days=1))
    start, joined = Barrier(len(people)), []

    def join(user) -> None:
        start.wait()
        try:
            joined.append(accept_invite(invite, user, timezone.now()))
        except InviteNotUsable:
            pass
        finally:
            connection.close()

    threads = [Thread(target=join, args=[user]) for user in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(joined), ProjectMember.objects.count()) == (1, 1)


def link_on(page: str) -> str:
    return re.search(r"http://testserver(/member/[\w-]+/)", page)[1]


def test_project_page_creates_invite_and_shows_link_once(project, owner):
    page = client_of(owner).post("/projects/default/invites/", {"role": "viewer", "days": 7}).text
    link = link_on(page)

    assert link not in client_of(owner).get("/projects/default/").text
    assert "with the role viewer" in Client().get(link).text
    newcomer = Client()
    made = newcomer.post(link, {"username": "eve", "password1": PASSWORD, "password2": PASSWORD})
    assert made.url == "/projects/default/"
    assert newcomer.get("/projects/default/").status_code == 200
    assert (roles_in(project)["eve"], get_user_model().objects.get(username="eve").is_superuser) == ("viewer", False)
    assert Client().get(link).status_code == 410


def test_sign_up_requires_a_second_factor_if_configured(project, owner, settings):
    settings.SECOND_FACTOR_FOR = "owners"
    link = link_on(client_of(owner).post("/projects/default/invites/", {"role": "owner", "days": 7}).text)
    newcomer = Client()

    newcomer.post(link, {"username": "eve", "password1": PASSWORD, "password2": PASSWORD})

    for page in ("/projects/default/", "/api/v1/projects/"):
        assert newcomer.get(page).url == "/accounts/second-factor/set-up/"


def test_sign_up_without_local_login_redirects_to_provider(project, owner, settings):
    settings.LOCAL_LOGIN = False
    settings.OPENID = {"name": "the institute"}
    link = link_on(client_of(owner).post("/projects/default/invites/", {"role": "viewer", "days": 7}).text)
    form = {"username": "eve", "password1": PASSWORD, "password2": PASSWORD}

    answers = [Client().get(link), Client().post(link, form)]

    assert {answer.url for answer in answers} == {f"/accounts/login/?next={link}"}
    assert not get_user_model().objects.filter(username="eve").exists()


def test_an_existing_account_can_join(project, owner):
    link = link_on(client_of(owner).post("/projects/default/invites/", {"role": "researcher", "days": 7}).text)
    ann = make_user("ann")

    assert "Join as ann" in client_of(ann).get(link).text
    client_of(ann).post(link)

    assert roles_in(project)["ann"] == "researcher"


def test_project_page_changes_roles_hands_over_and_removes_members(project, owner):
    bea = make_researcher("bea")
    member = project.members.get(user=bea).pk
    client = client_of(owner)

    client.post(f"/projects/default/members/{member}/role/", {"role": "viewer"})
    assert roles_in(project)["bea"] == "viewer"
    assert (
        "last owner"
        in client.post(f"/projects/default/members/{project.members.get(user=owner).pk}/remove/", follow=True).text
    )
    client.post("/projects/default/rename/", {"name": "Zoo"})
    client.post(f"/projects/default/members/{member}/hand-over/")
    assert roles_in(project) == {"ada": "researcher", "bea": "owner"}
    left = client.post(f"/projects/default/members/{project.members.get(user=owner).pk}/remove/")

    assert left.url == "/"
    assert client.get("/projects/default/").status_code == 403  # users without a membership have no access
    assert Project.objects.get().name == "Zoo"


def test_researcher_creates_project_and_owns_it(project):
    client = client_of(make_researcher("bea"))

    made = client.post("/projects/new/", {"name": "Lab B"})

    assert made.url == "/projects/lab-b/"
    assert roles_in(Project.objects.get(slug="lab-b")) == {"bea": "owner"}
    assert "Lab B" in client.get("/projects/").text


# Command


def test_command_lists_adds_and_removes_members(project, owner, capsys):
    make_user("bea")

    call_command("members", "default", add="bea", role="viewer")
    assert capsys.readouterr().out == "ada\towner\nbea\tviewer\n"
    call_command("members", remove="bea")
    assert capsys.readouterr().out == "ada\towner\n"
    for options, sentence in (
        ({"add": "nobody", "role": "viewer"}, "'nobody' not found. .*--invite"),
        ({"add": "bea"}, "--add and --role require each other"),
        ({"remove": "ada"}, "last owner"),
    ):
        with pytest.raises(CommandError, match=sentence):
            call_command("members", "default", **options)
    with pytest.raises(CommandError, match=r"'zoo' not found\. Existing projects: default"):
        call_command("members", "zoo")


@pytest.mark.django_db
def test_first_owner_link_makes_provider_account_superuser(capsys, settings):
    settings.LOCAL_LOGIN, settings.OPENID = False, {"name": "SSO"}
    bystander, ada = make_user("someone"), make_user("ada")  # accounts created by the provider
    call_command("members", first_owner=True)
    link = capsys.readouterr().out.strip().removeprefix("http://127.0.0.1:8000")

    assert Client().get(link).url == f"/accounts/login/?next={link}"
    assert "Set up this installation" in client_of(ada).get(link).text
    client_of(ada).post(link)

    for user in (ada, bystander):
        user.refresh_from_db()
    assert (ada.is_superuser, roles_in(default_project())) == (True, {"ada": "owner"})
    assert not bystander.is_superuser
    _, later = create_invite(make_project(), Role.OWNER, timezone.now() + timedelta(days=1))
    client_of(bystander).post(f"/member/{later}/")
    bystander.refresh_from_db()
    assert not bystander.is_superuser
    call_command("members", superuser="someone")
    bystander.refresh_from_db()
    assert bystander.is_superuser


@pytest.mark.django_db
def test_first_account_owns_the_installation(capsys):
    call_command("members", first_owner=True)
    call_command("members", first_owner=True)
    links = [line.removeprefix("http://127.0.0.1:8000") for line in capsys.readouterr().out.split()]
    client = Client()

    assert "Set up this installation" in client.get(links[0]).text
    client.post(links[0], {"username": "ada", "password1": PASSWORD, "password2": PASSWORD})

    ada = get_user_model().objects.get()
    assert (ada.is_superuser, roles_in(default_project())) == (True, {"ada": "owner"})
    assert Client().get(links[1]).status_code == 410  # the other link was revoked
    call_command("members", first_owner=True)
    assert capsys.readouterr().out == ""


@pytest.mark.django_db
def test_project_list_counts_all_members(client):
    project = make_project("Birds")
    for _ in range(3):
        ada = make_member(Role.OWNER, project)
    client.force_login(ada)

    assert [row["project"].n_members for row in client.get("/projects/").context["rows"]] == [3]


# Accounts of annotators


def welcome_path(page: str) -> str:
    return re.search(r"http://[^/]+(/accounts/welcome/[^\"]+)", page)[1]


def test_owner_creates_annotator_account_with_a_link_for_its_password(project, owner, client, mailoutbox, settings):
    settings.EMAIL_URL = "smtp://mail.example.org"
    page, fields = "/projects/default/annotators/new/", {"username": "grace", "email": "grace@example.org"}
    fields |= {"is_superuser": "on", "is_staff": "on", "role": "owner", "password": PASSWORD}  # not in the form

    with patch.object(account_views, "in_background", lambda call: call()):
        path = welcome_path(client_of(owner).post(page, fields).text)

    user = get_user_model().objects.get(username="grace")
    assert (user.is_superuser, user.is_staff, user.has_usable_password()) == (False, False, False)
    assert not user.memberships.exists()
    assert [(message.to, path in message.body) for message in mailoutbox] == [(["grace@example.org"], True)]
    event = Event.objects.get(action="account.made")
    assert (event.by, event.project_id) == (owner, project.pk)

    form = client.get(path, follow=True).redirect_chain[-1][0]
    assert "<strong>grace</strong>" in client.get(form).text
    done = client.post(form, {"new_password1": PASSWORD, "new_password2": PASSWORD}, follow=True).text
    assert ("logged out" in done, 'href="/accounts/login/"' in done) == (False, True)
    user.refresh_from_db()
    assert user.check_password(PASSWORD)
    client.post("/accounts/login/", {"username": "grace", "password": PASSWORD})
    assert client.get("/").status_code == 200
    assert client.get("/projects/default/").status_code == client.get("/rounds/").status_code == 403
    assert client.get(path, follow=True).context["validlink"] is False  # used


@pytest.mark.parametrize(("address", "is_linked"), [("/rounds/a/b/invites/", True), ("https://example.com/", False)])
def test_page_of_annotator_account_links_back_only_to_this_site(owner, address, is_linked):
    client = client_of(owner)

    pages = [
        send("/projects/default/annotators/new/", query_params={"next": address}) for send in (client.get, client.post)
    ]

    assert [f'href="{address}"' in page.text for page in pages] == [is_linked] * 2


@pytest.mark.parametrize(("username", "code"), [("ada", "NameTaken"), ("ADA", "NameTaken"), ("a b", "BadAccount")])
def test_annotator_account_never_replaces_an_account(project, owner, username, code):
    before = get_user_model().objects.values().get(username="ada")

    with refused(code):
        create_annotator(project, username, by=owner)

    assert get_user_model().objects.values().get() == before


def test_two_owners_create_the_same_username_at_once(project, owner):
    """The other account is stored between the check and the insert."""
    User, insert = get_user_model(), get_user_model().save

    def save(user, **options):
        User.objects.bulk_create([User(username=user.username)])
        insert(user, **options)

    with patch.object(User, "save", save), refused("NameTaken"):
        create_annotator(project, "grace", by=owner)


def test_mails_about_accounts_are_limited_per_owner(project, owner, settings, mailoutbox):
    settings.EMAIL_URL, settings.LIMITS = "smtp://localhost", settings.LIMITS | {"account_mails": (2, 3600)}
    page, client = f"/projects/{project.slug}/annotators/new/", client_of(owner)

    with patch.object(account_views, "in_background", lambda call: call()):
        for number in range(4):
            client.post(page, {"username": f"grace-{number}", "email": "grace@example.org"})
    client.post(page, {"username": "without-address"})

    assert len(mailoutbox) == 2
    names = get_user_model().objects.exclude(pk=owner.pk).order_by("pk").values_list("username", flat=True)
    assert list(names) == ["grace-0", "grace-1", "without-address"]


def test_owner_renews_the_link_of_an_unused_account(project, owner, client):
    page, owner_client = f"/projects/{project.slug}/annotators/new/", client_of(owner)
    old_path = welcome_path(owner_client.post(page, {"username": "grace"}).text)
    user = get_user_model().objects.get(username="grace")

    new_path = welcome_path(owner_client.post(page, {"renew": user.pk}).text)

    assert client.get(old_path, follow=True).context["validlink"] is False
    form = client.get(new_path, follow=True).redirect_chain[-1][0]
    client.post(form, {"new_password1": PASSWORD, "new_password2": PASSWORD})
    user.refresh_from_db()
    assert user.check_password(PASSWORD)
    assert user not in owner_client.get(page).context["unused"]
    assert owner_client.post(page, {"renew": user.pk}).status_code == 404
    assert Event.objects.filter(action="account.link_renewed", by=owner, project_id=project.pk).count() == 1


def test_link_of_another_account_cannot_be_renewed(project, owner):
    other = create_project("Other", owner)
    of_other_project = create_annotator(other, "grace", by=owner)
    without_event = get_user_model().objects.create_user("directory-user")  # logs in at a provider
    member = create_annotator(project, "member", by=owner)
    set_role(project, member, Role.VIEWER, by=owner)

    for user in (of_other_project, without_event, member, owner):
        before = user.password
        with refused("NotFound"):
            renew_annotator(project, user, by=owner)
        user.refresh_from_db()
        assert user.password == before


def test_welcome_link_expires_after_seven_days_and_is_no_reset_link(project, owner):
    user = create_annotator(project, "grace", by=owner)
    now = datetime.now()
    with patch.object(account_views.welcome_tokens, "_now", lambda: now - timedelta(days=6, hours=23)):
        token = account_views.welcome_tokens.make_token(user)
    with patch.object(account_views.welcome_tokens, "_now", lambda: now - timedelta(days=7, hours=1)):
        old_token = account_views.welcome_tokens.make_token(user)

    assert account_views.welcome_tokens.check_token(user, token)
    assert not account_views.welcome_tokens.check_token(user, old_token)
    assert not default_token_generator.check_token(user, token)
