"""`export_kg --round NAME --format hf/pykeen/nt/ttl [--verdict accepted/judged/all] --output PATH`"""

from pathlib import Path

from annotation.rounds.services import find_round
from kgharvest.contrib.knowledge_graphs.judged_kg.formats import FORMATS, Export
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import JudgedKG, Kept
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Write the tuples of a round's harvests with what people decided about them."

    def add_arguments(self, parser):
        parser.add_argument("--round", required=True, metavar="NAME", help="the round, alone or as project/NAME")
        parser.add_argument("--format", dest="file_format", required=True, choices=list(FORMATS), help="hf is a folder")
        parser.add_argument(
            "--verdict", choices=[kept.value for kept in Kept], help="which tuples (all; with pykeen accepted)"
        )
        parser.add_argument("--output", required=True, type=Path, metavar="PATH", help="the file or folder to write")

    def handle(self, *, round, file_format, verdict, output, **options):
        export = Export(JudgedKG(find_round(round)), file_format, verdict)
        export.write_to(output)
        counts = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in export.rows.by_verdict.items() if n)
        self.stdout.write(f"{output}: {counts or 'no tuples'}.")
        if n_left_out := export.rows.n_left_out:
            self.stdout.write(f"{n_left_out:,} tuples of more than two entities were left out: triples have no place.")
