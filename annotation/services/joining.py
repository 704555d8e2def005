"""How people come into a round."""

from __future__ import annotations

import secrets

from annotation.models import Annotator, Round
from annotation.sampling import start_position
from annotation.services.assignment import RoundNotOpen
from kgharvest.errors import DomainError


class NotForPeople(DomainError):
    """Joining a round whose judgments come from elsewhere."""


def join_round(round: Round, user) -> Annotator:
    """Return the user's annotator in the round: one person is one annotator, however often they follow the link.

    Raises NotForPeople, and RoundNotOpen for a newcomer to a closed round.
    """
    known = Annotator.objects.filter(round=round, user=user).first()
    if known is not None:
        return known
    if round.source != Round.Source.PEOPLE:
        raise NotForPeople(f"The judgments of the round {round.name} are {round.source}; people cannot join it.")
    if round.status == Round.Status.CLOSED:
        raise RoundNotOpen(f"The round {round.name} is closed; nobody can join it any more.")
    annotator, _ = Annotator.objects.get_or_create(round=round, user=user, defaults=_newcomer(round))
    return annotator


def _newcomer(round: Round) -> dict[str, str | int]:
    code = f"a-{secrets.token_hex(4)}"
    return {"code": code, "next_position": start_position(round.seed, code, round.n_tasks)}
