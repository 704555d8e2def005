"""`import_relations FILE [--set NAME]`"""

from pathlib import Path

from kgharvest.accounts.projects import find_project
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.pages.number_format import counted
from kgharvest.relations.services import import_relations


class Command(DomainCommand):
    help = (
        "Import relations: this project's JSON, the reference code's relation_info JSON, or LAMA's relation JSONL. "
        "Importing a file again updates its relations."
    )

    def add_arguments(self, parser):
        parser.add_argument(
            "file", type=Path, metavar="FILE", help="this project's JSON, BertNet's relation_info, or LAMA's JSON lines"
        )
        parser.add_argument(
            "--set", dest="set_name", metavar="NAME", help="set to import into (default: the file's own)"
        )
        add_project_argument(parser)

    def handle(self, *, file, set_name, project, **options):
        relation_set = import_relations(file, set_name, project and find_project(project))
        n = relation_set.relations.count()
        self.stdout.write(f"The set {relation_set.name} has {counted(n, 'relation')}.")
