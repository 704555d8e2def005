import os
import subprocess
import sys

from django.conf import settings

from kgharvest.management.command import DomainCommand
from kgharvest.operations.database_transfer import copy_database, uninstalled_contrib_apps
from kgharvest.operations.programs import own_command


class Command(DomainCommand):
    help = (
        "Copy all rows to an empty SQLite or PostgreSQL database in one transaction. A destination without tables is "
        "migrated first."
    )

    def add_arguments(self, parser):
        url = "database URL: sqlite:////absolute/path or postgres://user:password@host/name"
        parser.add_argument("source", metavar="SRC", help=f"source {url}")
        parser.add_argument("destination", metavar="DST", help="destination database URL")

    def handle(self, *, source, destination, **options):
        if apps := uninstalled_contrib_apps(source):
            # Copying requires the models of all apps, so it runs in a process in which these apps are installed.
            installed = {"KGHARVEST_CONTRIB": ",".join([*settings.CONTRIB_APPS, *apps])}
            command = own_command("copy_database", source, destination)
            run = subprocess.run(command, env=os.environ | installed)  # noqa: S603
            sys.exit(run.returncode)

        def show_table(table):
            self.stdout.write(f"{table.checksum}  {table.n_rows:>9}  {table.name}")

        tables = copy_database(source, destination, show_table)
        n_rows = sum(table.n_rows for table in tables)
        self.stdout.write(f"Copied {n_rows} rows of {len(tables)} tables; counts and checksums agree.")
        self.stdout.write("Files are not copied. Keep the folder packs of the data folder, or KGHARVEST_FILES.")
