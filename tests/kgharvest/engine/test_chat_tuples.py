"""Tuples that a chat model lists: what is asked, what is read in answers, when it ends."""

from __future__ import annotations

import json

import pytest

from kgharvest.engine.chat_tuples import Limits, list_tuples, parse_answer, question
from kgharvest.engine.types import HarvestParams, HarvestSpec, ignore

USUAL = Limits()
SEEDS = (("umbrella", "rain"), ("vaccine", "disease"))


def make_spec(**params) -> HarvestSpec:
    return HarvestSpec("prevents", ("<ENT0> prevents <ENT1> .",), SEEDS, "llm", params=HarvestParams(**params))


def lines(*tuples) -> str:
    return "\n".join(json.dumps(entities) for entities in tuples)


def listed(answers, limits=USUAL, **params):
    """List with these answers, then with empty ones; return the texts, the listing and the questions."""
    questions: list[str] = []

    def ask(text: str, position: int) -> str:
        questions.append(text)
        return answers[position] if position < len(answers) else ""

    result = list_tuples(make_spec(**params), ask, limits, ignore)
    return [tuple(entity.surface for entity in entities) for entities in result.tuples], result, questions


# -- answers -----------------------------------------------------------------------------------------------------------

PAIRS = [("helmet", "head injury"), ("fence", "escape")]


@pytest.mark.parametrize(
    "answer",
    [
        lines(*PAIRS),
        json.dumps(PAIRS),
        json.dumps({"facts": [{"head": a, "relation": "prevents", "tail": b} for a, b in PAIRS]}, indent=2),
        "```json\n" + json.dumps([{"entities": pair} for pair in PAIRS]) + "\n```",
        '<think>Perhaps ["a", "b"]?</think>\n1. ' + lines(PAIRS[0]) + "\n2) " + lines(PAIRS[1]) + ",",
        "| helmet | head injury |\n|---|---|\n| fence | escape |",
        "- helmet\thead injury\n- fence | escape",
    ],
    ids=["lines", "array", "objects", "fenced", "thoughts and numbers", "table", "separators"],
)
def test_answers_of_many_shapes_are_read(answer):
    parsed = parse_answer(answer, 2)

    assert [tuple(text.strip() for text in entities) for entities in parsed.tuples] == PAIRS
    assert (parsed.n_unparsable, parsed.n_wrong_arity) == (0, 0)


def test_an_array_that_is_cut_gives_its_whole_tuples():
    parsed = parse_answer(json.dumps(PAIRS)[:-5], 2)

    assert parsed.tuples == PAIRS[:1]
    assert parsed.n_unparsable == 1


def test_what_is_no_tuple_is_counted_and_never_guessed():
    parsed = parse_answer('Sure, here you go\n["a", "b", "c"]\n[1, 2]\n["helmet", "injury"]', 2)

    assert parsed == ([("helmet", "injury")], 2, 1)


def test_a_hostile_answer_is_read_in_no_time_and_gives_nothing():
    parsed = parse_answer("[" * 100_000 + '{"a":' * 20_000, 2)

    assert parsed.tuples == []


# -- listing -----------------------------------------------------------------------------------------------------------


def test_asking_ends_when_two_answers_in_a_row_bring_nothing_new():
    answers = [lines(("helmet", "injury")), lines(("Helmet", "Injury")), lines(("fence", "escape"))]

    tuples, result, questions = listed(answers)

    assert tuples == [("helmet", "injury"), ("fence", "escape")]
    assert (result.n_answers, len(questions), result.rejected["duplicate"]) == (5, 5, 1)


def test_asking_ends_with_the_tuples_that_are_wanted():
    many = [(f"cause{chr(97 + n)}", f"effect{chr(97 + n)}") for n in range(20)]

    tuples, result, _ = listed([lines(*many[:8]), lines(*many[8:])], Limits(n_wanted=5))

    assert (len(tuples), result.n_answers, result.notice) == (8, 1, None)


def test_tuples_beyond_the_cap_on_an_entity_do_not_count_as_wanted():
    crowded = [("helmet", f"effect{letter}") for letter in "abcdef"]

    _, result, _ = listed([lines(*crowded)], Limits(n_wanted=5), max_entity_repeats=2)

    assert result.n_answers == 3  # two more, in vain
    assert "last 2 answers" in result.notice


def test_the_same_filters_as_in_every_harvest_reject_entities():
    bad = [("the", "rain"), ("x1", "injury"), ("rain", "heavy rain"), ("he\u200bad", "injury"), ("Vaccine", "disease")]

    tuples, result, _ = listed([lines(*bad, ('"Seat belt".', "injury"))])

    assert tuples == [("Seat belt", "injury")]
    assert set(result.rejected) == {"stop_word", "short", "overlap", "unwritable", "seed_tuple"}


def test_half_a_surrogate_pair_of_an_answer_breaks_no_question():
    _, result, questions = listed(['["helmet\\ud83d", "injury"]'])

    assert result.rejected == {"no_letter_or_punctuation": 1}
    assert questions[1].encode()


def test_what_was_said_is_told_not_to_come_again_whether_it_was_kept_or_not():
    _, _, questions = listed([lines(("helmet", "injury"), ("the", "rain"))])

    assert '["umbrella", "rain"]' in questions[0]
    assert "X prevents Y ." in questions[0]
    assert "Do not repeat" not in questions[0]
    assert '["helmet", "injury"]\n["the", "rain"]' in questions[1]


def test_a_long_list_of_what_was_said_is_cut_to_its_latest():
    said = [json.dumps((f"cause {n}", f"effect {n}")) for n in range(2000)]
    many = [(f"cause number {'abcdefghij'[n % 10] * (n // 10 + 1)}", "effect") for n in range(300)]

    _, _, questions = listed([lines(*many)], max_entity_repeats=None, disabled_filters=frozenset({"one_letter_word"}))

    assert len(questions[1]) < 14_000
    assert many[-1][0] in questions[1]
    assert json.dumps(many[0]) not in questions[1]
    assert len(question(make_spec(), 5, said)) > 50_000  # what is cut is what is said, not the question


def test_a_budget_that_is_spent_ends_with_what_there_is():
    def ask(text: str, position: int) -> str | None:
        return lines(("helmet", "injury")) if position == 0 else None

    result = list_tuples(make_spec(), ask, Limits(), ignore)

    assert (len(result.tuples), result.n_answers) == (1, 1)
    assert "budget" in result.notice
