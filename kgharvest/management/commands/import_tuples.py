"""`import_tuples FILE --relation R --model M --setting S [--format auto]`"""

from pathlib import Path

from kgharvest.accounts.projects import project_for
from kgharvest.harvests.language_models import name_language_model
from kgharvest.harvests.tuple_import import Cell, import_tuples
from kgharvest.knowledge.tuple_files import IMPORT_FORMATS
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import resolve_relation


class Command(DomainCommand):
    help = "Import tuples as a finished harvest: this project's JSONL, CSV, or the reference code's ent_tuples.json."

    def add_arguments(self, parser):
        parser.add_argument(
            "file", type=Path, metavar="FILE", help="JSON lines, CSV, or ent_tuples.json of the reference code"
        )
        parser.add_argument("--relation", required=True, help="name, or set/name")
        parser.add_argument("--set", dest="set_name", metavar="NAME", help="set of the relation")
        parser.add_argument("--model", required=True, help="the LM that the tuples came from; any name")
        parser.add_argument("--setting", required=True, help="how the prompts were obtained, e.g. human, top1, multi")
        parser.add_argument(
            "--format",
            dest="file_format",
            choices=["auto", *IMPORT_FORMATS],
            default="auto",
            help="of the file (default: by its content)",
        )
        add_project_argument(parser)

    def handle(self, *, file, relation, set_name, model, setting, file_format, project, **options):
        cell = Cell(resolve_relation(relation, set_name), name_language_model(model), setting)
        job = import_tuples(file, cell, file_format, project=project_for(None, project))
        left_out = job.summary["rows"] - job.n_tuples
        repeats = f" ({left_out} repeated ones left out)" if left_out else ""
        self.stdout.write(f"Job {job.pk}: {counted(job.n_tuples, 'tuple')} of {job}{repeats}.")
