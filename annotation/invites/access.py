"""Access to the pages of annotators: whom this browser judges as, and a throttle on wrong links and codes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from annotation.models import Annotator
from kgharvest.accounts.throttle import count_wrong_link
from kgharvest.bulk.prepared import Parameter, PreparedSelect

GUESTS = "guests"  # in the session: {id of the round: id of the annotator}


def session_annotators(request: HttpRequest) -> QuerySet[Annotator]:
    guests = request.session.get(GUESTS, {}).values()
    is_here = Q(pk__in=guests, user=None, erased_at=None) if guests else Q()
    if request.user.is_authenticated:
        is_here |= Q(user=request.user)
    return Annotator.objects.filter(is_here) if is_here else Annotator.objects.none()


def own_annotators(user) -> QuerySet[Annotator]:
    """Return as whom an account judges; by a token that is bound to a project, in the rounds of that."""
    own = Annotator.objects.filter(user=user)
    bound_to = getattr(user, "bound_to", None)
    return own if bound_to is None else own.filter(round__project=bound_to)


class SessionAnnotator:
    """Finds as whom a browser judges in one round. annotators: what is read of them."""

    def __init__(self, annotators: Callable[[], QuerySet[Annotator]]):
        of_round = lambda: annotators().filter(round=Parameter(Annotator, "round"))  # noqa: E731
        self._account = PreparedSelect(lambda: of_round().filter(user=Parameter(Annotator, "user")))
        self._guest = PreparedSelect(
            lambda: of_round().filter(pk=Parameter(Annotator, "id"), user=None, erased_at=None)
        )

    def __call__(self, request: HttpRequest, round_id: int) -> Annotator | None:
        """Return who judges in this round here; an account goes before a guest."""
        here = []
        if request.user.is_authenticated:
            here = self._account(round=round_id, user=request.user.pk)
        guest = request.session.get(GUESTS, {}).get(str(round_id))
        if guest and not here:
            here = self._guest(round=round_id, id=guest)
        return here[0] if here else None


session_annotator = SessionAnnotator(Annotator.objects.all)


def remember_guest(request: HttpRequest, annotator: Annotator) -> None:
    request.session.cycle_key()  # whoever knew the session before does not come along
    request.session[GUESTS] = {**request.session.get(GUESTS, {}), str(annotator.round_id): annotator.pk}


def forget_guest(request: HttpRequest, annotator: Annotator) -> None:
    guests = request.session.get(GUESTS, {})
    request.session[GUESTS] = {round: guest for round, guest in guests.items() if guest != annotator.pk}


def throttled(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answer 429 in the place of a 404 to addresses that lately got too many of these here.

    What is right is answered all the same: links and codes cannot be guessed, and others may be behind the address.
    """

    @wraps(view)
    def guarded(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        response = view(request, *args, **kwargs)
        if response.status_code != 404:
            return response
        if count_wrong_link(request, timezone.now()):
            return no_access(request, "Too many wrong links or codes came from here; wait a quarter of an hour.", 429)
        return response

    return guarded


def no_access(request: HttpRequest, reason: str, status: int) -> HttpResponse:
    return render(request, "annotation/invites/no_access.html", {"reason": reason}, status=status)
