"""Password reset by email. The response does not disclose the existence of an account."""

from __future__ import annotations

import re
import threading

import pytest
from django.core import mail

from kgharvest.accounts import views
from kgharvest.models import Attempts
from tests.factories import make_user
from tests.kgharvest.test_settings import run_python, settings_with

RESET = "/accounts/password_reset/"
NEW = {"new_password1": "staple it again", "new_password2": "staple it again"}


@pytest.fixture
def synchronous_email(monkeypatch, settings):
    settings.EMAIL_URL = "smtp://mail.example.org"
    settings.ORIGIN = "https://kg.example.org:8443"
    monkeypatch.setattr(views, "in_background", lambda call: call())
    monkeypatch.setattr(views.connection, "close", lambda: None)


@pytest.fixture
def ada(db):
    return make_user("ada", email="ada@example.org", password="correct horse battery")


def test_reset_link_sets_a_new_password_once(client, ada, synchronous_email):
    client.post(RESET, {"email": "Ada@example.org"})

    [message] = mail.outbox
    path = re.search(r"https://kg\.example\.org:8443(/accounts/reset/\S+)", message.body)[1]
    form = client.get(path, follow=True)
    assert form.redirect_chain[-1][0].endswith("/set-password/")  # the token stays out of the Referer
    assert client.post(form.redirect_chain[-1][0], NEW).headers["Location"] == "/accounts/reset/done/"
    ada.refresh_from_db()
    assert ada.check_password("staple it again")
    assert "Link expired" in client.get(path, follow=True).content.decode()


def test_known_and_unknown_addresses_get_the_same_response(client, ada, synchronous_email):
    answers = [client.post(RESET, {"email": address}) for address in ("ada@example.org", "nobody@example.org")]

    assert len(mail.outbox) == 1
    assert len({(answer.status_code, answer.headers["Location"]) for answer in answers}) == 1


@pytest.mark.django_db(transaction=True)
def test_response_does_not_wait_for_the_email(client, monkeypatch, settings):
    settings.EMAIL_URL = "smtp://mail.example.org"
    make_user("ada", email="ada@example.org", password="correct horse battery")
    may_send, in_background = threading.Event(), views.in_background
    monkeypatch.setattr(views, "in_background", lambda call: in_background(lambda: may_send.wait(60) and call()))

    assert client.post(RESET, {"email": "ada@example.org"}).status_code == 302
    assert mail.outbox == []
    may_send.set()
    [thread] = [thread for thread in threading.enumerate() if thread.name == "password-reset"]
    thread.join()

    assert len(mail.outbox) == 1


def test_reset_emails_are_limited_and_addresses_not_stored(client, ada, synchronous_email, settings):
    settings.LIMITS = {**settings.LIMITS, "reset_mails": (2, 3600), "reset_requests": (4, 3600)}

    statuses = [client.post(RESET, {"email": "ada@example.org"}).status_code for _ in range(5)]

    assert statuses == [302, 302, 302, 302, 429]
    assert len(mail.outbox) == 2
    assert not Attempts.objects.filter(key__contains="ada").exists()


@pytest.mark.django_db
@pytest.mark.parametrize(("contact", "sentence"), [("Grace, room 7", "Ask Grace, room 7"), ("", "Ask the operator")])
def test_page_names_the_contact_if_email_is_unavailable(client, settings, contact, sentence):
    settings.CONTACT = contact

    assert sentence in client.get(RESET).content.decode()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("smtp://kg:p%40ss@mail.example.org", ["mail.example.org", 587, "kg", "p@ss", True, False]),
        ("smtps://mail.example.org", ["mail.example.org", 465, "", "", False, True]),
        ("smtp://localhost:25?tls=0", ["localhost", 25, "", "", False, False]),
    ],
)
def test_email_url_configures_the_email_backend(tmp_path, address, expected):
    names = ("EMAIL_HOST", "EMAIL_PORT", "EMAIL_HOST_USER", "EMAIL_HOST_PASSWORD", "EMAIL_USE_TLS", "EMAIL_USE_SSL")

    values = settings_with(tmp_path, *names, EMAIL_URL=address)

    assert [values[name] for name in names] == expected


def test_email_url_with_unsupported_scheme_is_rejected(tmp_path):
    done = run_python(tmp_path, "manage.py", "check", EMAIL_URL="imap://mail.example.org")

    assert "EMAIL_URL starts with 'imap'. Use smtp://" in done.stderr
