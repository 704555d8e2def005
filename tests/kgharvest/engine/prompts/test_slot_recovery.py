"""Slot recovery: entities in a sentence, inflected or not, are replaced by slots."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kgharvest.engine.prompts.slot_recovery import as_prompt, as_sentence, recover_slots, word_forms
from kgharvest.engine.prompts.template import PromptTemplate


def recovered(sentence: str, *entities: str) -> str | None:
    template = recover_slots(sentence, entities)
    return None if template is None else template.text


@pytest.mark.parametrize(
    ("sentence", "entities", "template"),
    [
        ("A bird can fly in the sky .", ("bird", "fly", "sky"), "A <ENT0> can <ENT1> in the <ENT2> ."),
        ("At the sky, birds can fly .", ("bird", "fly", "sky"), "At the <ENT2>, <ENT0>s can <ENT1> ."),
        ("Masks stop viruses .", ("mask", "virus"), "<ENT0>s stop <ENT1>es ."),
        ("Studying is done in a classroom .", ("study", "classroom"), "<ENT0>ing is done in a <ENT1> ."),
        ("It helped the doctor's patient .", ("doctor", "patient"), "It helped the <ENT0>'s <ENT1> ."),
        ("Harvested fields make bread .", ("field", "harvest"), "<ENT1>ed <ENT0>s make bread ."),
    ],
)
def test_plain_suffix_stays_after_slot(sentence: str, entities: tuple[str, ...], template: str) -> None:
    assert recovered(sentence, *entities) == template


@pytest.mark.parametrize(
    ("sentence", "entities", "template"),
    [
        ("Dogs enjoy swimming .", ("dog", "swim"), "<ENT0>s enjoy <ENT1> ."),
        ("Exercising prevents illness .", ("exercise", "illness"), "<ENT0> prevents <ENT1> ."),
        ("She studies berries .", ("study", "berry"), "She <ENT0> <ENT1> ."),
        ("A liar is lying to men .", ("lie", "men"), "A liar is <ENT0> to <ENT1> ."),
        ("The child is baked bread .", ("bake", "child"), "The <ENT1> is <ENT0> bread ."),
        ("Stopped clocks need repair .", ("stop", "repair"), "<ENT0> clocks need <ENT1> ."),
        ("People who exercise avoid diseases .", ("exercising", "disease"), "People who <ENT0> avoid <ENT1>s ."),
        ("A custom is a habit .", ("customs", "habits"), "A <ENT0> is a <ENT1> ."),
    ],
)
def test_other_inflections_are_absorbed_by_slot(sentence: str, entities: tuple[str, ...], template: str) -> None:
    assert recovered(sentence, *entities) == template


@pytest.mark.parametrize(
    ("sentence", "entities", "template"),
    [
        ("Students love passing the exam .", ("student", "pass exam"), "<ENT0>s love <ENT1> ."),
        ("If you fail an exam, study more .", ("study", "fail the exam"), "If you <ENT1>, <ENT0> more ."),
        ("If you fail exams, study more .", ("study", "fail the exam"), "If you <ENT1>, <ENT0> more ."),
        ("Losing money hurts investors .", ("investor", "lose money"), "<ENT1> hurts <ENT0>s ."),
        ("Japan and Continent are far apart .", ("Japan", "the Continent"), "<ENT0> and <ENT1> are far apart ."),
        ("Japan and the Continent are far apart .", ("Japan", "the Continent"), "<ENT0> and <ENT1> are far apart ."),
        ("The gym serves an office .", ("gym", "office"), "The <ENT0> serves an <ENT1> ."),
    ],
)
def test_articles_and_inner_words_may_change(sentence: str, entities: tuple[str, ...], template: str) -> None:
    assert recovered(sentence, *entities) == template


@pytest.mark.parametrize(
    ("sentence", "entities"),
    [
        ("A bird sings .", ("bird", "fly")),
        ("A bird can fly while other birds swim .", ("bird", "fly")),
        ("Study hard, because studying helps people .", ("study", "people")),
        ("The birdcage can fly .", ("bird", "fly")),
        ("New York City is large .", ("New York", "York City")),
        ("It is what it is .", ("it", "it")),
        ("A bird can <ENT1> and fly .", ("bird", "fly")),
    ],
    ids=[
        "missing",
        "twice",
        "twice inflected",
        "inside a word",
        "overlapping",
        "equal entities",
        "slot in the sentence",
    ],
)
def test_template_requires_each_entity_exactly_once(sentence: str, entities: tuple[str, ...]) -> None:
    assert recovered(sentence, *entities) is None


def test_words_of_longer_entity_do_not_count_for_shorter_one() -> None:
    assert recovered("Fried rice is made from rice .", "fried rice", "rice") == "<ENT0> is made from <ENT1> ."


def test_recovery_ignores_case() -> None:
    assert recovered("NATO welcomed germany .", "Germany", "nato") == "<ENT1> welcomed <ENT0> ."


@pytest.mark.parametrize("word", ["bus", "gas", "king", "class", "red", "GPU", "2Pac", "C++"])
def test_word_forms_never_cut_non_suffixes(word: str) -> None:
    assert min(map(len, word_forms(word))) == len(word)


def test_apostrophes_may_be_straight_or_curly() -> None:
    assert recovered("Chang’e-2 flew to the moon .", "Chang'e-2", "moon") == "<ENT0> flew to the <ENT1> ."


def test_regex_characters_in_entities_are_literal() -> None:
    assert recovered("C++ beats a.b (sometimes) .", "C++", "a.b") == "<ENT0> beats <ENT1> (sometimes) ."


# Sentence words and entities share no word forms, so that slots are unambiguous.
TEXT_WORDS = ["in", "the", "a", "is", "place", "where", "people", "can,", "often", "because", "it's", "very"]
ENTITIES = ["bird", "fly", "swim", "gym", "Barcelona", "tooth decay", "fail the exam", "the Continent", "U.S.", "make"]


@st.composite
def filled_templates(draw: st.DrawFn) -> tuple[str, list[str]]:
    arity = draw(st.integers(2, 4))
    entities = draw(st.lists(st.sampled_from(ENTITIES), min_size=arity, max_size=arity, unique=True))
    suffixes = st.sampled_from(["", "", "s", "es", "ing", ",", "'s"])
    slots = [f"<ENT{slot}>{draw(suffixes)}" for slot in draw(st.permutations(range(arity)))]
    words = st.lists(st.sampled_from(TEXT_WORDS), max_size=3)
    pieces = [word for slot in slots for word in (*draw(words), slot)] + draw(words)
    return " ".join([*pieces, "."]), entities


@given(filled_templates())
def test_recovery_inverts_filling(case: tuple[str, list[str]]) -> None:
    text, entities = case
    if "the <ENT" in text and "the Continent" in entities:
        text = text.replace("the <ENT", "one <ENT")  # avoids "the the Continent"
    sentence = PromptTemplate.parse(text).fill(entities)

    template = recover_slots(sentence, entities)

    assert template is not None
    assert template.fill(entities) == sentence
    assert template.text == text


@example("a b", ["b", " "])
@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3))
def test_any_text_yields_template_of_right_arity_or_none(sentence: str, entities: list[str]) -> None:
    template = recover_slots(sentence, entities)

    assert template is None or template.arity == len(entities)


def test_sentences_have_no_space_before_punctuation() -> None:
    prompt = PromptTemplate.parse("If you <ENT0> , you <ENT1> .")

    assert as_sentence(prompt, ["run", "win"]) == "If you run, you win."


def test_entity_keeps_its_own_full_stop() -> None:
    prompt = PromptTemplate.parse("<ENT0> is part of the <ENT1> .")

    assert as_prompt(as_sentence(prompt, ["Texas", "U.S."]), ["Texas", "U.S."]) == prompt


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("A bird can fly.", "A <ENT0> can <ENT1> ."),
        ("  A bird\n can  fly ", "A <ENT0> can <ENT1> ."),
        ("A bird can fly!", "A <ENT0> can <ENT1> !"),
        ("A bird can fly...", "A <ENT0> can <ENT1> ."),
        ("A bird can fly .", "A <ENT0> can <ENT1> ."),
    ],
)
def test_prompts_end_with_one_separate_mark(sentence: str, text: str) -> None:
    prompt = as_prompt(sentence, ["bird", "fly"])

    assert prompt is not None
    assert prompt.text == text
