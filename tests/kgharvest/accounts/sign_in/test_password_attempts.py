"""Guessing passwords is limited; who knows theirs gets in, whatever others tried at the same address or name."""

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
    """Return the status: 302 is in, 200 the form again, 429 too many."""
    sent = {"username": name, "password": password}
    return (client or Client()).post("/accounts/login/", sent, REMOTE_ADDR=address).status_code


def test_wrong_passwords_for_many_names_do_not_block_correct_logins(ada):
    tried = [log_in(f"person {n}") for n in range(60)]

    assert tried == [200] * 60
    assert log_in("ada", PASSWORD) == 302


def test_an_address_that_tries_many_names_gets_few_tries_at_each(ada):
    for n in range(50):
        log_in(f"person {n}")

    assert [log_in("ada") for _ in range(4)] == [200, 200, 200, 429]
    assert log_in("ada", PASSWORD) == 429
    assert log_in("ada", PASSWORD, ELSEWHERE) == 302


def test_a_name_is_locked_at_an_address_after_ten_wrong_passwords(ada):
    tried = [log_in("ada") for _ in range(11)]

    assert tried == [200] * 10 + [429]
    assert log_in("ada", PASSWORD) == 429
    assert log_in("ada", PASSWORD, ELSEWHERE) == 302


@pytest.mark.parametrize("written", ["ada ", "ａｄａ", " ada"])
def test_another_way_to_write_a_name_gets_no_more_tries(ada, written):
    for _ in range(10):
        log_in("ada")

    assert log_in(written) == 429


def test_a_browser_that_was_logged_in_before_is_not_locked_by_others(ada):
    own = Client()
    assert log_in("ada", PASSWORD, client=own) == 302
    own.post("/accounts/logout/")
    for _ in range(11):
        log_in("ada")

    assert log_in("ada", PASSWORD) == 429
    assert log_in("ada", PASSWORD, client=own) == 302


def test_many_addresses_together_do_not_guess_on(ada):
    own = Client()
    log_in("ada", PASSWORD, client=own)
    own.post("/accounts/logout/")

    tried = [log_in("ada", address=f"198.51.100.{n}") for n in range(26)]

    assert tried == [200] * 25 + [429]
    assert log_in("ada", PASSWORD, "203.0.113.1") == 429
    assert log_in("ada", PASSWORD, "203.0.113.1", own) == 302


def test_a_device_cookie_is_valid_for_its_name_and_limited_attempts(ada):
    make_user("bob", password=PASSWORD)
    own = Client()
    log_in("ada", PASSWORD, client=own)
    own.post("/accounts/logout/")
    for name in ("ada", "bob"):
        for _ in range(10):
            log_in(name)

    assert log_in("bob", PASSWORD, client=own) == 429
    assert [log_in("ada", client=own) for _ in range(11)] == [200] * 10 + [429]


def test_a_made_up_device_is_not_believed(ada):
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


def test_no_name_is_stored_with_the_attempts(ada):
    from kgharvest.models import Attempts

    log_in("hunter2")

    assert Attempts.objects.exists()
    assert "hunter2" not in str(list(Attempts.objects.values()))


@pytest.mark.django_db(transaction=True)
def test_passwords_tried_at_the_same_moment_are_all_counted():
    make_user("ada", password=PASSWORD)

    statuses = at_once(*[lambda: log_in("ada")] * 14)

    assert sorted(statuses) == [200] * 10 + [429] * 4


@pytest.mark.django_db(transaction=True)
def test_simultaneous_attempts_of_a_known_browser_are_all_counted():
    make_user("ada", password=PASSWORD)
    own = Client()
    log_in("ada", PASSWORD, client=own)
    device = own.cookies[DEVICES].value

    def try_one() -> int:
        browser = Client()
        browser.cookies[DEVICES] = device
        return log_in("ada", client=browser)

    statuses = at_once(*[try_one] * 24)

    assert sorted(statuses) == [200] * 20 + [429] * 4  # ten of the browser, ten of the name at its address
