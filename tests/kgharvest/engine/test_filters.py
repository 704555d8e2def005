import pytest

from kgharvest.engine.entities import Entity, EntityVocabulary, NoEntity
from kgharvest.engine.filters import FILTERS, EntityFilter, words_of
from kgharvest.engine.prompts.template import PromptTemplate
from tests.kgharvest.engine.fakes import FakeLM

PROMPTS = [
    PromptTemplate.parse("<ENT0> is the place for <ENT1>, isn't it?"),
    PromptTemplate.parse("at <ENT1> <ENT0> ."),
]


@pytest.mark.parametrize("character", ["\x00", "\x7f", "\u00ad", "\u200b", "\u200e", "\u202e", "\u2066", "\ufeff"])
def test_entity_with_invisible_character_is_refused_even_without_filters(character):
    lm = FakeLM(["dog", f"d{character}og"], {})
    vocabulary = EntityVocabulary(lm, EntityFilter([], frozenset(FILTERS)))

    assert isinstance(vocabulary.look_up((0,)), Entity)
    assert vocabulary.look_up((1,)) == NoEntity("unwritable")


@pytest.mark.parametrize(
    ("entity", "rule"),
    [
        ("the", "stop_word"),
        ("out of", "stop_word"),
        ("work out", None),
        ("1984", "no_letter_or_punctuation"),
        ("well-known", "no_letter_or_punctuation"),
        ("don't", "stop_word"),
        ("rock'n", "no_letter_or_punctuation"),
        ("c3po", None),
        ("apollo 8", None),
        ("ox", "short"),
        ("a1b2", "short"),
        ("plan b", "one_letter_word"),
        ("dog dog", "repeated_word"),
        ("Dog dog", "repeated_word"),
        ("place", "in_prompt"),
        ("Place", "in_prompt"),
        ("place for", "in_prompt"),
        ("places", None),
        ("for place", None),
        ("Straße", None),
        ("كلب", None),
        ("東京都", None),
    ],
)
def test_entity_is_rejected_by_first_matching_rule(entity, rule):
    assert EntityFilter(PROMPTS).rejection(words_of(entity)) == rule


@pytest.mark.parametrize(
    ("entity", "other", "rejected"),
    [
        ("cat", "cat", True),
        ("black cat", "cat", True),
        ("cat", "black cat", True),
        ("cat", "located", False),  # only whole words count
        ("cat black", "black cat", False),
    ],
)
def test_entity_must_not_equal_or_contain_another(entity, other, rejected):
    assert EntityFilter([]).rejects_beside(words_of(entity), [words_of("dog"), words_of(other)]) is rejected


def test_every_rule_can_be_disabled():
    examples = {
        "stop_word": "whose",
        "no_letter_or_punctuation": "well-known",
        "short": "ox",
        "one_letter_word": "plan b",
        "repeated_word": "dog dog",
        "in_prompt": "place",
    }
    for rule, entity in examples.items():
        assert EntityFilter(PROMPTS, frozenset({rule})).rejection(words_of(entity)) is None
    assert not EntityFilter([], frozenset({"overlap"})).rejects_beside(("cat",), [("cat",)])
    assert set(FILTERS) == {*examples, "overlap"}
