"""`erase_person USERNAME`, `erase_person --round NAME --annotator CODE`"""

from django.core.management.base import CommandError

from annotation.invites.erasure import erase_account, erase_annotator
from annotation.rounds.services import find_round
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand, find_user
from kgharvest.pages.number_format import counted


class Command(DomainCommand):
    help = "Erase an account, or the identity of an annotator in one round. Judgments are kept under annotator codes."

    def add_arguments(self, parser):
        parser.add_argument("username", nargs="?", help="account to delete")
        parser.add_argument("--round", metavar="NAME", help="round of --annotator")
        parser.add_argument("--annotator", metavar="CODE", help="code of the annotator, for example of a guest")

    def handle(self, *, username, round, annotator, **options):
        if bool(username) == bool(round and annotator):
            raise CommandError("Name either an account, or a round and an annotator.")
        if username:
            rounds = counted(erase_account(find_user(username)), "round")
            self.stdout.write(f"Account {username} deleted. Its judgments in {rounds} are kept.")
            return
        row = find_round(round).annotators.filter(code=annotator).first()
        if row is None:
            raise NotFound(f"Round {round} has no annotator {annotator!r}. See the codes on its Annotators page.")
        erase_annotator(row)
        self.stdout.write(f"Identity of annotator {annotator} erased. Their judgments are kept.")
