"""Helpers for API tests: clients with tokens, errors, schema validation of responses, and access tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection, transaction
from django.test import Client
from django.urls import Resolver404, URLPattern, URLResolver, get_resolver
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator

from kgharvest.accounts.tokens import create_token
from kgharvest.api.views import ApiView
from kgharvest.models import ApiToken
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
    """Return the error, after checking that it has the standard format."""
    assert response.headers["Content-Type"].startswith(JSON)
    error = response.json()
    assert [*error] == ["error"]
    assert {"code", "message"} <= error["error"].keys() <= {"code", "message", "fields"}
    return error["error"]


# Schema validation


@cache
def description() -> dict[str, Any]:
    """Return the API's OpenAPI document."""
    return SchemaGenerator().get_schema(request=None, public=True)


@cache
def closed_components() -> dict[str, Any]:
    """Return the components of the schema, with undescribed properties of objects forbidden."""
    schemas = description()["components"]["schemas"]
    return {
        "schemas": {
            name: {"additionalProperties": False} | schema if "properties" in schema else schema
            for name, schema in schemas.items()
        }
    }


def expect_as_described(response) -> None:
    """Assert that the schema describes the status of the response, and that the response matches its schema."""
    route = response.resolver_match.route
    path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda match: f"{{{match[1]}}}", route)
    operations = description()["paths"].get(path) or description()["paths"][path.replace("{pk}", "{id}")]
    operation = operations[response.request["REQUEST_METHOD"].lower()]
    described_response = operation["responses"].get(str(response.status_code))
    assert described_response is not None, f"{path} returned status {response.status_code}, which is not in the schema"
    if response.status_code == 204:
        return
    media_type = response.headers["Content-Type"].partition(";")[0]
    assert media_type in described_response["content"], f"{path} returned {media_type}, which is not in the schema"
    if media_type == JSON:
        schema = described_response["content"][media_type]["schema"]
        Draft202012Validator({**schema, "components": closed_components()}).validate(response.json())


class DescribedClient(Client):
    """Client that fails if a response does not match the API schema."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        description()  # before tests start threads: drf-spectacular cannot load its extensions in several threads

    def request(self, **request: Any):
        response = super().request(**request)
        with suppress(Resolver404):
            if response.resolver_match and response.status_code != 405:
                expect_as_described(response)
        return response


# Access tables


def clients_of_columns(people: Sequence) -> list[Client]:
    """Return a client without a token, a client for each of `people`, and a client with a bound token.

    people: annotator; viewer, adjudicator, researcher, and owner of the project; superuser; owner of another project.
    All tokens have the scope `write`. The bound token belongs to an owner of both projects, and is bound to the other.
    """
    own, other = (people[position].memberships.get().project for position in (-3, -1))
    both = factories.make_member("owner", own)
    other.members.create(user=both, role="owner")
    secrets = [create_token(user, "script", "write", 1, timezone.now()).secret for user in people]
    secrets.append(create_token(both, "bound", "write", 1, timezone.now(), project=other).secret)
    ApiToken.objects.update(last_used_at=timezone.now())  # otherwise each request records the use, which is rolled back
    return [Client(), *(Client(headers={"authorization": f"Bearer {secret}"}) for secret in secrets)]


def wrong_rows(
    table: Mapping[str, str], clients: list[Client], objects: Mapping[str, Any], bodies_of: Any
) -> list[str]:
    """Return the operations whose statuses differ from the columns of the table.

    table: statuses by operation ("GET jobs/{queued}/"), one per client. The last status may be missing if the bound
    token gets the same status as the owner of the other project. objects: values of the URL parameters; bodies_of:
    function of (operation, objects) that returns the request body.
    """
    wrong = []
    for operation, expected in table.items():
        statuses = [_status_of(client, operation, objects, bodies_of(operation, objects)) for client in clients]
        columns = [int(status) for status in expected.split()]
        if statuses != (columns if len(columns) == len(clients) else [*columns, columns[-1]]):
            wrong.append(f"{operation}: {statuses} instead of {expected}")
    return wrong


def _status_of(client: Client, operation: str, objects: Mapping[str, Any], body: dict[str, Any]) -> int:
    """Return the status of a request, and roll back its changes."""
    method, path = operation.split()
    has_file = any(isinstance(value, SimpleUploadedFile) for value in body.values())
    content_type = {} if method == "GET" or has_file else {"content_type": JSON}
    with rolled_back():
        return getattr(client, method.lower())(f"/api/v1/{path.format(**objects)}", body, **content_type).status_code


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back the changes made in the context.

    Without changes, nothing is rolled back: SQLite reads the schema again after a rollback, which takes milliseconds.
    """
    n_changes = _n_changed_rows()
    with transaction.atomic():
        yield
        transaction.set_rollback(n_changes is None or _n_changed_rows() != n_changes)


def _n_changed_rows() -> int | None:
    """Return the number of rows changed so far, or None if unknown."""
    return connection.connection.total_changes if connection.vendor == "sqlite" else None


def blanked(operation: str) -> str:
    """Return an operation with the parameters and file names of its URL blanked: `GET jobs/*/cancel/`."""
    method, path = operation.split()
    return f"{method} " + "/".join("*" if part[:1] in ("<", "{") or "." in part else part for part in path.split("/"))


def operations_of(*apps: str) -> set[str]:
    """Return the API operations of these apps, blanked."""
    return {
        blanked(f"{method.upper()} {str(pattern.pattern).removeprefix('api/v1/')}")
        for app, pattern in url_patterns(get_resolver())
        if app in apps and issubclass(view := getattr(pattern.callback, "cls", object), ApiView)
        for method in ("get", "post", "put", "patch", "delete")
        if method in getattr(pattern.callback, "actions", dir(view)) and method in view.http_method_names
    }


def url_patterns(resolver: URLResolver, app: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLPattern):
            yield app, pattern
        else:
            yield from url_patterns(pattern, pattern.app_name or app)
