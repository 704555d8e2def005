"""`report --round NAME [--format json/csv/md/tex] [--output F]`"""

from pathlib import Path

from annotation.services.rounds import find_round
from evaluation.reports.writers import FORMATS
from evaluation.services.reports import create_report
from kgharvest.management.command import DomainCommand
from kgharvest.services.writing import check_writable, write_atomically


class Command(DomainCommand):
    help = "Report what people said about a round: accuracy with intervals, agreement. The report is kept."

    def add_arguments(self, parser):
        parser.add_argument("--round", required=True, metavar="NAME")
        parser.add_argument("--format", dest="file_format", choices=list(FORMATS), default="json")
        parser.add_argument("--output", type=Path, metavar="F", help="write to a file instead of standard output")

    def handle(self, *, round, file_format, output, **options):
        if output:
            check_writable(output)
        report = create_report(find_round(round))
        text = FORMATS[file_format].write(report.document)
        if output:
            write_atomically(output, [text])
        else:
            self.stdout.write(text, ending="")
