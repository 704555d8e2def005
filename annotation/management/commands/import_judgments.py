"""`import_judgments FILE.csv --round NAME [--create] [--set NAME] [--duplicates error/first/last]`"""

from pathlib import Path

from annotation.exchange.judgment_import import DUPLICATES, import_judgments
from kgharvest.management.command import DomainCommand, add_project_argument

DUPLICATES_WERE = {"first": "left out", "last": "in the place of earlier ones"}


class Command(DomainCommand):
    help = (
        "Add judgments from a CSV file with the columns relation, entities (a JSON list), annotator and label (True, "
        "False or Unjudgeable), and if you have them model, setting, seconds, judged_at and comment."
    )

    def add_arguments(self, parser):
        parser.add_argument(
            "file", type=Path, metavar="FILE.csv", help="columns relation, entities, annotator, label and more"
        )
        parser.add_argument("--round", required=True, metavar="NAME", help="a round for imports")
        parser.add_argument(
            "--create", action="store_true", help="make what is missing: round, relations, tuples, tasks"
        )
        parser.add_argument(
            "--set", dest="set_name", metavar="NAME", help="the set that is meant where several have a relation"
        )
        add_project_argument(parser)
        parser.add_argument(
            "--duplicates", choices=DUPLICATES, default="error", help="second judgments of an annotator on a tuple"
        )

    def handle(self, *, file, round, create, set_name, project, duplicates, **options):
        summary = import_judgments(
            file, round, create=create, set_name=set_name, project=project, duplicates=duplicates
        )
        round, n = summary.round, summary.n_duplicates
        note = f", {n} repeats {DUPLICATES_WERE[duplicates]}" if n else ""
        self.stdout.write(f"round {round.pk}: {round.name}, {summary.n_judgments} judgments added{note}")
