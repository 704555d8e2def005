"""Settings of an installation whose process is killed when it stores the n-th step of a crawl (KILL_AT_STEP)."""

import os
import signal
from itertools import count

from django.db.backends.signals import connection_created

from kgharvest.settings import *  # noqa: F403

KILL_AT_STEP = int(os.environ.get("KILL_AT_STEP", 0))
_steps = count(1)


def _kill_at_step(execute, sql, params, many, context):
    if sql.startswith('INSERT INTO "crawling_crawlstep"') and next(_steps) == KILL_AT_STEP:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(sql, params, many, context)


def _watch(connection, **of_signal) -> None:
    if _kill_at_step not in connection.execute_wrappers:
        connection.execute_wrappers.append(_kill_at_step)


connection_created.connect(_watch)
