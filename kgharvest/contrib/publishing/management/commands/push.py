"""Upload a judged KG or a replication package to the Hugging Face Hub."""

from pathlib import Path

from kgharvest.contrib.publishing.hub_upload import check_repository, read_data_set, upload
from kgharvest.management.command import DomainCommand
from kgharvest.pages.number_format import counted


class Command(DomainCommand):
    help = (
        "Upload a judged KG (from export_kg --format hf) or a replication package (from pack) to the Hugging Face Hub, "
        "as a private data set in one commit. The token comes from HF_TOKEN or hf auth login. Needs no database."
    )
    requires_system_checks = ()

    def add_arguments(self, parser):
        parser.add_argument("path", type=Path, metavar="DIR or ZIP", help="folder or ZIP file of the export")
        parser.add_argument(
            "--repo", required=True, metavar="OWNER/NAME", help="data set on the hub, created if missing"
        )
        parser.add_argument("--branch", "--revision", default="main", help="branch, created if missing (default: main)")
        parser.add_argument("--public", action="store_true", help="permit a public repository (default: private)")
        replace_help = "delete all other files of the branch in the same commit"
        parser.add_argument("--replace", action="store_true", help=replace_help)
        parser.add_argument("--dry-run", action="store_true", help="only list the files, without contacting the hub")

    def handle(self, *, path, repo, branch, public, replace, dry_run, **options):
        check_repository(repo)
        data_set = read_data_set(path)
        n_bytes = sum(map(len, data_set.contents.values()))
        size = f"{counted(len(data_set.contents), 'file')}, {n_bytes / 1e6:,.1f} MB"
        if dry_run:
            for name, content in sorted(data_set.contents.items()):
                self.stdout.write(f"{len(content):12,}  {name}")
            visibility = "public" if public else "private"
            self.stdout.write(f"{data_set.title}: {size} would be uploaded to {repo}, branch {branch} ({visibility}).")
            return
        done = upload(data_set, repo, branch, public, replace)
        visibility = "private" if done.is_private else "public"
        self.stdout.write(f"{done.url} ({visibility}), commit {done.commit}: {size}.")
