"""Sessions: expiry, logout, closed accounts, and malformed keys."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from kgharvest.accounts.sign_in.session_store import SessionStore, delete_expired_sessions
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def is_logged_in(browser: Client) -> bool:
    return browser.get("/accounts/").status_code == 200


@pytest.fixture
def browser() -> Client:
    browser = Client()
    browser.force_login(make_user("ada"))
    assert is_logged_in(browser)
    return browser


def test_expired_session_is_logged_out(browser):
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))

    assert not is_logged_in(browser)


def test_session_key_is_invalid_after_logout(browser):
    before = browser.cookies["sessionid"].value
    browser.post("/accounts/logout/")
    browser.cookies["sessionid"] = before

    assert not is_logged_in(browser)


def test_session_of_closed_account_is_logged_out(browser):
    get_user_model().objects.update(is_active=False)

    assert not is_logged_in(browser)


def test_session_key_with_nul_queries_no_database(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert SessionStore("\x00aaaaaaaaaa").get("anything") is None


def test_only_expired_sessions_are_deleted():
    now = timezone.now()
    for key, left in (("old", -1), ("new", 1)):
        Session.objects.create(session_key=key, session_data="", expire_date=now + timedelta(minutes=left))

    delete_expired_sessions(now)

    assert list(Session.objects.values_list("session_key", flat=True)) == ["new"]
