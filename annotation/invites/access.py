"""Access to annotators' pages: the annotators of a session, and throttling of requests with invalid links or codes."""

from collections.abc import Callable
from functools import wraps

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from annotation.models import Annotator
from kgharvest.accounts.throttle import count_wrong_link
from kgharvest.bulk.prepared import Parameter, PreparedSelect

GUESTS = "guests"  # session key; the value is {round id: annotator id}


def session_annotators(request: HttpRequest) -> QuerySet[Annotator]:
    guests = request.session.get(GUESTS, {}).values()
    condition = Q(pk__in=guests, user=None, erased_at=None) if guests else Q()
    if request.user.is_authenticated:
        condition |= Q(user=request.user)
    return Annotator.objects.filter(condition) if condition else Annotator.objects.none()


class SessionAnnotator:
    """Lookup of a session's annotator in one round, with prepared queries.

    annotators: function that returns the base queryset.
    """

    def __init__(self, annotators: Callable[[], QuerySet[Annotator]]):
        of_round = lambda: annotators().filter(round=Parameter(Annotator, "round"))  # noqa: E731
        self._account = PreparedSelect(lambda: of_round().filter(user=Parameter(Annotator, "user")))
        self._guest = PreparedSelect(
            lambda: of_round().filter(pk=Parameter(Annotator, "id"), user=None, erased_at=None)
        )

    def __call__(self, request: HttpRequest, round_id: int) -> Annotator | None:
        """Return the session's annotator in the round. An account takes precedence over a guest."""
        annotators = []
        if request.user.is_authenticated:
            annotators = self._account(round=round_id, user=request.user.pk)
        guest = request.session.get(GUESTS, {}).get(str(round_id))
        if guest and not annotators:
            annotators = self._guest(round=round_id, id=guest)
        return annotators[0] if annotators else None


session_annotator = SessionAnnotator(Annotator.objects.all)


def remember_guest(request: HttpRequest, annotator: Annotator) -> None:
    request.session.cycle_key()  # prevents session fixation
    request.session[GUESTS] = {**request.session.get(GUESTS, {}), str(annotator.round_id): annotator.pk}


def forget_guest(request: HttpRequest, annotator: Annotator) -> None:
    guests = request.session.get(GUESTS, {})
    request.session[GUESTS] = {round: guest for round, guest in guests.items() if guest != annotator.pk}


def throttled(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Replace 404 responses with 429 for IP addresses with too many recent 404s.

    Valid links and codes still work, because they cannot be guessed and because several people can share an IP address.
    """

    @wraps(view)
    def guarded(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        response = view(request, *args, **kwargs)
        if response.status_code != 404:
            return response
        if count_wrong_link(request, timezone.now()):
            reason = "Too many invalid links or codes from your network. Wait 15 minutes and try again."
            return no_access(request, reason, 429)
        return response

    return guarded


def no_access(request: HttpRequest, reason: str, status: int) -> HttpResponse:
    return render(request, "annotation/invites/no_access.html", {"reason": reason}, status=status)
