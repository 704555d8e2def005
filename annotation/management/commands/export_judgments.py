"""`export_judgments --round NAME [--format csv/jsonl]`"""

from annotation.exports import FORMATS, judgment_rows
from annotation.services.rounds import find_round
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Write the judgments of a round to standard output: one row per annotator and statement, without names."

    def add_arguments(self, parser):
        parser.add_argument("--round", required=True, metavar="NAME")
        parser.add_argument("--format", dest="file_format", choices=list(FORMATS), default="csv")

    def handle(self, *, round, file_format, **options):
        for lines in FORMATS[file_format](judgment_rows(find_round(round))):
            self.stdout.write(lines, ending="")
