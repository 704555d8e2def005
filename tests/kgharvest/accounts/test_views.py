"""Log messages of failed and successful logins."""

import re

import pytest

from tests.factories import make_user

pytestmark = pytest.mark.django_db

# The fail2ban expression from docs/operations.md.
FAILREGEX = r"^.* WARNING kgharvest\.accounts\.views: failed login from (?P<host>\S+)$"


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/"])
def test_failed_login_logs_one_line_with_address_without_name(client, caplog, path):
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
