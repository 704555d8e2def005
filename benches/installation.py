"""The installation that a bench runs on: Django set up on a folder that goes with the process, or that is kept."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path

import django
from django.apps import apps
from django.core.management import call_command

ROOT = Path(__file__).resolve().parent.parent


def set_up_django(folder: str | Path | None = None, **environment: str) -> Path:
    """Set Django up with its data in `folder`, a new one if None, and return the folder.

    environment: variables besides. A bench that another one imports is on the folder of that one.
    """
    if apps.ready:
        return Path(os.environ["KGHARVEST_DATA_DIR"])
    if folder is None:
        new = tempfile.TemporaryDirectory(prefix="kgharvest-bench-")
        atexit.register(new.cleanup)
        folder = new.name
    os.environ |= {"DJANGO_SETTINGS_MODULE": "kgharvest.settings", "KGHARVEST_DATA_DIR": str(folder), **environment}
    django.setup()
    return Path(folder)


def migrate() -> None:
    """Make the tables, in the database of DATABASE_URL or a SQLite file in the folder."""
    call_command("migrate", verbosity=0)
