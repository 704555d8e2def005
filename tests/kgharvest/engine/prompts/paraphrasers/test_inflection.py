"""Verb and noun forms."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.paraphrasers.inflection import (
    Word,
    base_form,
    base_of_participle,
    gerund,
    participle,
    plural,
    third_person,
)

# infinitive, third person, participle, gerund: from a dictionary, not from the code
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
"""


@pytest.mark.parametrize("line", VERBS.strip().splitlines())
def test_verb_forms(line: str) -> None:
    base, third, past_participle, ing = line.split()

    assert third_person(base) == third
    assert participle(base) == past_participle
    assert gerund(base) == ing
    assert base_form(third) == base
    assert base_of_participle(past_participle) == base


def test_plurals_of_what_ends_in_s_stay_as_they_are() -> None:
    assert [plural(noun) for noun in ("risk", "potential risk", "country", "class", "means")] == [
        "risks",
        "potential risks",
        "countries",
        "classes",
        "means",
    ]


def test_words_inflect_in_format_strings() -> None:
    assert f"{Word('sells'):participle}, {Word('sold'):active third}, {Word('sells')}" == "sold, sells, sells"
