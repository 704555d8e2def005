"""The canonical form of an entity: what spellings of the same thing share, by rules alone."""

from __future__ import annotations

import unicodedata

ARTICLES = ("a ", "an ", "the ")
COORDINATED = ("and", "or", "&")
# Words that end as plurals do and are none, beside those that UNLIKE_PLURALS tells.
SINGULAR_WORDS = frozenset(
    """
    adams algiers alps always andes andrews antilles athens bahamas brussels cairns canvas charles christmas collins
    cyprus des diabetes edwards euphrates evans flanders gas hastings headquarters hercules honduras hughes indies james
    jesus jones kansas leeds lens los mars massachusetts matthews measles means mercedes moses naples netherlands news
    philippines philips phillips pyrenees roberts rogers series seychelles siemens species stevens tennis texas thames
    versailles wales williams
    """.split()  # noqa: SIM905  a word list reads best as words
)
# After another word, the end of a name that is plural by form: those of LAMA's places and of the embedded LMs' world.
ENDS_OF_NAMES = frozenset(
    """
    emirates falls heights highlands hills islands isles lakes mountains nations states
    """.split()  # noqa: SIM905
)
UNLIKE_PLURALS = ("ss", "us", "is", "as", "os", "ics", "'s", "’s")
IRREGULAR = {
    "children": "child", "people": "person", "men": "man", "women": "woman", "feet": "foot", "teeth": "tooth",
    "mice": "mouse", "geese": "goose", "knives": "knife", "lives": "life", "wives": "wife", "leaves": "leaf",
    "wolves": "wolf", "shelves": "shelf", "halves": "half", "loaves": "loaf", "thieves": "thief", "heroes": "hero",
    "potatoes": "potato", "tomatoes": "tomato", "shoes": "shoe", "toes": "toe", "ties": "tie", "pies": "pie",
    "movies": "movie", "cookies": "cookie", "zombies": "zombie", "gases": "gas", "buses": "bus", "axes": "axe",
}  # fmt: skip
SHORTEST_PLURAL = 4  # letters


def canonical_form(entity: str, without_articles: bool, in_singular: bool) -> str:
    """Return `entity` in Unicode's composed form, case-folded, with single spaces; and by choice

    without_articles: without "a", "an" or "the" before it. in_singular: with its last word in the singular, by the
    rules of English; not of a name ("united states") or of things named together ("fish and chips"). What is nothing
    but an article stays.
    """
    text = " ".join(unicodedata.normalize("NFC", entity).casefold().split())
    if without_articles:
        article = next((article for article in ARTICLES if text.startswith(article)), "")
        text = text.removeprefix(article)
    if in_singular:
        *before, last = text.split(" ")
        if not (before and last in ENDS_OF_NAMES) and not any(word in COORDINATED for word in before):
            text = " ".join([*before, singular(last)])
    return text


def singular(word: str) -> str:
    """Return the singular of an English noun in lower case: "flies" -> "fly", "boxes" -> "box"; others as they are."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) < SHORTEST_PLURAL or word in SINGULAR_WORDS or not word.endswith("s") or not word.isalpha():
        return word
    if word.endswith(UNLIKE_PLURALS):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    return word[:-1]
