"""Login with an OpenID provider that runs in a thread of the test and serves HTTP."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx
import oidc_provider_mock
import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey, RSAKey

from kgharvest.accounts.projects import set_role
from kgharvest.accounts.sign_in import openid_connect, views
from kgharvest.accounts.sign_in.models import OpenIDIdentity
from kgharvest.accounts.sign_in.openid_connect import set_group_roles
from kgharvest.accounts.sign_in.second_factor import is_required
from kgharvest.models import Project
from tests.factories import make_user
from tests.kgharvest.test_settings import run_python

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"
ADA = {"preferred_username": "ada", "given_name": "Ada", "email": "ada@example.org", "email_verified": False}


@pytest.fixture(autouse=True)
def plain_http(monkeypatch) -> None:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")  # the test provider has no certificate
    cache.clear()


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def provider(issuer, settings) -> str:
    httpx.put(f"{issuer}/users/sub-1", json=ADA)
    settings.OPENID = {
        "issuer": issuer,
        "client_id": "kgharvest",
        "client_secret": "secret",
        "name": "the institute",
        "scope": "openid profile email",
        "groups_claim": "groups",
        "groups": [],
    }
    return issuer


def consent(client, query: str = "", sub: str = "sub-1") -> str:
    """Start a login and consent at the provider. Return the path of the redirect back."""
    address = client.get(f"/accounts/openid/{query}").headers["Location"]
    return_to = urlsplit(httpx.post(address, data={"sub": sub}).headers["Location"])
    return f"{return_to.path}?{return_to.query}"


def login(client, query: str = "", sub: str = "sub-1"):
    return client.get(consent(client, query, sub))


def refusal(response, client) -> str:
    assert response.status_code == 302
    assert "_auth_user_id" not in client.session
    return client.get(response.headers["Location"]).content.decode()


def test_a_provider_login_creates_one_account(client, provider):
    before = client.get("/accounts/login/").content.decode()
    response = login(client, "?next=/return/")

    assert "Log in with the institute" in before
    assert response.headers["Location"] == "/return/"
    user = get_user_model().objects.get(pk=client.session["_auth_user_id"])
    assert (user.username, user.first_name, user.email) == ("ada", "Ada", "")  # the address is not verified
    assert not user.has_usable_password()
    client.logout()
    login(client)
    assert get_user_model().objects.count() == 1


def test_login_request_has_state_nonce_and_code_challenge(client, provider):
    address = client.get("/accounts/openid/").headers["Location"]

    parameters = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    expected = client.session[views.EXPECTED]
    digest = hashlib.sha256(expected["code_verifier"].encode()).digest()
    assert parameters["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert parameters["code_challenge_method"] == "S256"
    assert (parameters["nonce"], parameters["state"]) == (expected["nonce"], expected["state"])
    assert parameters["redirect_uri"] == "http://127.0.0.1:8000/accounts/openid/callback/"


def test_provider_login_does_not_take_over_existing_account(client, provider):
    local = make_user("ada", email="ada@example.org", password=PASSWORD)

    login(client)

    newcomer = get_user_model().objects.get(pk=client.session["_auth_user_id"])
    assert newcomer != local
    assert newcomer.username == "ada-2"


def test_callback_works_once_and_in_the_same_browser(client, provider):
    path, other = consent(client), Client()

    assert "started in another browser" in refusal(other.get(path), other)
    assert client.get(path).headers["Location"] == "/"
    client.logout()
    assert client.get(path).headers["Location"] == "/accounts/login/"
    assert "_auth_user_id" not in client.session


@pytest.mark.parametrize(
    ("forged", "sentence"),
    [
        ("state", "another browser"),
        ("nonce", "could not be verified"),
        ("audience", "could not be verified"),
        ("issuer of the answer", "unexpected provider"),
    ],
)
def test_forged_responses_are_rejected(client, provider, settings, monkeypatch, forged, sentence):
    path = consent(client)
    session = client.session
    if forged in {"state", "nonce"}:
        session[views.EXPECTED] = {**session[views.EXPECTED], forged: "another"}
        session.save()
    elif forged == "audience":
        original_provider = openid_connect._provider

        def provider_of_another_client():  # fetches the token, then validates it as another client
            made = original_provider()
            fetch = made.fetch_access_token

            def fetch_and_change(*args, **kwargs):
                token = fetch(*args, **kwargs)
                made.client_id = "another"
                return token

            made.fetch_access_token = fetch_and_change
            return made

        monkeypatch.setattr(openid_connect, "_provider", provider_of_another_client)
    else:
        path += "&iss=https://elsewhere.example.org"

    assert sentence in refusal(client.get(path), client)


def test_an_expired_token_is_refused(client, provider, settings):
    with oidc_provider_mock.run_server_in_thread(access_token_max_age=timedelta(seconds=-61)) as server:
        settings.OPENID = {**settings.OPENID, "issuer": f"http://localhost:{server.server_port}"}
        path = consent(client)

        assert "could not be verified" in refusal(client.get(path), client)


def test_a_token_with_another_key_or_without_signature_is_refused(provider, monkeypatch):
    metadata = openid_connect.discovered()
    offered = {**metadata, "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"]}
    monkeypatch.setattr(openid_connect, "discovered", lambda: offered)
    claims = {"iss": provider, "aud": "kgharvest", "sub": "x", "nonce": "n", "exp": 4e9, "iat": 1}
    [provider_key] = httpx.get(metadata["jwks_uri"]).json()["keys"]
    forged = [
        jwt.encode({"alg": "RS256", "kid": provider_key.get("kid")}, claims, RSAKey.generate_key(2048)),
        jwt.encode({"alg": "HS256"}, claims, OctKey.import_key("secret"), algorithms=["HS256"]),
        jwt.encode({"alg": "none"}, claims, OctKey.import_key("x"), algorithms=["none"]),
    ]

    for token in forged:
        with pytest.raises((JoseError, ValueError)):
            openid_connect._claims(openid_connect._provider(), {"id_token": token}, "n")


def test_a_token_response_without_an_id_token_is_refused(client, provider, monkeypatch):
    path = consent(client)
    monkeypatch.setattr(openid_connect.Provider, "parse_id_token", lambda *args, **kwargs: None)

    assert "could not be verified" in refusal(client.get(path), client)


@pytest.mark.parametrize("missing", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
def test_provider_metadata_without_endpoint_is_rejected(client, provider, missing):
    metadata = {name: value for name, value in openid_connect.discovered().items() if name != missing}
    cache.set(f"openid:{provider}/.well-known/openid-configuration", metadata)

    assert f"does not contain {missing}" in refusal(client.get("/accounts/openid/"), client)


def test_userinfo_about_another_person_is_refused(client, provider, monkeypatch):
    path = consent(client)
    monkeypatch.setattr(openid_connect.Provider, "userinfo", lambda *args, **kwargs: {"sub": "sub-2"})

    assert "could not be verified" in refusal(client.get(path), client)


def test_a_declined_login_shows_a_message(client, provider):
    address = client.get("/accounts/openid/").headers["Location"]
    declined = urlsplit(httpx.post(address, data={"action": "deny"}).headers["Location"])

    state = client.session[views.EXPECTED]["state"]

    page = refusal(client.get(f"{declined.path}?{declined.query}&state={state}"), client)

    assert "the institute did not log you in" in page


def test_an_unreachable_or_different_provider_is_reported(client, settings, provider):
    settings.OPENID = {**settings.OPENID, "issuer": "http://localhost:9"}
    assert "does not respond" in client.get("/accounts/openid/", follow=True).content.decode()

    settings.OPENID = {**settings.OPENID, "issuer": provider + "/"}
    assert "KGHARVEST_OIDC_ISSUER" in client.get("/accounts/openid/", follow=True).content.decode()


def test_closed_account_cannot_log_in(client, provider):
    login(client)
    get_user_model().objects.update(is_active=False)
    client.logout()

    assert "This account is closed" in refusal(login(client), client)


def test_a_local_account_is_linked_and_unlinked_by_its_owner(client, provider):
    ada = make_user("ada", password=PASSWORD)
    client.force_login(ada)

    assert confirm_link(client).headers["Location"] == "/accounts/"
    assert "Continue to the institute" in client.get("/accounts/").text
    assert login(client, "?link=1").headers["Location"] == "/accounts/"
    client.logout()
    login(client)
    assert client.session["_auth_user_id"] == str(ada.pk)
    client.force_login(make_user("eve", password=PASSWORD))
    confirm_link(client)
    page = client.get(login(client, "?link=1").headers["Location"]).content.decode()
    assert "linked to another account" in page
    client.force_login(ada)
    client.post(f"/accounts/openid/{OpenIDIdentity.objects.get().pk}/unlink/")
    assert not OpenIDIdentity.objects.exists()


def confirm_link(client, password: str = PASSWORD):
    return client.post("/accounts/openid/link/", {"password": password})


def test_linking_requires_the_password(client, provider):
    client.force_login(make_user("ada", password=PASSWORD))

    assert "Wrong password" in confirm_link(client, "wrong").text
    assert client.get("/accounts/openid/?link=1").headers["Location"] == "/accounts/openid/link/"
    confirm_link(client)
    assert login(client, "?link=1").headers["Location"] == "/accounts/"
    # A password confirmation is valid for one link.
    assert client.get("/accounts/openid/?link=1").headers["Location"] == "/accounts/openid/link/"


def test_last_login_method_cannot_be_unlinked(client, provider):
    login(client)

    page = client.post(f"/accounts/openid/{OpenIDIdentity.objects.get().pk}/unlink/", follow=True).content.decode()

    assert "the only way to log in" in page
    assert OpenIDIdentity.objects.exists()


def test_logout_offers_logout_at_the_provider(client, provider):
    login(client)

    page = client.post("/accounts/logout/").content.decode()

    assert f"{provider}/oauth2/end_session?id_token_hint=" in page
    assert "_auth_user_id" not in client.session


def test_local_login_can_be_disabled(client, provider, settings, tmp_path):
    settings.LOCAL_LOGIN = False
    make_user("ada", password=PASSWORD)

    assert 'name="password"' not in client.get("/accounts/login/").content.decode()
    for path in ("/accounts/login/", "/admin/login/"):
        assert client.post(path, {"username": "ada", "password": PASSWORD}).status_code == 403
    assert client.post("/accounts/password_reset/", {"email": "ada@example.org"}).status_code == 403
    done = run_python(tmp_path, "manage.py", "check", KGHARVEST_LOCAL_LOGIN="0")
    assert "KGHARVEST_OIDC_ISSUER is not set" in done.stderr


def test_openid_pages_return_404_without_provider(client):
    assert client.get("/accounts/openid/").status_code == 404
    assert client.get("/accounts/openid/callback/?code=x&state=y").status_code == 404


# Roles from groups


@pytest.fixture
def birds(db):
    return Project.objects.create(name="Birds", slug="birds")


def roles(user) -> dict[str, str]:
    return dict(user.memberships.values_list("project__slug", "role"))


def test_each_login_sets_the_highest_role_of_the_groups(client, provider, settings, birds):
    fish = Project.objects.create(name="Fish", slug="fish")
    settings.OPENID["groups"] = [
        ("all", "birds", "viewer"),
        ("lab", "birds", "researcher"),
        ("all", "no-such", "owner"),
    ]

    def roles_with(groups) -> dict[str, str]:
        httpx.put(f"{provider}/users/sub-1", json={**ADA, "groups": groups})
        login(client)
        return roles(get_user_model().objects.get(pk=client.session["_auth_user_id"]))

    assert roles_with(["all", "lab", "else"]) == {"birds": "researcher"}
    assert roles_with("all") == {"birds": "viewer"}
    set_role(fish, get_user_model().objects.get(), "adjudicator")
    assert roles_with([]) == {"fish": "adjudicator"}


@pytest.mark.parametrize("groups", [None, 7, {"lab": True}])
def test_malformed_groups_claim_grants_no_role(provider, settings, birds, groups):
    settings.OPENID = {**settings.OPENID, "groups": [("lab", "birds", "viewer")]}

    set_group_roles(make_user("ada"), {"groups": groups})

    assert not birds.members.exists()


def test_manual_change_of_group_role_is_reset(provider, settings, birds):
    settings.OPENID = {**settings.OPENID, "groups": [("lab", "birds", "viewer")]}
    ada = make_user("ada")
    set_group_roles(ada, {"groups": ["lab"]})
    set_role(birds, ada, "researcher")

    set_group_roles(ada, {"groups": ["lab"]})

    assert birds.members.get().role == "viewer"


def test_roles_assigned_by_owners_are_not_removed(client, provider, settings, birds):
    settings.OPENID["groups"] = [("lab", "birds", "viewer")]
    login(client)
    user = get_user_model().objects.get()
    set_role(birds, user, "owner")

    httpx.put(f"{provider}/users/sub-1", json={**ADA, "groups": ["lab"]})
    login(client)
    assert roles(user) == {"birds": "owner"}
    httpx.put(f"{provider}/users/sub-1", json=ADA)
    login(client)
    assert roles(user) == {"birds": "owner"}


def test_last_owner_keeps_role_after_leaving_the_group(client, provider, settings, birds):
    settings.OPENID["groups"] = [("heads", "birds", "owner")]
    httpx.put(f"{provider}/users/sub-1", json={**ADA, "groups": ["heads"]})
    login(client)
    httpx.put(f"{provider}/users/sub-1", json=ADA)

    login(client)

    assert roles(get_user_model().objects.get()) == {"birds": "owner"}


@pytest.mark.parametrize("text", ["lab=birds", "lab=birds:king", "=birds:owner", "lab=bi rds:owner"])
def test_malformed_group_mapping_is_rejected(tmp_path, text):
    assert (
        f"KGHARVEST_OIDC_GROUPS contains '{text}'. Use group=project:role"
        in run_python(
            tmp_path,
            "manage.py",
            "check",
            KGHARVEST_OIDC_GROUPS=text,
            KGHARVEST_OIDC_ISSUER="https://sso.example.org",
            KGHARVEST_OIDC_CLIENT_ID="kgharvest",
        ).stderr
    )


def test_second_factor_can_be_required_for_owners(settings, birds):
    settings.SECOND_FACTOR_FOR = "owners"
    owner, viewer = make_user(), make_user()
    set_role(birds, owner, "owner")
    set_role(birds, viewer, "viewer")

    assert (is_required(owner), is_required(viewer)) == (True, False)
