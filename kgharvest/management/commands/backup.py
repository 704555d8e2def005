"""`backup`: database and secret key in one file, also while people judge."""

from __future__ import annotations

from pathlib import Path

from kgharvest.management.command import DomainCommand
from kgharvest.operations.backup import SECRET_KEY, back_up
from kgharvest.operations.files import kept_files


class Command(DomainCommand):
    help = "Write the database and the generated secret key to FILE. The server goes on meanwhile."

    def add_arguments(self, parser):
        parser.add_argument("file", metavar="FILE", type=Path, help="a new file, as backup-2026-01-31.zip")

    def handle(self, *, file: Path, **options):
        manifest = back_up(file)
        self.stdout.write(f"{file}: {manifest.n_rows} rows of {len(manifest.rows)} tables ({manifest.database}).")
        if apps := manifest.uninstalled_apps:
            self.stdout.write(f"Among them are the tables of apps that are not installed: {', '.join(apps)}.")
        if SECRET_KEY not in manifest.files:
            self.stdout.write("SECRET_KEY comes from the environment; keep it as well, join links are signed with it.")
        self.stdout.write(f"Paper packs are not in it; if there are any, keep packs of {kept_files().place} as well.")
