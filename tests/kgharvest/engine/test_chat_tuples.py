"""Tuples listed by a chat model: questions, response parsing, and stopping rules."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgharvest.engine.chat_tuples import Limits, list_tuples, parse_answer, question, scores_of
from kgharvest.engine.types import HarvestParams, HarvestSpec, ignore

DEFAULTS = Limits()
SEEDS = (("umbrella", "rain"), ("vaccine", "disease"))


def make_spec(**params) -> HarvestSpec:
    return HarvestSpec("prevents", ("<ENT0> prevents <ENT1> .",), SEEDS, "llm", params=HarvestParams(**params))


def lines(*tuples) -> str:
    return "\n".join(json.dumps(entities) for entities in tuples)


def listed(answers, limits=DEFAULTS, **params):
    """List tuples from these answers, then from empty ones. Returns the texts, the listing, and the questions."""
    questions: list[str] = []

    def ask(text: str, position: int) -> str:
        questions.append(text)
        return answers[position] if position < len(answers) else ""

    result = list_tuples(make_spec(**params), ask, limits, ignore)
    return [tuple(entity.surface for entity in entities) for entities in result.tuples], result, questions


# Response parsing

PAIRS = [("helmet", "head injury"), ("fence", "escape")]


@pytest.mark.parametrize(
    "answer",
    [
        lines(*PAIRS),
        json.dumps(PAIRS),
        json.dumps({"facts": [{"head": a, "relation": "prevents", "tail": b} for a, b in PAIRS]}, indent=2),
        "```json\n" + json.dumps([{"entities": pair} for pair in PAIRS]) + "\n```",
        '<think>Perhaps ["a", "b"]?</think>\n1. ' + lines(PAIRS[0]) + "\n2) " + lines(PAIRS[1]) + ",",
        "| Cause | Effect |\n|:--|--:|\n| helmet | head injury |\n| fence | escape |",
        "| Y | X |\n|---|---|\n| head injury | helmet |\n| escape | fence |",
        "X\tY\nhelmet\thead injury\nfence\tescape",
        "- helmet\thead injury\n- fence | escape",
        "1. helmet -> head injury\n2. fence → escape",
        "Here you are:\nhelmet, head injury\nfence, escape",
        "[['helmet', 'head injury'], ['fence', 'escape'],]",
        '["helmet", "head injury",]\n[“fence”, “escape”]',
        "{'subject': 'helmet', 'object': 'head injury'}\n{‘tail’: ‘escape’, ‘head’: ‘fence’}",
        json.dumps([{"y": "head injury", "X": "helmet"}, {"id": 2, "tail": "escape", "head": "fence"}]),
        json.dumps({"n": 2, "facts": [{"X": a, "Y": b} for a, b in PAIRS]}),
    ],
    ids=[
        *("lines", "array", "objects", "fenced", "thoughts and numbers"),
        *("table", "table with reversed columns", "header of slot names", "separators", "arrows", "commas"),
        *("single quotes", "curly quotes", "objects in Python", "reversed keys", "object with a count"),
    ],
)
def test_response_formats_are_parsed(answer):
    parsed = parse_answer(answer, 2)

    assert [tuple(text.strip() for text in entities) for entities in parsed.tuples] == PAIRS
    assert parsed.rejected.total() == answer.startswith("Here you are")  # its first line


def test_truncated_array_yields_complete_tuples():
    parsed = parse_answer(json.dumps(PAIRS)[:-5], 2)

    assert parsed.tuples == PAIRS[:1]
    assert parsed.rejected == {"unparsable": 1}


def test_invalid_lines_are_counted_by_reason():
    answer = """Sure, here you go
        ["a", "b", "c"]
        ["mercury", null]
        {"head": "mercury", "tail": ["metal", "planet"]}
        {"cause": "rain", "effect": "flood"}
        {"cause": "rain", "effects": ["flood", "mud"]}
        {"planet": 3}
        []
        ["mercury", 88]
        {"tail": 4.5, "head": "mars"}"""

    parsed = parse_answer(answer, 2)

    assert parsed.tuples == [("mercury", "88"), ("mars", "4.5")]
    assert parsed.rejected == {"unparsable": 2, "wrong_number_of_entities": 1, "no_text": 2, "unknown_keys": 3}


@pytest.mark.parametrize("answer", ["I am sorry, but I cannot help.", '[["helmet", "inju', "helmet, head, injury"])
def test_sentences_and_truncated_values_are_not_read_as_comma_lines(answer):
    assert parse_answer(answer, 2) == ([], {"unparsable": 1})


def test_deeply_nested_value_is_rejected():
    """Some versions of Python parse it, but cannot recurse into it."""
    nested = reduce(lambda inner, _: [inner], range(3_000), "x")

    values = [(value, "", (0, 0)) for value in (nested, list(map(list, PAIRS)))]
    with patch("kgharvest.engine.chat_tuples.json_values", lambda text: iter(values)):
        assert parse_answer("", 2) == (PAIRS, {"unparsable": 1})


def test_objects_of_ternary_relations_are_read_by_slot_names():
    parsed = parse_answer('{"Z": "c", "X": "a", "Y": "b"}\n{"head": "a", "tail": "b", "time": "c"}', 3)

    assert parsed == ([("a", "b", "c")], {"unknown_keys": 1})


@given(st.text(alphabet=st.sampled_from("[]{}\"'“”,:|->ab \n1"), max_size=60))
def test_any_answer_is_read_into_tuples_of_the_arity(answer):
    parsed = parse_answer(answer, 2)

    assert all(len(entities) == 2 and all(isinstance(text, str) for text in entities) for entities in parsed.tuples)


def test_deeply_nested_response_is_parsed_quickly_to_nothing():
    parsed = parse_answer("[" * 100_000 + '{"a":' * 20_000, 2)

    assert parsed.tuples == []


# Listing


def test_listing_stops_after_two_responses_without_new_tuples():
    answers = [lines(("helmet", "injury")), lines(("Helmet", "Injury")), lines(("fence", "escape"))]

    tuples, result, questions = listed(answers)

    assert tuples == [("helmet", "injury"), ("fence", "escape")]
    assert (result.n_answers, len(questions), result.rejected["duplicate"]) == (5, 5, 1)


def test_listing_stops_at_requested_number_of_tuples():
    many = [(f"cause{chr(97 + n)}", f"effect{chr(97 + n)}") for n in range(20)]

    tuples, result, _ = listed([lines(*many[:8]), lines(*many[8:])], Limits(n_wanted=5))

    assert (len(tuples), result.n_answers, result.notice) == (8, 1, None)


def test_tuples_beyond_entity_cap_do_not_count_as_wanted():
    crowded = [("helmet", f"effect{letter}") for letter in "abcdef"]

    _, result, _ = listed([lines(*crowded)], Limits(n_wanted=5), max_entity_repeats=2)

    assert result.n_answers == 3  # two more responses without new tuples
    assert "last 2 answers" in result.notice


def test_harvest_filters_reject_listed_entities():
    bad = [("the", "rain"), ("x1", "injury"), ("rain", "heavy rain"), ("he\u200bad", "injury"), ("Vaccine", "disease")]

    tuples, result, _ = listed([lines(*bad, ('"Seat belt".', "injury"))])

    assert tuples == [("Seat belt", "injury")]
    assert set(result.rejected) == {"stop_word", "short", "overlap", "unwritable", "seed_tuple"}


def test_lone_surrogate_in_response_keeps_question_encodable():
    _, result, questions = listed(['["helmet\\ud83d", "injury"]'])

    assert result.rejected == {"no_letter_or_punctuation": 1}
    assert questions[1].encode()


def test_format_is_explained_again_after_unreadable_response():
    _, _, questions = listed(["I would rather not.", lines(("helmet", "injury")), "", "..."])

    has_correction = ["could not be read" in text for text in questions]
    assert has_correction == [False, True, False, False]


def test_question_excludes_all_previous_tuples():
    _, _, questions = listed([lines(("helmet", "injury"), ("the", "rain"))])

    assert '["umbrella", "rain"]' in questions[0]
    assert "X prevents Y ." in questions[0]
    assert "Do not repeat" not in questions[0]
    assert '["helmet", "injury"]\n["the", "rain"]' in questions[1]


def test_negative_seed_tuples_are_named_and_rejected():
    spec = replace(make_spec(), negative_seed_tuples=(("coat", "winter"),))
    questions = []

    def ask(text: str, position: int) -> str:
        questions.append(text)
        return lines(("Coat", "winter"), ("helmet", "injury"))

    result = list_tuples(spec, ask, Limits(max_requests=1), ignore)

    assert 'These are not facts of the relation:\n["coat", "winter"]\n' in questions[0]
    assert questions[0].replace('These are not facts of the relation:\n["coat", "winter"]\n', "") == question(
        make_spec(), DEFAULTS.per_request, ()
    )
    assert [[entity.surface for entity in entities] for entities in result.tuples] == [["helmet", "injury"]]
    assert result.rejected["seed_tuple"] == 1


# Scores


def test_score_of_a_tuple_is_the_compatibility_of_its_tokens():
    tokens = [('["', -9.0), ("hel", -1.0), ("met", -0.5), ('", "', -9.0), ("injury", -4.0), ('"]\n["', -9.0)]
    tokens += [("coat", -0.1), ('", "', -9.0), (" cold", -0.2), ('"]', -9.0)]

    scores = scores_of(tokens, 2, alpha=0.5)

    # 0.5 * sum of the entities' log-probabilities + 0.5 * their minimum (Eq. 1)
    assert scores == pytest.approx(
        {("helmet", "injury"): 0.5 * -5.5 + 0.5 * -4, ("coat", "cold"): 0.5 * -0.3 + 0.5 * -0.2}
    )


def test_first_mention_of_a_tuple_counts_and_tokens_may_join_entities():
    tokens = [("Helmet | in", -1.0), ("jury\n", -2.0), ("helmet | injury", -7.0)]

    # The first token writes both entities.
    assert scores_of(tokens, 2, alpha=1.0) == {("helmet", "injury"): -1.0 - 3.0}


@pytest.mark.parametrize(
    ("answer", "pair"),
    [
        ('Here are facts about Paris and France:\n["Paris", "France"]', ("paris", "france")),
        ('<think>"Paris", "France"</think>["Paris", "France"]', ("paris", "france")),
        ("Paris, as France says:\n1. Paris | France\n", ("paris", "france")),
        ("2. 2 | France", ("2", "france")),
        ("New York,York", ("new york", "york")),
        ('["New York", "York"]', ("new york", "york")),
        ('["York Minster", "York"]', ("york minster", "york")),
        ("['New York', 'York',]", ("new york", "york")),
        ("[“New York”, “York”]", ("new york", "york")),
        ('{"facts": [{"note": "Paris", "Y": "France", "X": "Paris"}]}', ("paris", "france")),
        ('{"X": "Y Y", "Y": "Y"}', ("y y", "y")),
        ("| Y | X |\n|---|---|\n| York | New York |", ("new york", "york")),
        ('["Paris.", 7]', ("paris", "7")),
    ],
)
def test_only_tokens_of_the_tuple_count(answer, pair):
    """The characters of the last mention of each entity have -1 nat each; the others have -100 nats."""
    texts = sorted(pair, key=len, reverse=True)
    folded, logprobs = answer.casefold(), [-100.0] * len(answer)
    starts = [folded.rindex(texts[0])]
    masked = folded[: starts[0]] + "\0" * len(texts[0]) + folded[starts[0] + len(texts[0]) :]
    starts.append(masked.rindex(texts[1]))
    for start, text in zip(starts, texts, strict=True):
        logprobs[start : start + len(text)] = [-1.0] * len(text)

    scores = scores_of(list(zip(answer, logprobs, strict=True)), 2, alpha=1.0)

    assert scores == {pair: -float(sum(map(len, pair)))}


def test_only_marks_at_the_start_of_a_line_are_list_marks():
    assert parse_answer("1. coat | stay at - home\nhat | version 2. x", 2).tuples == [
        ("coat", "stay at - home"),
        ("hat", "version 2. x"),
    ]


def test_escaped_tuples_have_no_score():
    assert scores_of([('["caf\\u00e9", "sleep"]\n', -1.0), ('["a coat", "cold"]', -2.0)], 2, 1.0) == {
        ("a coat", "cold"): -4.0
    }
    assert scores_of([], 2, 1.0) == {}


@given(
    st.lists(
        st.tuples(st.from_regex("[a-z]{3,9}", fullmatch=True), st.from_regex("[a-z]{3,9}", fullmatch=True)),
        unique=True,
        max_size=6,
    ),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_scores_do_not_depend_on_borders_of_tokens_outside_entities(pairs, cuts):
    """With one token per character and -1 nat each, the log-probability of an entity is minus its length."""
    answer = lines(*pairs)

    scores = scores_of([(letter, -1.0) for letter in answer], 2, alpha=1.0)

    assert scores == {pair: -float(sum(map(len, pair))) for pair in parse_answer(answer, 2).tuples}


def test_exclusion_list_is_cut_to_latest_tuples():
    previous = [json.dumps((f"cause {n}", f"effect {n}")) for n in range(2000)]
    many = [(f"cause number {'abcdefghij'[n % 10] * (n // 10 + 1)}", "effect") for n in range(300)]

    _, _, questions = listed([lines(*many)], max_entity_repeats=None, disabled_filters=frozenset({"one_letter_word"}))

    assert len(questions[1]) < 14_000
    assert many[-1][0] in questions[1]
    assert json.dumps(many[0]) not in questions[1]
    assert len(question(make_spec(), 5, previous)) > 50_000  # the list is cut, not the question


def test_exhausted_budget_ends_listing_with_partial_result():
    def ask(text: str, position: int) -> str | None:
        return lines(("helmet", "injury")) if position == 0 else None

    result = list_tuples(make_spec(), ask, Limits(), ignore)

    assert (len(result.tuples), result.n_answers) == (1, 1)
    assert "budget" in result.notice
