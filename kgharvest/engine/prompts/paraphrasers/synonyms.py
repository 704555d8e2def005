"""Synonyms of words that name relations, and of the words around them: in a table, with where they may not be put.

Written for this project; no thesaurus was copied. The first word of a group is its head, which relation_wordings.txt
and fact_wordings.txt use. A group holds words that can take each other's place in any prompt but where its guards say
not; what needs another construction ("able", "capable of") is a rule of syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kgharvest.engine.prompts.paraphrasers.inflection import gerund, participle, past, plural, third_person

NEVER = r"(?!)"
# What a verb does not follow; what a past form does, and a participle does not.
NO_VERB_AFTER = (
    r"\b(?:an?|the|its|their|his|her|my|our|your|of|for|with|from|gets?|gives?|in|on|at|by|some|such|own|"
    r"is|are|was|were|main|chief|leading|common|root) "
)
# What a noun is followed by that looks like a verb: "the main causes of".
NO_VERB_BEFORE = r" (?:of|for|is|are|was|were)\b"
# What a verb follows that looks like a noun: "<ENT0> borders <ENT1>", "it may result in <ENT1>".
NO_NOUN_AFTER = (
    r"(?:<ENT\d+>s?|\b(?:that|which|who|it|they|he|she|we|you|people|to|can|could|may|might|will|would|should|must|"
    r"cannot|not|often|usually|also|always|never)) "
)
PAST_AFTER = r"(?:<ENT\d+>s?|\bwho|\bthat|\bit|\bthey|\bpeople|^) "
NO_PAST_AFTER = rf"^(?!.*{PAST_AFTER}$).*"
NOT_A_NOUN_AFTER = r"^(?!.*\b(?:the|for|of|gets?|gives?|some) $).*"
# Nobody produces a mistake, or people happy: things are made, and for, from, in, at or by something.
_THING = r"(?:(?:an?|the|some|its|their) )?<ENT\d+>s?"
NOT_MADE_SO = rf"(?!(?: {_THING})?(?:$|,| (?:by|in|at|on|for)\b)| {_THING} (?:and|or|out|from|with|without)\b)"


@dataclass(frozen=True)
class Synonyms:
    """not_before, not_after: what no word of the group is put before and after, as regular expressions."""

    words: tuple[str, ...]
    not_before: str = NEVER
    not_after: str = NEVER


def group(words: str, not_before: str = NEVER, not_after: str = NEVER) -> Synonyms:
    return Synonyms(tuple(words.split(" | ")), not_before, not_after)


VERBS = (
    group("need | require"),
    group("make | produce | create | manufacture", not_before=NOT_MADE_SO),
    group("prevent | avert"),
    group("help | assist | aid", not_before=" (?:to|avoid|from)\\b"),
    group("buy | purchase", not_before=" (?:you|me|us|him|her|them)\\b"),
    group("use | make use of", not_before=" to\\b"),
    group("live | dwell | reside", not_before=" on\\b"),
    group("own | possess"),
    group("separate | divide"),
    group("cause | bring about | give rise to"),
    group("start | begin", not_before=" out\\b"),
    group("protect | shield", not_before=" against\\b"),
    group("build | construct"),
    group("obtain | acquire"),
    group("allow | permit"),
    group("connect | link"),
    group("choose | select | pick"),
    group("happen | occur | take place"),
    group("repair | mend | fix"),
    group("invent | devise"),
    group("destroy | ruin"),
    group("represent | stand for", not_before=" by\\b"),
    group("teach | instruct", not_before=" (?:at|in|how|that)\\b"),
    group("forbid | prohibit", not_before=" <ENT\\d+>s? to\\b"),
    group(
        "show | display", not_before=" (?:that|itself|up|how)\\b", not_after="\\b(?:TV|[Tt]elevision|[Tt]alk|[Gg]ame) "
    ),
)
NOUNS = (
    group("kind | type | sort | variety", not_before="(?! of\\b)"),
    group("author | writer"),
    group("place | spot", not_before="(?! (?:for|where|to)\\b)", not_after="\\btakes? "),
    group("risk | danger | hazard", not_after="\\b(?:to|<ENT\\d+>s?) "),
    group("sign | indication", not_before=" (?:up|language)\\b"),  # of weather, too, unlike symptoms
    group("workplace | place of work"),
    group("component | constituent"),
    group("material | substance", not_after="\\braw "),
    group("tool | implement"),
    group("purpose | aim | goal", not_after="\\bscor\\w+ (?:an?|the|his|her) "),
    group("expert | specialist"),
    group("way | means", not_before=" (?:of|from|in)\\b|$", not_after="\\bby "),
    group("native language | mother tongue"),
    group("birthplace | place of birth"),
    group("occupation | profession", not_before=" of .* by\\b", not_after="\\bby "),
    group("religion | faith", not_after="\\bby "),
    group("result | outcome | consequence"),
    group("sight | attraction", not_before="(?! in\\b)", not_after="\\b(?:lose|loses|lost|out of|first) "),
    group("owner | proprietor"),
    group("ability | capacity", not_before="(?! to\\b)"),
    group("method | technique"),
    group("border | frontier", not_before=" on\\b"),
    group("main office | head office"),
    group("illness | disease"),
    group("help | support", not_after=NOT_A_NOUN_AFTER),
    group("doctor | physician"),
    group("movie | film"),
    group("colour | color"),
    group("opposite | reverse | antithesis", not_before="(?! of\\b)"),
)
OTHERS = (
    group("usual | typical | customary", not_after="\\ba "),
    group("usually | typically | normally | generally"),
    group("often | frequently"),
    group("very | extremely | really | exceptionally", not_before=" (?:much|well|badly)\\b"),
    group("famous | well-known | renowned"),
    group("main | chief | principal | primary", not_before=" office\\b"),
    group("important | significant", not_before=" (?:for|to|that)\\b"),
    group("big | large"),
    group("happy | glad | pleased"),
    group("located | situated"),
    group("badly | poorly"),
    group("may | might | could", not_before=" not\\b", not_after="\\b[Yy]ou "),
    group("as well as | along with"),
    group("a lot of | plenty of"),
    group("pretty | rather | quite | fairly", not_before=" <"),
    group("because of | owing to | on account of"),
    group("although | even though"),
    group("such as | for example"),
    group("particularly | especially | remarkably"),
    group("entirely | completely | wholly"),
)


# Of forms that other words have, too; where there is nothing to say, the group's own guards alone.
NOT_AFTER = {
    "base": NO_VERB_AFTER,
    "third": NO_VERB_AFTER,
    "past": NO_PAST_AFTER,
    "participle": PAST_AFTER,
    "singular": NO_NOUN_AFTER,
    "plural": NO_NOUN_AFTER,
}
NOT_BEFORE = {"base": NO_VERB_BEFORE, "third": NO_VERB_BEFORE}


def of_first_word(inflect: Callable[[str], str]) -> Callable[[str], str]:
    """Return what inflects the first word of a phrase: "place of work" -> "places of work"."""

    def inflected(phrase: str) -> str:
        first, *rest = phrase.split(" ")
        return " ".join([inflect(first), *rest])

    return inflected


class Entry(NamedTuple):
    """words: of one group in one inflection, the head first. not_before, not_after: as in Synonyms."""

    words: tuple[str, ...]
    not_before: str
    not_after: str


VERB_FORMS: Mapping[str, Callable[[str], str]] = {
    "base": str,
    "third": third_person,
    "gerund": gerund,
    "past": past,
    "participle": participle,
}
NOUN_FORMS: Mapping[str, Callable[[str], str]] = {"singular": str, "plural": plural}
ONE_FORM: Mapping[str, Callable[[str], str]] = {"only": str}


def entries() -> Iterator[tuple[str, Entry]]:
    for groups, inflections in ((VERBS, VERB_FORMS), (NOUNS, NOUN_FORMS), (OTHERS, ONE_FORM)):
        for synonyms in groups:
            for form, inflect in inflections.items():
                kept = [word for word in synonyms.words if not (form == "participle" and " " in word)]
                words = tuple(map(of_first_word(inflect), kept))
                not_before = f"{synonyms.not_before}|{NOT_BEFORE.get(form, NEVER)}"
                not_after = f"(?:{synonyms.not_after}|{NOT_AFTER.get(form, NEVER)})$"
                yield from ((word, Entry(words, not_before, not_after)) for word in words)


ENTRIES: dict[str, list[Entry]] = {}
for _word, _entry in entries():
    ENTRIES.setdefault(_word, []).append(_entry)
_LONGEST_FIRST = "|".join(sorted(map(re.escape, ENTRIES), key=len, reverse=True))
_WORD = re.compile(rf"(?<![\w<'’-])(?:{_LONGEST_FIRST})(?![\w'’-])")
_VOWEL_SOUND = re.compile(r"(?!u(?:su|se|ni)|euro|one)[aeiou]|hour|honest")


def with_synonyms(clause: str) -> Iterator[str]:
    """Yield `clause` with one word in other words, for each word that has synonyms there and each of those."""
    for match in _WORD.finditer(clause):
        for word in choices(match):
            if word != match.group():
                yield with_article(clause[: match.start()], word) + clause[match.end() :]


def with_heads(clause: str) -> str:
    """Return `clause` with the head of its group for each word that has synonyms there."""
    return _WORD.sub(lambda match: next(iter(choices(match)), match.group()), clause)


def choices(match: re.Match[str]) -> tuple[str, ...]:
    text = match.string
    for entry in ENTRIES[match.group()]:
        if not re.compile(entry.not_before).match(text, match.end()) and not re.search(
            entry.not_after, text[: match.start()]
        ):
            return entry.words
    return ()


def with_article(before: str, word: str) -> str:
    """Return `before` and `word`, with "a" or "an" between them as the word needs."""
    article = "an" if _VOWEL_SOUND.match(word) else "a"
    return re.sub(r"\ban? $", f"{article} ", before) + word
