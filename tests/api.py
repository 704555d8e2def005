"""What tests of the API need: clients with tokens, the error of an answer, a relation to write."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any

from django.test import Client
from django.urls import Resolver404
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator

from kgharvest.accounts.tokens import create_token
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
