"""`open_round SPEC.json`"""

from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.urls import reverse

from annotation.rounds.plan import Plan, plan_round
from annotation.rounds.serializers import example, read_round_spec, round_from_spec
from annotation.rounds.services import create_draft, open_round
from kgharvest.accounts.projects import find_project
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand, add_project_argument
from kgharvest.pages.number_format import seconds


class Command(DomainCommand):
    help = f"Draw a sample of finished harvests, freeze its statements and open the round for judging.\n\n{example()}"

    def add_arguments(self, parser):
        parser.formatter_class = RawDescriptionHelpFormatter  # keeps the lines of the example
        parser.add_argument(
            "spec", type=Path, metavar="SPEC.json", help="description of the round, such as the one below"
        )
        kept = parser.add_mutually_exclusive_group()
        kept.add_argument("--plan", action="store_true", help="only say what the round costs and tells; store nothing")
        kept.add_argument("--draft", action="store_true", help="only keep the description, to be opened on its page")
        parser.add_argument("--by", metavar="USER", help="who opens it")
        add_project_argument(parser)

    def handle(self, *, spec, by, plan, draft, project, **options):
        document = read_round_spec(spec)
        if plan:
            for line in plan_lines(plan_round(round_from_spec(document))):
                self.stdout.write(line)
            return
        researcher = by and find_user(by)
        project = project and find_project(project, researcher)
        make = create_draft if draft else open_round
        round = make(document, researcher, project)
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
    yield f"gold: {plan.n_gold} statements, shown {work.n_gold_shown} times in all at most"
    yield f"people's time: {work.hours:.1f} h at {seconds(work.seconds_per_judgment)} a judgment ({pace})"
    yield f"95 % intervals to expect at {plan.percent} % accuracy:"
    for cell in plan.cells:
        halved = f" (half of that: {cell.n_to_halve})" if cell.half_width else ""
        yield f"  {cell.name}: {cell.n} of {cell.population}, +- {cell.points}{halved}"
    for macro in plan.macros:
        yield f"  {macro.name}, average of {macro.n_relations} relations: +- {macro.points}"
    yield f"+- {plan.wished_points} for each cell takes:"
    for way in plan.ways:
        who = f"people, with {way.judge}" if way.judge else "people alone"
        yield f"  {who}: {way.n_statements} statements, {way.n_judgments} judgments, {way.hours:.1f} h"
    if plan.compared.comparisons:
        yield "differences that comparisons find in four of five rounds:"
    for comparison in plan.compared.comparisons:
        over = f"over {comparison.n_relations} relations, by {comparison.unit}"
        yield f"  {comparison.name}: {comparison.points or 'none'}, {over}"
    if plan.compared.rule:
        yield plan.compared.rule


def find_user(username: str):
    user = get_user_model().objects.filter(username=username).first()
    if user is None:
        raise NotFound(f"There is no user {username!r}; name one of this installation, or leave --by out.")
    return user
