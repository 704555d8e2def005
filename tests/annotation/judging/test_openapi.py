"""What the API's description says about judging holds of the replies."""

from uuid import uuid4

import jsonschema
import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from annotation.recruiting.services import join_round
from annotation.rounds.services import close_round
from tests.factories import make_round, make_user

pytestmark = pytest.mark.django_db

JUDGE = "/rounds/{name}/judge/"


@pytest.fixture
def description() -> dict:
    return SchemaGenerator().get_schema(request=None, public=True)


@pytest.fixture
def round(db):
    return make_round(4, name="pilot", batch_size=2)


@pytest.fixture
def annotator_client(round):
    client = Client(headers={"accept": "application/json"})
    client.force_login(join_round(round, make_user("ann")).user)
    return client


def answers_described(description):
    """Yield (path, method, status, schema, examples) of every reply about judging."""
    for path, acts in description["paths"].items():
        for method in {"get", "post"} & acts.keys() if path.startswith(JUDGE) else ():
            for status, reply in acts[method]["responses"].items():
                content = reply["content"]["application/json"]
                yield path, method, status, content["schema"], content["examples"]


def expect_to_fit(description, value, schema):
    """Fail unless `value` is as described, without anything that is not described."""
    objects = {
        name: described | {"additionalProperties": False}
        for name, described in description["components"]["schemas"].items()
    }
    jsonschema.validate(value, {**schema, "components": {"schemas": objects}})


def expect_as_described(description, response, path=""):
    acts = description["paths"][JUDGE + path][response.request["REQUEST_METHOD"].lower()]
    schema = acts["responses"][str(response.status_code)]["content"]["application/json"]["schema"]
    expect_to_fit(description, response.json(), schema)


def test_the_description_is_valid_openapi(description):
    validate_schema(description)


def test_every_reply_has_an_example_that_fits_its_schema(description):
    described = list(answers_described(description))

    assert len(described) == 4 * 4
    for *_, schema, examples in described:
        for example in examples.values():
            expect_to_fit(description, example["value"], schema)


def test_the_replies_are_as_described(description, annotator_client, round):
    def post(path="", **fields):
        return annotator_client.post(f"/rounds/pilot/judge/{path}", fields)

    next_two = annotator_client.get("/rounds/pilot/judge/")
    first, second = (statement["task"] for statement in next_two.json()["tasks"])
    answered = post(task=first, label="true", client_uuid=uuid4(), more=1)
    refused = [
        post(task=second, label="maybe", client_uuid=uuid4()),
        post(task="0" * 16, label="true", client_uuid=uuid4()),
        Client(headers={"accept": "application/json"}).get("/rounds/pilot/judge/"),
    ]
    expect_as_described(description, post("report/", task=second, **{"report-reason": "other"}), "report/")
    expect_as_described(description, post("skip/", task=second), "skip/")
    close_round(round)
    refused.append(annotator_client.get("/rounds/pilot/judge/"))

    assert [response.status_code for response in refused] == [400, 409, 403, 409]
    for response in (next_two, answered, *refused):
        expect_as_described(description, response)
