"""Requests drawn from the API's description: a few of those that benches/fuzz_api.py draws by thousands."""

from collections.abc import Iterator

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from benches.fuzz_api import Fuzz, populate

CASES = 150  # of all roles together


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Keep the server from closing the connection that has the test's transaction."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.django_db
@pytest.mark.usefixtures("one_connection")
def test_odd_requests_of_every_role_are_answered_as_described(settings):
    settings.API_LIMITS = dict.fromkeys(settings.API_LIMITS, (10**9, 60))
    roles, names = populate()
    fuzz = Fuzz(names)

    for number, (role, headers) in enumerate(roles.items()):
        # Each role takes its share of the operations: building what draws them costs more than to send them.
        fuzz.run(role, headers, CASES // len(roles), number, lambda n, _, number=number: n % len(roles) == number)

    assert fuzz.failures == []
    assert {200, 400, 401, 403, 404} <= fuzz.statuses.keys()
