from pathlib import Path

from kgharvest.management.command import DomainCommand
from kgharvest.relations.names import resolve_set
from kgharvest.relations.prompt_files import ORIGINS, import_prompts, prompt_files_at


class Command(DomainCommand):
    help = "Import prompts in the LPAQA format as predefined prompts of a relation set."

    def add_arguments(self, parser):
        path_help = "RELATION.jsonl with lines {template, weight}, or a folder of such files"
        parser.add_argument("path", type=Path, metavar="PATH", help=path_help)
        parser.add_argument("--set", dest="set_name", required=True, metavar="NAME", help="relation set")
        origin_help = "origin of the prompts (default: from the folder name)"
        parser.add_argument("--origin", choices=sorted(set(ORIGINS.values())), help=origin_help)
        weight_help = "skip prompts with a smaller weight (default: import all)"
        parser.add_argument("--least-weight", type=float, metavar="W", help=weight_help)

    def handle(self, *, path, set_name, origin, least_weight, **options):
        imported = import_prompts(prompt_files_at(path, origin), resolve_set(set_name), least_weight)
        for added in imported.relations:
            self.stdout.write(f"{added}; {len(added.relation.prompts)} in total.")
        if imported.unknown:
            self.stderr.write(f"The set {set_name} has no binary relation {', '.join(imported.unknown)}.")
