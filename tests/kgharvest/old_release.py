"""The empty database of the last release before optional apps, from which upgrade tests start."""

from __future__ import annotations

from pathlib import Path

from django.apps import apps
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
    remove_tables()
    MigrationExecutor(connection).migrate(OLD_RELEASE)


def upgraded_release(shared_folder: Path) -> KeptState:
    """Return the database after the remaining migrations."""

    def upgrade() -> None:
        old_release(shared_folder).enter()
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())

    return KeptState(upgrade, shared_folder / "upgraded-release.sqlite3")
