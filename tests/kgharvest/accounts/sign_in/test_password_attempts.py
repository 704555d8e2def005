"""Limits on password guessing. Failed attempts by others do not lock users out of their known browsers."""

from __future__ import annotations

import pytest
from django.test import Client

from kgharvest.accounts.throttle import DEVICES
from tests.factories import make_user
from tests.postgres import at_once

PASSWORD = "correct horse battery"
HERE, ELSEWHERE = "192.0.2.7", "192.0.2.8"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def limits(settings):
    settings.LIMITS |= {
        "wrong_passwords": (50, 900),
        "wrong_passwords_of_name": (10, 900),
        "wrong_passwords_everywhere": (25, 900),
        "wrong_passwords_of_device": (10, 900),
    }


@pytest.fixture
def ada():
    return make_user("ada", password=PASSWORD)


def log_in(name: str, password: str = "wrong", address: str = HERE, client: Client | None = None) -> int:
    """Return the status: 302 for success, 200 for a wrong password, 429 for too many attempts."""
    sent = {"username": name, "password": password}
    return (client or Client()).post("/accounts/login/", sent, REMOTE_ADDR=address).status_code


def test_wrong_passwords_for_many_names_do_not_block_correct_logins(ada):
    statuses = [log_in(f"person {n}") for n in range(60)]

    assert statuses == [200] * 60
    assert log_in("ada", PASSWORD) == 302


def test_address_with_many_failures_gets_fewer_attempts_per_name(ada):
    for n in range(50):
        log_in(f"person {n}")

    assert [log_in("ada") for _ in range(4)] == [200, 200, 200, 429]
    assert log_in("ada", PASSWORD) == 429
    assert log_in("ada", PASSWORD, ELSEWHERE) == 302


def test_a_name_is_locked_at_an_address_after_ten_wrong_passwords(ada):
    statuses = [log_in("ada") for _ in range(11)]

    assert statuses == [200] * 10 + [429]
    assert log_in("ada", PASSWORD) == 429
    assert log_in("ada", PASSWORD, ELSEWHERE) == 302


@pytest.mark.parametrize("written", ["ada ", "ａｄａ", " ada"])
def test_spelling_variants_of_a_name_share_its_limit(ada, written):
    for _ in range(10):
        log_in("ada")

    assert log_in(written) == 429


def test_known_browser_is_not_locked_by_others(ada):
    known_browser = Client()
    assert log_in("ada", PASSWORD, client=known_browser) == 302
    known_browser.post("/accounts/logout/")
    for _ in range(11):
        log_in("ada")

    assert log_in("ada", PASSWORD) == 429
    assert log_in("ada", PASSWORD, client=known_browser) == 302


def test_attempts_from_many_addresses_slow_down_each_address_without_locking_the_name(ada):
    statuses = [log_in("ada", address=f"198.51.100.{n}") for n in range(26)]

    assert statuses == [200] * 26
    assert [log_in("ada", address="203.0.113.1") for _ in range(4)] == [200, 200, 200, 429]
    assert log_in("ada", PASSWORD, "203.0.113.2") == 302


def test_a_device_cookie_is_valid_for_its_name_and_limited_attempts(ada):
    make_user("bob", password=PASSWORD)
    known_browser = Client()
    log_in("ada", PASSWORD, client=known_browser)
    known_browser.post("/accounts/logout/")
    for name in ("ada", "bob"):
        for _ in range(10):
            log_in(name)

    assert log_in("bob", PASSWORD, client=known_browser) == 429
    assert [log_in("ada", client=known_browser) for _ in range(11)] == [200] * 10 + [429]


def test_forged_device_cookie_is_ignored(ada):
    forged = Client()
    forged.cookies[DEVICES] = "eyJhIjoiYiJ9:1:forged"
    for _ in range(10):
        log_in("ada")

    assert log_in("ada", PASSWORD, client=forged) == 429


def test_a_shared_browser_remembers_all_its_users(ada):
    make_user("bob", password=PASSWORD)
    shared = Client()
    for name in ("ada", "bob"):
        log_in(name, PASSWORD, client=shared)
        shared.post("/accounts/logout/")
    for name in ("ada", "bob"):
        for _ in range(10):
            log_in(name)

    assert [log_in(name, PASSWORD, client=shared) for name in ("ada", "bob")] == [302, 302]


def test_a_correct_password_resets_the_counts(ada):
    for _ in range(9):
        log_in("ada")
    log_in("ada", PASSWORD)

    assert [log_in("ada") for _ in range(10)] == [200] * 10


def test_attempts_are_stored_without_names(ada):
    from kgharvest.models import Attempts

    log_in("hunter2")

    assert Attempts.objects.exists()
    assert "hunter2" not in str(list(Attempts.objects.values()))


@pytest.mark.django_db(transaction=True)
def test_simultaneous_wrong_passwords_are_all_counted():
    make_user("ada", password=PASSWORD)

    statuses = at_once(*[lambda: log_in("ada")] * 14)

    assert sorted(statuses) == [200] * 10 + [429] * 4


@pytest.mark.django_db(transaction=True)
def test_simultaneous_attempts_of_a_known_browser_are_all_counted():
    make_user("ada", password=PASSWORD)
    known_browser = Client()
    log_in("ada", PASSWORD, client=known_browser)
    device = known_browser.cookies[DEVICES].value

    def try_one() -> int:
        browser = Client()
        browser.cookies[DEVICES] = device
        return log_in("ada", client=browser)

    statuses = at_once(*[try_one] * 24)

    assert sorted(statuses) == [200] * 20 + [429] * 4  # ten for the browser, ten for the name at the address
