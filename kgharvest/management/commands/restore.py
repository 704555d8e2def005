"""`restore`: what `backup` wrote, into an installation that is empty or is to be replaced."""

from __future__ import annotations

from pathlib import Path

from django.core.management import call_command

from kgharvest.management.command import DomainCommand, has_pending_migrations
from kgharvest.operations.backup import restore


class Command(DomainCommand):
    help = "Put what a backup has in the place of what this installation has, all of it or nothing."

    def add_arguments(self, parser):
        parser.add_argument("file", metavar="FILE", type=Path, help="what `backup` wrote")
        parser.add_argument("--replace", action="store_true", help="also where there is something, which is lost then")

    def handle(self, *, file: Path, replace: bool, **options):
        manifest = restore(file, replace)
        self.stdout.write(f"Restored {manifest.n_rows} rows of {len(manifest.rows)} tables of {manifest.made_at}.")
        if apps := manifest.uninstalled_apps:
            self.stdout.write(f"Among them are the tables of apps that are not installed: {', '.join(apps)}.")
        if has_pending_migrations():
            self.stdout.write(f"The backup is of kgharvest {manifest.version}; bringing its tables up to date.")
            call_command("migrate", verbosity=0)
