"""The empty database of the last release before optional apps, from which upgrade tests start."""

from __future__ import annotations

from pathlib import Path

from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests.database_copies import KeptState, remove_tables

# The last migrations of the release, of the installed apps
OLD_RELEASE = [
    ("kgharvest", "0031_job_turns"),
    ("annotation", "0032_judge_dtype"),
    ("evaluation", "0013_score_samples"),
    *([("probing", "0001_probes_from_evaluation")] if "probing" in apps.app_configs else []),
    ("admin", "0003_logentry_add_action_flag_choices"),
    ("sessions", "0001_initial"),
]


def old_release(shared_folder: Path) -> KeptState:
    """Return the migrated database without rows. On SQLite, all test processes share it."""
    return KeptState(_migrate, shared_folder / "old-release.sqlite3")


def _migrate() -> None:
    if connection.vendor == "sqlite":
        remove_tables()  # migrating forward from an empty database is faster than migrating backward
    else:
        call_command("migrate", "kgharvest", "zero", verbosity=0)
    MigrationExecutor(connection).migrate(OLD_RELEASE)
