from pathlib import Path

from kgharvest.management.command import DomainCommand
from kgharvest.operations.backup import SECRET_KEY, back_up
from kgharvest.operations.files import kept_files


class Command(DomainCommand):
    help = "Back up the database and the generated secret key to one file. The server can keep running."

    def add_arguments(self, parser):
        parser.add_argument("file", metavar="FILE", type=Path, help="new file, for example backup-2026-01-31.zip")

    def handle(self, *, file: Path, **options):
        manifest = back_up(file)
        self.stdout.write(f"{file}: {manifest.n_rows} rows of {len(manifest.rows)} tables ({manifest.database}).")
        if apps := manifest.uninstalled_apps:
            self.stdout.write(f"The backup includes tables of apps that are not installed: {', '.join(apps)}.")
        if SECRET_KEY not in manifest.files:
            self.stdout.write(
                "SECRET_KEY is set in the environment. Back it up, too, because join links are signed with it."
            )
        self.stdout.write(f"Not included: replication packages. Back up the folder packs in {kept_files().place}, too.")
