"""English verb and noun forms, from the dictionary and rules of lemminflect."""

from __future__ import annotations

import re
from functools import cache

VERB_TAGS = {"third": "VBZ", "past": "VBD", "participle": "VBN", "gerund": "VBG"}
# lemminflect lists the American "gotten" and the rarer "lighted" first.
PREFERRED = {("get", "VBN"): "got", ("light", "VBN"): "lit"}


@cache
def base_form(verb: str) -> str:
    """Return the infinitive of a verb form: "prevents" -> "prevent", "written" -> "write"."""
    from lemminflect import getLemma  # the first call loads the dictionary

    return str(getLemma(verb, "VERB")[0])


@cache
def spellings(base: str, tag: str) -> tuple[str, ...]:
    """Return all spellings of the form of `base` with a Penn Treebank tag, the preferred spelling first."""
    from lemminflect import getInflection

    forms = getInflection(base, tag)
    return tuple(dict.fromkeys([PREFERRED.get((base, tag), forms[0]), *forms]))


def inflected(base: str, form: str) -> str:
    """Return a form of a verb, the rest of its phrase unchanged: ("give rise to", "third") -> "gives rise to"."""
    verb, *rest = base.split(" ")
    return " ".join([verb if form == "base" else spellings(verb, VERB_TAGS[form])[0], *rest])


@cache
def plural(phrase: str) -> str:
    """Return the plural of a noun phrase: "root cause" -> "root causes", "place of work" -> "places of work"."""
    from lemminflect import getAllLemmas

    head, of, rest = phrase.partition(" of ")
    before, space, noun = head.rpartition(" ")
    singulars = getAllLemmas(noun, "NOUN").get("NOUN", ())
    if noun not in singulars if singulars else noun.endswith("s"):
        return phrase
    return before + space + (noun + "s" if noun[-1].isupper() else spellings(noun, "NNS")[0]) + of + rest


class Word(str):
    """A word or phrase that `format` can inflect: `"{verb:participle}"`.

    Formats: base and VERB_TAGS for any verb form, plural for a noun phrase, bare to drop a determiner.
    """

    __slots__ = ()

    def __format__(self, form: str) -> str:
        if form == "plural":
            return plural(self)
        if form == "bare":
            return re.sub(r"^(?:an?|the|some|any|every|each) ", "", self)
        return inflected(base_form(self), form) if form else str(self)
