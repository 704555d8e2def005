"""Django setup for benches, with the data in a temporary folder or in a folder that is kept."""

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
    """Set up Django with its data in `folder`, or in a temporary folder if None, and return the folder.

    environment: additional environment variables. A bench imported by another bench uses the other bench's folder.
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
    """Create the tables, in the database of DATABASE_URL or in a SQLite file in the folder."""
    call_command("migrate", verbosity=0)
