"""`export_judgments --round NAME [--format csv/jsonl/parquet] [--output F]`"""

from pathlib import Path

from annotation.exchange.judgment_export import FILE_FORMATS, judgment_table
from annotation.rounds.services import find_round
from kgharvest.bulk.file_writing import in_chunks, write_atomically
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand
from kgharvest.tables.formats import FORMATS


class Command(DomainCommand):
    help = "Export the judgments of a round: one row per annotator and statement, with codes instead of names."

    def add_arguments(self, parser):
        parser.add_argument("--round", required=True, metavar="NAME", help="round name, or project/NAME")
        parser.add_argument("--format", dest="file_format", choices=FILE_FORMATS, default="csv", help="default: csv")
        parser.add_argument("--output", type=Path, metavar="F", help="file to write (default: standard output)")

    def handle(self, *, round, file_format, output, **options):
        pieces = FORMATS[file_format].write(judgment_table(find_round(round)))
        if output:
            write_atomically(output, pieces)
        elif file_format == "parquet":
            if self.stdout.isatty():
                raise DomainError("NotForScreens", "Parquet is a binary format. Name a file with --output.")
            self.stdout.buffer.writelines(pieces)
        else:
            for piece in in_chunks(pieces):
                self.stdout.write(piece, ending="")
