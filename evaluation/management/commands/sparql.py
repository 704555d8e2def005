"""`sparql --round NAME QUERY|--file F [--format csv/json]`"""

import json
from pathlib import Path

from annotation.rounds.services import find_round
from evaluation.judged_kg.rows import JudgedKG
from evaluation.judged_kg.sparql import MOST_ROWS, as_csv, as_json, ask
from kgharvest.bulk.file_reading import read_text
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand


class NoQuery(DomainError):
    """No query, or two."""


class Command(DomainCommand):
    help = "Answer a SPARQL query (SELECT, ASK or CONSTRUCT) over the judged tuples of a round."

    def add_arguments(self, parser):
        parser.add_argument("--round", required=True, metavar="NAME", help="the round, alone or as project/NAME")
        parser.add_argument("query", nargs="?", metavar="QUERY", help="the query itself")
        parser.add_argument("--file", type=Path, metavar="F", help="a file with the query")
        parser.add_argument(
            "--format", dest="file_format", choices=["csv", "json"], default="csv", help="of the answer (csv)"
        )

    def handle(self, *, round, query, file, file_format, **options):
        if (query is None) == (file is None):
            raise NoQuery("Write the query, or name a file with --file: one of the two.")
        answer = ask(JudgedKG(find_round(round)), query if file is None else read_text(file))
        if file_format == "json":
            self.stdout.write(json.dumps(as_json(answer), ensure_ascii=False))
        else:
            self.stdout.write(as_csv(answer), ending="")
        if not answer.is_complete:
            self.stderr.write(f"These are the first {len(answer.rows):,} rows only, of at most {MOST_ROWS:,}.")
