"""API tokens: scopes, expiry, revocation, and storage as digests."""

import io
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest import mock

import pytest
from django.contrib.auth.tokens import default_token_generator
from django.core.management import CommandError, call_command
from django.test import Client, RequestFactory
from django.utils import timezone
from django.utils.http import urlsafe_base64_encode
from rest_framework.exceptions import AuthenticationFailed

from kgharvest.accounts.tokens import create_token, revoke_token
from kgharvest.api.authentication import TokenAuthentication
from kgharvest.audit.tables import sha256
from kgharvest.events.models import Event
from kgharvest.models import ApiToken, ProjectMember
from tests import factories
from tests.api import client_of
from tests.factories import make_user
from tests.refusals import refused

pytestmark = pytest.mark.django_db

LIST = "/api/v1/tokens/"
NOW = timezone.now()


def authenticate(secret: str, now: datetime | None = None) -> ApiToken:
    request = RequestFactory().get(LIST, headers={"authorization": f"Bearer {secret}"})
    with mock.patch("django.utils.timezone.now", return_value=now or datetime.now(UTC)):
        return TokenAuthentication().authenticate(request)[1]


def make_token(scope="read", days=30, user=None, **fields):
    return create_token(user or make_user(), "script", scope, days, timezone.now(), **fields)


def client_with(secret: str) -> Client:
    return Client(headers={"authorization": f"Bearer {secret}"})


def test_database_stores_only_the_token_digest():
    new = make_token()

    row = ApiToken.objects.values().get()
    assert new.secret.startswith("kgh_")
    assert len(new.secret) == 47
    assert new.secret not in map(str, row.values())
    assert row["digest"] == sha256(new.secret)


def test_token_grants_api_access_until_revoked():
    new = make_token()
    client = client_with(new.secret)
    assert client.get(LIST).status_code == 200

    revoke_token(new.token, timezone.now())

    refused = client.get(LIST)
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="kgharvest"'
    assert refused.json()["error"]["code"] == "AuthenticationFailed"


def test_expired_tokens_and_tokens_of_inactive_users_are_rejected():
    expired, inactive = make_token(), make_token()
    ApiToken.objects.filter(pk=expired.token.pk).update(expires_at=timezone.now())
    inactive.token.user.is_active = False
    inactive.token.user.save()

    assert [client_with(new.secret).get(LIST).status_code for new in (expired, inactive)] == [401, 401]


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer kgh_wrong", "Bearer \xff\xfe", "bearer a b"])
def test_an_invalid_token_is_401(header):
    assert Client().get(LIST, headers={"authorization": header}).status_code == 401


def test_missing_credentials_and_other_schemes_are_401():
    assert Client().get(LIST).status_code == 401
    assert Client().get(LIST, headers={"authorization": "Basic YTpi"}).status_code == 401


def test_last_use_is_recorded_once_per_minute(django_assert_num_queries):
    new = make_token()
    for seconds, recorded in ((0, 0), (59, 0), (60, 60)):
        authenticate(new.secret, NOW + timedelta(seconds=seconds))
        new.token.refresh_from_db()
        assert new.token.last_used_at == NOW + timedelta(seconds=recorded)

    with django_assert_num_queries(1):
        authenticate(new.secret, NOW + timedelta(seconds=70))


def test_a_token_shows_only_the_tokens_of_its_user():
    mine, other = make_token("write"), make_token()

    client = client_with(mine.secret)

    assert [row["id"] for row in client.get(LIST).json()["results"]] == [mine.token.pk]
    assert client.get(f"{LIST}{other.token.pk}/").status_code == 404
    assert client.delete(f"{LIST}{other.token.pk}/").status_code == 404
    assert ApiToken.objects.get(pk=other.token.pk).revoked_at is None


def test_a_scope_permits_only_its_views():
    read, write, judge = (make_token(scope) for scope in ("read", "write", "judge"))

    assert [client_with(new.secret).get(LIST).status_code for new in (read, write, judge)] == [200, 200, 403]
    deleted = [client_with(new.secret).delete(f"{LIST}{new.token.pk}/").status_code for new in (read, write, judge)]
    assert deleted == [403, 204, 403]


def test_tokens_are_created_in_sessions_and_not_by_tokens(client):
    user = make_user()
    fields = {"name": "nightly", "scope": "write", "days": 7}
    client.force_login(user)

    made = client.post(LIST, fields, "application/json")
    refused = client_with(made.json()["token"]).post(LIST, fields, "application/json")

    assert (made.status_code, made.headers["Location"]) == (201, f"http://testserver{LIST}{made.json()['id']}/")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "NotByToken")
    assert "token" not in client.get(made.headers["Location"]).json()


def test_session_requests_require_the_csrf_token():
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user())

    assert client.post(LIST, {"name": "a", "scope": "read"}, "application/json").status_code == 403


@pytest.mark.parametrize("fields", [{"name": ""}, {"scope": "all"}, {"days": 0}, {"days": 10**30}, {"more": 1}])
def test_invalid_token_request_names_the_field(client, fields):
    client.force_login(make_user())

    refused = client.post(LIST, {"name": "a", "scope": "read", **fields}, "application/json")

    assert refused.status_code == 400
    assert [*refused.json()["error"]["fields"]] == [*fields]


def test_a_bound_token_accesses_only_its_project():
    mine, other = factories.make_project(), factories.make_project()
    user = factories.make_member("owner", mine)
    ProjectMember.objects.create(project=other, user=user, role="owner")
    jobs = {project: factories.make_harvest_job(project=project) for project in (mine, other)}
    bound, unbound = make_token("write", user=user, project=mine), make_token("write", user=user)
    client = client_with(bound.secret)

    assert [row["id"] for row in client.get(LIST).json()["results"]] == [bound.token.pk]
    assert client.delete(f"{LIST}{unbound.token.pk}/").status_code == 404
    assert [row["slug"] for row in client.get("/api/v1/projects/").json()["results"]] == [mine.slug]
    assert [row["id"] for row in client.get("/api/v1/jobs/").json()["results"]] == [jobs[mine].pk]
    assert client.get(f"/api/v1/jobs/{jobs[other].pk}/").status_code == 404
    assert client.post(f"/api/v1/jobs/{jobs[mine].pk}/cancel/").status_code == 200
    assert client.post("/api/v1/projects/", {"name": "New"}, "application/json").status_code == 403


def test_bound_token_of_superuser_has_no_superuser_rights():
    mine, other = factories.make_project(), factories.make_project()
    job = factories.make_harvest([["a", "b"]], project=other)
    tuple_id = job.tuples.get().knowledge_tuple_id
    client = client_with(make_token("write", user=make_user(is_superuser=True), project=mine).secret)

    refused = [
        client.put("/api/v1/sensitive-words/", {"words": []}, "application/json"),
        client.post(
            f"/api/v1/knowledge/{tuple_id}/curations/", {"decision": "hide", "reason": "a"}, "application/json"
        ),
        client.post("/api/v1/projects/", {"name": "New"}, "application/json"),
    ]

    assert [response.status_code for response in refused] == [403, 404, 403]
    assert client.get(f"/api/v1/harvests/{job.pk}/").status_code == 404
    assert client.patch(f"/api/v1/projects/{mine.slug}/", {"name": "Mine"}, "application/json").status_code == 200


def test_a_token_is_bound_only_to_a_project_of_its_user():
    with refused("BadToken", match="is not a member"):
        make_token(project=factories.make_project())


# Page and command


def test_the_page_shows_a_new_token_once_and_revokes_it(client):
    client.force_login(make_user())

    page = client.post("/accounts/tokens/", {"name": "nightly", "scope": "read", "days": 7})
    secret = page.context["new"].secret
    assert secret in page.content.decode()
    assert secret not in client.get("/accounts/tokens/").content.decode()

    client.post(f"/accounts/tokens/{ApiToken.objects.get().pk}/revoke/")
    with pytest.raises(AuthenticationFailed):
        authenticate(secret)


def test_users_cannot_revoke_tokens_of_others(client):
    new = make_token()
    client.force_login(make_user())

    assert client.post(f"/accounts/tokens/{new.token.pk}/revoke/").status_code == 404
    assert authenticate(new.secret)


def test_the_command_prints_a_token():
    user = make_user("ann")
    printed = io.StringIO()

    call_command("token", "ann", "--scope", "judge", "--days", "3", stdout=printed)

    token = authenticate(printed.getvalue().strip())
    assert (token.user, token.scope) == (user, "judge")
    assert token.expires_at - token.created_at == pytest.approx(timedelta(days=3), abs=timedelta(minutes=1))


def test_the_command_names_the_unknown_user():
    with pytest.raises(CommandError, match="'bob' not found"):
        call_command("token", "bob")


def test_number_of_tokens_per_user_is_limited(monkeypatch):
    monkeypatch.setattr("kgharvest.accounts.tokens.MOST_TOKENS", 2)
    user = make_user()
    new = [make_token(user=user) for _ in range(2)]
    with refused("BadToken", match="already has 2 valid tokens"):
        make_token(user=user)

    revoke_token(new[0].token, timezone.now())

    assert make_token(user=user)


# Tokens of a project


@pytest.fixture
def project_tokens():
    """An owner of a project with tokens of a member and of the owner, and tokens that the owner must not revoke."""
    project, other = factories.make_project(), factories.make_project()
    owner, member = factories.make_member("owner", project), factories.make_member("viewer", project)
    ProjectMember.objects.create(project=other, user=member, role="viewer")
    tokens = [make_token(user=user, project=project).token for user in (member, owner)]
    others = [make_token(user=member).token, make_token(user=member, project=other).token]
    return SimpleNamespace(project=project, owner=owner, member=member, tokens=tokens, others=others)


def revoked(tokens: list[ApiToken]) -> list[bool]:
    return [ApiToken.objects.get(pk=token.pk).revoked_at is not None for token in tokens]


def test_owners_list_and_revoke_the_tokens_of_their_project_in_the_api(project_tokens):
    it = project_tokens
    path = f"/api/v1/projects/{it.project.slug}/tokens/"
    api = client_of(it.owner)

    listed = api.get(path).json()["results"]
    assert [(row["id"], row["user"]) for row in listed] == [
        (token.pk, token.user.username) for token in reversed(it.tokens)
    ]
    assert api.delete(f"{path}{it.tokens[0].pk}/").status_code == 204
    assert revoked(it.tokens) == [True, False]
    assert {api.delete(f"{path}{token.pk}/").status_code for token in it.others} == {404}
    assert api.post(f"{path}revoke/").json() == {"n_revoked": 1}
    assert (revoked(it.tokens), revoked(it.others)) == ([True, True], [False, False])
    assert client_of(it.member).get(path).status_code == 403


def test_owners_list_and_revoke_the_tokens_of_their_project_on_its_page(project_tokens, client):
    it = project_tokens
    client.force_login(it.owner)
    path = f"/projects/{it.project.slug}/"

    page = client.get(path)
    assert [token.pk for token in page.context["tokens"]] == [token.pk for token in reversed(it.tokens)]
    client.post(f"{path}tokens/{it.tokens[0].pk}/revoke/")
    assert revoked(it.tokens) == [True, False]
    client.post(f"{path}tokens/revoke/")
    assert (revoked(it.tokens), revoked(it.others)) == ([True, True], [False, False])
    assert not client.get(path).context["tokens"]
    revocations = Event.objects.filter(action="token.revoked")
    assert {(event.project_id, event.by) for event in revocations} == {(it.project.pk, it.owner)}


# Changes of the password


@pytest.mark.parametrize(("sent", "is_revoked"), [({"revoke_tokens": "on"}, True), ({}, False)])
def test_changing_the_password_can_revoke_all_tokens(client, sent, is_revoked):
    user = make_user()
    user.set_password("correct horse")
    user.save()
    tokens = [make_token(user=user).token, make_token(user=user).token]
    other = make_token().token
    client.force_login(user)
    passwords = {"old_password": "correct horse", "new_password1": "battery staple", "new_password2": "battery staple"}

    assert client.get("/accounts/password_change/").context["form"]["revoke_tokens"].initial
    assert client.post("/accounts/password_change/", {**passwords, "new_password2": "x", **sent}).status_code == 200
    assert revoked(tokens) == [False, False]
    assert client.post("/accounts/password_change/", passwords | sent).status_code == 302
    assert (revoked(tokens), revoked([other])) == ([is_revoked, is_revoked], [False])


def test_a_reset_of_the_password_offers_to_revoke_tokens(client):
    user = make_user()
    tokens = [make_token(user=user).token]
    uid, token = urlsafe_base64_encode(str(user.pk).encode()), default_token_generator.make_token(user)
    path = client.get(f"/accounts/reset/{uid}/{token}/").headers["Location"]

    assert "revoke_tokens" in client.get(path).context["form"].fields
    client.post(path, {"new_password1": "battery staple", "new_password2": "battery staple", "revoke_tokens": "on"})

    assert revoked(tokens) == [True]


def test_users_without_tokens_are_not_asked_to_revoke_them(client):
    client.force_login(make_user())

    assert "revoke_tokens" not in client.get("/accounts/password_change/").context["form"].fields
