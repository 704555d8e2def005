"""Rewrite rules: a pattern for clauses and other wordings of the same meaning. The rules are in rewrite_rules.py.

A clause is a prompt's text without its full stop, its first word in lower case. In a pattern, `{A}`, `{B}`, `{C}` stand
for a slot with its article; the other names are in PARTS. What a pattern caught can be inflected in the rewrite:
`{verbs:participle}` (inflection.FORMS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kgharvest.engine.prompts.paraphrasers.common_words import COMMON_WORDS
from kgharvest.engine.prompts.paraphrasers.inflection import BASE_OF_PARTICIPLE, IRREGULAR, Word, base_form
from kgharvest.engine.prompts.template import PromptTemplate

# Words between an article and a slot that leave the relation as it is.
_MODIFIER = (
    r"(?:typical|ordinary|common|certain|particular|country|city|town|series|software|film|book|novel|play|poem|opera|song|"
    r"album|company|state) "
)
# No "every", "any" or "most": where they stand in a negated clause decides what is said.
_DETERMINER = r"(?:an?|the|some|this|that|your|our|my)"
_SLOT = rf"(?:{_DETERMINER} (?:{_MODIFIER})?)?<ENT\d+>(?:e?s\b)?(?: (?:region|area|position|industry)\b)?"
_WORD = r"(?!ENT)[A-Za-z][\w'’-]*"
_NO_VERB = (
    r"(?!(?:is|are|was|were|be|has|had|have|can|could|may|might|will|would|should|must|does|do|did|and|or|as|to|than|its|"
    r"also|not|looks?|sounds?|tastes?|smells?|feels?|remains?|includes?|means?|used|seems?|becomes?|needs?|of|in|on|at|by|for|from|with|belongs?|cannot|but|usually|often|who|which|that|where|"
    r"without|near|under|over|into|through|about|against|before|after|like|unlike|than|never|hardly|rarely|seldom|"
    r"barely|scarcely|ever|always|only|just|both|all|any|no|such|more|less|most|when|if|because|while|then|so)\b)"
)

_PASTS = "|".join(sorted({past for past, _ in IRREGULAR.values() if past not in ("was", "had", "did", "read", "put")}))
_SUBJECT_BEFORE = r"(?:^|, |: |\b(?:that|what|where|when|if|while|although|because|sometimes|one|and) )"
_SINGULAR_VERB = "is|has|does|was|serves|comes|provides|gives|points|carries|offers|stands"
_PLURAL_SUBJECT = re.compile(rf"({_SUBJECT_BEFORE}(?:(?:the|some) )?<ENT\d+>e?s) ({_SINGULAR_VERB})\b")
_PLURAL_POSSESSOR = re.compile(r"(<ENT\d+>e?s have .* as) its\b")
_PLURAL_VERB = {"is": "are", "was": "were"}

PARTS = {
    "A": _SLOT,
    "B": _SLOT,
    "C": _SLOT,
    "agent": rf"(?:{_SLOT}|(?:an?|the) {_WORD}(?: {_WORD})?)",
    "verbs": rf"{_NO_VERB}[a-z]+[a-rt-z]s",  # third person: "prevents"
    "past": rf"{_NO_VERB}(?:[a-z]{{2,}}ed|{_PASTS})",
    "plain": rf"{_NO_VERB}(?!(?:{_PASTS})\b)[a-z]+(?<!s)(?<!ed)",  # infinitive, or present after a plural: "prevent"
    "participle": rf"(?:[a-z]{{2,}}ed|{'|'.join(BASE_OF_PARTICIPLE)})",
    "place_verb": (
        r"(?:(?:is|are|was|were) (?:born|built|created|established|formed|founded|located|made)|died|lives?|works?)"
    ),
    "preposition": r"(?:of|in|on|at|for|from|with|through|to|after|into|about|against|under|over|via|between|during)",
    "place": r"(?:in|at|on)",
    "modal": r"(?:can|could|may|might|will|should|must)",
    "is": r"(?:is|was)",
    "one": r"(?:an?|one)",
    "s": r"s?",  # of a verb whose subject is {A}
    "sea": r"(?:an?|the) (?:vast )?(?:ocean|sea)",
    "kind": r"(?:special |common )?(?:kind|type|sort|form|variety)",
    "noun": (
        rf"(?!(?:an?|the|not|very|also|both|one|used|part|kind|type|sort) ){_WORD}"
        rf"(?: (?!(?:of|for|in|made|that|used|which)\b){_WORD}){{0,2}}"
    ),
    "words": rf"(?!(?:an?|the|one|part|not)\b){_WORD}(?: {_WORD})*?",
    "adverb": r"(?:very|quite|really|extremely|rather|particularly|fairly|pretty|remarkably|especially)",
    "conjunction": r"(?:if|when|because|although|while)",
    "first": r"\S[^,]*",
    "rest": r"\S.*",
}


IMPERATIVES = {
    *IRREGULAR, "add", "apply", "ask", "avoid", "boil", "call", "don't", "don’t", "expect", "imagine", "look", "mix",
    "never", "please", "pour", "remember", "remove", "travel", "try", "use", "visit", "wash",
}  # fmt: skip
# What a wording says where the pattern has no such part.
DEFAULTS = {"s": "s", "place": "in"}


@dataclass(frozen=True)
class Rewrite:
    """A named rule: a clause that `pattern` matches as a whole may be put in each of the `wordings`."""

    name: str
    pattern: str
    wordings: tuple[str, ...]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{([A-Za-z_]+)\}", lambda part: f"(?P<{part[1]}>{PARTS[part[1]]})", self.pattern))

    def apply(self, clause: str) -> Iterator[str]:
        match = self.regex.fullmatch(clause)
        if match is not None:
            parts = {name: Word(text) for name, text in (DEFAULTS | match.groupdict()).items()}
            yield from (wording.format_map(parts) for wording in self.wordings)


# Contractions and fuller words for them; "<ENT1>'s" is a possessive and stays.
CONTRACTIONS = (
    (r"\b(is|are|was|were|does|do|did|has|have|had|could|should|would|must|need)n['’]t\b", r"\1 not"),
    (r"\bcan['’]t\b", "cannot"),
    (r"\bwon['’]t\b", "will not"),
    (r"\b(it|that|there|here|what|where|who|he|she)['’]s\b", r"\1 is"),
    (r"\b([Yy]ou|[Ww]e|[Tt]hey)['’]re\b", r"\1 are"),
    (r"\b([Yy]ou|[Ww]e|[Tt]hey|I)['’]ll\b", r"\1 will"),
    (r"\b([Yy]ou|[Ww]e|[Tt]hey|I)['’]d (?!better\b|[a-z]+ed\b)", r"\1 would "),
    (r"\b([Yy]ou|[Ww]e|[Tt]hey|I)['’]ve\b", r"\1 have"),
    (r"^in order to\b|(?<=[a-z>] )in order to\b|(?<=, )in order to\b", "to"),
)
FREQUENCY = (
    r"often|frequently|usually|typically|commonly|normally|generally|sometimes|always|mostly|"
    r"widely|mainly|largely|primarily|regularly|certainly|probably|surely|clearly|actually|obviously|nowadays"
)
# "In the team, ", "administratively, ": no slot, no clause of its own.
_LEADING = re.compile(
    r"(?P<adverbial>(?:i|I|we|people|many people|most people) (?:think|believe|know|say|agree) that |"
    r"(?!(?:to|if|when|because|while|although|though|once|using) )[^,<]+, )(?P<main>.+)"
)
_TRAILING = re.compile(
    r"(?P<main>.*<ENT\d+>s?),? (?P<adverbial>(?:for|at|in|on|every|each|by|with|during|all over|most of)\b"
    r"(?!.*\b(?:it|them|each other|which|that|who)\b)[^<,]+)"
)
_CLASSIFIER = re.compile(
    r"\b(?:an?|the) (?:[a-z]+ (?:called|named|known as)|(?:city|country|state|nation|region|town|island|land) of) "
    r"(?=<ENT)"
)
_WITHIN = re.compile(rf"(?P<before>.*\S) (?P<adverb>{FREQUENCY}) (?P<after>(?!(?:and|or)\b).+)")


# What says of a clause that people know it or say it, and nothing else.
_READ_FRAMES = re.compile(
    rf"(?:(?:it is|it's|it’s) (?:(?:well|{FREQUENCY}) )?(?:known|said|a fact|common knowledge) that|"
    r"(?:(?:as )?(?:everybody|everyone|anybody|anyone) (?:knows|will tell you)|"
    rf"(?:people|many people|most people|we|they)(?: all)?(?: (?:{FREQUENCY}))? (?:know|say))(?: that|,)) "
    r"(?P<clause>.+)"
)


def unframed(clause: str) -> str:
    """Return `clause` without "everybody knows that" and the like."""
    framed = _READ_FRAMES.fullmatch(clause)
    return clause if framed is None else framed["clause"]


_STRANDED = re.compile(rf"(?:^|.* )(?:{PARTS['preposition']}|by|without|near|inside|among)")


def strands(clause: str) -> bool:
    """Return whether `clause` ends in a preposition."""
    return _STRANDED.fullmatch(clause) is not None


def expanded(clause: str) -> str:
    """Return `clause` without contractions: "isn't" -> "is not"."""
    for contraction, full in CONTRACTIONS:
        clause = re.sub(contraction, full, clause)
    return clause


def is_imperative(clause: str) -> bool:
    """Return whether `clause` tells somebody to do something: no frame holds it, and nothing is brought out of it."""
    return clause.split(maxsplit=1)[0] in IMPERATIVES


def unclassified(clause: str) -> str:
    """Return `clause` without the words that say what a slot holds: "the city of <ENT0>" -> "<ENT0>"."""
    return _CLASSIFIER.sub("", clause)


def without_adverbial(clause: str) -> tuple[str, str]:
    """Return an adverbial of `clause` as it begins a sentence, with its comma, or nothing, and the rest of `clause`."""
    leading = _LEADING.fullmatch(clause)
    if leading is not None:
        return leading["adverbial"], leading["main"]
    within = _WITHIN.fullmatch(clause)
    if within is not None:
        return f"{within['adverb']}, ", f"{within['before']} {within['after']}"
    trailing = _TRAILING.fullmatch(clause)
    if trailing is not None:
        return f"{trailing['adverbial']}, ", trailing["main"]
    return "", clause


def clause_of(prompt: PromptTemplate) -> str:
    """Return the text of `prompt` without its full stop, its first word in lower case unless it is a name.

    Taken for names are acronyms, words that are not common ("France"), that are in upper case elsewhere too, or that
    another word in upper case follows ("Marie Curie").
    """
    text = prompt.text.rstrip(" .")
    first = re.match(r"[^\W\d_]+(?:['’][a-z]+)?", text)
    if first is None or is_name(first[0], text[first.end() :]):
        return text
    return text[0].lower() + text[1:]


def is_name(first: str, rest: str) -> bool:
    """Return whether `first`, which `rest` follows at the beginning of a sentence, is a name."""
    if first in ("A", "An", "The"):
        return False
    word = re.split("['’]", first)[0]
    is_common = bool({first.lower(), word.lower()} & (COMMON_WORDS | IMPERATIVES))
    if word == "I" or not first[1:].islower() or not is_common:
        return True
    return bool(re.match(" [A-Z][a-z]", rest) or re.search(rf"\b{first}\b", rest))


def prompt_of(clause: str) -> PromptTemplate:
    """Return `clause` as a prompt: first letter in upper case, verbs agreeing with plural slots, a full stop."""
    clause = _PLURAL_SUBJECT.sub(
        lambda match: f"{match[1]} {_PLURAL_VERB.get(match[2]) or base_form(match[2])}", clause
    )
    clause = _PLURAL_POSSESSOR.sub(r"\1 their", clause).replace("s's ", "s' ")
    return PromptTemplate.parse(f"{capitalised(clause)} .")


def capitalised(text: str) -> str:
    return text[0].upper() + text[1:]
