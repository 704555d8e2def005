"""Objects are found in sentences about facts, as they are and perturbed."""

from __future__ import annotations

from random import Random

import pytest
import torch

from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
from kgharvest.engine.text_tasks.extraction import (
    MOST_WORDS,
    Attested,
    EncodedReading,
    Evidence,
    Reading,
    answerable,
    answers_in,
    draw_contexts,
    encode_readings,
    learn_triggers,
    majority_answers,
    measure,
    perturbed,
    tokens_of,
)
from kgharvest.engine.text_tasks.text_template import TextTemplate
from kgharvest.engine.types import BadPrompt, EngineError
from tests.engine.reading_models import HOME, PEOPLE, TOWNS

TEMPLATE = TextTemplate.parse("{context} {subject} [T] [T] [P] .")
MANUAL = TextTemplate.parse("{context} {subject} is from [P] .")
PARAMS = AutoPromptParams(iterations=15, batch_size=16)
ROME = Attested(
    "leo", "rome", (Evidence("leo lives in [MASK] .", "rome"), Evidence("[MASK] is his", "the city")), ("roma",)
)


def at_home(people):
    return [Attested(one, HOME[one], (Evidence(f"{one} lives in [MASK] .", HOME[one]),)) for one in people]


# -- contexts ----------------------------------------------------------------------------------------------------------


def test_a_context_names_the_object_as_its_sentence_does():
    drawn = {draw_contexts([ROME], Random(seed)).readings[0] for seed in range(20)}

    assert {reading.context for reading in drawn} == {"leo lives in rome .", "the city is his"}
    assert {reading.right for reading in drawn} == {("rome", "the city", "roma")}


def test_a_long_context_is_cut_and_one_without_its_object_left_out():
    words = "word " * MOST_WORDS
    late = Attested("leo", "rome", (Evidence(f"{words} in [MASK]", "rome"),))
    early = Attested("leo", "rome", (Evidence(f"in [MASK] {words}", "rome"), *late.evidences))

    found = draw_contexts([late, early, Attested("leo", "rome", ())], Random(0))

    assert [len(reading.context.split()) for reading in found.readings] == [MOST_WORDS]
    assert found.left_out == {"no sentence with the object in its first 50 words": 2}


def test_a_perturbed_context_names_another_object_which_is_the_answer():
    readings = draw_contexts(at_home(PEOPLE), Random(0)).readings

    changed = perturbed(readings, TOWNS, Random(0))

    for before, after in zip(readings, changed, strict=True):
        assert after.right == (after.written,)
        assert after.written in TOWNS
        assert after.written not in before.right
        assert after.context == before.context.replace(before.written, after.written)
        assert after.known == before.right
    assert changed == perturbed(readings, TOWNS, Random(0))
    assert changed != perturbed(readings, TOWNS, Random(1))


def test_the_only_object_of_a_relation_cannot_be_perturbed():
    readings = draw_contexts([ROME], Random(0)).readings

    with pytest.raises(EngineError, match="'rome' is the relation's only one"):
        perturbed(readings, ["rome", "roma"], Random(0))


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_answers_are_words_of_one_token_the_canonical_one_first(tiny_lm):
    facts = [Attested("dog", "fish", ()), Attested("dog", "fishdog", ()), Attested("dog", "romecat", ())]

    assert answerable(tiny_lm, facts) == ([facts[0]], 2)
    assert tokens_of(tiny_lm, ["fish", "fishdog", "wood", "fish"]) == (
        *tiny_lm.encode_entity("fish"),
        *tiny_lm.encode_entity("wood"),
    )


def test_readings_that_do_not_fit_are_cut_or_left_out(tiny_lm):
    long = Reading("dog " * 200 + "[MASK]", "fish", "dog", ("fish",), ("fish",))
    special = Reading("[MASK]", "fish", "the [MASK] <mask>", ("fish",), ("fish",))

    encoded = encode_readings(tiny_lm, MANUAL, [long, special])

    assert (len(encoded.examples), encoded.n_cut) == (1, 1)
    assert encoded.left_out == {"special tokens of the LM in the text": 1}
    assert encoded.examples[0].parts[1] == tiny_lm.encode_entity("dog")


def test_parts_come_in_the_order_of_the_template(tiny_lm):
    reading = Reading("the [MASK]", "fish", "dog", ("fish",), ("fish",))

    encoded = encode_readings(tiny_lm, TextTemplate.parse("{subject} : {context} [P]"), [reading])

    assert encoded.examples[0].parts == (tiny_lm.encode_entity("dog"), tiny_lm.tokens.encode_text("the fish"))


def test_other_fields_are_refused(tiny_lm):
    with pytest.raises(BadPrompt, match=r"has \{sentence\}"):
        encode_readings(tiny_lm, TextTemplate.parse("{sentence} {subject} [P]"), [])


# -- measures ----------------------------------------------------------------------------------------------------------


def test_any_right_answer_counts_and_the_fact_as_it_is_apart():
    logprobs = torch.tensor([[-1.0, -2.0, -3.0, -4.0], [-1.0, -2.0, -3.0, -4.0], [-4.0, -1.0, -1.0, -4.0]])
    examples = [EncodedReading((), (3, 1), (0,)), EncodedReading((), (0,), (0,)), EncodedReading((), (2,), (3,))]

    scores = measure(iter([logprobs[:2], logprobs[2:]]), examples)

    assert scores.right.ranks.tolist() == [2, 1, 1]  # ties are the answer's
    assert scores.right.logprobs.tolist() == [-2.0, -1.0, -1.0]
    assert scores.knows == (True, True, False)


def test_the_majority_reads_nothing(tiny_lm):
    train = [EncodedReading((), (token,), (token,)) for token in (7, 9, 9)]
    examples = [EncodedReading((), (7,), (7,)), EncodedReading((), (9,), (9,))]

    assert measure(majority_answers(tiny_lm, train, examples), examples).right.ranks.tolist() == [2, 1]


# -- an LM that reads, and remembers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["as it is", "perturbed"])
def parts(request, reading_lm):
    """Train, dev and test: several reports of the same people, of some of whom the LM knows the towns."""
    rng = Random(0)
    people = {"train": PEOPLE[:6] * 4, "dev": PEOPLE[6:9] * 4, "test": PEOPLE[9:] * 8}
    readings = {name: draw_contexts(at_home(some), rng).readings for name, some in people.items()}
    if request.param == "perturbed":
        readings = {name: perturbed(some, TOWNS, rng) for name, some in readings.items()}
    return {name: encode_readings(reading_lm, TEMPLATE, some).examples for name, some in readings.items()}


def test_a_prompt_that_is_found_reads_the_context(reading_lm, parts):
    template = TEMPLATE.encode(reading_lm)
    answers = tokens_of(reading_lm, TOWNS)

    found = learn_triggers(reading_lm, template, (parts["train"], parts["dev"]), answers, PARAMS)

    scores = measure(answers_in(reading_lm, found.prompt, parts["test"]), parts["test"])
    nothing_read = measure(majority_answers(reading_lm, parts["train"], parts["test"]), parts["test"])
    assert not set(found.trigger) & set(answers)
    assert scores.right.precision_at(1) > 0.8
    assert scores.right.precision_at(1) > nothing_read.right.precision_at(1) + 0.3


def test_what_an_lm_remembers_is_told_from_what_it_reads(reading_lm):
    """Without the context it can only remember; with a perturbed one it reads."""
    readings = perturbed(draw_contexts(at_home(PEOPLE), Random(0)).readings, TOWNS, Random(0))
    from_memory = TextTemplate.parse("{subject} is from [P] .")

    remembered, read = (
        measure(
            answers_in(
                reading_lm,
                template.encode(reading_lm).filled(()),
                examples := encode_readings(reading_lm, template, readings).examples,
            ),
            examples,
        )
        for template in (from_memory, MANUAL)
    )

    assert remembered.knowing > 0.8
    assert remembered.right.precision_at(1) < 0.2
    assert read.right.precision_at(1) > 0.8
    assert read.knowing < 0.2


def test_a_template_without_triggers_cannot_be_searched(reading_lm, parts):
    with pytest.raises(EngineError, match="no place for a trigger"):
        learn_triggers(reading_lm, MANUAL.encode(reading_lm), (parts["train"], parts["dev"]), [], PARAMS)
