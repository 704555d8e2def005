"""The base of the API's views: who may ask, how often, how lists are paged and creating requests are answered once.

A view is a thin door: its rows come from `visible_to`, its writes go through a service, errors are raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.urls import reverse
from rest_framework import generics, mixins, renderers, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import IsResearcher
from kgharvest.api.authentication import TokenAllows
from kgharvest.api.idempotency import Prepared, answer_once
from kgharvest.api.input import Filters, JsonParser, QueryFilters, checked_filters
from kgharvest.api.pagination import CursorPagination
from kgharvest.api.throttles import AnonymousThrottle, TokenThrottle


class ApiView(generics.GenericAPIView):
    """A view of /api/v1/.

    serializer_class: what it answers. scope: of the tokens that open it, if not `read` for GET and `write` else.
    refuses: whether GET can be refused by a rule of the domain (409), which other methods always can. is_keyed: whether
    creating requests take an idempotency key, as they do unless the answer must not be kept.
    """

    permission_classes = (TokenAllows, IsResearcher)
    throttle_classes = (AnonymousThrottle, TokenThrottle)
    parser_classes = (JsonParser,)
    scope: str | None = None
    refuses = False
    is_keyed = True

    def check_permissions(self, request: Request) -> None:
        """Count the request first: those that are refused are limited, too."""
        super().check_throttles(request)
        super().check_permissions(request)

    def check_throttles(self, request: Request) -> None:
        """Nothing: it is done before the permissions are checked."""

    def get_queryset(self) -> QuerySet:
        """Return the rows of `queryset` that the user sees."""
        return super().get_queryset().visible_to(self.request.user)

    def row(self, rows: QuerySet) -> Any:
        """Return the row that the address names, of those that are visible. Raises Http404."""
        return get_object_or_404(rows, pk=self.kwargs["pk"])

    def sent(self, serializer_class: type[serializers.Serializer], **options: Any) -> dict[str, Any]:
        """Return what the request's body says, validated. Raises ValidationError."""
        serializer = serializer_class(data=self.request.data, context=self.get_serializer_context(), **options)
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def filtered_by(self, filters_class: type[Filters]) -> dict[str, Any]:
        """Return what the address asks for, of a view that is no list. Raises ValidationError."""
        return checked_filters(self, filters_class).validated_data

    def handle_exception(self, error: Exception) -> Response:
        """Answer errors in JSON, whatever was asked for."""
        self.request.accepted_renderer = renderers.JSONRenderer()
        self.request.accepted_media_type = renderers.JSONRenderer.media_type
        return super().handle_exception(error)

    def location(self, name: str, *args: Any) -> str:
        return reverse(name, args=args)

    def once(self, act: Callable[[], Response]) -> Response:
        """Answer a creating request, once for each idempotency key."""
        return answer_once(self.request, lambda _: act(), lambda: None)

    def prepared_once(self, prepare: Callable[[], Prepared], act: Callable[[Prepared], Response]) -> Response:
        """Answer as `once` does, where `prepare` has to go before the transaction in which `act` creates."""
        return answer_once(self.request, act, prepare)

    def answer(self, row: Any, status_code: int = status.HTTP_200_OK, location: str | None = None) -> Response:
        """Return `row` by the view's serializer; location: the address of what was made, or will be."""
        headers = {"Location": self.request.build_absolute_uri(location)} if location else {}
        return Response(self.get_serializer(row).data, status_code, headers=headers)

    def created(self, row: Any, location: str | None = None) -> Response:
        return self.answer(row, status.HTTP_201_CREATED, location)

    def accepted(self, row: Any, location: str) -> Response:
        """Answer that a worker does it; `location` tells how far it is."""
        return self.answer(row, status.HTTP_202_ACCEPTED, location)

    def deleted(self) -> Response:
        return Response(status=status.HTTP_204_NO_CONTENT)


class ListView(mixins.ListModelMixin, ApiView):
    """A list in pages. filters: what narrows it; order: columns that together are unique, all with a minus or none."""

    filter_backends = (QueryFilters,)
    pagination_class = CursorPagination
    filters: type[Filters] = Filters
    order: tuple[str, ...] = ("-pk",)

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class DetailView(ApiView):
    """One row of `get_queryset`, by its id."""

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.answer(self.row(self.get_queryset()))


class AnyRenderer(renderers.BaseRenderer):
    """Lets a client ask for any media type, of a view that answers files of several."""

    media_type = "*/*"
    format = "file"

    def render(self, data: Any, accepted_media_type=None, renderer_context=None) -> bytes:
        return renderers.JSONRenderer().render(data)  # of errors


class LineRenderer(renderers.BaseRenderer):
    """Lets a client ask for JSON lines; the view streams them itself."""

    media_type = "application/x-ndjson"
    format = "ndjson"

    def render(self, data: Any, accepted_media_type=None, renderer_context=None) -> bytes:
        return renderers.JSONRenderer().render(data)  # of errors
