"""`open_round SPEC.json`"""

from argparse import RawDescriptionHelpFormatter
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.urls import reverse

from annotation.round_specs import EXAMPLE, read_round_spec
from annotation.services.rounds import open_round
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = f"Draw a sample of finished harvests, freeze its statements and open the round for judging.\n\n{EXAMPLE}"

    def create_parser(self, *args, **kwargs):
        return super().create_parser(*args, formatter_class=RawDescriptionHelpFormatter, **kwargs)

    def add_arguments(self, parser):
        parser.add_argument("spec", type=Path, metavar="SPEC.json")
        parser.add_argument("--by", metavar="USER", help="who opens it, and owns a study that is new")

    def handle(self, *, spec, by, **options):
        round = open_round(read_round_spec(spec), by and find_user(by))
        self.stdout.write(f"round {round.pk}: {round.name}, {round.n_tasks} statements")
        self.stdout.write(f"join link: {settings.BASE_URL}{reverse('annotation:join', args=[round.join_token])}")


def find_user(username: str):
    user = get_user_model().objects.filter(username=username).first()
    if user is None:
        raise NotFound(f"There is no user {username!r}; name one of this installation, or leave --by out.")
    return user
