"""Rate limits on attempts, shared by all processes."""

from datetime import timedelta

import pytest
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils import timezone

from kgharvest.accounts.throttle import count_attempt, is_exhausted, network_of
from kgharvest.environment import limit
from kgharvest.models import Attempts
from tests.factories import make_user
from tests.postgres import at_once

NOW = timezone.now()
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def low_limits(settings):
    settings.LIMITS = dict.fromkeys(settings.LIMITS, (2, 60))


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", None),
        ("unix:", None),
    ],
)
def test_an_ipv6_network_counts_as_one_address(rf, address, network):
    assert network_of(rf.get("/", REMOTE_ADDR=address)) == network


@pytest.mark.django_db
def test_window_starts_with_first_attempt_and_expires():
    counted = [count_attempt("guests", "x", NOW + timedelta(seconds=s)) for s in (0, 30, 59, 60, 61)]

    assert counted == [1, 2, 3, 1, 2]
    assert is_exhausted("guests", "x", NOW + timedelta(seconds=62))
    assert not is_exhausted("guests", "x", NOW + timedelta(seconds=120))
    assert not is_exhausted("guests", "y", NOW)
    assert not is_exhausted("wrong_links", "x", NOW)


@pytest.mark.django_db
def test_expired_windows_are_deleted():
    count_attempt("guests", "x", NOW)
    count_attempt("guests", "y", NOW + timedelta(hours=1))

    assert list(Attempts.objects.values_list("key", flat=True)) == ["guests:y"]


@pytest.mark.django_db(transaction=True)
def test_simultaneous_attempts_are_all_counted():
    counted = at_once(*[lambda: count_attempt("guests", "x", NOW)] * 8)

    assert sorted(counted) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.django_db
def test_password_change_limits_wrong_old_passwords(client):
    client.force_login(make_user("ada", password=PASSWORD))
    new = {"new_password1": "staple it again", "new_password2": "staple it again"}

    wrong = [client.post("/accounts/password_change/", {"old_password": n, **new}).status_code for n in "abc"]

    assert wrong == [200, 200, 429]
    assert client.post("/accounts/password_change/", {"old_password": PASSWORD, **new}).status_code == 429


def test_numeric_password_is_rejected():
    with pytest.raises(ValidationError, match="entirely numeric"):
        validate_password("918273645546372819")


def test_limits_are_set_by_environment_variables(monkeypatch):
    monkeypatch.setenv("KGHARVEST_GUESTS", "200/3600")
    assert limit("KGHARVEST_GUESTS", 30, 600) == (200, 3600)
    monkeypatch.setenv("KGHARVEST_GUESTS", "many")
    with pytest.raises(ImproperlyConfigured, match="KGHARVEST_GUESTS is 'many'"):
        limit("KGHARVEST_GUESTS", 30, 600)
