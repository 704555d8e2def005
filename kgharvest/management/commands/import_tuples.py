from pathlib import Path

from kgharvest.accounts.projects import project_for
from kgharvest.harvests.language_models import name_language_model
from kgharvest.harvests.tuple_files import Cell, import_tuples
from kgharvest.knowledge.tuple_files import IMPORT_FORMATS
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import resolve_relation


class Command(DomainCommand):
    help = "Import tuples as a finished harvest."

    def add_arguments(self, parser):
        file_help = "JSON lines or CSV of export_tuples, or ent_tuples.json of the BertNet code"
        parser.add_argument("file", type=Path, metavar="FILE", help=file_help)
        parser.add_argument("--relation", required=True, help="name or set/name")
        parser.add_argument("--set", dest="set_name", metavar="NAME", help="set of --relation")
        parser.add_argument("--model", required=True, help="name of the LM that produced the tuples; any name")
        parser.add_argument("--setting", required=True, help="origin of the prompts, for example human, top1, or multi")
        formats, format_help = ["auto", *IMPORT_FORMATS], "file format (default: auto, detected from the content)"
        parser.add_argument("--format", dest="file_format", choices=formats, default="auto", help=format_help)
        add_project_argument(parser)

    def handle(self, *, file, relation, set_name, model, setting, file_format, project, **options):
        cell = Cell(resolve_relation(relation, set_name), name_language_model(model), setting)
        job = import_tuples(file, cell, file_format, project=project_for(None, project))
        n_duplicates = job.summary["rows"] - job.n_tuples
        duplicates = f" ({counted(n_duplicates, 'duplicate')} skipped)" if n_duplicates else ""
        self.stdout.write(f"Job {job.pk}: {counted(job.n_tuples, 'tuple')} of {job}{duplicates}.")
