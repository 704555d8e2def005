"""`probe --set NAME --model M --method manual lpaqa ... [--facts FOLDER] [--prompts FOLDER] [--output F.jsonl]`"""

from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import Field
from pathlib import Path
from typing import Any

from evaluation.scores.facts import BUILT_IN
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_reading import read_bytes
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.probing.management.arguments import add_lm_arguments, add_relation_arguments, chosen_relations
from kgharvest.contrib.probing.models import Probe
from kgharvest.contrib.probing.probes.facts import (
    SPLITS,
    NotProbed,
    documents_in,
    read_words,
    relations_from,
)
from kgharvest.contrib.probing.probes.figures import probe_figures
from kgharvest.contrib.probing.probes.services import (
    SOFT_WORDS,
    ProbeParams,
    ProbeRequest,
    create_probe,
    find_probe,
    methods_with_prompts,
    record_lines,
)
from kgharvest.contrib.probing.probes.tables import probe_tables
from kgharvest.contrib.probing.prompt_learning.registry import (
    BUDGET_FIELDS,
    DEFAULT_METHODS,
    METHODS,
    PRESETS,
    preset_values,
    systems_with,
)
from kgharvest.harvests.language_models import get_language_model
from kgharvest.management.command import DomainCommand, add_project_argument, run_to_the_end
from kgharvest.models import Job
from kgharvest.tables.formats import csv_text, terminal_text

PRINTED = ("summary", "differences", "comparisons", "statistics", "rewrites", "parts_of_speech")


def number_from(field: Field) -> Callable[[str], float]:
    """Return a parser for an option of the learning budget. It checks the bounds of the option."""
    least, most = field.metadata["min"], field.metadata["max"]
    kind, noun = (float, "number") if isinstance(least, float) else (int, "whole number")

    def parse(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise ArgumentTypeError(f"{text!r:.40} is not a {noun} from {least:,} to {most:,}")
        return number

    return parse


class Command(DomainCommand):
    help = "Probe an LM for known facts with several prompt systems, as in LAMA (P@1, P@10, MRR). Stores the result."

    def add_arguments(self, parser):
        add_relation_arguments(parser)
        add_lm_arguments(parser)
        add_project_argument(parser)
        parser.add_argument(
            "--method",
            nargs="+",
            choices=METHODS,
            help=f"methods (default: {' '.join(DEFAULT_METHODS)}; with --prompts-of, those with stored prompts)",
        )
        parser.add_argument(
            "--prompts-of", type=int, metavar="PROBE", help="use the prompts stored in this probe instead of learning"
        )
        parser.add_argument(
            "--facts",
            type=Path,
            metavar="PATH",
            help="FOLDER/RELATION/{train,dev,test}.jsonl, a ZIP file of FOLDER, or one file (default: built-in facts)",
        )
        parser.add_argument(
            "--split",
            choices=SPLITS,
            default="",
            help="random split of the facts, drawn with --seed: "
            + "; ".join(f"{name}: {phrase}".replace("%", "%%") for name, phrase in SPLITS.items())
            + " (default: the parts of the facts)",
        )
        parser.add_argument(
            "--prompts",
            type=Path,
            metavar="PATH",
            help="additional prompts: FOLDER/RELATION.jsonl, FOLDER/{mined,paraphrased,manual}/RELATION.jsonl, LAMA's "
            "relations file, or LAMA's ConceptNet file",
        )
        parser.add_argument(
            "--tables", type=Path, metavar="FOLDER", help="write all tables (CSV) and figures (SVG) to a folder"
        )
        parser.add_argument(
            "--common-vocabulary",
            nargs="+",
            default=[],
            metavar="FILE|MODEL",
            help="count ranks among words that are single tokens in these LMs, or among the words of a file (one per "
            "line)",
        )
        budget = parser.add_argument_group("learning budget")
        budget.add_argument(
            "--preset",
            choices=PRESETS,
            default=ProbeParams.preset,
            help="preset for the following options (default: %(default)s)",
        )
        for name, field in BUDGET_FIELDS.items():
            budget.add_argument(
                f"--{name.replace('_', '-')}",
                type=number_from(field),
                default=field.default,
                help=f"for {systems_with(name)} (default: {preset_values(name) or field.default})",
            )

    def handle(self, **options):
        if options["output"]:
            check_writable(options["output"])
        probe = create_probe(request_of(options), project=project_for(None, options["project"]))
        run_to_the_end(probe)
        probe = Probe.objects.select_related("language_model").get(pk=probe.pk)
        if probe.status != Job.Status.SUCCEEDED:
            raise NotProbed(probe.error or f"Job {probe.pk} ({probe}) was {probe.status} by a user.")
        if options["output"]:
            write_atomically(options["output"], record_lines(probe))
        for name, fault in sorted(probe.document["faults"].items()):
            self.stderr.write(f"{name}: results missing. {fault}")
        if options["tables"]:
            write_tables(probe.document, options["tables"])
        over_relations = [row for row in probe.document["statistics"] if row["of"] != SOFT_WORDS]
        for table in probe_tables(probe.document | {"statistics": over_relations}):
            if table.name in PRINTED:
                self.stdout.write(f"{table.caption}\n{terminal_text(table)}\n", ending="")


def write_tables(document: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for table in probe_tables(document):
        write_atomically(folder / f"{table.name}.csv", [csv_text(table)])
    for figure in probe_figures(document):
        write_atomically(folder / f"{figure.name}.svg", [figure.render(document).decode()])


def request_of(options: dict[str, Any]) -> ProbeRequest:
    """Return the request for these options of the command. Raises NotFound, NotProbed, or ImportRefused."""
    facts, prompts, earlier = options["facts"], options["prompts"], options["prompts_of"]
    word_files = [Path(name) for name in options["common_vocabulary"] if Path(name).is_file()]
    if len(word_files) > 1:
        raise NotProbed(f"Two vocabulary files: {word_files[0]} and {word_files[1]}. Merge them into one file.")
    lms = [name for name in options["common_vocabulary"] if not Path(name).is_file()]
    return ProbeRequest(
        language_model=get_language_model(options["model"], options["revision"]),
        relations=relations_from(
            chosen_relations(options),
            facts and documents_in(facts),
            prompts and documents_in(prompts),
            options["split"],
            options["seed"],
        ),
        methods=options["method"]
        or (DEFAULT_METHODS if earlier is None else methods_with_prompts(find_probe(earlier))),
        name=options["set_name"],
        facts=facts.name if facts else BUILT_IN,
        params=ProbeParams(
            **{name: options[name] for name in (*BUDGET_FIELDS, "preset", "split")},
            with_control=not options["no_control"] and earlier is None,
            prompts_of=earlier,
            device=options["device"],
            dtype=options["dtype"],
            common_with=[str(get_language_model(name)) for name in lms],
            words=[word for file in word_files for word in read_words(file.name, read_bytes(file))],
        ),
    )
