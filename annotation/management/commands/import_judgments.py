"""`import_judgments FILE.csv --round NAME [--create] [--set NAME] [--duplicates error/first/last]`"""

from pathlib import Path

from annotation.exchange.judgment_files import DUPLICATES
from annotation.exchange.judgment_import import import_judgments
from kgharvest.management.command import DomainCommand, add_project_argument

DUPLICATES_WERE = {"first": "skipped", "last": "replaced earlier ones"}


class Command(DomainCommand):
    help = (
        "Add judgments from a CSV file with the columns relation, entities (a JSON list), annotator, and label (True, "
        "False, or Unjudgeable). Optional columns: model, setting, seconds, judged_at, and comment."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, metavar="FILE.csv", help="CSV file with the columns above")
        parser.add_argument("--round", required=True, metavar="NAME", help="round of imported judgments")
        parser.add_argument("--create", action="store_true", help="create missing rounds, relations, tuples, and tasks")
        parser.add_argument(
            "--set", dest="set_name", metavar="NAME", help="relation set to use if several sets contain the relation"
        )
        add_project_argument(parser)
        parser.add_argument(
            "--duplicates",
            choices=DUPLICATES,
            default="error",
            help="how to treat repeated judgments of a tuple by the same annotator",
        )

    def handle(self, *, file, round, create, set_name, project, duplicates, **options):
        summary = import_judgments(
            file, round, create=create, set_name=set_name, project=project, duplicates=duplicates
        )
        round, n = summary.round, summary.n_duplicates
        note = f", {n} repeats {DUPLICATES_WERE[duplicates]}" if n else ""
        self.stdout.write(f"round {round.pk}: {round.name}, {summary.n_judgments} judgments added{note}")
