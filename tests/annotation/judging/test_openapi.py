"""OpenAPI description of the judging endpoints: examples match their closed schemas."""

from jsonschema import Draft202012Validator

from tests.api import closed_components, description

JUDGE = "/api/v1/judging/{round_id}/"


def described_responses():
    """Yield (path, method, schema, examples) of every response of the judging endpoints."""
    for path, acts in description()["paths"].items():
        for method in {"get", "post"} & acts.keys() if path.startswith(JUDGE) else ():
            for reply in acts[method]["responses"].values():
                content = reply["content"]["application/json"]
                yield path, method, content["schema"], content["examples"]


def test_response_examples_match_their_schemas():
    described = list(described_responses())

    assert len({(path, method) for path, method, *_ in described}) == 13
    for *_, schema, examples in described:
        for example in examples.values():
            Draft202012Validator({**schema, "components": closed_components()}).validate(example["value"])
