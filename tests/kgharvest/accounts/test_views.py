"""Logging in: what the log says of failures, and that every door has the same limits."""

import re

import pytest

from tests.factories import make_user

pytestmark = pytest.mark.django_db

# As docs/operations.md has it for fail2ban.
FAILREGEX = r"^.* WARNING kgharvest\.accounts\.views: failed login from (?P<host>\S+)$"


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/"])
def test_a_failed_login_is_one_line_with_the_address_and_no_name(client, caplog, path):
    client.post(path, {"username": "hunter2", "password": "wrong"}, REMOTE_ADDR="2001:db8::7")

    lines = [
        f"2026-01-31 12:00:00,000 {record.levelname} {record.name}: {record.getMessage()}" for record in caplog.records
    ]
    hosts = [match["host"] for line in lines if (match := re.match(FAILREGEX, line))]
    assert hosts == ["2001:db8::7"]
    assert "hunter2" not in "".join(lines)


def test_a_successful_login_logs_no_failure(client, caplog):
    make_user("ada", password="correct horse battery")

    client.post("/accounts/login/", {"username": "ada", "password": "correct horse battery"})

    assert "failed login" not in caplog.text
