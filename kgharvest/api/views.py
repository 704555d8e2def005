"""Base classes of API views and viewsets: permissions, rate limits, pagination, and idempotency.

Views contain no domain rules: rows come from `visible_to`, and writes go through services, which raise errors.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, reverse
from drf_spectacular.utils import OpenApiParameter, OpenApiTypes, extend_schema
from rest_framework import generics, mixins, renderers, serializers, status
from rest_framework.decorators import action
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DynamicRoute, Route, SimpleRouter
from rest_framework.viewsets import ViewSetMixin

from kgharvest.access import Action, IsResearcher, check_may
from kgharvest.api.authentication import TokenAllows, count_request
from kgharvest.api.idempotency import Prepared, answer_once
from kgharvest.api.input import Filters, QueryFilters, checked_filters
from kgharvest.api.pagination import CursorPagination


class JsonParser(BaseParser):
    """Strict JSON parser. The body must be UTF-8. Deep nesting and long numbers are client errors."""

    media_type = "application/json"

    def parse(self, stream, media_type=None, parser_context=None) -> Any:
        try:
            return json.loads(stream.read().decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError:
            raise ParseError("The request body is not valid UTF-8.") from None
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            raise ParseError(f"The request body is not valid JSON: {error.msg} ({place}).") from None
        except RecursionError:
            raise ParseError("The JSON in the request body is nested too deeply.") from None
        except ValueError:  # NaN or Infinity, or an integer with thousands of digits
            raise ParseError("The request body contains a number that is invalid or too long.") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


class ApiView(generics.GenericAPIView):
    """A view of /api/v1/.

    serializer_class: serializer of the response. scope: required token scope; by default `read` for GET and `write` for
    other methods. refuses: True if GET can violate a domain rule (409); other methods always can. is_keyed: True if
    POST accepts an idempotency key; False if the response must not be stored.
    """

    permission_classes = (TokenAllows, IsResearcher)
    parser_classes = (JsonParser,)
    scope: str | None = None
    refuses = False
    is_keyed = True

    def check_permissions(self, request: Request) -> None:
        """Count the request first, so that denied requests are also limited."""
        count_request(request, request.user)
        super().check_permissions(request)

    def get_queryset(self) -> QuerySet:
        """Return the rows of `queryset` visible to the user."""
        return super().get_queryset().visible_to(self.request.user)

    def row(self, rows: QuerySet) -> Any:
        """Return the row whose `pk` is in the URL. Raises Http404."""
        return get_object_or_404(rows, pk=self.kwargs["pk"])

    def sent(self, serializer_class: type[serializers.Serializer], **options: Any) -> dict[str, Any]:
        """Return the validated request body. Raises ValidationError."""
        serializer = serializer_class(data=self.request.data, context=self.get_serializer_context(), **options)
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def filtered_by(self, filters_class: type[Filters]) -> dict[str, Any]:
        """Return the validated query parameters of a view that is not a list. Raises ValidationError."""
        return checked_filters(self, filters_class).validated_data

    def handle_exception(self, error: Exception) -> Response:
        """Return errors as JSON, regardless of the requested media type."""
        self.request.accepted_renderer = renderers.JSONRenderer()
        self.request.accepted_media_type = renderers.JSONRenderer.media_type
        return super().handle_exception(error)

    def location(self, name: str, *args: Any) -> str:
        return reverse(name, args=args)

    def prepared_once(self, prepare: Callable[[], Prepared], act: Callable[[Prepared], Response]) -> Response:
        """Run `act` once per idempotency key. `prepare` runs before the transaction of `act`."""
        return answer_once(self.request, act, prepare)

    def answer(self, row: Any, status_code: int = status.HTTP_200_OK, location: str | None = None) -> Response:
        """Return the serialized `row`. location: URL of the object that was or will be created."""
        headers = {"Location": self.request.build_absolute_uri(location)} if location else {}
        return Response(self.get_serializer(row).data, status_code, headers=headers)

    def created(self, row: Any, location: str | None = None) -> Response:
        return self.answer(row, status.HTTP_201_CREATED, location)

    def accepted(self, row: Any, location: str) -> Response:
        """Answer 202, because a worker does the work later. location: URL that shows the progress."""
        return self.answer(row, status.HTTP_202_ACCEPTED, location)

    def deleted(self) -> Response:
        return Response(status=status.HTTP_204_NO_CONTENT)


class PagedList(mixins.ListModelMixin):
    """Paginated list.

    filters: query parameters. order: columns that are unique in combination, and either all ascending or all
    descending.
    """

    filter_backends = (QueryFilters,)
    pagination_class = CursorPagination
    filters: type[Filters] = Filters
    order: tuple[str, ...] = ("-pk",)


class ListView(PagedList, ApiView):
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class ApiViewSet(ViewSetMixin, ApiView):
    """Operations on one resource; `routes` derives their URLs. `operation` can override each attribute.

    access: Action that the user's role must permit in the project; by default VIEW for GET and WORK for other methods.
    entry_serializer_class: serializer of `list`, if it differs from `serializer_class`. once: True if POST runs in a
    transaction and honors idempotency keys. Set it to False for operations on other systems.
    """

    access: Action | None = None
    entry_serializer_class: type[serializers.Serializer] | None = None
    once = True
    lookup_value_converter = "int"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method == "POST" and self.action and self.once and self.is_keyed:
            post = self.post
            self.post = lambda *args, **kwargs: answer_once(request, lambda _: post(*args, **kwargs), lambda: None)

    def get_serializer_class(self) -> type[serializers.Serializer]:
        return (self.action == "list" and self.entry_serializer_class) or self.serializer_class

    def permitted(self, row: Any) -> Any:
        """Return `row`. Raises NotAllowed if the user's role does not permit the operation."""
        required = self.access or (Action.VIEW if self.request.method in SAFE_METHODS else Action.WORK)
        if required != Action.VIEW:
            check_may(self.request.user, required, row.project)
        return row

    def named(self) -> Any:
        """Return the row of `get_queryset` that the URL names, without a permission check. Raises Http404."""
        lookup = self.kwargs[self.lookup_url_kwarg or self.lookup_field]
        return get_object_or_404(self.get_queryset(), **{self.lookup_field: lookup})

    def get_object(self) -> Any:
        """Return the row that the URL names. Raises Http404 or NotAllowed."""
        return self.permitted(self.named())

    def address(self, row: Any) -> str:
        """Return the URL path of a row."""
        lookup = {self.lookup_url_kwarg or self.lookup_field: getattr(row, self.lookup_field)}
        return reverse(f"{self.request.resolver_match.namespace}:{self.basename}", kwargs=self.kwargs | lookup)

    def changed(self, change: Callable[..., Any], *args: Any) -> Response:
        """Call the service function `change` with the row that the URL names. Return the row."""
        change(self.get_object(), *args, by=self.request.user)
        return self.answer(self.named())


class RetrieveMixin:
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.answer(self.get_object())


IN_THE_DESCRIPTION = ("request", "responses", "parameters", "examples")


def operation(summary: str, path: str = "", *, method: str = "post", on_list: bool = False, **options: Any):
    """Declare an operation of a viewset other than list, create, retrieve, update, and destroy.

    path: path relative to the URL of the row, or to the URL of the list if `on_list`. It defaults to the method's name
    and a slash. options: options of `extend_schema`, attributes of the viewset, and `url_name`, which defaults to the
    method's name.
    """

    def declared(handler: Callable[..., Any]) -> Callable[..., Any]:
        name = handler.__name__
        url_name = options.pop("url_name", name)
        described = {option: options.pop(option) for option in IN_THE_DESCRIPTION if option in options}
        declare = action(
            [method], detail=not on_list, url_path=path or f"{name.replace('_', '-')}/", url_name=url_name, **options
        )
        return extend_schema(summary=summary, **described)(declare(handler))

    return declared


def file_operation(summary: str, path: str, content_types: Mapping[str, str] | str, **options: Any):
    """Declare an operation of a viewset that returns a file.

    content_types: mapping from `file_format` to content type, or a single type if `path` does not contain
    `file_format`.
    """
    by_format = {} if isinstance(content_types, str) else content_types
    if by_format:
        file_format = OpenApiParameter("file_format", str, OpenApiParameter.PATH, enum=list(by_format))
        options["parameters"] = [*options.get("parameters", []), file_format]
    described = {"responses": files_of(by_format.values() or [content_types]), "renderer_classes": (AnyRenderer,)}
    return operation(summary, path, method="get", **(described | options))


class ApiRouter(SimpleRouter):
    """URLs below /api/v1/, named `NAMEs` (list), `NAME` (one row), and `NAME_OPERATION`."""

    routes = [
        Route("api/v1/{prefix}/", {"get": "list", "post": "create"}, "{basename}s", False, {}),
        DynamicRoute("api/v1/{prefix}/{url_path}", "{basename}_{url_name}", False, {}),
        Route(
            "api/v1/{prefix}/{lookup}/",
            {"get": "retrieve", "put": "update", "patch": "partial_update", "delete": "destroy"},
            "{basename}",
            True,
            {},
        ),
        DynamicRoute("api/v1/{prefix}/{lookup}/{url_path}", "{basename}_{url_name}", True, {}),
    ]


def routes(prefix: str, viewset: type[ApiViewSet], name: str, plural: str = "") -> list[URLPattern]:
    """Return the URL patterns of a viewset.

    prefix: path below /api/v1/. name: URL name of a row, such as `api_round`. plural: URL name of the list, by default
    `name` with an s.
    """
    router = ApiRouter(use_regex_path=False)
    if plural:
        router.routes = [router.routes[0]._replace(name=plural), *router.routes[1:]]
    router.register(prefix, viewset, name)
    return router.urls


def files_of(content_types: Iterable[str]) -> dict[tuple[int, str], Any]:
    """Return the `responses` of a file operation with these content types."""
    kinds = {"application/json": OpenApiTypes.OBJECT}
    names = [content_type.partition(";")[0] for content_type in content_types]
    return {(200, name): kinds.get(name, OpenApiTypes.BINARY) for name in names}


class AnyRenderer(renderers.BaseRenderer):
    """Accepts any media type, for views that return files of several types."""

    media_type = "*/*"
    format = "file"

    def render(self, data: Any, accepted_media_type=None, renderer_context=None) -> bytes:
        return renderers.JSONRenderer().render(data)  # only errors are rendered


class LineRenderer(AnyRenderer):
    """Accepts JSON lines; the view streams them itself."""

    media_type = "application/x-ndjson"
    format = "ndjson"
