"""`remove_second_factor`: for whoever has lost both the authenticator app and the recovery codes."""

from __future__ import annotations

from django.contrib.auth import get_user_model

from kgharvest.accounts.sign_in import second_factor
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Let an account log in with its password alone, until it sets up a second factor again."

    def add_arguments(self, parser):
        parser.add_argument("name", help="the name that the person logs in with")

    def handle(self, *, name: str, **options):
        user = get_user_model().objects.filter(username=name).first()
        if user is None:
            raise NotFound(f"Nobody logs in as {name!r}; check the name.")
        if not second_factor.has_second_factor(user):
            raise NotFound(f"{name} has no second factor; there is nothing to remove.")
        second_factor.remove(user, None)
        self.stdout.write(f"{name} logs in with the password alone now.")
