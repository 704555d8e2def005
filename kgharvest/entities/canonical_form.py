"""Rule-based canonical form, which is the same for all spellings of an entity."""

import unicodedata

ARTICLES = ("a ", "an ", "the ")
CONJUNCTIONS = ("and", "or", "&")
# Singular words that end like plurals and that SINGULAR_ENDINGS does not cover.
SINGULAR_WORDS = frozenset(
    """
    adams algiers alps always andes andrews antilles athens bahamas brussels cairns canvas charles christmas collins
    cyprus des diabetes edwards euphrates evans flanders gas hastings headquarters hercules honduras hughes indies james
    jesus jones kansas leeds lens los mars massachusetts matthews measles means mercedes moses naples netherlands news
    philippines philips phillips pyrenees roberts rogers series seychelles siemens species stevens tennis texas thames
    versailles wales williams
    """.split()  # noqa: SIM905  more readable than a list of strings
)
# Last words of plural names such as "United States". They were collected from LAMA's places and the world of the
# embedded LMs.
PLURAL_NAME_ENDINGS = frozenset(
    """
    emirates falls heights highlands hills islands isles lakes mountains nations states
    """.split()  # noqa: SIM905
)
SINGULAR_ENDINGS = ("ss", "us", "is", "as", "os", "ics", "'s", "’s")
IRREGULAR = {
    "children": "child", "people": "person", "men": "man", "women": "woman", "feet": "foot", "teeth": "tooth",
    "mice": "mouse", "geese": "goose", "knives": "knife", "lives": "life", "wives": "wife", "leaves": "leaf",
    "wolves": "wolf", "shelves": "shelf", "halves": "half", "loaves": "loaf", "thieves": "thief", "heroes": "hero",
    "potatoes": "potato", "tomatoes": "tomato", "shoes": "shoe", "toes": "toe", "ties": "tie", "pies": "pie",
    "movies": "movie", "cookies": "cookie", "zombies": "zombie", "gases": "gas", "buses": "bus", "axes": "axe",
}  # fmt: skip
SHORTEST_PLURAL = 4  # minimum number of letters


def canonical_form(entity: str, without_articles: bool, in_singular: bool) -> str:
    """Return `entity` in Unicode NFC, case-folded, with single spaces.

    without_articles: remove a leading "a", "an", or "the", unless it is the whole entity. in_singular: singularize the
    last word, except in plural names ("united states") and coordinations ("fish and chips").
    """
    text = " ".join(unicodedata.normalize("NFC", entity).casefold().split())
    if without_articles:
        article = next((article for article in ARTICLES if text.startswith(article)), "")
        text = text.removeprefix(article)
    if in_singular:
        *before, last = text.split(" ")
        if not (before and last in PLURAL_NAME_ENDINGS) and not any(word in CONJUNCTIONS for word in before):
            text = " ".join([*before, singular(last)])
    return text


def singular(word: str) -> str:
    """Return the singular of a lower-case English noun ("flies" -> "fly"), or `word` if it is not a plural."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) < SHORTEST_PLURAL or word in SINGULAR_WORDS or not word.endswith("s") or not word.isalpha():
        return word
    if word.endswith(SINGULAR_ENDINGS):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    return word[:-1]
