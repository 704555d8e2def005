"""Analysis of rewritten questions: corrected answers and replaced parts of speech (Haviv et al. 2021, Tables 2 and 4).

Parts of speech are Penn Treebank tags from the dictionary of lemminflect and simple rules. The paper does not name its
tagger. Ambiguous words are decided by the word before them, so single tags are less accurate than the distribution.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from kgharvest.contrib.probing.probes.facts import PARTS
from kgharvest.contrib.probing.probes.measurement import Measurement
from kgharvest.contrib.probing.prompt_learning.bertese import BerteseAnswerer, Rewrite, questions, rewritten
from kgharvest.engine.probing import probe
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer, uniform

N_REWRITES = 5  # examples stored per relation and part
CONTINUATION = "##"  # mark of WordPiece tokens inside words
CLOSED_CLASSES = {
    "DT": "a an the this that these those each every some any no all both either neither another",
    "IN": "of in on at by for with from into as about after before between during under over against through since "
    "than because while if although near within",
    "CC": "and or but nor yet",
    "PRP": "i you he she it we they him her them me us",
    "PRP$": "his its their my your our",
    "MD": "can could may might must shall should will would",
    "WP": "what who whom which",
    "WRB": "when where why how",
    "TO": "to",
    "RB": "not n't",
}
TAG_OF_WORD = {word: tag for tag, words in CLOSED_CLASSES.items() for word in words.split()}
AUXILIARIES = "be am is are was were been being have has had having get gets got"


class ComparedRewrite(NamedTuple):
    """A rewritten question of a part. was_right: True if the LM answers the original question correctly."""

    part: str
    rewrite: Rewrite
    was_right: bool


def compared_rewrites(measurement: Measurement) -> list[ComparedRewrite]:
    """Return the rewrites of all questions of dev and test, or nothing if the method rewrites no questions."""
    answerer, compared = measurement.learned.answerer, []
    if isinstance(answerer, BerteseAnswerer):
        lm = answerer.lm
        manual = PromptSetAnswerer(lm, uniform([answerer.prompt]))
        for part in PARTS[1:]:
            facts = getattr(measurement.task, part)
            rewrites = rewritten(lm, answerer.rewriter, questions(lm, answerer.prompt, facts.facts))
            ranks = probe(manual, facts).ranks.tolist()
            compared += [
                ComparedRewrite(part, *row) for row in zip(rewrites, [rank == 1 for rank in ranks], strict=True)
            ]
    return compared


def examples(rewrites: Iterable[ComparedRewrite]) -> Iterator[dict[str, Any]]:
    """Yield the columns of LearnedPrompts: the first N_REWRITES of each part that corrected the LM's answer."""
    n_of_part: Counter[str] = Counter()
    for part, rewrite, was_right in rewrites:
        if rewrite.is_right and not was_right and n_of_part[part] < N_REWRITES:
            n_of_part[part] += 1
            yield {
                "part": part,
                "text": " ".join(rewrite.after),
                "rewritten_from": " ".join(rewrite.before),
                "weight": 1.0,
            }


def replaced_parts_of_speech(rewrites: Iterable[ComparedRewrite]) -> dict[str, int]:
    """Return the number of replaced tokens of the test questions by part of speech, the most frequent first."""
    counts: Counter[str] = Counter()
    for part, rewrite, _ in rewrites:
        if part == PARTS[-1] and rewrite.before != rewrite.after:
            tags = token_tags(rewrite.before)
            pairs = zip(tags, rewrite.before, rewrite.after, strict=True)
            counts.update(tag for tag, before, after in pairs if before != after)
    return dict(counts.most_common())


def token_tags(tokens: Sequence[str]) -> list[str]:
    """Return the tag of each token. Pieces of a word have the tag of the word."""
    words: list[str] = []
    for token in tokens:
        if token.startswith(CONTINUATION) and words:
            words[-1] += token.removeprefix(CONTINUATION)
        else:
            words.append(token)
    tags = iter(word_tags(words))
    tag, of_tokens = "", []
    for token in tokens:
        tag = tag if token.startswith(CONTINUATION) and of_tokens else next(tags)
        of_tokens.append(tag)
    return of_tokens


def word_tags(words: Sequence[str]) -> list[str]:
    """Return Penn Treebank tags. Words that the dictionary lacks are NNP; punctuation and masks are their own tags."""
    tags: list[str] = []
    for index, word in enumerate(words):
        before = [other.lower() for other, tag in zip(words, tags, strict=False) if tag != "RB"]
        previous = tags[-1] if tags else ""
        is_name = word[:1].isupper() and index > 0
        tags.append("NNP" if is_name and word != "[MASK]" else _tag(word.lower(), previous, before[-1:]))
    return [word if tag == "" else tag for word, tag in zip(words, tags, strict=True)]


def _tag(word: str, previous: str, before: Sequence[str]) -> str:
    """Return the tag of `word`, or "" for punctuation and masks. before: the last word that is not an adverb."""
    if word.startswith("[") or not any(map(str.isalnum, word)):
        return ""
    if word[0].isdigit():
        return "CD"
    if word in TAG_OF_WORD:
        return TAG_OF_WORD[word]
    forms, follows_auxiliary = dictionary_tags(word), set(before) & set(AUXILIARIES.split())
    if not forms:
        return "NNP"
    if follows_auxiliary and "VBD" in forms:
        return "VBN"
    verbs = {"MD": ("VB",), "TO": ("VB",)}.get(previous, ("VBZ", "VBD") if previous[:2] in ("NN", "PR", "WP") else ())
    return min(forms, key=lambda tag: (tag not in verbs, forms.index(tag)))


@cache
def dictionary_tags(word: str) -> tuple[str, ...]:
    """Return all tags of a word form in the dictionary. Nouns come first, then adjectives, adverbs, and verbs."""
    from lemminflect import getAllInflections, getAllLemmas  # the first call loads the dictionary

    lemmas = getAllLemmas(word)
    kinds = sorted(lemmas, key=["NOUN", "PROPN", "ADJ", "ADV", "AUX", "VERB"].index)
    tags = []
    for kind in kinds:
        inflections = getAllInflections(lemmas[kind][0], kind)
        tags += sorted((tag for tag, forms in inflections.items() if word in forms), key=lambda tag: tag == "NNS")
    return tuple(dict.fromkeys(tags))
