"""`copy_database SRC DST`: all data from one database to another, SQLite or PostgreSQL."""

import os
import subprocess
import sys

from django.conf import settings

from kgharvest.management.command import DomainCommand
from kgharvest.operations.database_transfer import copy_database, uninstalled_contrib_apps

ADDRESS = "as in DATABASE_URL: sqlite:////absolute/path or postgres://user:password@host/name"


class Command(DomainCommand):
    help = "Copy all rows from one database to an empty one, in one transaction. Migrates a destination without tables."

    def add_arguments(self, parser):
        parser.add_argument("source", metavar="SRC", help=f"the database to read, {ADDRESS}")
        parser.add_argument("destination", metavar="DST", help="the database to fill, in the same form")

    def handle(self, *, source, destination, **options):
        if apps := uninstalled_contrib_apps(source):
            # Rows are copied by their models, so the copy runs in a process that has these apps.
            installed = {"KGHARVEST_CONTRIB": ",".join([*settings.CONTRIB_APPS, *apps])}
            manage = settings.BASE_DIR / "manage.py"
            run = subprocess.run(  # noqa: S603
                [sys.executable, manage, "copy_database", source, destination], env=os.environ | installed
            )
            sys.exit(run.returncode)
        copied = copy_database(
            source,
            destination,
            lambda table: self.stdout.write(f"{table.checksum}  {table.n_rows:>9}  {table.name}"),
        )
        n_rows = sum(table.n_rows for table in copied)
        self.stdout.write(f"Copied {n_rows} rows of {len(copied)} tables; counts and checksums agree.")
        self.stdout.write(
            "Files are not copied: keep packs of the data folder, or KGHARVEST_FILES, for the new database."
        )
