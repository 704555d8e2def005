"""`evaluate_scores [--model M] [--setting S ...] [--baseline S ...] [--scores F] [--facts F] [--output F]`"""

from argparse import SUPPRESS
from functools import partial
from pathlib import Path

from django.conf import settings
from tqdm import tqdm

from annotation.judges.models import JudgeRun
from annotation.judges.runs import find_run
from annotation.rounds.services import find_round
from evaluation.rendering.documents import Document
from evaluation.rendering.figures import precision_recall
from evaluation.rendering.figures.drawing import render
from evaluation.scores.facts import BUILT_IN, facts_of_content, training_of_content
from evaluation.scores.lookups import merged_scores
from evaluation.scores.score_jobs import MORE_SCORES, STORED_SETTINGS, TRAIN_HELP, ScoreRequest, evaluate_now
from evaluation.scores.views import sample_lines
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_reading import read_bytes
from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.engine.settings import PROMPT_SETTINGS, WITHOUT_LEARNING
from kgharvest.engine.types import Progress
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import LM_NAMES_HELP, get_language_model
from kgharvest.management.command import DomainCommand, add_placement_arguments, add_project_argument
from kgharvest.pages.number_format import counted
from kgharvest.tables.formats import json_text

MORE_HELP = (
    f"baselines: {', '.join(MORE_SCORES)} (prior-corrected scores, prior of the entities, frequency of the entities, "
    "LPAQA's log P of the last entity)"
)
FIGURES = {".svg": "svg", ".pdf": "pdf"}


class Command(DomainCommand):
    help = "Compare scores on known facts and negative samples by average precision. The result is stored."

    def add_arguments(self, parser):
        several, repeatable = {"nargs": "+", "metavar": "S"}, {"action": "append", "default": []}
        names = ", ".join(PROMPT_SETTINGS)
        parser.add_argument("--model", default="embedded", help=f"LM: {LM_NAMES_HELP}")
        parser.add_argument("--setting", choices=PROMPT_SETTINGS, help=f"prompt settings: {names}", **several)
        stored = "settings whose prompts are taken from stored harvests"
        parser.add_argument("--harvested", choices=STORED_SETTINGS, default=[], help=stored, **several)
        parser.add_argument("--baseline", dest="more", choices=MORE_SCORES, default=[], help=MORE_HELP, **several)
        parser.add_argument("--more", choices=MORE_SCORES, help=SUPPRESS, **several)  # old name of --baseline
        parser.add_argument(
            "--scores", type=Path, metavar="F", help="file with scores of other systems; repeatable", **repeatable
        )
        parser.add_argument("--judge-run", metavar="ROUND/NAME", help="scores of a judge run; repeatable", **repeatable)
        parser.add_argument("--facts", type=Path, metavar="F.jsonl", help="facts; default: facts of the embedded LM")
        parser.add_argument("--train", type=Path, metavar="F.jsonl", help=TRAIN_HELP)
        parser.add_argument("--seed", type=int, default=0, help="seed of the negative samples (default: 0)")
        add_placement_arguments(parser)
        add_project_argument(parser)
        parser.add_argument("--output", type=Path, metavar="F", help="output file; default: standard output")
        parser.add_argument("--samples", type=Path, metavar="F.jsonl", help="write the scored tuples with their scores")
        parser.add_argument("--figure", type=Path, metavar="F", help="write the curves to F.svg or F.pdf")

    def handle(self, *, model, setting, harvested, facts, train, output, figure, samples, **options):
        for path in filter(None, [output, figure, samples]):
            check_writable(path)
        if figure and figure.suffix not in FIGURES:
            raise DomainError(
                "UnknownFigure",
                f"Unknown figure format: {figure}. Use a file name that ends in {' or '.join(FIGURES)}.",
            )
        request = ScoreRequest(
            get_language_model(model),
            setting or ([] if harvested else WITHOUT_LEARNING),
            harvested,
            facts.name if facts else BUILT_IN,
            facts_of_content(read_bytes(facts), facts.name) if facts else None,
            options["seed"],
            options["device"],
            options["dtype"],
            options["more"],
            merged_scores((read_bytes(path), path.name) for path in options["scores"]),
            [judge_run_of(path) for path in options["judge_run"]],
            train=training_of_content(read_bytes(train), train.name) if train else {},
        )
        project = project_for(None, options["project"])
        with tqdm(desc="relations", file=self.stderr, disable=None) as bar:
            evaluation = evaluate_now(request, partial(show, bar), project)
        document = evaluation.document
        text = json_text(document)
        if figure:
            write_atomically(figure, [render(precision_recall.draw(document), document, FIGURES[figure.suffix])])
        if samples:
            write_atomically(samples, sample_lines(evaluation))
        if output:
            write_atomically(output, [text])
        else:
            self.stdout.write(text, ending="")
        written = {output: in_words(document), samples: counted(len(evaluation.samples), "tuple"), figure: "curves"}
        says = self.stdout if output else self.stderr  # standard output contains only the document
        for path, content in written.items():
            if path:
                says.write(f"{path}: {content}.")
        says.write(f"{evaluation}: {settings.ORIGIN}{evaluation.get_absolute_url()}")


def in_words(document: Document) -> str:
    """Return a summary of the scored tuples."""
    return (
        f"{counted(len(document['scorers']), 'score')} of {counted(document['n_positive'], 'fact')} and "
        f"{counted(document['n_negative'], 'false tuple')} of {counted(document['n_relations'], 'relation')}"
    )


def judge_run_of(path: str) -> JudgeRun:
    """Return the judge run named ROUND/NAME. Raises NotFound."""
    round, _, name = path.rpartition("/")
    return find_run(find_round(round), name)


def show(bar: tqdm, progress: Progress) -> None:
    bar.total, bar.n = progress.total, progress.done
    bar.refresh()
