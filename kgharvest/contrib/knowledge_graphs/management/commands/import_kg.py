from pathlib import Path

from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_reading import read_text
from kgharvest.contrib.knowledge_graphs.imports.kg_import import import_kg
from kgharvest.contrib.knowledge_graphs.imports.mapping import BadMapping, read_mapping, targets_by_name
from kgharvest.contrib.knowledge_graphs.imports.statements import FORMATS, StagedKG
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.models import Relation
from kgharvest.pages.number_format import counted

RELATIONS_SHOWN = 30


class Command(DomainCommand):
    help = "Import a knowledge graph. Each mapped relation becomes a finished harvest."

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, metavar="FILE", help="TSV, CSV, N-Triples, or JSON Lines")
        parser.add_argument("--name", required=True, metavar="SYSTEM", help="source system; stored as the LM name")
        mapping_help = "JSON mapping of the file's relations (default: relations with the same name)"
        parser.add_argument("--mapping", type=Path, metavar="F", help=mapping_help)
        parser.add_argument("--labels", type=Path, metavar="F", help="labels of ids; each line: id, tab, label")
        formats, format_help = ["auto", *FORMATS], "file format (default: auto, detected from the content)"
        parser.add_argument("--format", dest="file_format", choices=formats, default="auto", help=format_help)
        add_project_argument(parser)

    def handle(self, *, file, name, mapping, labels, file_format, project, **options):
        with StagedKG(file, file_format, labels) as staged:
            if mapping:
                targets = read_mapping(read_text(mapping), mapping.name, Relation.objects.all())
            else:
                relations = staged.relations()
                targets = targets_by_name([relation.name for relation in relations], Relation.objects.all())
                if not targets:
                    top_relations = relations[:RELATIONS_SHOWN]
                    lines = [f"\n  {relation.n_statements:>9,}  {relation.name}" for relation in top_relations]
                    raise BadMapping(
                        f"No relation of {staged.source} has the name of an existing relation. Use --mapping. "
                        f"The file has {counted(len(relations), 'relation')}:{''.join(lines)}"
                    )
            imported = import_kg(staged, name, targets, project=project_for(None, project))
        for job in imported.jobs:
            self.stdout.write(f"Job {job.pk}: {counted(job.n_tuples, 'tuple')} of {job}.")
        self.stdout.write(
            f"Launch {imported.launch.pk}: {counted(len(imported.jobs), 'harvest')}. Skipped: {imported.n_repeated:,} "
            f"duplicates and {imported.n_left_out:,} statements of unmapped relations."
        )
