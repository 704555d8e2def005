from pathlib import Path

from annotation.rounds.services import find_round
from kgharvest.contrib.knowledge_graphs.judged_kg.formats import FORMATS, Export
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import JudgedKG, Selection
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Export the tuples of a round's harvests with their verdicts."

    def add_arguments(self, parser):
        parser.add_argument("--round", required=True, metavar="NAME", help="round name or project/NAME")
        format_help = "file format; hf writes a folder"
        parser.add_argument("--format", dest="file_format", required=True, choices=list(FORMATS), help=format_help)
        verdict_help = "tuples to export (default: all, but accepted for pykeen)"
        parser.add_argument("--verdict", choices=Selection.values, help=verdict_help)
        parser.add_argument("--output", required=True, type=Path, metavar="PATH", help="output file or folder")

    def handle(self, *, round, file_format, verdict, output, **options):
        export = Export(JudgedKG(find_round(round)), file_format, verdict)
        export.write_to(output)
        counts = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in export.rows.by_verdict.items() if n)
        self.stdout.write(f"{output}: {counts or 'no tuples'}.")
        if n_left_out := export.rows.n_left_out:
            self.stdout.write(f"Skipped {n_left_out:,} tuples with more than two entities.")
