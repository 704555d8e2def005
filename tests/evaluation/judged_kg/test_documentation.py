"""What docs/knowledge-graphs.md shows is run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evaluation.judged_kg.rows import JudgedKG
from evaluation.judged_kg.sparql import EXAMPLES, ask
from kgharvest.knowledge_graphs.mapping import read_mapping
from kgharvest.models import Relation
from tests import factories
from tests.evaluation.judged_kg.judged_rounds import make_judged_round

pytestmark = pytest.mark.django_db
PAGE = (Path(__file__).resolve().parents[3] / "docs/knowledge-graphs.md").read_text()


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)\n```", PAGE, re.DOTALL)


def test_queries_have_answers(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    kg = JudgedKG(make_judged_round())

    queries = examples("sparql")
    assert len(queries) == 3
    assert queries[0] == next(iter(EXAMPLES.values()))
    n_rows = [len(ask(kg, query).rows) for query in queries]
    assert n_rows[0] == 2
    assert n_rows[1] == 0  # one of three says False in this round
    assert n_rows[2] > 0


def test_the_mapping_can_be_read():
    for set_name, name, arity in (("geography", "capital_of", 2), ("films", "plays", 3)):
        relation_set = factories.make_relation_set(set_name)
        factories.make_relation(name, relation_set=relation_set, arity=arity)

    [mapping] = examples("json")
    targets = read_mapping(mapping, "mapping.json", Relation.objects.all())

    assert list(targets) == list(json.loads(mapping)["relations"])
    assert targets["P26"].statement == "<ENT0> married <ENT1> in <ENT2>."
