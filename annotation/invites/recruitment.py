"""Questions of the core about recruited annotators. An optional app that recruits people answers them."""

from __future__ import annotations

from datetime import datetime

from annotation.models import Annotator, Round
from kgharvest.registries import hook


class Recruitment:
    """Answers of an installation that recruits nobody. An app replaces the hook `recruitment` with a subclass.

    A place is the paid part of one annotator in a study on a recruiting platform.
    """

    def lock(self, annotator: Annotator) -> None:
        """Lock the annotator's places. Locks are taken in this order: places, then the annotator."""

    def withdraw(self, annotator: Annotator, now: datetime) -> None:
        """End the active places of an annotator who withdraws."""

    def screen_out(self, annotator: Annotator, now: datetime) -> None:
        """End the active places of an annotator who has failed the comprehension check."""

    def forget(self, annotator: Annotator) -> list[str]:
        """Erase the platform's ids of the annotator.

        Return the reasons why some ids are kept for now, a sentence each.
        """
        return []

    def end_page(self, annotator: Annotator) -> str | None:
        """Return the path of the page that ends the annotator's place; None if the annotator has no place."""
        return None

    def pay_in_words(self, round: Round) -> str:
        """Return sentences on the pay of a round's annotators, for papers; empty if nobody was paid."""
        return ""


def recruitment() -> Recruitment:
    return hook("recruitment")()
