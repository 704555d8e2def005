"""`token NAME --scope S --days D [--project P]`"""

from django.contrib.auth import get_user_model
from django.utils import timezone

from kgharvest.accounts.projects import find_project
from kgharvest.accounts.tokens import LONGEST_DAYS, Scope, create_token
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand, positive


class Command(DomainCommand):
    help = "Make an API token for the user NAME and print it. It is shown once and kept nowhere."

    def add_arguments(self, parser):
        parser.add_argument("user", metavar="NAME", help="whose token it is; it allows what this user may")
        parser.add_argument(
            "--scope",
            choices=Scope.values,
            default=Scope.READ,
            help="what it may do: read (default), write as well, or judge",
        )
        parser.add_argument("--days", type=positive, default=90, help=f"how long it is valid, at most {LONGEST_DAYS}")
        parser.add_argument("--project", help="slug of the only project that it reaches (default: all of the user's)")
        parser.add_argument("--name", default="made by command", help="what it is for")

    def handle(self, *, user, scope, days, project, name, **options):
        owner = get_user_model().objects.filter(username=user).first()
        if owner is None:
            raise NotFound(f"There is no user {user!r:.80}; the command changes nobody's tokens.")
        reached = find_project(project, owner) if project else None
        self.stdout.write(create_token(owner, name, scope, days, timezone.now(), project=reached).secret)
