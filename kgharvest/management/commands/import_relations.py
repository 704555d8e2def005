from pathlib import Path

from kgharvest.accounts.projects import find_project
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.pages.number_format import counted
from kgharvest.relations.services import import_relations


class Command(DomainCommand):
    help = "Import relations from a file. Existing relations with the same name are updated."

    def add_arguments(self, parser):
        file_help = "kgharvest JSON, relation_info JSON of the BertNet code, or JSON lines of LAMA or E-KAR"
        parser.add_argument("file", type=Path, metavar="FILE", help=file_help)
        set_help = "destination set (default: the set named in the file)"
        parser.add_argument("--set", dest="set_name", metavar="NAME", help=set_help)
        add_project_argument(parser)

    def handle(self, *, file, set_name, project, **options):
        relation_set = import_relations(file, set_name, project and find_project(project))
        self.stdout.write(f"The set {relation_set.name} has {counted(relation_set.relations.count(), 'relation')}.")
