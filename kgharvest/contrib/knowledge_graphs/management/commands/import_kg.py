"""`import_kg FILE --name SYSTEM [--mapping F.json] [--labels F.tsv] [--format auto]`"""

from pathlib import Path

from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_reading import read_text
from kgharvest.contrib.knowledge_graphs.imports.kg_import import import_kg
from kgharvest.contrib.knowledge_graphs.imports.mapping import BadMapping, names_that_fit, read_mapping
from kgharvest.contrib.knowledge_graphs.imports.staging import StagedKG
from kgharvest.contrib.knowledge_graphs.imports.statements import FORMATS
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.models import Relation
from kgharvest.pages.number_format import counted

RELATIONS_SHOWN = 30


class Command(DomainCommand):
    help = "Import a knowledge graph from elsewhere: each relation that is mapped becomes a finished harvest."

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, metavar="FILE", help="TSV, CSV, N-Triples or JSON Lines")
        parser.add_argument("--name", required=True, metavar="SYSTEM", help="what made it; stands where LMs do")
        parser.add_argument(
            "--mapping", type=Path, metavar="F", help="JSON: which relations of the file are which here (by name)"
        )
        parser.add_argument("--labels", type=Path, metavar="F", help="id, tab, label: what ids of the file are called")
        parser.add_argument(
            "--format",
            dest="file_format",
            choices=["auto", *FORMATS],
            default="auto",
            help="of the file (default: by its content)",
        )
        add_project_argument(parser)

    def handle(self, *, file, name, mapping, labels, file_format, project, **options):
        with StagedKG(file, file_format, labels) as staged:
            if mapping:
                targets = read_mapping(read_text(mapping), mapping.name, Relation.objects.all())
            else:
                targets = self._by_name(staged)
            imported = import_kg(staged, name, targets, project=project_for(None, project))
        for job in imported.jobs:
            self.stdout.write(f"Job {job.pk}: {counted(job.n_tuples, 'tuple')} of {job}.")
        self.stdout.write(
            f"Launch {imported.launch.pk}: {counted(len(imported.jobs), 'harvest')}; {imported.n_repeated:,} repeated "
            f"statements and {imported.n_left_out:,} of relations that are not mapped were left out."
        )

    def _by_name(self, staged):
        relations = staged.relations()
        targets = names_that_fit([relation.name for relation in relations], Relation.objects.all())
        if not targets:
            shown = "".join(
                f"\n  {relation.n_statements:>9,}  {relation.name}" for relation in relations[:RELATIONS_SHOWN]
            )
            raise BadMapping(
                f"No relation of {staged.source} has the name of one here; map them with --mapping. It has "
                f"{counted(len(relations), 'relation')}:{shown}"
            )
        return targets
