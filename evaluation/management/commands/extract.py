"""`extract --set NAME --facts FOLDER [--relation R] [--model M] [--perturbed] [--template T] [--output F.jsonl]`"""

from __future__ import annotations

import json
from pathlib import Path

from evaluation.reports.tables import Column, Kind, Row, Table
from evaluation.reports.writers.plain import terminal_text
from evaluation.services.extraction import (
    TEMPLATE,
    ExtractRequest,
    extracted_relations,
    extraction_records,
    extraction_summary,
)
from evaluation.services.probe_facts import documents_in
from evaluation.services.probes import ProbeParams, masked_lms
from kgharvest.management.command import DomainCommand, natural, positive
from kgharvest.management.running import ProgressBar
from kgharvest.services.language_models import get_language_model
from kgharvest.services.relations import relations_of_set, resolve_relation
from kgharvest.services.writing import check_writable, write_atomically

COLUMNS = {
    "p1": Column("P@1", Kind.SHARE),
    "p1_low": Column("low", Kind.SHARE),
    "p1_high": Column("high", Kind.SHARE),
    "p10": Column("P@10", Kind.SHARE),
    "mrr": Column("MRR", Kind.SHARE),
    "known_p1": Column("as it is", Kind.SHARE),
    "forwards": Column("forwards", Kind.COUNT),
    "seconds": Column("seconds", Kind.NUMBER),
}


class Command(DomainCommand):
    help = "Ask a masked LM for objects of facts in sentences about them, with a manual prompt and with AutoPrompt's."

    def add_arguments(self, parser):
        parser.add_argument("--set", dest="set_name", required=True, metavar="NAME", help="relation set")
        parser.add_argument(
            "--relation", action="append", metavar="R", help="only this relation of the set; repeatable"
        )
        parser.add_argument(
            "--facts",
            type=Path,
            required=True,
            metavar="PATH",
            help="FOLDER/RELATION/{train,dev,test}.jsonl with a context or evidences, a ZIP of it, or a file",
        )
        parser.add_argument("--model", default="embedded", help="embedded (default), a folder or a hub id; a masked LM")
        parser.add_argument("--template", default=TEMPLATE, help=f"for AutoPrompt (default: {TEMPLATE!r})")
        parser.add_argument("--perturbed", action="store_true", help="also in contexts with other objects")
        parser.add_argument("--iterations", type=positive, default=500, help="of the search for triggers (500)")
        parser.add_argument("--restarts", type=natural, default=0, help="further searches, from random triggers (0)")
        parser.add_argument("--candidates", type=positive, default=10, help="tried in each iteration (10)")
        parser.add_argument("--batch-size", type=positive, default=32, help="facts in each iteration (32)")
        parser.add_argument("--no-control", action="store_true", help="leave out the LM that knows nothing")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
        parser.add_argument("--output", type=Path, metavar="F.jsonl", help="write the records to a file")

    def handle(self, **options):
        if options["output"]:
            check_writable(options["output"])
        request = request_of(options)
        params = ProbeParams(device=options["device"], with_control=not options["no_control"])
        lm, control = masked_lms(get_language_model(options["model"]), params)
        with ProgressBar("extract") as bar:
            records = list(extraction_records(lm, control, request, bar))
        if options["output"]:
            write_atomically(options["output"], (json.dumps(one, ensure_ascii=False) + "\n" for one in records))
        self.stdout.write(terminal_text(table_of(extraction_summary(records))))
        for record in records:
            if record["method"] == "autoprompt" and not record["is_control"]:
                self.stdout.write(f"{record['relation']}{contexts_of(record)}: {record['prompt']}")


def request_of(options) -> ExtractRequest:
    """Raises NotFound, NotExtracted, ImportRefused or BadPrompt."""
    from kgharvest.engine.prompts.autoprompt import AutoPromptParams
    from kgharvest.engine.prompts.text_template import TextTemplate

    template = TextTemplate.parse(options["template"])
    if options["relation"]:
        relations = [resolve_relation(name, options["set_name"]) for name in options["relation"]]
    else:
        relations = relations_of_set(options["set_name"])
    params = AutoPromptParams(
        options["candidates"],
        options["batch_size"],
        options["iterations"],
        seed=options["seed"],
        restarts=options["restarts"],
    )
    return ExtractRequest(
        extracted_relations(relations, documents_in(options["facts"])),
        template,
        params,
        options["perturbed"],
    )


def table_of(rows) -> Table:
    shown = [Row((name_of(row), *(row[key] for key in COLUMNS))) for row in rows]
    return Table("extraction", "Methods", (Column("method"), *COLUMNS.values()), tuple(shown))


def name_of(row) -> str:
    return f"{row['method']}{contexts_of(row)}{', random weights' if row['is_control'] else ''}"


def contexts_of(row) -> str:
    return ", perturbed" if row["is_perturbed"] else ""
