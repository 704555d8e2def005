from pathlib import Path

from django.core.management import call_command

from kgharvest.management.command import DomainCommand, has_pending_migrations
from kgharvest.operations.backup import restore


class Command(DomainCommand):
    help = "Restore a backup. If an error occurs, nothing is changed."

    def add_arguments(self, parser):
        parser.add_argument("file", metavar="FILE", type=Path, help="file written by `backup`")
        parser.add_argument("--replace", action="store_true", help="delete existing data of this installation")

    def handle(self, *, file: Path, replace: bool, **options):
        manifest = restore(file, replace)
        self.stdout.write(f"Restored {manifest.n_rows} rows of {len(manifest.rows)} tables from {manifest.made_at}.")
        if apps := manifest.uninstalled_apps:
            self.stdout.write(f"The backup includes tables of apps that are not installed: {', '.join(apps)}.")
        if has_pending_migrations():
            self.stdout.write(f"Migrating the tables from kgharvest {manifest.version}.")
            call_command("migrate", verbosity=0)
