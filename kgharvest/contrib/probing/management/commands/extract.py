"""`extract --set NAME --facts FOLDER [--relation R] [--model M] [--perturbed] [--template T] [--output F.jsonl]`"""

from functools import partial
from pathlib import Path

from kgharvest.contrib.probing.management.arguments import (
    add_relation_arguments,
    add_search_arguments,
    chosen_relations,
    results_text,
    run_search,
)
from kgharvest.contrib.probing.probes.facts import documents_in
from kgharvest.contrib.probing.text_tasks.options import DEFAULT_METHODS, EXTRACT_METHODS, EXTRACT_TEMPLATE
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Extract the objects of facts from sentences with a masked LM, with manual and AutoPrompt prompts."

    def add_arguments(self, parser):
        add_relation_arguments(parser)
        parser.add_argument(
            "--facts",
            type=Path,
            required=True,
            metavar="PATH",
            help="FOLDER/RELATION/{train,dev,test}.jsonl with a context or evidences, a ZIP of FOLDER, or one file",
        )
        parser.add_argument("--template", default=EXTRACT_TEMPLATE, help="AutoPrompt template (default: %(default)r)")
        parser.add_argument("--perturbed", action="store_true", help="also use contexts with replaced objects")
        parser.add_argument(
            "--method",
            nargs="+",
            dest="methods",
            choices=EXTRACT_METHODS,
            default=DEFAULT_METHODS,
            help=f"methods (default: {' '.join(DEFAULT_METHODS)})",
        )
        add_search_arguments(parser, "extract")

    def handle(self, **options):
        from kgharvest.contrib.probing.text_tasks.extraction import extract_request, extraction_records

        request = extract_request(chosen_relations(options), documents_in(options["facts"]), options)
        records = run_search("extract", partial(extraction_records, request=request), options)
        self.stdout.write(results_text(records))
