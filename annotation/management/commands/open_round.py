"""`open_round SPEC.json`"""

from argparse import RawDescriptionHelpFormatter
from pathlib import Path

from django.conf import settings
from django.urls import reverse

from annotation.rounds.plan import plan_lines, plan_round
from annotation.rounds.serializers import example, read_round_spec, round_from_spec
from annotation.rounds.services import create_draft, open_round
from kgharvest.accounts.projects import find_project
from kgharvest.management.command import DomainCommand, add_project_argument, find_user


class Command(DomainCommand):
    help = f"Sample finished harvests, freeze the statements, and open the round for judging.\n\n{example()}"

    def add_arguments(self, parser):
        parser.formatter_class = RawDescriptionHelpFormatter  # preserves line breaks of the example
        parser.add_argument("spec", type=Path, metavar="SPEC.json", help="JSON spec of the round (see below)")
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--plan", action="store_true", help="only print cost and expected precision; store nothing")
        mode.add_argument("--draft", action="store_true", help="save a draft, which you can open on its page")
        parser.add_argument("--by", metavar="USER", help="user who opens the round")
        parser.add_argument("--confirm-noise", action="store_true", help="accept harvests that are probably noise")
        add_project_argument(parser)

    def handle(self, *, spec, by, plan, draft, project, confirm_noise, **options):
        document = read_round_spec(spec)
        if confirm_noise and isinstance(document, dict):
            document["confirm_noise"] = True
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
        for job in round.noisy_harvests():
            self.stdout.write(f"Warning: {job}. {job.noise_warning['text']}")
        self.stdout.write(f"join link: {settings.ORIGIN}{reverse('annotation:join', args=[round.join_token])}")
