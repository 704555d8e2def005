"""`export_relations SET [--output F.json]`"""

from pathlib import Path

from kgharvest.bulk.file_writing import write_atomically
from kgharvest.management.command import DomainCommand
from kgharvest.relations.files import export_relations
from kgharvest.relations.names import resolve_set


class Command(DomainCommand):
    help = "Write a set of relations as this project's JSON, which import_relations reads."

    def add_arguments(self, parser):
        parser.add_argument("set_name", metavar="SET", help="name of the set")
        parser.add_argument("--output", type=Path, metavar="F.json", help="write there, not to standard output")

    def handle(self, *, set_name, output, **options):
        text = export_relations(resolve_set(set_name))
        if output:
            write_atomically(output, [text])
        else:
            self.stdout.write(text, ending="")
