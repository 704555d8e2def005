"""`extract --set NAME --facts FOLDER [--relation R] [--model M] [--perturbed] [--template T] [--output F.jsonl]`"""

from functools import partial
from pathlib import Path

from kgharvest.contrib.probing.management.arguments import (
    add_relation_arguments,
    add_search_arguments,
    autoprompt_records,
    chosen_relations,
    contexts_of,
    method_table,
    run_search,
    search_params,
)
from kgharvest.contrib.probing.probes.facts import documents_in
from kgharvest.management.command import DomainCommand
from kgharvest.tables.formats import terminal_text
from kgharvest.tables.table import Column, Kind

TEMPLATE = "{context} {subject} [T] [T] [T] [T] [T] [P] ."  # Shin et al. 2020, Table 3
COLUMNS = {
    "p1": Column("P@1", Kind.SHARE),
    "p1_low": Column("low", Kind.SHARE),
    "p1_high": Column("high", Kind.SHARE),
    "p10": Column("P@10", Kind.SHARE),
    "mrr": Column("MRR", Kind.SHARE),
    "known_p1": Column("original P@1", Kind.SHARE),
}


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
        parser.add_argument("--template", default=TEMPLATE, help=f"AutoPrompt template (default: {TEMPLATE!r})")
        parser.add_argument("--perturbed", action="store_true", help="also use contexts with replaced objects")
        add_search_arguments(parser, iterations=500, batch_size=32, texts="facts")

    def handle(self, **options):
        from kgharvest.contrib.probing.text_tasks import extraction
        from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate

        template = TextTemplate.parse(options["template"])
        relations = extraction.extracted_relations(chosen_relations(options), documents_in(options["facts"]))
        request = extraction.ExtractRequest(relations, template, search_params(options), options["perturbed"])
        records = run_search("extract", partial(extraction.extraction_records, request=request), options)
        self.stdout.write(terminal_text(method_table("extraction", COLUMNS, extraction.extraction_summary(records))))
        for record in autoprompt_records(records):
            self.stdout.write(f"{record['relation']}{contexts_of(record)}: {record['prompt']}")
