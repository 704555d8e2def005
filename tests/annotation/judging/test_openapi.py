"""What the API's description says about judging: examples fit, and nothing is told that is not described."""

from jsonschema import Draft202012Validator

from tests.api import closed_components, description

JUDGE = "/api/v1/judging/{round_id}/"


def answers_described():
    """Yield (path, method, schema, examples) of every reply about judging."""
    for path, acts in description()["paths"].items():
        for method in {"get", "post"} & acts.keys() if path.startswith(JUDGE) else ():
            for reply in acts[method]["responses"].values():
                content = reply["content"]["application/json"]
                yield path, method, content["schema"], content["examples"]


def test_every_reply_has_an_example_that_fits_its_schema():
    described = list(answers_described())

    assert len({(path, method) for path, method, *_ in described}) == 13
    for *_, schema, examples in described:
        for example in examples.values():
            Draft202012Validator({**schema, "components": closed_components()}).validate(example["value"])
