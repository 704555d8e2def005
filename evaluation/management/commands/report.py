"""`report --round NAME` or `report FILE.csv [--judge-labels FILE.csv] [--duplicates error/first/last]`, with
`[--format json/csv/md/tex/html/xlsx/evidence] [--table T] [--equivalence-margin POINTS] [--output F]`; for rounds also
`[--reference KG] [--judge RUN] [--store]`"""

from pathlib import Path

from annotation.exchange.judgment_files import DUPLICATES
from annotation.rounds.services import find_round
from evaluation.reports.document import report_tables
from evaluation.reports.files import DOCUMENT_FORMATS, EVIDENCE, FILES, write_report
from evaluation.reports.forms import ReportForm, equivalence_margin_of, report_options
from evaluation.reports.label_report import report_of_labels
from evaluation.reports.services import prepare_report, store_report
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand
from kgharvest.tables.formats import csv_text

OF_ROUNDS, OF_FILES = ("reference", "judge"), ("judge_labels", "duplicates")  # options


class Command(DomainCommand):
    help = (
        "Create a report: accuracy with intervals, agreement, and tests. A report on a round with judgments is stored. "
        "A report on a CSV file of labels (columns item, annotator, and label) needs no database."
    )
    requires_system_checks = ()  # system checks load all pages, which takes longer than a report on a file

    def add_arguments(self, parser):
        parser.add_argument("file", nargs="?", type=Path, metavar="FILE.csv", help="file of labels, instead of --round")
        parser.add_argument("--round", metavar="NAME", help="name of the round, or project/NAME")
        parser.add_argument(
            "--judge-labels", type=Path, metavar="FILE.csv", help="labels of an LM judge for the statements of FILE"
        )
        parser.add_argument(
            "--duplicates",
            choices=DUPLICATES,
            help="policy for repeated judgments of a statement in FILE (default: error)",
        )
        parser.add_argument(
            "--format",
            dest="file_format",
            choices=list(FILES),
            help="file format; default: suffix of --output, or json",
        )
        parser.add_argument("--table", metavar="T", help="table for --format csv, for example comparisons")
        parser.add_argument(
            "--reference", type=Path, metavar="KG", help="reference KG for novelty: triples (.csv, .tsv, or .jsonl)"
        )
        margin = ReportForm.base_fields["equivalence_margin"]
        parser.add_argument("--equivalence-margin", metavar="POINTS", default=margin.initial, help=margin.help_text)
        judge = ReportForm.base_fields["judge"]
        parser.add_argument("--judge", metavar="RUN", help=judge.help_text)
        parser.add_argument("--store", action="store_true", help="store the report even if the round has no judgments")
        parser.add_argument(
            "-o", "--output", type=Path, metavar="F", help="write the report to a file; default: standard output"
        )

    def handle(self, *, file, round, file_format, table, equivalence_margin, output, **options):
        if (file is None) == (round is None):
            raise DomainError("BadOptions", "Name either a file of labels or, with --round, a round.")
        unused = [name for name in (OF_ROUNDS if file else OF_FILES) if options[name] is not None]
        if unused:
            source = "a round" if file else "a file of labels"
            raise DomainError("BadOptions", f"--{unused[0].replace('_', '-')} requires {source}. Remove the option.")
        file_format = file_format or format_of(output)
        if table and file_format != "csv":
            raise DomainError("NoSuchTable", "--table requires --format csv. The other formats contain all tables.")
        if file and file_format == EVIDENCE:
            raise DomainError("BadOptions", f"The format {EVIDENCE} requires a round. Use html.")
        if output:
            check_writable(output)
        if file:
            margin = equivalence_margin_of(equivalence_margin)
            duplicates = options["duplicates"] or "error"
            document = report_of_labels(file, options["judge_labels"], duplicates=duplicates, equivalence_margin=margin)
            content = csv_of(document, table) if table else DOCUMENT_FORMATS[file_format].bytes_of(document)
        else:
            judged = find_round(round)
            chosen = report_options({"equivalence_margin": equivalence_margin, "judge": options["judge"]}, judged)
            report = prepare_report(judged, reference=options["reference"], **chosen)
            content = csv_of(report.document, table) if table else write_report(report, file_format)
            if options["store"] or report.document["n_judgments"]:
                store_report(report)
            else:
                self.stderr.write("The round has no judgments. The report is not stored; to store it, add --store.")
        if output:
            write_atomically(output, [content])
            self.stdout.write(f"Report: {output}")
        else:
            self.stdout.flush()
            self.stdout.buffer.write(content)
            self.stdout.buffer.flush()


def format_of(output: Path | None) -> str:
    """Return the format for the suffix of `output`, or json if there is no file or suffix."""
    suffix = output.suffix.lower().removeprefix(".") if output else ""
    if suffix and suffix not in DOCUMENT_FORMATS:
        formats = ", ".join(DOCUMENT_FORMATS)
        raise DomainError("BadOptions", f"Unknown suffix .{suffix} of --output. Use {formats}, or add --format.")
    return suffix or "json"


def csv_of(document, name: str) -> bytes:
    tables = {table.name: table for table in report_tables(document)}
    if name not in tables:
        raise DomainError("NoSuchTable", f"The report has no table {name!r}; it has {', '.join(sorted(tables))}.")
    return csv_text(tables[name]).encode()
