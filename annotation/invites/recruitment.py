"""Interface between the core and an optional app that recruits annotators."""

from datetime import datetime

from annotation.models import Annotator, Round
from kgharvest.registries import hook


class Recruitment:
    """Default implementation for installations without a recruiting app.

    A recruiting app replaces the hook `recruitment` with a subclass. A place is an annotator's paid participation in a
    study on a recruiting platform.
    """

    def lock(self, annotator: Annotator) -> None:
        """Lock the annotator's places. Lock the places before the annotator."""

    def withdraw(self, annotator: Annotator, now: datetime) -> None:
        """End the active places of an annotator who withdraws."""

    def screen_out(self, annotator: Annotator, now: datetime) -> None:
        """End the active places of an annotator who failed the comprehension check."""

    def forget(self, annotator: Annotator) -> list[str]:
        """Erase the annotator's platform ids. Returns one sentence per retained id, with the reason."""
        return []

    def end_page(self, annotator: Annotator) -> str | None:
        """Return the path of the final page of the annotator's place, or None if the annotator has no place."""
        return None

    def pay_in_words(self, round: Round) -> str:
        """Return sentences for papers about the pay of a round's annotators, or "" if no one was paid."""
        return ""


def recruitment() -> Recruitment:
    return hook("recruitment")()
