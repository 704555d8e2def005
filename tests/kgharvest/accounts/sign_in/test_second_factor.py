"""Second factor: codes work once and within their time window, and pages require a code."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pyotp
import pytest
from django.core.management import call_command
from django.utils import timezone

from kgharvest.accounts.sign_in import second_factor
from kgharvest.accounts.sign_in.models import RecoveryCode, SecondFactor
from kgharvest.accounts.throttle import TooManyAttempts
from tests.factories import make_user
from tests.postgres import at_once
from tests.refusals import refused

PASSWORD = "correct horse battery"
SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # RFC 6238, appendix B: "12345678901234567890"
LOGIN, CODE = "/accounts/login/", "/accounts/second-factor/"


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def totp_code(now: datetime) -> str:
    """Return the code of an authenticator app with SECRET."""
    return pyotp.TOTP(SECRET).at(now)


@pytest.fixture
def ada(db):
    return make_user("ada", password=PASSWORD)


@pytest.fixture
def codes(ada) -> list[str]:
    """Return the recovery codes of Ada, who set up the second factor an hour ago."""
    now = timezone.now() - timedelta(hours=1)
    return second_factor.set_up(ada, SECRET, totp_code(now), now)


def test_codes_match_the_standard(ada):
    second_factor.set_up(ada, SECRET, totp_code(at(60)), at(60))

    # RFC 6238, appendix B, SHA-1, the last six digits
    for seconds, code in ((1111111109, "081804"), (1234567890, "005924"), (2000000000, "279037")):
        second_factor.check_code(ada, code, at(seconds))
    with refused("WrongCode"):
        second_factor.check_code(ada, "279038", at(2000000060))


@pytest.mark.parametrize(("seconds", "holds"), [(-61, False), (-30, True), (30, True), (61, False)])
def test_codes_are_accepted_one_step_early_or_late(ada, seconds, holds):
    second_factor.set_up(ada, SECRET, totp_code(at(60)), at(60))
    code = totp_code(at(1200000000 + seconds))

    if holds:
        second_factor.check_code(ada, code, at(1200000000))
    else:
        with refused("WrongCode"):
            second_factor.check_code(ada, code, at(1200000000))


def test_codes_are_rejected_after_the_same_or_a_later_code(ada):
    second_factor.set_up(ada, SECRET, totp_code(at(60)), at(60))
    second_factor.check_code(ada, totp_code(at(1200000000)), at(1200000000))

    for earlier in (1200000000, 1200000000 - 30):
        with refused("WrongCode"):
            second_factor.check_code(ada, totp_code(at(earlier)), at(1200000000))


@pytest.mark.django_db(transaction=True)
def test_one_of_simultaneous_uses_of_a_code_succeeds():
    ada = make_user("ada")
    [code, *_] = second_factor.set_up(ada, SECRET, totp_code(at(60)), at(60))
    now = at(1200000000)

    for same in (totp_code(now), code):
        outcomes = at_once(*[lambda same=same: second_factor.check_code(ada, same, now)] * 3)
        assert [type(outcome) for outcome in outcomes].count(type(None)) == 1


def test_recovery_codes_work_once_and_are_stored_as_digests(ada, codes):
    assert len(set(codes)) == 10
    assert not RecoveryCode.objects.filter(digest__in=codes).exists()
    assert SECRET not in SecondFactor.objects.get().secret

    second_factor.check_code(ada, codes[0].upper(), timezone.now())
    second_factor.check_code(ada, codes[1].replace("-", " "), timezone.now())
    with refused("WrongCode"):
        second_factor.check_code(ada, codes[0], timezone.now())
    fresh = second_factor.replace_recovery_codes(ada)
    with refused("WrongCode"):
        second_factor.check_code(ada, codes[2], timezone.now())
    second_factor.check_code(ada, fresh[0], timezone.now())


def test_wrong_codes_are_limited(ada, codes, settings):
    settings.LIMITS = {**settings.LIMITS, "second_factors": (3, 900)}
    for guess in ("000000", "111111", "222222"):
        with refused("WrongCode"):
            second_factor.check_code(ada, guess, timezone.now())

    with pytest.raises(TooManyAttempts):
        second_factor.check_code(ada, totp_code(timezone.now()), timezone.now())


def test_recovery_codes_survive_a_new_secret_key(ada, codes, settings):
    settings.SECRET_KEY = "another-" * 8

    with refused("WrongCode"):
        second_factor.check_code(ada, totp_code(timezone.now()), timezone.now())
    second_factor.check_code(ada, codes[0], timezone.now())


@pytest.mark.parametrize("login_path", [LOGIN, "/admin/login/"])
def test_pages_require_the_code_after_the_password(client, ada, codes, login_path):
    client.get(login_path)
    before = client.session.session_key

    response = client.post(f"{login_path}?next=/return/", {"username": "ada", "password": PASSWORD})

    assert response.headers["Location"] == CODE
    assert client.get("/accounts/").status_code == 302
    assert "_auth_user_id" not in client.session
    assert "wrong or was already used" in client.post(CODE, {"code": "123456"}).content.decode()
    before = client.session.session_key
    response = client.post(CODE, {"code": totp_code(timezone.now())})
    assert response.headers["Location"] == "/return/"
    assert client.get("/accounts/").status_code == 200
    assert client.session.session_key != before


def test_pending_login_expires_after_five_minutes_or_password_change(client, ada, codes, monkeypatch):
    client.post(LOGIN, {"username": "ada", "password": PASSWORD})
    later = timezone.now() + timedelta(minutes=6)
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: later)
        assert client.post(CODE, {"code": totp_code(later)}).headers["Location"] == LOGIN

    ada.set_password("staple it again")
    ada.save()
    assert client.post(CODE, {"code": codes[0]}).headers["Location"] == LOGIN
    assert "_auth_user_id" not in client.session


def test_login_does_not_redirect_to_another_site(client, ada, codes):
    client.post(LOGIN, {"username": "ada", "password": PASSWORD, "next": "https://elsewhere.example.org/"})

    assert client.post(CODE, {"code": codes[0]}).headers["Location"] == "/"


def test_setup_requires_password_and_code_and_shows_recovery_codes(client, ada):
    client.force_login(ada)
    page = client.get(f"{CODE}set-up/").content.decode()
    secret = re.search(r"secret=([A-Z2-7]{32})", page)[1]
    assert "data:image/svg+xml" in page

    right = pyotp.TOTP(secret).now()
    assert "Wrong password" in client.post(f"{CODE}set-up/", {"code": right, "password": "x"}).content.decode()
    assert "Wrong code" in client.post(f"{CODE}set-up/", {"code": "000", "password": PASSWORD}).content.decode()
    page = client.post(f"{CODE}set-up/", {"code": right, "password": PASSWORD})

    assert len(re.findall(r"<li><code>[a-z2-9]{5}-[a-z2-9]{5}</code>", page.content.decode())) == 10
    assert page.headers["Cache-Control"].startswith("no-store") or "no-store" in page.headers["Cache-Control"]
    assert "10 recovery codes left" in client.get("/accounts/").content.decode()
    client.post(f"{CODE}remove/", {"password": PASSWORD})
    assert not SecondFactor.objects.exists()


@pytest.mark.parametrize(("group", "required"), [("staff", True), ("owners", True), ("everybody", True), ("", False)])
@pytest.mark.django_db
def test_installation_can_require_the_second_factor(client, settings, group, required):
    settings.SECOND_FACTOR_FOR = group
    make_user("root", password=PASSWORD, is_staff=True, is_superuser=True)

    client.post(LOGIN, {"username": "root", "password": PASSWORD})

    response = client.get("/rounds/")
    assert (response.status_code == 302 and response.headers["Location"] == f"{CODE}set-up/") == required
    if required:
        secret = re.search(r"secret=([A-Z2-7]{32})", client.get(f"{CODE}set-up/").content.decode())[1]
        client.post(f"{CODE}set-up/", {"code": pyotp.TOTP(secret).now(), "password": PASSWORD})
        assert client.get("/rounds/").status_code == 200
        assert client.get(f"{CODE}remove/").status_code == 404


def test_command_removes_the_second_factor(ada, codes, capsys):
    call_command("remove_second_factor", "ada")

    assert not second_factor.has_second_factor(ada)
