"""Object extraction from original and perturbed sentences about facts."""

from __future__ import annotations

from random import Random

import pytest
import torch

from kgharvest.contrib.probing.text_tasks.evidenced_facts import Evidence, EvidencedFact
from kgharvest.contrib.probing.text_tasks.extraction import (
    MOST_WORDS,
    EncodedContext,
    FactInContext,
    draw_contexts,
    encode_contexts,
    learn_triggers,
    majority_logprobs,
    perturb,
    prompt_logprobs,
    score_answers,
    single_tokens,
)
from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
from kgharvest.engine.types import BadPrompt, EngineError
from tests.kgharvest.contrib.probing.text_tasks.reading_models import HOME, PEOPLE, TOWNS

TEMPLATE = TextTemplate.parse("{context} {subject} [T] [T] [P] .")
MANUAL = TextTemplate.parse("{context} {subject} is from [P] .")
PARAMS = AutoPromptParams(iterations=15, batch_size=16)
ROME = EvidencedFact(
    "leo", "rome", (Evidence("leo lives in [MASK] .", "rome"), Evidence("[MASK] is his", "the city")), ("roma",)
)


def evidence_of(people):
    return [
        EvidencedFact(person, HOME[person], (Evidence(f"{person} lives in [MASK] .", HOME[person]),))
        for person in people
    ]


# Contexts


def test_context_uses_the_surface_form_of_its_sentence():
    drawn = {draw_contexts([ROME], Random(seed))[0][0] for seed in range(20)}

    assert {fact.context for fact in drawn} == {"leo lives in rome .", "the city is his"}
    assert {fact.answers for fact in drawn} == {("rome", "the city", "roma")}


def test_long_contexts_are_truncated_or_skipped_without_object():
    words = "word " * MOST_WORDS
    object_at_end = EvidencedFact("leo", "rome", (Evidence(f"{words} in [MASK]", "rome"),))
    object_at_start = EvidencedFact("leo", "rome", (Evidence(f"in [MASK] {words}", "rome"), *object_at_end.evidences))

    drawn, left_out = draw_contexts([object_at_end, object_at_start, EvidencedFact("leo", "rome", ())], Random(0))

    assert [len(fact.context.split()) for fact in drawn] == [MOST_WORDS]
    assert left_out == {"no sentence with the object in its first 50 words": 2}


def test_perturbed_context_contains_the_replacement_as_answer():
    facts = draw_contexts(evidence_of(PEOPLE), Random(0))[0]

    changed = perturb(facts, TOWNS, Random(0))

    for before, after in zip(facts, changed, strict=True):
        assert after.answers == (after.surface,)
        assert after.surface in TOWNS
        assert after.surface not in before.answers
        assert after.context == before.context.replace(before.surface, after.surface)
        assert after.true_answers == before.answers
    assert changed == perturb(facts, TOWNS, Random(0))
    assert changed != perturb(facts, TOWNS, Random(1))


def test_perturbing_a_single_object_is_rejected():
    facts = draw_contexts([ROME], Random(0))[0]

    with pytest.raises(EngineError, match="no object other than 'rome'"):
        perturb(facts, ["rome", "roma"], Random(0))


# Tokens


def test_answers_are_canonical_single_tokens(tiny_lm):
    assert single_tokens(tiny_lm, ["fish", "fishdog", "wood", "fish"]) == (
        *tiny_lm.encode_entity("fish"),
        *tiny_lm.encode_entity("wood"),
    )


def test_contexts_are_truncated_or_skipped(tiny_lm):
    long = FactInContext("dog " * 200 + "[MASK]", "fish", "dog", ("fish",), ("fish",))
    special = FactInContext("[MASK]", "fish", "the [MASK] <mask>", ("fish",), ("fish",))

    encoded = encode_contexts(tiny_lm, MANUAL, [long, special])

    assert (len(encoded.examples), encoded.n_cut) == (1, 1)
    assert encoded.left_out == {"special tokens of the LM in the text": 1}
    assert encoded.examples[0].parts[1] == tiny_lm.encode_entity("dog")


def test_parts_follow_the_template_order(tiny_lm):
    fact = FactInContext("the [MASK]", "fish", "dog", ("fish",), ("fish",))

    encoded = encode_contexts(tiny_lm, TextTemplate.parse("{subject} : {context} [P]"), [fact])

    assert encoded.examples[0].parts == (tiny_lm.encode_entity("dog"), tiny_lm.tokens.encode_text("the fish"))


def test_unknown_fields_are_rejected(tiny_lm):
    with pytest.raises(BadPrompt, match=r"unknown field \{sentence\}"):
        encode_contexts(tiny_lm, TextTemplate.parse("{sentence} {subject} [P]"), [])


# Measures


def test_any_answer_counts_and_true_answers_are_flagged():
    logprobs = torch.tensor([[-1.0, -2.0, -3.0, -4.0], [-1.0, -2.0, -3.0, -4.0], [-4.0, -1.0, -1.0, -4.0]])
    examples = [EncodedContext((), (3, 1), (0,)), EncodedContext((), (0,), (0,)), EncodedContext((), (2,), (3,))]

    scores = score_answers(iter([logprobs[:2], logprobs[2:]]), examples)

    assert scores.ranking.ranks.tolist() == [2, 1, 1]  # ties rank the answer first
    assert scores.ranking.logprobs.tolist() == [-2.0, -1.0, -1.0]
    assert scores.is_true == (True, True, False)


def test_majority_baseline_ignores_the_context(tiny_lm):
    train = [EncodedContext((), (token,), (token,)) for token in (7, 9, 9)]
    examples = [EncodedContext((), (7,), (7,)), EncodedContext((), (9,), (9,))]

    assert score_answers(majority_logprobs(tiny_lm, train, examples), examples).ranking.ranks.tolist() == [2, 1]


# Context and memory of a trained LM


@pytest.fixture(scope="module", params=["as it is", "perturbed"])
def parts(request, reading_lm):
    """Return train, dev, and test examples: several reports about people of disjoint groups."""
    rng = Random(0)
    people = {"train": PEOPLE[:6] * 4, "dev": PEOPLE[6:9] * 4, "test": PEOPLE[9:] * 8}
    facts = {name: draw_contexts(evidence_of(some), rng)[0] for name, some in people.items()}
    if request.param == "perturbed":
        facts = {name: perturb(some, TOWNS, rng) for name, some in facts.items()}
    return {name: encode_contexts(reading_lm, TEMPLATE, some).examples for name, some in facts.items()}


def test_learned_prompt_reads_the_context(reading_lm, parts):
    template = TEMPLATE.encode(reading_lm)
    answers = single_tokens(reading_lm, TOWNS)

    learned = learn_triggers(reading_lm, template, (parts["train"], parts["dev"]), answers, PARAMS)

    scores = score_answers(prompt_logprobs(reading_lm, learned.prompt, parts["test"]), parts["test"])
    baseline = score_answers(majority_logprobs(reading_lm, parts["train"], parts["test"]), parts["test"])
    assert not set(learned.trigger) & set(answers)
    assert scores.ranking.precision_at(1) > 0.8
    assert scores.ranking.precision_at(1) > baseline.ranking.precision_at(1) + 0.3


def test_answers_from_memory_differ_from_answers_from_context(reading_lm):
    """The LM recalls memorized answers without a context and reads perturbed answers from a context."""
    facts = perturb(draw_contexts(evidence_of(PEOPLE), Random(0))[0], TOWNS, Random(0))
    from_memory = TextTemplate.parse("{subject} is from [P] .")

    recall, reading = (
        score_answers(
            prompt_logprobs(
                reading_lm,
                template.encode(reading_lm).fill(()),
                examples := encode_contexts(reading_lm, template, facts).examples,
            ),
            examples,
        )
        for template in (from_memory, MANUAL)
    )

    assert recall.known_p1 > 0.8
    assert recall.ranking.precision_at(1) < 0.2
    assert reading.ranking.precision_at(1) > 0.8
    assert reading.known_p1 < 0.2


def test_search_without_triggers_is_rejected(reading_lm, parts):
    with pytest.raises(EngineError, match="no trigger"):
        learn_triggers(reading_lm, MANUAL.encode(reading_lm), (parts["train"], parts["dev"]), [], PARAMS)
