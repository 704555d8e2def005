"""`export_relations SET [--output F.json]`"""

from pathlib import Path

from kgharvest.management.command import DomainCommand
from kgharvest.services.relation_files import export_relations
from kgharvest.services.relations import find_set
from kgharvest.services.writing import write_atomically


class Command(DomainCommand):
    help = "Write a set of relations as this project's JSON, which import_relations reads."

    def add_arguments(self, parser):
        parser.add_argument("set", metavar="SET")
        parser.add_argument("--output", type=Path, metavar="F.json", help="write there, not to standard output")

    def handle(self, *, set, output, **options):
        text = export_relations(find_set(set))
        if output:
            write_atomically(output, [text])
        else:
            self.stdout.write(text, ending="")
