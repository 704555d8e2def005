"""`classify --model M --train F --dev F --test F [--template T] [--label NAME=WORDS ...] [--output F.jsonl]`"""

from argparse import ArgumentTypeError
from functools import partial
from pathlib import Path

from kgharvest.contrib.probing.management.arguments import (
    add_search_arguments,
    autoprompt_records,
    method_table,
    run_search,
    search_params,
)
from kgharvest.contrib.probing.probes.facts import PARTS
from kgharvest.management.command import DomainCommand, positive
from kgharvest.tables.formats import terminal_text
from kgharvest.tables.table import Column, Kind

COLUMNS = {
    "dev_accuracy": Column("dev accuracy", Kind.SHARE),
    "dev_log_likelihood": Column("dev log-likelihood", Kind.NUMBER),
    "accuracy": Column("accuracy", Kind.SHARE),
    "accuracy_low": Column("low", Kind.SHARE),
    "accuracy_high": Column("high", Kind.SHARE),
    "log_likelihood": Column("log-likelihood", Kind.NUMBER),
}


class Command(DomainCommand):
    help = "Classify texts with a masked LM and prompts. Searches for triggers and label tokens (AutoPrompt)."

    def add_arguments(self, parser):
        for part in PARTS:
            parser.add_argument(
                f"--{part}", type=Path, required=True, metavar="F", help=f"{part} texts: JSON lines, or TSV with header"
            )
        parser.add_argument(
            "--template",
            help="template with {column} for texts, [T] for triggers, and [P] for the mask (default: by column names)",
        )
        parser.add_argument(
            "--manual",
            metavar="TEMPLATE",
            help="template of the manual baseline (default: --template without its triggers)",
        )
        parser.add_argument(
            "--label",
            action="append",
            type=label_words,
            default=[],
            metavar="NAME=W1,W2",
            help="words for a label; repeatable (default: search for tokens)",
        )
        parser.add_argument(
            "--label-tokens", type=positive, default=3, metavar="K", help="tokens to select per label (default: 3)"
        )
        add_search_arguments(parser, iterations=180, batch_size=24, texts="texts")

    def handle(self, **options):
        from kgharvest.contrib.probing.text_tasks import classification
        from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate

        template = TextTemplate.parse(options["template"] or classification.default_template(options["train"]))
        manual = TextTemplate.parse(options["manual"]) if options["manual"] else template.without_triggers()
        columns = dict.fromkeys([*template.fields, *manual.fields])
        texts = classification.read_text_sets({part: options[part] for part in PARTS}, list(columns))
        words: dict[str, list[str]] = {}
        for label, words_of_label in options["label"]:
            words.setdefault(label, []).extend(words_of_label)
        inputs = (texts, template, manual, search_params(options), words, options["label_tokens"])
        request = classification.ClassifyRequest(*inputs)
        records = run_search("classify", partial(classification.classification_records, request=request), options)
        self.stdout.write(terminal_text(method_table("classification", COLUMNS, records)))
        for record in autoprompt_records(records):
            lines = [f"prompt: {record['prompt']}"]
            lines += [f"{label}: {', '.join(tokens)}" for label, tokens in record["labels"].items()]
            self.stdout.write("\n".join(lines))


def label_words(text: str) -> tuple[str, list[str]]:
    """Parse an argument NAME=W1,W2."""
    name, _, words = text.partition("=")
    words_of_label = [word.strip() for word in words.split(",") if word.strip()]
    if not name.strip() or not words_of_label:
        raise ArgumentTypeError(f"{text!r} does not have the form NAME=WORD,WORD")
    return name.strip(), words_of_label
