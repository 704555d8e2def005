"""Text classification by the words that an LM predicts for a mask."""

from __future__ import annotations

from random import Random

import pytest
import torch

from kgharvest.contrib.probing.text_tasks.classification import (
    EncodedText,
    TextClassifier,
    given_label_tokens,
    learn_classifier,
    majority,
    select_label_tokens,
)
from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate, encode_texts
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer, uniform
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadSeed, EngineError
from tests.kgharvest.contrib.probing.text_tasks.reading_models import VERDICTS, review
from tests.sampling import only

pytestmark = pytest.mark.slow  # trains an LM

LABELS = ("negative", "positive")
TEMPLATE = TextTemplate.parse("{sentence} [T] [T] [T] [P] .")
PARAMS = AutoPromptParams(n_candidates=10, iterations=12, batch_size=16)


def reviews(n, seed):
    """Return `n` reviews, a third of them negative."""
    rng = Random(seed)
    labels = [int(number % 3 != 0) for number in range(n)]
    return [({"sentence": review(rng, LABELS[label])}, label) for label in labels]


@pytest.fixture(scope="module")
def encoded(reading_lm):
    return TEMPLATE.encode(reading_lm)


@pytest.fixture(scope="module")
def texts(reading_lm):
    return [encode_texts(reading_lm, TEMPLATE, reviews(60, seed), EncodedText).examples for seed in range(3)]


@pytest.mark.parametrize("k", only([3], [1, 3, 5]))
def test_learned_prompt_beats_the_majority_on_unseen_texts(reading_lm, encoded, texts, k):
    train, dev, test = texts
    label_tokens = select_label_tokens(reading_lm, encoded, train, k, seed=0)

    classifier, learned = learn_classifier(reading_lm, encoded, label_tokens, (train, dev), PARAMS)

    chosen = [token for tokens in label_tokens for token in tokens]
    assert len(set(chosen)) == 2 * k
    assert not set(chosen) & set(learned.trigger)
    assert majority(train, test).accuracy == pytest.approx(2 / 3)
    assert classifier.measure(test).accuracy > 0.85
    assert classifier.measure(dev).log_likelihood == pytest.approx(learned.dev_score, abs=1e-4)


def test_same_seed_learns_the_same_classifier(reading_lm, encoded, texts):
    def learn():
        label_tokens = select_label_tokens(reading_lm, encoded, texts[0], 3, seed=5)
        return label_tokens, learn_classifier(reading_lm, encoded, label_tokens, texts[:2], PARAMS)[1]

    assert learn() == learn()


def test_manual_label_words_classify_accurately(reading_lm, texts):
    prompt = TextTemplate.parse("{sentence} it is [P] .").encode(reading_lm).fill(())
    label_tokens = given_label_tokens(reading_lm, [VERDICTS[label] for label in LABELS])

    assert TextClassifier(reading_lm, prompt, label_tokens).measure(texts[2]).accuracy > 0.9


def test_label_probability_is_the_sum_over_its_tokens(tiny_lm):
    prompt = tiny_lm.encode_prompt(PromptTemplate.parse("<ENT0> is the <ENT1> ."))
    head = tiny_lm.encode_entity("dog")
    words = next(PromptSetAnswerer(tiny_lm, uniform([prompt])).scores([head], lambda: None))[0].exp()

    logprobs = TextClassifier(tiny_lm, prompt, ((7, 9), (11,))).logprobs([EncodedText((head,), 0)])

    torch.testing.assert_close(logprobs.exp()[0], torch.stack([words[7] + words[9], words[11]]), atol=1e-5, rtol=0)


def test_text_pairs_are_classified(tiny_lm):
    template = TextTemplate.parse("{premise} [P] [T] [T] {hypothesis}")
    encoded = template.encode(tiny_lm)
    pairs = [({"premise": "the dog", "hypothesis": "a cat in rome"}, number % 3) for number in range(6)]
    examples = encode_texts(tiny_lm, template, pairs, EncodedText).examples
    label_tokens = select_label_tokens(tiny_lm, encoded, examples, 2, seed=0)

    classifier, _ = learn_classifier(tiny_lm, encoded, label_tokens, (examples, examples), PARAMS)

    assert classifier.logprobs(examples).shape == (6, 3)
    assert classifier.measure(examples).accuracy == pytest.approx(1 / 3)


def test_long_texts_are_truncated_and_special_tokens_are_skipped(tiny_lm):
    template = TextTemplate.parse("{premise} [P] {hypothesis}")
    texts = [
        ({"premise": "the dog " * 50, "hypothesis": "a cat"}, 0),
        ({"premise": "the dog", "hypothesis": "a cat"}, 1),
        ({"premise": "the [MASK] or <mask>", "hypothesis": "a cat"}, 1),
    ]

    encoded = encode_texts(tiny_lm, template, texts, EncodedText)

    assert (len(encoded.examples), encoded.n_cut) == (2, 1)
    assert encoded.left_out == {"special tokens of the LM in the text": 1}
    room = tiny_lm.max_tokens - len(tiny_lm.tokens.prefix) - len(tiny_lm.tokens.suffix) - 1
    assert sum(map(len, encoded.examples[0].parts)) == room
    assert encoded.examples[0].parts[1] == encoded.examples[1].parts[1]


def test_text_can_contain_unknown_words(tiny_lm):
    template = TextTemplate.parse("{sentence} [P]")
    encoded = encode_texts(tiny_lm, template, [({"sentence": "the 東京 dog"}, 0)], EncodedText)

    assert len(encoded.examples) == 1


def test_label_words_with_several_tokens_or_labels_are_rejected(tiny_lm):
    with pytest.raises(BadSeed, match=r"'fishdog' has \d tokens"):
        given_label_tokens(tiny_lm, [["dog"], ["fishdog"]])
    with pytest.raises(BadSeed, match="'dog' has the same token as 'dog'"):
        given_label_tokens(tiny_lm, [["dog"], ["cat", "dog"]])


def test_search_without_triggers_is_rejected(tiny_lm):
    encoded = TextTemplate.parse("{sentence} [P]").encode(tiny_lm)

    with pytest.raises(EngineError, match="no trigger"):
        learn_classifier(tiny_lm, encoded, ((7,), (9,)), ([EncodedText(((8,),), 0)], [EncodedText(((8,),), 1)]), PARAMS)
