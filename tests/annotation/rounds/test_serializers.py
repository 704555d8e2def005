"""JSON description of a round: parsing and error messages."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from django.apps import apps

from annotation.models import Round
from annotation.rounds.serializers import RoundSerializer, read_round_spec, round_from_spec
from annotation.rounds.services import clone_round, create_draft, open_draft, open_round, set_who_can_join
from kgharvest.errors import DomainError
from tests.annotation.rounds.test_builder import HUNDRED, nothing_is_stored
from tests.factories import make_harvest, make_round
from tests.refusals import refused

pytestmark = pytest.mark.django_db

CELL = {"job": 1, "n": 1}


def test_description_round_trips():
    job = make_harvest(HUNDRED)
    cell = {"job": job.pk, "n": None, "strata": [1, 10], "allocation": "proportional"}
    document = {
        "name": "pilot",
        "cells": [cell],
        "gold_share": 0.1,
        "closes_when": "date",
        "closes_at": "2030-01-31T18:00",
    }

    assert round_from_spec(document).spec == document


def test_invalid_json_file_error_names_line_and_column(tmp_path):
    path = tmp_path / "pilot.json"
    path.write_text('{"name": "pilot",\n "cells": [}')

    with refused("BadRoundSpec", match=r"^pilot.json, line 2, column 12: the description is not JSON"):
        read_round_spec(path)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"^The description is \[\]. Expected a JSON object with the keys name, cells"),
        ({"cells": [CELL]}, "^name is missing"),
        ({"name": "a b", "cells": [CELL]}, "^name is 'a b'. Expected a name of up to 100 letters"),
        ({"name": "a", "cells": []}, "at least one cell"),
        ({"name": "a", "cells": [CELL], "judgement": 3}, "^Unknown key judgement"),
        ({"name": "a", "cells": [CELL], "judgments_per_task": 0}, "^judgments_per_task is 0. .* from 1 to 99"),
        ({"name": "a", "cells": [CELL], "judgments_per_task": True}, "^judgments_per_task is True"),
        (
            {"name": "a", "cells": [CELL], "third_only_if_split": True, "judgments_per_task": 2},
            "^third_only_if_split: .* Set 3",
        ),
        (
            {"name": "a", "cells": [CELL], "limits": 3},
            "^limits is 3. Expected a JSON object with the keys gold_accuracy, n_gold",
        ),
        ({"name": "a", "cells": [CELL], "limits": {"run": 3}}, "^Unknown key limits.run. Valid keys: gold_accuracy"),
        (
            {"name": "a", "cells": [CELL], "limits": {"gold_accuracy": 70}},
            "^limits.gold_accuracy is 70. Expected a number",
        ),
        ({"name": "a", "cells": [CELL], "gold_share": 0.6}, "^gold_share is 0.6. Expected a number from 0 to 0.5"),
        ({"name": "a", "cells": [CELL], "dominance_cap": 0}, "^dominance_cap is 0. .* or null"),
        ({"name": "a", "cells": [CELL], "closes_when": "date"}, "^closes_at: A date and time"),
        ({"name": "a", "cells": [CELL], "closes_when": "date", "closes_at": "soon"}, "^closes_at is 'soon'"),
        ({"name": "a", "cells": [CELL], "closes_when": "narrow"}, "^closes_at_half_width: A half-width"),
        ({"name": "a", "cells": [CELL], "seed": -1}, "^seed is -1"),
        ({"name": "a", "cells": [CELL], "seed": "3"}, "^seed is '3'. Expected a whole number"),
        ({"name": "a", "cells": [CELL], "takes_guests": 1}, "^takes_guests is 1. Expected true or false"),
        ({"name": "a", "cells": [CELL], "gold_share": float("nan")}, "^gold_share is nan. Expected a number"),
        ({"name": "a", "cells": [CELL], "consent": 5}, "^consent is 5. Expected a string"),
        ({"name": "a", "cells": {"job": 1}}, "^cells is .*. Expected a list of at least one cell"),
        ({"name": "a", "cells": [3]}, r"^cells\[0\] is 3. Expected a JSON object with the keys job"),
        ({"name": "a", "cells": [CELL], "source": "guessed"}, "^source is 'guessed'. Expected one of people"),
        (
            {"name": "a", "cells": [CELL], "relation_instructions": {"r": 1}},
            "^relation_instructions.r is 1. Expected a string",
        ),
        ({"name": "a", "cells": [CELL], "relation_instructions": {"r\x00": ""}}, "^relation_instructions is"),
        ({"name": "a", "cells": [CELL], "instructions": "a\x00b"}, "^instructions is .* without NUL"),
        ({"name": "a", "cells": [CELL], "consent": "a\ud800b"}, "^consent is .* lone surrogates"),
        ({"name": "a", "cells": [{"job": 1}]}, r"^cells\[0\].n is missing"),
        ({"name": "a", "cells": [CELL, {"job": 1, "n": 0}]}, r"^cells\[1\].n is 0"),
        ({"name": "a", "cells": [{"job": "1", "n": 1}]}, r"^cells\[0\].job is '1'"),
        ({"name": "a", "cells": [CELL | {"strata": [1, 10, 10]}]}, r"^cells\[0\].strata is \[1, 10, 10\]"),
        ({"name": "a", "cells": [CELL | {"strata": [2, 10]}]}, r"^cells\[0\].strata is"),
        ({"name": "a", "cells": [CELL | {"allocation": "fair"}]}, r"^cells\[0\].allocation is 'fair'"),
        ({"name": "a", "cells": [{"relation": "r", "n": 1}]}, "'relation', 'model', and 'setting'"),
        ({"name": "a", "cells": [{"job": 1, "relation": "r", "n": 1}]}, "either 'job', or"),
        ({"name": "a", "cells": [{"job": 99, "n": 1}]}, r"No finished harvest for cells\[0\] \(job 99\)"),
        (
            {"name": "a", "cells": [{"relation": "r", "model": "m", "setting": "s", "n": 1}]},
            "There is no relation 'r'",
        ),
    ],
)
def test_invalid_description_error_names_the_field(document, message):
    with pytest.raises(DomainError, match=message):
        open_round(document)
    assert nothing_is_stored()


@pytest.mark.parametrize("document", [{"takes_guests": True}, {"who_can_join": "link"}])
def test_link_is_stored_as_the_key_of_the_last_release(document):
    round = round_from_spec({"name": "a", "cells": [CELL], **document})

    assert round.who_can_join == "link"
    assert round.spec == {"name": "a", "cells": [CELL], "takes_guests": True}


@pytest.mark.parametrize("document", [{"takes_guests": False}, {"takes_guests": None}, {"who_can_join": "account"}])
def test_account_is_the_default_without_a_key(document):
    round = round_from_spec({"name": "a", "cells": [CELL], **document})

    assert (round.who_can_join, round.spec) == ("account", {"name": "a", "cells": [CELL]})


def test_key_of_earlier_versions_cannot_contradict_its_replacement():
    with refused("BadRoundSpec", match="^takes_guests: "):
        round_from_spec({"name": "a", "cells": [CELL], "takes_guests": True, "who_can_join": "invite"})


def test_migration_keeps_who_can_join_existing_rounds():
    rounds = [make_round(name=name) for name in ("guests", "accounts")]
    specs = []
    for round, takes_guests in zip(rounds, (True, False), strict=True):
        specs.append(round.spec | {"takes_guests": takes_guests})
        Round.objects.filter(pk=round.pk).update(takes_guests=takes_guests, spec=specs[-1])

    import_module("annotation.migrations.0043_who_can_join").set_who_can_join(apps, None)

    stored = Round.objects.order_by("pk").values_list("who_can_join", "spec")
    assert list(stored) == [("link", specs[0]), ("account", specs[1])]


def test_reverse_migration_removes_the_key_that_the_last_release_rejects():
    rounds = [make_round(name=name, who_can_join=name) for name in ("account", "link", "invite")]

    import_module("annotation.migrations.0043_who_can_join").restore_descriptions(apps, None)

    specs = [Round.objects.get(pk=round.pk).spec for round in rounds]
    assert [spec.get("takes_guests") for spec in specs] == [None, True, None]
    assert not any("who_can_join" in spec for spec in specs)


@pytest.mark.parametrize(("before", "after"), [("account", "link"), ("link", "account")])
def test_servers_of_the_last_release_change_who_can_join(before, after):
    """They write only takes_guests, in the column and in the description."""
    draft = create_draft(
        {"name": "a", "cells": [{"job": make_harvest([("a", "b")]).pk, "n": 1}], "who_can_join": before}
    )
    spec = {"name": "a", "cells": draft.spec["cells"]} | ({"takes_guests": True} if after == "link" else {})
    Round.objects.filter(pk=draft.pk).update(takes_guests=after == "link", spec=spec)

    round = open_draft(Round.objects.get(pk=draft.pk))

    assert Round.objects.values_list("who_can_join", "takes_guests", "spec").get() == (after, after == "link", spec)
    set_who_can_join(round, "link")
    assert clone_round(round).who_can_join == "link"
    assert round.spec == {"name": "a", "cells": draft.spec["cells"], "takes_guests": True}


def test_documented_example_description_is_valid():
    text = (Path(__file__).parents[3] / "docs" / "rounds.md").read_text()
    example = json.loads(text.split("```json\n")[1].split("```")[0])

    round = round_from_spec(example)

    assert round.spec.keys() <= example.keys() == RoundSerializer().fields.keys() - {"takes_guests"}
