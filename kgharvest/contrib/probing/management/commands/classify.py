"""`classify --model M --train F --dev F --test F [--template T] [--label NAME=WORDS ...] [--output F.jsonl]`"""

from __future__ import annotations

from argparse import ArgumentTypeError
from functools import partial
from pathlib import Path

from evaluation.rendering.figures.drawing import render
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.probing.management.arguments import add_number, add_search_arguments, results_text, run_search
from kgharvest.contrib.probing.probes.facts import PARTS
from kgharvest.contrib.probing.text_tasks.options import DEFAULT_METHODS, LISTS, METHODS
from kgharvest.contrib.probing.text_tasks.tables import result_figure
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand, positive

FIGURES = {".svg": "svg", ".pdf": "pdf"}


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
        add_number(parser, "label_tokens", "classify")
        parser.add_argument(
            "--method",
            nargs="+",
            dest="methods",
            choices=METHODS,
            default=DEFAULT_METHODS,
            help=f"methods (default: {' '.join(DEFAULT_METHODS)})",
        )
        parser.add_argument("--only-labels", nargs="+", default=[], metavar="NAME", help="use texts with these labels")
        parser.add_argument("--balance", action="store_true", help="sample equally many texts of each label per part")
        parser.add_argument("--figure", type=Path, metavar="F", help="write the grid or the curves to F.svg or F.pdf")
        add_search_arguments(parser, "classify")
        training = parser.add_argument_group("training of fine-tuned and bilstm")
        add_number(training, "epochs", "classify")
        add_number(training, "learning_rate", "classify")
        grid = parser.add_argument_group("grid of AutoPrompt, whose best cell on dev is measured, and learning curves")
        for name, help_text in LISTS.items():
            option = f"--{name.replace('_', '-')}"
            grid.add_argument(option, type=positive, nargs="+", default=[], metavar="N", help=help_text)
        add_number(grid, "subsets", "classify")

    def handle(self, **options):
        from kgharvest.contrib.probing.text_tasks.classification import classify_request
        from kgharvest.contrib.probing.text_tasks.classification_records import classification_records

        words: dict[str, list[str]] = {}
        for label, words_of_label in options["label"]:
            words.setdefault(label, []).extend(words_of_label)
        request = classify_request({part: options[part] for part in PARTS}, options | {"label_words": words})
        figure = options["figure"]
        if figure:
            if figure.suffix not in FIGURES:
                raise DomainError("NotClassified", f"Unknown figure format: {figure}. Use .svg or .pdf.")
            if not options["train_sizes"] and "autoprompt" not in options["methods"]:
                raise DomainError("NotClassified", "No figure without a grid of autoprompt or --train-sizes. Add one.")
            check_writable(figure)
        records = run_search("classify", partial(classification_records, request=request), options)
        self.stdout.write(results_text(records))
        if figure and (drawing := result_figure(records)):
            write_atomically(figure, [render(drawing, {}, FIGURES[figure.suffix])])


def label_words(text: str) -> tuple[str, list[str]]:
    """Parse an argument NAME=W1,W2."""
    name, _, words = text.partition("=")
    words_of_label = [word.strip() for word in words.split(",") if word.strip()]
    if not name.strip() or not words_of_label:
        raise ArgumentTypeError(f"{text!r} does not have the form NAME=WORD,WORD")
    return name.strip(), words_of_label
