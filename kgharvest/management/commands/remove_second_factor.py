from kgharvest.accounts.sign_in import second_factor
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand, find_user


class Command(DomainCommand):
    help = "Remove the second factor of a user who has lost both the authenticator app and the recovery codes."

    def add_arguments(self, parser):
        parser.add_argument("name", help="username")

    def handle(self, *, name: str, **options):
        user = find_user(name)
        if not second_factor.has_second_factor(user):
            raise NotFound(f"Nothing to remove: {name} has no second factor.")
        second_factor.remove(user, None)
        self.stdout.write(f"Second factor of {name} removed. The user can log in with the password only.")
