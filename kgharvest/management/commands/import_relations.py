"""`import_relations FILE [--set NAME]`"""

from pathlib import Path

from kgharvest.management.command import DomainCommand
from kgharvest.pages.number_format import counted
from kgharvest.relations.services import import_relations


class Command(DomainCommand):
    help = (
        "Import relations: this project's JSON, the reference code's relation_info JSON, or LAMA's relation JSONL. "
        "Importing a file again updates its relations."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path)
        parser.add_argument(
            "--set", dest="set_name", metavar="NAME", help="set to import into (default: the file's own)"
        )

    def handle(self, *, file, set_name, **options):
        relation_set = import_relations(file, set_name)
        n = relation_set.relations.count()
        self.stdout.write(f"The set {relation_set.name} has {counted(n, 'relation')}.")
