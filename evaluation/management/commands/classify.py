"""`classify --model M --train F --dev F --test F [--template T] [--label NAME=WORDS ...] [--output F.jsonl]`"""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from pathlib import Path

from evaluation.reports.tables import Column, Kind, Row, Table
from evaluation.reports.writers.plain import terminal_text
from evaluation.services.classification import (
    ClassifyRequest,
    check_label_words,
    classification_records,
    default_template,
    read_text_sets,
)
from evaluation.services.probe_facts import PARTS
from evaluation.services.probes import ProbeParams, masked_lms
from kgharvest.management.command import DomainCommand, natural, positive
from kgharvest.management.running import ProgressBar
from kgharvest.services.language_models import get_language_model
from kgharvest.services.writing import check_writable, write_atomically

COLUMNS = {
    "dev_accuracy": Column("dev accuracy", Kind.SHARE),
    "dev_log_likelihood": Column("dev log-likelihood", Kind.NUMBER),
    "accuracy": Column("accuracy", Kind.SHARE),
    "accuracy_low": Column("low", Kind.SHARE),
    "accuracy_high": Column("high", Kind.SHARE),
    "log_likelihood": Column("log-likelihood", Kind.NUMBER),
    "forwards": Column("forwards", Kind.COUNT),
    "seconds": Column("seconds", Kind.NUMBER),
}


class Command(DomainCommand):
    help = "Classify texts by what a masked LM says in a prompt, whose triggers and label tokens are searched."

    def add_arguments(self, parser):
        for part in PARTS:
            parser.add_argument(
                f"--{part}", type=Path, required=True, metavar="F", help="JSON lines, or F.tsv with a heading"
            )
        parser.add_argument("--model", default="embedded", help="embedded (default), a folder or a hub id; a masked LM")
        parser.add_argument(
            "--template", help="{column} for texts, [T] for triggers, [P] for the mask (default: by the columns)"
        )
        parser.add_argument("--manual", metavar="TEMPLATE", help="to compare with (default: without the triggers)")
        parser.add_argument(
            "--label",
            action="append",
            type=label_words,
            default=[],
            metavar="NAME=W1,W2",
            help="the words that stand for a label; repeatable (default: they are searched)",
        )
        parser.add_argument("--label-tokens", type=positive, default=3, metavar="K", help="searched for each label (3)")
        parser.add_argument("--iterations", type=positive, default=180, help="of the search for triggers (180)")
        parser.add_argument("--restarts", type=natural, default=0, help="further searches, from random triggers (0)")
        parser.add_argument("--candidates", type=positive, default=10, help="tried in each iteration (10)")
        parser.add_argument("--batch-size", type=positive, default=24, help="texts in each iteration (24)")
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
        with ProgressBar("classify") as bar:
            records = list(classification_records(lm, control, request, bar))
        if options["output"]:
            write_atomically(options["output"], (json.dumps(one, ensure_ascii=False) + "\n" for one in records))
        self.stdout.write(terminal_text(table_of(records)))
        for record in records:
            if record["method"] == "autoprompt" and not record["is_control"]:
                self.stdout.write(found_text(record))


def label_words(text: str) -> tuple[str, list[str]]:
    """The type of an argument NAME=W1,W2."""
    name, _, words = text.partition("=")
    found = [word.strip() for word in words.split(",") if word.strip()]
    if not name.strip() or not found:
        raise ArgumentTypeError(f"{text!r} is not NAME=WORD,WORD")
    return name.strip(), found


def label_words_of(given: list[tuple[str, list[str]]]) -> dict[str, list[str]]:
    """Return all words of each label, which may have been named more than once."""
    words: dict[str, list[str]] = {}
    for label, some in given:
        words.setdefault(label, []).extend(some)
    return words


def request_of(options) -> ClassifyRequest:
    """Raises NoSuchFile, ImportRefused, NotClassified or BadPrompt."""
    from kgharvest.engine.prompts.autoprompt import AutoPromptParams
    from kgharvest.engine.prompts.text_template import TextTemplate

    template = TextTemplate.parse(options["template"] or default_template(options["train"]))
    manual = TextTemplate.parse(options["manual"]) if options["manual"] else template.without_triggers()
    columns = dict.fromkeys([*template.fields, *manual.fields])
    texts = read_text_sets({part: options[part] for part in PARTS}, list(columns))
    words = label_words_of(options["label"])
    check_label_words(words, texts.labels)
    params = AutoPromptParams(
        options["candidates"],
        options["batch_size"],
        options["iterations"],
        seed=options["seed"],
        restarts=options["restarts"],
    )
    return ClassifyRequest(texts, template, manual, params, words, options["label_tokens"])


def table_of(records) -> Table:
    rows = [
        Row((f"{one['method']}{', random weights' if one['is_control'] else ''}", *(one[key] for key in COLUMNS)))
        for one in records
    ]
    return Table("classification", "Methods", (Column("method"), *COLUMNS.values()), tuple(rows))


def found_text(record) -> str:
    """Return the prompt that was found and its label tokens, a line each."""
    lines = [f"prompt: {record['prompt']}"]
    lines += [f"{label}: {', '.join(tokens)}" for label, tokens in record["labels"].items()]
    return "\n".join(lines)
