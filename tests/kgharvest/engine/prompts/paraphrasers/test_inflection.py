"""Verb and noun forms."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.paraphrasers.rules import Word, base_form, inflected, plural

# infinitive, third person, participle, gerund; taken from a dictionary
VERBS = """
prevent prevents prevented preventing
sell sells sold selling
cause causes caused causing
carry carries carried carrying
play plays played playing
watch watches watched watching
pass passes passed passing
stop stops stopped stopping
plan plans planned planning
visit visits visited visiting
need needs needed needing
make makes made making
write writes written writing
produce produces produced producing
own owns owned owning
name names named naming
follow follows followed following
die dies died dying
see sees seen seeing
measure measures measured measuring
include includes included including
develop develops developed developing
locate locates located locating
treat treats treated treating
solve solves solved solving
teach teaches taught teaching
close closes closed closing
study studies studied studying
create creates created creating
distribute distributes distributed distributing
control controls controlled controlling
represent represents represented representing
fix fixes fixed fixing
show shows shown showing
get gets got getting
bear bears born bearing
guide guides guided guiding
specialize specializes specialized specializing
undergo undergoes undergone undergoing
infer infers inferred inferring
hang hangs hung hanging
"""


@pytest.mark.parametrize("line", VERBS.strip().splitlines())
def test_verb_forms(line: str) -> None:
    base, third, past_participle, ing = line.split()

    assert [inflected(base, form) for form in ("third", "participle", "gerund")] == [third, past_participle, ing]
    assert [base_form(verb) for verb in (base, third, past_participle, ing)] == [base] * 4


def test_only_first_word_of_verb_phrase_is_inflected() -> None:
    assert inflected("give rise to", "past") == "gave rise to"


@pytest.mark.parametrize(
    ("singular", "expected"),
    [
        ("risk", "risks"),
        ("potential risk", "potential risks"),
        ("place of work", "places of work"),
        ("mother tongue", "mother tongues"),
        ("country", "countries"),
        ("class", "classes"),
        ("child", "children"),
        ("means", "means"),
        ("CEO", "CEOs"),
        ("risks", "risks"),
        ("children", "children"),
    ],
)
def test_plurals(singular: str, expected: str) -> None:
    assert plural(singular) == expected


def test_words_inflect_in_format_strings() -> None:
    assert f"{Word('sells'):participle}, {Word('sold'):third}, {Word('sells')}" == "sold, sells, sells"
