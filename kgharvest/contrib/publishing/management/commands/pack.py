"""Create the replication package of a report."""

from pathlib import Path

from evaluation.models import Report
from kgharvest.contrib.publishing.packs.archive import check_output
from kgharvest.contrib.publishing.packs.pack import check_options, pack_files
from kgharvest.contrib.publishing.packs.pack_jobs import pack_now
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand
from kgharvest.progress_bar import ProgressBar


class Command(DomainCommand):
    help = "Create the replication package of a report: its numbers, tables, figures, and de-identified raw rows."

    def add_arguments(self, parser):
        parser.add_argument("--report", required=True, type=int, metavar="ID", help="report ID")
        about = "new folder, or file that ends in .zip (default: ROUND-report-ID.zip)"
        parser.add_argument("--output", type=Path, metavar="DIR or ZIP", help=about)
        about = "license of the data as an SPDX identifier, for example CC-BY-4.0 (default: from the paper metadata)"
        parser.add_argument("--license", dest="licence", default="", metavar="SPDX", help=about)
        about = 'author for CITATION.cff as "Family, Given"; repeatable (default: from the paper metadata)'
        parser.add_argument("--author", action="append", default=[], metavar="NAME", help=about)

    def handle(self, *, report, output, licence, author, **options):
        packed = Report.objects.filter(pk=report).select_related("round__project").first()
        if packed is None:
            raise NotFound(f"Report {report} not found. The reports page lists report IDs.")
        output = output or Path(f"{packed.round.name}-report-{packed.pk}.zip")
        check_output(output)
        check_options(licence, author)
        with ProgressBar("pack") as bar:
            files = pack_files(packed, licence, author, bar)
        pack_now(packed, output, files)
        self.stdout.write(f"{output}: {len(files)} files")
