"""`report --round NAME [--format json/csv/md/tex/html/xlsx/evidence] [--table T] [--reference KG]
[--equivalence-margin POINTS] [--judge RUN] [--output F]`"""

from pathlib import Path

from annotation.rounds.services import find_round
from evaluation.reports.document import report_tables
from evaluation.reports.files import FILES, write_report
from evaluation.reports.forms import ReportForm, report_options
from evaluation.reports.services import prepare_report, store_report
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand
from kgharvest.tables.formats import csv_text


class Command(DomainCommand):
    help = "Create a report on a round: accuracy with intervals, agreement, and tests. The report is stored."

    def add_arguments(self, parser):
        parser.add_argument("--round", required=True, metavar="NAME", help="name of the round, or project/NAME")
        parser.add_argument(
            "--format", dest="file_format", choices=list(FILES), default="json", help="file format (default: json)"
        )
        parser.add_argument("--table", metavar="T", help="table for --format csv, for example comparisons")
        parser.add_argument(
            "--reference", type=Path, metavar="KG", help="reference KG for novelty: triples (.csv, .tsv, or .jsonl)"
        )
        margin = ReportForm.base_fields["equivalence_margin"]
        parser.add_argument("--equivalence-margin", metavar="POINTS", default=margin.initial, help=margin.help_text)
        judge = ReportForm.base_fields["judge"]
        parser.add_argument("--judge", metavar="RUN", help=judge.help_text)
        parser.add_argument(
            "--output", type=Path, metavar="F", help="write the report to a file; default: standard output"
        )

    def handle(self, *, round, file_format, table, reference, equivalence_margin, judge, output, **options):
        if table and file_format != "csv":
            raise DomainError("NoSuchTable", "--table requires --format csv. The other formats contain all tables.")
        if output:
            check_writable(output)
        judged = find_round(round)
        chosen = report_options({"equivalence_margin": equivalence_margin, "judge": judge}, judged)
        report = prepare_report(judged, reference=reference, **chosen)
        content = csv_of(report.document, table) if table else write_report(report, file_format)
        store_report(report)
        if output:
            write_atomically(output, [content])
        else:
            self.stdout.flush()
            self.stdout.buffer.write(content)
            self.stdout.buffer.flush()


def csv_of(document, name: str) -> bytes:
    tables = {table.name: table for table in report_tables(document)}
    if name not in tables:
        raise DomainError("NoSuchTable", f"The report has no table {name!r}; it has {', '.join(sorted(tables))}.")
    return csv_text(tables[name]).encode()
