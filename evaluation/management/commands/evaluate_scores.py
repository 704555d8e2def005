"""`evaluate_scores [--model M] [--facts F.jsonl] [--seed N] [--output F] [--figure F.svg]`"""

from __future__ import annotations

import json
from pathlib import Path

from django.utils import timezone
from tqdm import tqdm

from evaluation.figures import precision_recall
from evaluation.figures.canvas import LIGHT, render
from evaluation.services.score_evaluation import (
    SETTINGS,
    built_in_facts,
    evaluate_scores,
    facts_of_file,
    prompt_scorer,
)
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand
from kgharvest.services.language_models import get_language_model, load
from kgharvest.services.writing import check_writable, write_atomically
from kgharvest.version import code_version

FIGURES = {".svg": "svg", ".pdf": "pdf"}


class UnknownFigure(DomainError):
    """A figure in a format that is not drawn."""


class Command(DomainCommand):
    help = "Compare scores on known facts and corrupted ones: precision, recall, average precision."

    def add_arguments(self, parser):
        parser.add_argument("--model", default="embedded", help="embedded (default), a folder or a hub id")
        parser.add_argument("--facts", type=Path, metavar="F.jsonl", help="instead of the embedded LM's world")
        parser.add_argument("--seed", type=int, default=0, help="of the corruptions (0)")
        parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
        parser.add_argument("--output", type=Path, metavar="F", help="write to a file instead of standard output")

        parser.add_argument("--figure", type=Path, metavar="F", help="draw the curves, too: F.svg or F.pdf")

    def handle(self, *, model, facts, seed, device, output, figure, **options):
        for path in filter(None, [output, figure]):
            check_writable(path)
        if figure and figure.suffix not in FIGURES:
            raise UnknownFigure(f"{figure} is no figure; name a file that ends in {' or '.join(FIGURES)}.")
        relations = facts_of_file(facts) if facts else built_in_facts()
        language_model = get_language_model(model)
        lm = load(language_model, device, "float32")
        scorers = {setting: prompt_scorer(lm, setting) for setting in SETTINGS}
        with tqdm(total=len(relations), desc="relations", file=self.stderr, disable=None) as bar:
            found = evaluate_scores(relations, scorers, seed, bar.update)
        source = {"facts": facts.name if facts else "embedded LM's world", "model": str(language_model)}
        stamp = {"created_at": timezone.now().isoformat(timespec="seconds"), "code_version": code_version()}
        text = json.dumps({**source, **found, **stamp}, indent=2, ensure_ascii=False) + "\n"
        if figure:
            image = render(precision_recall.draw, found, precision_recall.SIZE, FIGURES[figure.suffix], LIGHT)
            write_atomically(figure, [image])
        if output:
            write_atomically(output, [text])
        else:
            self.stdout.write(text, ending="")
