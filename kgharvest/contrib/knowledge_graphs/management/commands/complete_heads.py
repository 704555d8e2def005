from pathlib import Path

from kgharvest.accounts.projects import project_for
from kgharvest.contrib.knowledge_graphs.imports.completion import COMET_TEMPLATE, completed, heads_of, store_completions
from kgharvest.errors import DomainError
from kgharvest.harvests.heads import read_heads
from kgharvest.harvests.language_models import name_language_model
from kgharvest.harvests.tuple_files import Cell, find_harvest_job
from kgharvest.management.command import DomainCommand, add_device_argument, add_project_argument, positive
from kgharvest.pages.number_format import counted
from kgharvest.progress_bar import ProgressBar
from kgharvest.relations.names import resolve_relation

TEMPLATE_HELP = f"input of the model, with {{head}} and {{relation}} (default, for COMET: {COMET_TEMPLATE!r})"


class Command(DomainCommand):
    help = "Complete heads with tails by a text-to-text model such as COMET. Each relation becomes a finished harvest."

    def add_arguments(self, parser):
        parser.add_argument("--model", required=True, help="text-to-text model: hub id or folder")
        heads = parser.add_mutually_exclusive_group(required=True)
        heads.add_argument(
            "--job", nargs="+", metavar="J", help="harvests whose heads are completed: number or fingerprint"
        )
        heads.add_argument(
            "--heads", type=Path, metavar="FILE", help="file of heads, as for harvest; requires --relation"
        )
        parser.add_argument("--relation", help="relation of --heads: name or set/name")
        parser.add_argument("--set", dest="set_name", metavar="NAME", help="set of --relation")
        parser.add_argument("--tails", type=positive, default=10, help="tails per head, and beam size (default: 10)")
        parser.add_argument("--template", default=COMET_TEMPLATE, help=TEMPLATE_HELP.replace("%", "%%"))
        parser.add_argument("--setting", default="completion", help="setting of the harvests (default: completion)")
        add_device_argument(parser)
        add_project_argument(parser)

    def handle(self, *, model, job, heads, relation, set_name, tails, template, setting, device, project, **options):
        from kgharvest.engine.language_models.loading import load_seq2seq

        if heads and not relation:
            raise DomainError("NothingToComplete", "--heads requires --relation.")
        if heads:
            inputs = [(resolve_relation(relation, set_name), read_heads(heads))]
        else:
            inputs = [(found.relation, heads_of(found)) for found in map(find_harvest_job, job)]
        if n_ary := [relation for relation, _ in inputs if relation.arity != 2]:
            raise DomainError("NothingToComplete", f"{n_ary[0]} has {n_ary[0].arity} entities. Use binary relations.")
        project = project_for(None, project)
        loaded = load_seq2seq(model, device=device)
        for relation, texts in inputs:
            cell = Cell(relation, name_language_model(model), setting)
            with ProgressBar(relation.name) as bar:
                harvest = store_completions(completed(loaded, relation, texts, tails, template, bar), cell, project)
            tuples, n_heads = counted(harvest.n_tuples, "tuple"), counted(len(texts), "head")
            self.stdout.write(f"Job {harvest.pk}: {tuples} of {harvest}, from {n_heads}.")
