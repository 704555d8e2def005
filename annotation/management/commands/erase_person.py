"""`erase_person USERNAME`, `erase_person --round NAME --annotator CODE`"""

from __future__ import annotations

from django.core.management.base import CommandError

from annotation.invites.erasure import erase_account, erase_annotator
from annotation.management.commands.open_round import find_user
from annotation.rounds.services import find_round
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand
from kgharvest.pages.number_format import counted


class Command(DomainCommand):
    help = "Forget who somebody is: an account, or a guest in one round. What they judged stays, under their codes."

    def add_arguments(self, parser):
        parser.add_argument("username", nargs="?", help="an account, which is deleted")
        parser.add_argument("--round", metavar="NAME", help="the round of --annotator")
        parser.add_argument("--annotator", metavar="CODE", help="a guest or another annotator, by their code")

    def handle(self, *, username, round, annotator, **options):
        if bool(username) == bool(round and annotator):
            raise CommandError("Name either an account, or a round and an annotator of it.")
        if username:
            rounds = counted(erase_account(find_user(username)), "round")
            self.stdout.write(f"The account {username} is deleted; what it judged in {rounds} stays.")
            return
        known = find_round(round).annotators.filter(code=annotator).first()
        if known is None:
            raise NotFound(f"The round {round} has no annotator {annotator!r}; codes are on its page Annotators.")
        erase_annotator(known)
        self.stdout.write(f"Nobody knows any more who {annotator} was; their judgments stay.")
