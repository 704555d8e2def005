"""Settings of an installation whose programs can be killed at their n-th query (KILL_AT)."""

import os
import signal
from itertools import count
from pathlib import Path

from django.db.backends.signals import connection_created

from kgharvest.settings import *  # noqa: F403
from kgharvest.settings import DATA_DIR, JOB_RUNNERS

JOB_LEASE_S = 2
if not os.environ.get("REAL_HARVESTS"):
    JOB_RUNNERS = JOB_RUNNERS | {
        "harvest": "tests.evaluation.studies.conftest.run_fake_harvest",
        "evaluate_scores": "tests.evaluation.studies.conftest.run_fake_scores",
    }
KILL_AT = int(os.environ.get("KILL_AT", 0))
_queries = count(1)


def _count_query(execute, sql, params, many, context):
    number = next(_queries)
    if number == KILL_AT:
        os.kill(os.getpid(), signal.SIGKILL)
    if not KILL_AT:
        (Path(DATA_DIR) / "n_queries").write_text(str(number))
    return execute(sql, params, many, context)


def _watch(connection, **of_signal) -> None:
    if _count_query not in connection.execute_wrappers:
        connection.execute_wrappers.append(_count_query)


connection_created.connect(_watch)
