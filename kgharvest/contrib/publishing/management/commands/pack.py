"""`pack --report ID [--output DIR or ZIP] [--license SPDX] [--author "Family, Given" ...]`"""

from pathlib import Path

from evaluation.models import Report
from kgharvest.contrib.publishing.packs.archive import check_output
from kgharvest.contrib.publishing.packs.pack import check_authors, check_licence, pack_files
from kgharvest.contrib.publishing.packs.pack_jobs import pack_now
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand, ProgressBar


class Command(DomainCommand):
    help = "Pack a report for a paper: its numbers, tables and figures, and the de-identified rows they come from."

    def add_arguments(self, parser):
        parser.add_argument("--report", required=True, type=int, metavar="ID", help="number of the report")
        parser.add_argument(
            "--output",
            type=Path,
            metavar="DIR or ZIP",
            help="new folder, or file that ends in .zip (ROUND-report-ID.zip)",
        )
        parser.add_argument(
            "--license", dest="licence", default="", metavar="SPDX", help="of the data set, such as CC-BY-4.0"
        )
        parser.add_argument(
            "--author",
            action="append",
            default=[],
            metavar="NAME",
            help='for CITATION.cff: "Family, Given"; repeatable',
        )

    def handle(self, *, report, output, licence, author, **options):
        packed = Report.objects.filter(pk=report).select_related("round__project").first()
        if packed is None:
            raise NotFound(f"There is no report {report}; the page of reports has their numbers.")
        output = output or Path(f"{packed.round.name}-report-{packed.pk}.zip")
        check_output(output)
        licence, authors = check_licence(licence), check_authors(author)
        with ProgressBar("pack") as bar:
            files = pack_files(packed, licence, authors, bar)
        pack_now(packed, output, files)
        self.stdout.write(f"{output}: {len(files)} files")
