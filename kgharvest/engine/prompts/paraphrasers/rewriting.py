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

from kgharvest.engine.prompts.paraphrasers.inflection import BASE_OF_PARTICIPLE, IRREGULAR, Word
from kgharvest.engine.prompts.template import PromptTemplate

_SLOT = r"(?:(?:an?|the|some) )?<ENT\d+>(?:e?s\b)?"
_WORD = r"(?!ENT)[A-Za-z][\w'’-]*"
_NO_VERB = (
    r"(?!(?:is|are|was|were|be|has|had|have|can|could|may|might|will|would|should|must|does|do|did|and|or|as|to|than|its|"
    r"also|not|looks?|sounds?|tastes?|smells?|feels?|remains?|includes?|means?|used|seems?|becomes?|needs?|of|in|on|at|by|for|from|with|belongs?|cannot|but|usually)\b)"
)

_PASTS = "|".join(sorted({past for past, _ in IRREGULAR.values() if past not in ("was", "had", "did", "read", "put")}))
_SUBJECT_BEFORE = r"(?:^|, |: |\b(?:that|what|where|when|if|while|although|because|sometimes|one|and) )"
_PLURAL_SUBJECT = re.compile(rf"({_SUBJECT_BEFORE}(?:(?:the|some) )?<ENT\d+>e?s) (is|has|does|was)\b")
_PLURAL_VERB = {"is": "are", "has": "have", "does": "do", "was": "were"}

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
    "kind": r"(?:special |common )?(?:kind|type|sort|form|variety)",
    "noun": (
        rf"(?!(?:an?|the|not|very|also|both|one|used|part|kind|type|sort) ){_WORD}"
        rf"(?: (?!(?:of|for|in|made|that|used|which)\b){_WORD}){{0,2}}"
    ),
    "words": rf"(?!(?:an?|the|one|part|not)\b){_WORD}(?: {_WORD})*?",
    "adverb": r"(?:very|quite|really|extremely)",
    "conjunction": r"(?:if|when|because|although|while)",
    "first": r"\S[^,]*",
    "rest": r"\S.*",
}


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
            parts = {name: Word(text) for name, text in match.groupdict().items()}
            yield from (wording.format_map(parts) for wording in self.wordings)


def clause_of(prompt: PromptTemplate) -> str:
    """Return the text of `prompt` without its full stop, its first word in lower case unless it is an acronym."""
    text = prompt.text.rstrip(" .")
    first = text.split(maxsplit=1)[0]
    is_plain = first != "I" and first[:1].isupper() and first[1:].islower()
    return text[0].lower() + text[1:] if is_plain or first == "A" else text


def prompt_of(clause: str) -> PromptTemplate:
    """Return `clause` as a prompt: first letter in upper case, verbs agreeing with plural slots, a full stop."""
    clause = _PLURAL_SUBJECT.sub(lambda match: f"{match[1]} {_PLURAL_VERB[match[2]]}", clause)
    clause = clause.replace("s's ", "s' ")
    return PromptTemplate.parse(f"{capitalised(clause)} .")


def capitalised(text: str) -> str:
    return text[0].upper() + text[1:]
