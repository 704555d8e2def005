"""`import_prompts PATH --set NAME [--origin O] [--least-weight W]`"""

from pathlib import Path

from kgharvest.management.command import DomainCommand
from kgharvest.relations.names import resolve_set
from kgharvest.relations.prompt_files import ORIGINS, import_prompts, prompt_files_at


class Command(DomainCommand):
    help = "Add mined, paraphrased or manual prompts, as LPAQA released them, to the ready prompts of a set."

    def add_arguments(self, parser):
        parser.add_argument(
            "path", type=Path, metavar="PATH", help="RELATION.jsonl of {template, weight}, or a folder of such files"
        )
        parser.add_argument("--set", dest="set_name", required=True, metavar="NAME", help="set of the relations")
        parser.add_argument(
            "--origin",
            choices=sorted(set(ORIGINS.values())),
            help="how they came to be (default: by the name of their folder)",
        )
        parser.add_argument("--least-weight", type=float, metavar="W", help="leave out prompts of a smaller weight")

    def handle(self, *, path, set_name, origin, least_weight, **options):
        imported = import_prompts(prompt_files_at(path, origin), resolve_set(set_name), least_weight)
        for added in imported.relations:
            self.stdout.write(f"{added}; it has {len(added.relation.prompts)}.")
        if imported.unknown:
            self.stderr.write(f"The set {set_name} has no binary relation {', '.join(imported.unknown)}.")
