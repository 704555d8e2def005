"""`probe --set NAME --model M --method manual lpaqa ... [--facts FOLDER] [--prompts FOLDER] [--output F.jsonl]`"""

from __future__ import annotations

import json
from pathlib import Path

from tqdm import tqdm

from evaluation.services.probes import METHODS, NotProbed, probe_records, probe_relations, summary
from kgharvest.engine.types import EngineError, Progress
from kgharvest.management.command import DomainCommand
from kgharvest.models import Relation, RelationSet
from kgharvest.services.language_models import get_language_model, load
from kgharvest.services.writing import check_writable, write_atomically

COLUMNS = {
    "method": "Method",
    "p1": "P@1",
    "p1_low": "low",
    "p1_high": "high",
    "p1_micro": "micro",
    "p10": "P@10",
    "mrr": "MRR",
    "dev_nll": "dev NLL",
    "control_p1": "random LM",
    "difference": "vs manual",
    "p": "p",
    "n_parameters": "params",
    "forwards": "read",
    "seconds": "s",
}


class Command(DomainCommand):
    help = "Ask an LM for known facts with several prompt systems, LAMA's way: P@1, P@10, MRR."

    def add_arguments(self, parser):
        parser.add_argument("--set", dest="set_name", required=True, metavar="NAME", help="relation set")
        parser.add_argument(
            "--relation", action="append", metavar="R", help="only this relation of the set; repeatable"
        )
        parser.add_argument("--model", default="embedded", help="embedded (default), a folder or a hub id; a masked LM")
        parser.add_argument("--method", nargs="+", choices=METHODS, default=["majority", "manual", "lpaqa"])
        parser.add_argument("--facts", type=Path, metavar="FOLDER", help="FOLDER/RELATION/{train,dev,test}.jsonl")
        parser.add_argument("--prompts", type=Path, metavar="FOLDER", help="more prompts: FOLDER/RELATION.jsonl")
        parser.add_argument("--no-control", action="store_true", help="leave out the LM that knows nothing")
        parser.add_argument("--epochs", type=int, default=16, help="of soft prompts and BERTese")
        parser.add_argument("--iterations", type=int, default=150, help="of AutoPrompt")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
        parser.add_argument("--output", type=Path, metavar="F.jsonl", help="write the records to a file")

    def handle(self, **options):
        if options["output"]:
            check_writable(options["output"])
        relations = probe_relations(
            chosen(options["set_name"], options["relation"]), options["facts"], options["prompts"]
        )
        lm, control = masked_lms(options["model"], options["device"], not options["no_control"])
        records = self.probed(lm, control, relations, options)
        if options["output"]:
            write_atomically(options["output"], (json.dumps(one, ensure_ascii=False) + "\n" for one in records))
        self.stdout.write(table(summary(records)), ending="")

    def probed(self, lm, control, relations, options):
        from kgharvest.engine.prompts.methods import Budget

        methods = list(dict.fromkeys(options["method"]))
        with tqdm(total=len(methods) * len(relations), unit="relation", file=self.stderr, disable=None) as bar:

            def show(progress: Progress) -> None:
                bar.set_postfix_str(f"{progress.stage} {progress.done} of {progress.total}")

            budget = Budget(options["iterations"], options["epochs"], seed=options["seed"], on_progress=show)
            records = []
            for record in probe_records(lm, control, relations, methods, budget, bar.set_description):
                records.append(record)
                bar.update()
        return records


def chosen(set_name: str, names: list[str] | None) -> list[Relation]:
    """Raises NotProbed for a set or a relation that is not there."""
    if not RelationSet.objects.filter(name=set_name).exists():
        known = ", ".join(RelationSet.objects.values_list("name", flat=True)) or "one that you import first"
        raise NotProbed(f"There is no relation set {set_name!r}; name one of {known}.")
    relations = Relation.objects.filter(relation_set__name=set_name).select_related("relation_set")
    if not names:
        return list(relations)
    missing = set(names) - set(relations.values_list("name", flat=True))
    if missing:
        raise NotProbed(f"The set {set_name!r} has no relation {min(missing)!r}; look at its page for the names.")
    return list(relations.filter(name__in=names))


def masked_lms(name: str, device: str, with_control: bool):
    """Return the LM, and the same one with random weights. Raises EngineError unless it is a masked LM."""
    from kgharvest.engine.language_models.masked import MaskedLM

    language_model = get_language_model(name)
    lm = load(language_model, device, "float32")
    if not isinstance(lm, MaskedLM):
        raise EngineError(f"{name} is no masked LM, and the prompt systems are for those; name a masked one.")
    return lm, load(language_model, device, "float32", random_seed=0) if with_control else None


def table(rows: list[dict]) -> str:
    """Return the rows in columns, for a terminal."""
    cells = [list(COLUMNS.values()), *([shown(row[column]) for column in COLUMNS] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(COLUMNS))]
    lines = [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(lines) + "\n"


def shown(value) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
