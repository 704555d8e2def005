"""Who is judging: the account that is logged in, or the guests that this browser joined as."""

from __future__ import annotations

from django.db.models import Q, QuerySet
from django.http import HttpRequest

from annotation.models import Annotator

GUESTS = "guests"  # in the session: {id of the round: id of the annotator}


def annotators_here(request: HttpRequest) -> QuerySet[Annotator]:
    """Return whom this browser judges as, one per round and account or guest."""
    guests = request.session.get(GUESTS, {}).values()
    mine = Q(pk__in=guests, user=None) if guests else Q()
    if request.user.is_authenticated:
        mine |= Q(user=request.user)
    return Annotator.objects.filter(mine) if mine else Annotator.objects.none()


def current_annotator(request: HttpRequest, round_name: str) -> Annotator | None:
    """Return who judges in this round here; an account goes before a guest."""
    here = annotators_here(request).filter(round__name=round_name)
    return min(here, key=lambda annotator: annotator.user_id is None, default=None)


def remember_guest(request: HttpRequest, annotator: Annotator) -> None:
    """Let this browser judge as a guest of one round from now on."""
    request.session.cycle_key()  # whoever knew the session before does not come along
    request.session[GUESTS] = {**request.session.get(GUESTS, {}), str(annotator.round_id): annotator.pk}


def forget_guest(request: HttpRequest, annotator: Annotator) -> None:
    guests = request.session.get(GUESTS, {})
    request.session[GUESTS] = {round: guest for round, guest in guests.items() if guest != annotator.pk}
