"""`judge_tuples --round NAME --judge SPEC.json [--limit N] [--wait]`"""

from argparse import RawDescriptionHelpFormatter
from pathlib import Path

from django.conf import settings

from annotation.judges.files.answer_import import import_file
from annotation.judges.labels import judge_labels
from annotation.judges.models import JudgeKind, JudgeRun
from annotation.judges.runs import create_run, estimated_usage, queue_run, usage_of
from annotation.judges.specs import example, read_judge_spec
from annotation.rounds.services import find_round
from kgharvest.errors import DomainError
from kgharvest.management.command import DomainCommand, positive, run_to_the_end
from kgharvest.models import Job


class Command(DomainCommand):
    help = (
        "Label the tuples of a round and of its harvests with an LM judge. With these labels, reports need fewer human "
        f"judgments (docs/judges.md).\n\n{example()}"
    )

    def add_arguments(self, parser):
        parser.formatter_class = RawDescriptionHelpFormatter  # preserves line breaks of the example
        parser.add_argument("--round", required=True, metavar="NAME", help="name of a round or draft, or project/NAME")
        parser.add_argument("--judge", required=True, type=Path, metavar="SPEC.json", help="JSON spec of the judge")
        parser.add_argument(
            "--limit",
            type=positive,
            metavar="N",
            help="maximum number of tuples to label; estimates require labels of all tuples",
        )
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--wait", action="store_true", help="run in this process, with a progress bar")
        mode.add_argument("--estimate", action="store_true", help="only print the estimated usage")

    def handle(self, *, judge, limit, wait, estimate, **options):
        round, document = find_round(options["round"]), read_judge_spec(judge)
        if limit and isinstance(document, dict):
            document = document | {"limit": limit}
        if isinstance(document, dict) and document.get("kind") == JudgeKind.FILE:
            if not document.get("path"):
                raise DomainError("BadJudgeSpec", "path is missing. Name the answer file.")
            run = import_file(round, document, judge.parent / document["path"])
        elif estimate:
            used = estimated_usage(round, document)
            tokens = f"{used.n_prompt_tokens} prompt tokens and {used.n_completion_tokens} completion tokens"
            self.stdout.write(f"{used.n_answers} answers, about {tokens}, cost about {used.cost:.4f}")
            return
        elif wait:
            run = self.ask_here(create_run(round, document))
        else:
            run = queue_run(round, document)
        self.tell(run)

    def ask_here(self, run: JudgeRun) -> JudgeRun:
        run_to_the_end(run)
        run.refresh_from_db()
        if run.status != Job.Status.SUCCEEDED:
            raise DomainError("RunFailed", f"Judge run {run.name} {run.status}: {run.error or 'cancelled.'}")
        return run

    def tell(self, run: JudgeRun) -> None:
        self.stdout.write(f"judge run {run.pk}: {settings.ORIGIN}{run.get_absolute_url()}")
        if run.is_unfinished:
            return
        used, labels = usage_of(run), list(judge_labels(run).values())
        counts = ", ".join(f"{labels.count(label)} {label or 'without a label'}" for label in sorted(set(labels)))
        self.stdout.write(f"{used.n_answers} answers, {used.n_tokens} tokens, cost {used.cost:.4f}: {counts}")
