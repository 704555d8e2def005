"""Load test: 40 annotators in 8 processes judge 500 statements three times; the web server is killed three times.

    python tests/load/run.py                                                      on a temporary SQLite file
    python tests/load/run.py --database postgres://user:password@host/name        on an empty PostgreSQL database

Annotators pause, skip, and let leases expire. They send every answer twice, half of the time simultaneously. Prints a
summary. Fails if a task does not have exactly 3 judgments by 3 people, or if an acknowledged judgment is lost or
duplicated.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    arguments = parsed()
    with tempfile.TemporaryDirectory(prefix="kgharvest-load-") as folder:
        os.environ |= {"KGHARVEST_DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "kgharvest.settings", "DEBUG": "1"}
        os.environ["DATABASE_URL"] = arguments.database or f"sqlite:///{folder}/load.sqlite3"
        sys.path.insert(0, str(ROOT))
        run(arguments)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", metavar="URL", help="PostgreSQL database URL (default: a SQLite file)")
    for name, default in (("tasks", 500), ("annotators", 40), ("processes", 8), ("kills", 3), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection

    from annotation.models import Assignment, Judgment
    from tests.factories import make_round
    from tests.load.course import check_course, run_course
    from tests.load.web_server import WebServer, url_of

    call_command("migrate", verbosity=0)
    round = make_round(arguments.tasks)
    with WebServer(url_of(connection), settings.SECRET_KEY, "--workers", str(arguments.workers)) as server:
        course = run_course(round, server, arguments.annotators, arguments.processes, arguments.kills)
    stored = Judgment.objects.filter(task__round=round)
    print(
        f"{connection.vendor}: {round.n_tasks} statements complete after {course.seconds:.0f} s; {stored.count()} "
        f"judgments stored, {stored.counted().count()} counted, {len(course.acknowledged)} acknowledged; "
        f"server killed {course.n_killed} times, {course.n_expired} leases expired, "
        f"{Assignment.objects.skipped().count()} statements still skipped"
    )
    check_course(round, course)
    print("Every statement has the expected number of judgments. No acknowledged judgment is lost or duplicated.")


if __name__ == "__main__":
    main()
