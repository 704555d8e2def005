from pathlib import Path

from kgharvest.bulk.file_writing import write_atomically
from kgharvest.management.command import DomainCommand
from kgharvest.relations.files import export_relations
from kgharvest.relations.names import resolve_set


class Command(DomainCommand):
    help = "Export a relation set as kgharvest JSON, which import_relations can read."

    def add_arguments(self, parser):
        parser.add_argument("set_name", metavar="SET", help="name of the relation set")
        parser.add_argument("--output", type=Path, metavar="F.json", help="output file (default: standard output)")

    def handle(self, *, set_name, output, **options):
        text = export_relations(resolve_set(set_name))
        if output:
            write_atomically(output, [text])
        else:
            self.stdout.write(text, ending="")
