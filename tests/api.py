"""What tests of the API need: clients with tokens, errors, answers as described, who may do which operation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.test import Client
from django.urls import Resolver404, URLPattern, URLResolver, get_resolver
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator

from kgharvest.accounts.tokens import create_token
from kgharvest.api.views import ApiView
from tests import factories

SETS = "/api/v1/relation-sets/"
RELATIONS = "/api/v1/relations/"
JSON = "application/json"
WRITTEN = {
    "name": "place_for",
    "set": "places",
    "statement": "<ENT0> is a place for <ENT1>.",
    "seed_tuples": [["kitchen", "cooking"], ["school", "learning"]],
}


def client_of(user=None, scope: str = "write", **headers: str) -> Client:
    """Return a client with a token of a researcher."""
    secret = create_token(user or factories.make_researcher(), "script", scope, 1, timezone.now()).secret
    return DescribedClient(headers={"authorization": f"Bearer {secret}", **headers})


def error_of(response) -> dict:
    """Return the error, which has the one shape that all of them have."""
    assert response.headers["Content-Type"].startswith(JSON)
    error = response.json()
    assert [*error] == ["error"]
    assert {"code", "message"} <= error["error"].keys() <= {"code", "message", "fields"}
    return error["error"]


# -- answers as the description says -----------------------------------------------------------------------------------


@cache
def description() -> dict[str, Any]:
    """Return the API's OpenAPI document."""
    return SchemaGenerator().get_schema(request=None, public=True)


@cache
def closed_components() -> dict[str, Any]:
    """Return the components of the description, objects without anything that is not described."""
    schemas = description()["components"]["schemas"]
    return {
        "schemas": {
            name: {"additionalProperties": False} | schema if "properties" in schema else schema
            for name, schema in schemas.items()
        }
    }


def expect_as_described(response) -> None:
    """Fail unless the description has the status of an answer, and the answer is within its schema."""
    route = response.resolver_match.route
    path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda match: f"{{{match[1]}}}", route)
    operations = description()["paths"].get(path) or description()["paths"][path.replace("{pk}", "{id}")]
    operation = operations[response.request["REQUEST_METHOD"].lower()]
    answers = operation["responses"].get(str(response.status_code))
    assert answers is not None, f"{path} answers {response.status_code}, which is not described"
    if response.status_code == 204:
        return
    media_type = response.headers["Content-Type"].partition(";")[0]
    assert media_type in answers["content"], f"{path} answers {media_type}, which is not described"
    if media_type == JSON:
        schema = answers["content"][media_type]["schema"]
        Draft202012Validator({**schema, "components": closed_components()}).validate(response.json())


class DescribedClient(Client):
    """Fails where an answer is not as the API's description says."""

    def request(self, **request: Any):
        response = super().request(**request)
        with suppress(Resolver404):
            if response.resolver_match and response.status_code != 405:
                expect_as_described(response)
        return response


# -- tables of who may do what -----------------------------------------------------------------------------------------


def clients_of_columns(people: Iterable) -> list[Client]:
    """Return a client without a token, then one of each of `people`, with a token of scope `write`."""
    secrets = [create_token(user, "script", "write", 1, timezone.now()).secret for user in people]
    return [Client(), *(Client(headers={"authorization": f"Bearer {secret}"}) for secret in secrets)]


def wrong_rows(
    table: Mapping[str, str], clients: list[Client], objects: Mapping[str, Any], bodies_of: Any
) -> list[str]:
    """Return the operations that do not answer each client with the status of its column.

    table: statuses by operation ("GET jobs/{queued}/"); objects: what its addresses name; bodies_of: function of
    (operation, objects) that returns what is sent.
    """
    wrong = []
    for operation, expected in table.items():
        statuses = [_status_of(client, operation, objects, bodies_of(operation, objects)) for client in clients]
        if statuses != [int(status) for status in expected.split()]:
            wrong.append(f"{operation}: {statuses} instead of {expected}")
    return wrong


def _status_of(client: Client, operation: str, objects: Mapping[str, Any], body: dict[str, Any]) -> int:
    """Ask, and take back whatever it changed."""
    method, path = operation.split()
    has_file = any(isinstance(value, SimpleUploadedFile) for value in body.values())
    content_type = {} if method == "GET" or has_file else {"content_type": JSON}
    with transaction.atomic():
        response = getattr(client, method.lower())(f"/api/v1/{path.format(**objects)}", body, **content_type)
        transaction.set_rollback(True)
    return response.status_code


def blanked(operation: str) -> str:
    """Return an operation with the parameters and file names of its address blanked: `GET jobs/*/cancel/`."""
    method, path = operation.split()
    return f"{method} " + "/".join("*" if part[:1] in ("<", "{") or "." in part else part for part in path.split("/"))


def operations_of(*apps: str) -> set[str]:
    """Return the operations of the API's part in these apps, blanked."""
    return {
        blanked(f"{method.upper()} {str(pattern.pattern).removeprefix('api/v1/')}")
        for app, pattern in _patterns(get_resolver())
        if app in apps and issubclass(view := getattr(pattern.callback, "cls", object), ApiView)
        for method in ("get", "post", "put", "patch", "delete")
        if method in getattr(pattern.callback, "actions", dir(view)) and method in view.http_method_names
    }


def _patterns(resolver: URLResolver, app: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLPattern):
            yield app, pattern
        else:
            yield from _patterns(pattern, pattern.app_name or app)
