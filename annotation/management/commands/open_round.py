"""`open_round SPEC.json`"""

from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.urls import reverse

from annotation.rounds.plan import Plan, plan_round
from annotation.rounds.serializers import example, read_round_spec, round_from_spec
from annotation.rounds.services import create_draft, open_round
from kgharvest.accounts.projects import find_project
from kgharvest.management.command import DomainCommand, add_project_argument, find_user
from kgharvest.pages.number_format import in_points, percent, seconds


class Command(DomainCommand):
    help = f"Sample finished harvests, freeze the statements, and open the round for judging.\n\n{example()}"

    def add_arguments(self, parser):
        parser.formatter_class = RawDescriptionHelpFormatter  # preserves line breaks of the example
        parser.add_argument("spec", type=Path, metavar="SPEC.json", help="JSON spec of the round (see below)")
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--plan", action="store_true", help="only print cost and expected precision; store nothing")
        mode.add_argument("--draft", action="store_true", help="save a draft, which you can open on its page")
        parser.add_argument("--by", metavar="USER", help="user who opens the round")
        add_project_argument(parser)

    def handle(self, *, spec, by, plan, draft, project, **options):
        document = read_round_spec(spec)
        if plan:
            for line in plan_lines(plan_round(round_from_spec(document))):
                self.stdout.write(line)
            return
        researcher = by and find_user(by)
        project = project and find_project(project, researcher)
        round = (create_draft if draft else open_round)(document, researcher, project)
        if draft:
            self.stdout.write(f"draft {round.pk}: {settings.ORIGIN}{round.get_absolute_url()}")
            return
        self.stdout.write(f"round {round.pk}: {round.name}, {round.n_tasks} statements")
        self.stdout.write(f"join link: {settings.ORIGIN}{reverse('annotation:join', args=[round.join_token])}")


def plan_lines(plan: Plan) -> Iterator[str]:
    work = plan.workload
    least = f"{work.n_judgments_least} to " if work.n_judgments_least != work.n_judgments else ""
    pace = "measured" if work.is_measured else "assumed"
    yield f"statements: {work.n_tasks} ({work.n_drawn} drawn, {work.n_shared} of them shared between cells)"
    yield f"judgments: {least}{work.n_judgments}"
    yield f"gold: {plan.n_gold} statements, shown at most {work.n_gold_shown} times in total"
    yield f"annotator time: {work.hours:.1f} h at {seconds(work.seconds_per_judgment)} per judgment ({pace})"
    yield f"expected 95 % intervals at {percent(plan.accuracy)} accuracy:"
    for cell in plan.cells:
        halved = f" (to halve the width: {cell.n_to_halve})" if cell.half_width else ""
        yield f"  {cell.name}: {cell.n} of {cell.population}, +- {in_points(cell.half_width)}{halved}"
    for macro in plan.macros:
        yield f"  {macro.name}, average of {macro.n_relations} relations: +- {in_points(macro.half_width)}"
    yield f"required for +- {in_points(plan.wish.half_width)} in each cell:"
    for way in plan.ways:
        method = f"people, with {way.judge}" if way.judge else "people alone"
        yield f"  {method}: {way.n_statements} statements, {way.n_judgments} judgments, {way.hours:.1f} h"
    if plan.compared.comparisons:
        yield "detectable differences (80 % power):"
    for comparison in plan.compared.comparisons:
        over = f"over {comparison.n_relations} relations, by {comparison.unit}"
        difference = "none" if comparison.difference is None else in_points(comparison.difference)
        yield f"  {comparison.name}: {difference}, {over}"
    if plan.compared.rule:
        yield plan.compared.rule
