from django.utils import timezone

from kgharvest.accounts.projects import find_project
from kgharvest.accounts.tokens import LONGEST_DAYS, Scope, create_token
from kgharvest.management.command import DomainCommand, find_user, positive


class Command(DomainCommand):
    help = "Create and print an API token of a user. The token is not stored and cannot be shown again."

    def add_arguments(self, parser):
        parser.add_argument("user", metavar="NAME", help="user whose permissions the token gets")
        scope_help = "read, write (includes read), or judge (default: read)"
        parser.add_argument("--scope", choices=Scope.values, default=Scope.READ, help=scope_help)
        days_help = f"validity in days, at most {LONGEST_DAYS} (default: 90)"
        parser.add_argument("--days", type=positive, default=90, help=days_help)
        parser.add_argument("--project", help="slug of the only accessible project (default: all projects)")
        parser.add_argument("--name", default="made by command", help="purpose (default: made by command)")

    def handle(self, *, user, scope, days, project, name, **options):
        owner = find_user(user)
        token_project = find_project(project, owner) if project else None
        self.stdout.write(create_token(owner, name, scope, days, timezone.now(), project=token_project).secret)
