"""LMs and relations for the tests of prompt methods."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import Fact, UsableFacts, usable_facts
from kgharvest.engine.prompts.template import PromptTemplate
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_roberta


class TrainedRelation(NamedTuple):
    """Relation in the training data of the LM, with held-out prompts."""

    lm: MaskedLM
    prompts: list[EncodedPrompt]
    train: UsableFacts
    dev: UsableFacts
    test: UsableFacts


@pytest.fixture(scope="package")
def trained_lm():
    """Return the smaller embedded LM, trained on the facts in `kgharvest.embedded_lm`."""
    return load_compact(EMBEDDED_LMS["embedded-small"])


@pytest.fixture(scope="package", params=["capital_of", pytest.param("made_of", marks=pytest.mark.exhaustive)])
def relation(request, trained_lm):
    world_relation = next(relation for relation in load_world() if relation.name == request.param)
    facts = [Fact(*fact) for fact in world_relation.facts]
    random.Random(0).shuffle(facts)
    two_fifths = 2 * len(facts) // 5
    parts = facts[:two_fifths], facts[two_fifths : 3 * len(facts) // 5], facts[3 * len(facts) // 5 :]
    prompts = [trained_lm.encode_prompt(PromptTemplate.parse(phrasing.text)) for phrasing in world_relation.held_out]
    return TrainedRelation(trained_lm, prompts, *(usable_facts(trained_lm, part) for part in parts))


@pytest.fixture(scope="package", params=["wordpiece", "byte-level"])
def tiny_lm(request, tmp_path_factory):
    """Return a random LM with a WordPiece or byte-level tokenizer."""
    build = tiny_bert if request.param == "wordpiece" else tiny_roberta
    return load(str(build(tmp_path_factory.mktemp(request.param))))
