"""The mapping example in docs/knowledge-graphs.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kgharvest.contrib.knowledge_graphs.imports.mapping import read_mapping
from kgharvest.models import Relation
from tests import factories

pytestmark = pytest.mark.django_db
PAGE = (Path(__file__).resolve().parents[5] / "docs/knowledge-graphs.md").read_text()


def test_documented_mapping_can_be_read():
    for set_name, name, arity in (("geography", "capital_of", 2), ("films", "plays", 3)):
        relation_set = factories.make_relation_set(set_name)
        factories.make_relation(name, relation_set=relation_set, arity=arity)

    [mapping] = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    targets = read_mapping(mapping, "mapping.json", Relation.objects.all())

    assert list(targets) == list(json.loads(mapping)["relations"])
    assert targets["P26"].statement == "<ENT0> married <ENT1> in <ENT2>."
