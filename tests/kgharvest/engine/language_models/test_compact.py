"""Embedded LMs give the same answers with and without transformers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models import compact
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt, EngineError

PROMPTS = [
    PromptTemplate.parse("<ENT0> is the capital of <ENT1> ."),
    PromptTemplate.parse("in <ENT1>, people pay with <ENT0>"),
]


@pytest.fixture(scope="module", params=EMBEDDED_LMS)
def both(request):
    folder = EMBEDDED_LMS[request.param]
    return load_compact(folder), load(str(folder))


def questions(lm):
    entities = [lm.encode_entity(entity) for entity in ("paris", "south africa")]
    pattern, tokens = tuple(map(len, entities)), sum(entities, ())
    encoded = [lm.encode_prompt(prompt) for prompt in PROMPTS]
    return [lm.query(prompt, pattern, tokens[:filled]) for prompt in encoded for filled in range(len(tokens))]


@pytest.mark.parametrize(
    "tokens_at_once", [7, 64]
)  # less than one text of ten tokens, and more than a batch of three texts
def test_queries_and_logits_match_transformers(both, tokens_at_once, monkeypatch):
    monkeypatch.setattr(compact, "CPU_TOKENS_AT_ONCE", tokens_at_once)
    queries, expected_queries = map(questions, both)
    logits, expected = (lm.logits(lm.vectors(queries, 3, lambda: None)) for lm in both)

    assert queries == expected_queries
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_entity_tokens_match_transformers(both):
    compact_lm, transformers_lm = both

    assert np.array_equal(compact_lm.starts_entity, transformers_lm.starts_entity)
    assert np.array_equal(compact_lm.continues_entity, transformers_lm.continues_entity)
    assert compact_lm.canonical_texts([(5, 6), (200,)]) == transformers_lm.canonical_texts([(5, 6), (200,)])


def test_recorded_lm_facts_match_transformers(both):
    compact_lm, transformers_lm = both
    facts = ("name", "revision", "is_cased", "vocab_size", "max_tokens", "entity_end", "mask_id")

    assert [getattr(compact_lm, fact) for fact in facts] == [getattr(transformers_lm, fact) for fact in facts]


def test_error_messages_use_given_lm_name():
    lm = load_compact(EMBEDDED_LMS["embedded-small"], name="embedded-small")
    too_long = lm.encode_prompt(PromptTemplate.parse("<ENT0> is in <ENT1>" + " in a place" * 200))

    with pytest.raises(BadPrompt, match="maximum of embedded-small"):
        lm.query(too_long, (1, 1), ())


@pytest.mark.parametrize("options", [{"device": "abacus"}, {"dtype": "float12"}])
def test_unknown_device_or_dtype_is_refused(options):
    with pytest.raises(EngineError):
        load_compact(EMBEDDED_LMS["embedded"], **options)


def test_embedded_lm_harvest_does_not_import_transformers():
    program = (
        "import sys; from kgharvest.embedded_lm import EMBEDDED_LMS; import kgharvest.engine.harvest;"
        "from kgharvest.engine.language_models.compact import load_compact; load_compact(EMBEDDED_LMS['embedded']);"
        "print(sorted({'transformers', 'torch._dynamo', 'scipy'} & set(sys.modules)))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"


def test_prompt_with_special_token_is_refused(both):
    for lm in both:
        with pytest.raises(BadPrompt, match=r"contains \[SEP\]"):
            lm.encode_prompt(PromptTemplate.parse("<ENT0> is [SEP] <ENT1> ."))
