"""Tokenized sentences, and random changes to sentences that make an LM robust to meaningless words.

User prompts differ from the training phrasings: they have surrounding words, words outside the vocabulary, and
different function words and punctuation. Frames use the format of phrasings (`{a|b}` for either wording), but have no
slots.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import NamedTuple

from kgharvest.embedded_lm.world import WORD, Entities, drawn_text, parse_choices, words_of_choices
from kgharvest.engine.prompts.template import PromptTemplate

TEXT = -1  # number that stands for the slot of words outside entities

# Each frame ends with "that" or a punctuation mark. The LM would learn an adverb directly before a slot as part of the
# entity.
LEADING = tuple(
    map(
        parse_choices,
        (
            "{it is|it's} {known|well known|no secret|clear|obvious|true|a fact|common knowledge|often said} that",
            "{we|you|they} {know|all know|may know|might know} that",
            "{everybody|everyone|anybody|anyone} {knows|says|agrees|can see|will tell you} that",
            "{people|many people|most people|experts|books|old people} {say|think|believe|agree|claim|insist} that",
            "{i|we} {think|guess|suppose|believe|bet|would say|heard|read|learned|remember|am sure|assume} that",
            "{my|our|the|your} {teacher|textbook|friend|guide|encyclopedia} {says|said|explains|claims|told me} that",
            "{did you know|have you heard|do you know|is it true|would you believe|who would doubt} that",
            "{in general|as a rule|of course|in fact|as far as we know|as far as i know|as you know|usually|normally},",
            "{typically|generally|generally speaking|traditionally|basically|honestly|actually|indeed|really|yes|no},",
            "{in most cases|on the whole|by and large|most of the time|most often|in our world|these days|nowadays},",
            "{well|sure|oh|hey|so|listen|look|believe me|trust me|frankly|naturally|obviously|clearly|certainly|ok},",
            "{fun fact|quick fact|trivia|fact|note|hint|answer|question|for example|for instance|quiz|remember}:",
            "{true or false|complete the sentence|fill in the blanks|here is what i know|one more thing}:",
            "{guess what|you know what|are you ready|any idea|shall i tell you|do you want a hint}?",
            "{for example|for instance|to give an example|as we learned|as they say|if i am not mistaken|in short},",
        ),
    )
)
TRAILING = tuple(
    map(
        parse_choices,
        (
            ", {of course|you know|for example|for instance|i think|i believe|right|they say|i guess|as a rule|say}",
            ", {as everybody knows|as everyone knows|as far as i know|as far as we know|after all|as you know}",
            ", {isn't it|isn't that so|don't you think|am i right|no doubt|without doubt|if you ask me|it is said}",
            "{ after all| indeed| in general| as a rule| most of the time| in most cases| these days| nowadays}",
            "{ , so they say| , believe it or not| , naturally| , obviously| , and that is a fact| , as we all know}",
        ),
    )
)
LEADING_RATE, TRAILING_RATE = 0.3, 0.1
ENDS = (".", "!", "?")
NO_END_RATE, OTHER_END_RATE = 0.3, 0.1  # rates of removed and replaced final punctuation marks

DETERMINERS = ("a", "an", "the", "some", "any", "every", "each", "this", "that", "my", "your", "our", "many", "most")
DETERMINER_RATE = 0.1  # share of slots whose determiner is replaced, added, or removed
FRAMING_WORDS = words_of_choices((*LEADING, *TRAILING)) | {*ENDS, *DETERMINERS, "s"}  # all words added to sentences
SPELLED_RATE = 0.04
PLURAL_RATE = 0.03  # share of slots followed by "s"


class Token(NamedTuple):
    word: str
    slot: int  # index of the token's entity, or TEXT


def as_text(text: str) -> list[Token]:
    return [Token(word, TEXT) for word in WORD.findall(text)]


def render(prompt: PromptTemplate, entities: Entities) -> list[Token]:
    """Return the tokens of `prompt`, filled with `entities`."""
    tokens = as_text(prompt.segments[0])
    for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
        tokens += [Token(word, slot) for word in entities[slot].split()]
        tokens += as_text(segment)
    return tokens


def framed(tokens: list[Token], rng: Random) -> list[Token]:
    """Return the sentence, sometimes with meaningless words before and after it."""
    if rng.random() < LEADING_RATE:
        tokens = [*as_text(drawn_text(rng.choice(LEADING), rng)), *tokens]
    if rng.random() < TRAILING_RATE:
        end = len(tokens) - (tokens[-1].word in ENDS)
        tokens = [*tokens[:end], *as_text(drawn_text(rng.choice(TRAILING), rng)), *tokens[end:]]
    return tokens


def with_any_end(tokens: list[Token], rng: Random) -> list[Token]:
    """Return the sentence, sometimes without its final punctuation mark or with a different mark."""
    if not (tokens and tokens[-1].word in ENDS):
        return tokens
    chance = rng.random()
    if chance < NO_END_RATE:
        return tokens[:-1]
    return [*tokens[:-1], Token(rng.choice(ENDS), TEXT)] if chance < NO_END_RATE + OTHER_END_RATE else tokens


def with_any_determiners(tokens: list[Token], rng: Random) -> list[Token]:
    """Return the sentence, sometimes with different determiners before entities or a plural "s" after them."""
    changed: list[Token] = []
    slot = TEXT
    for token in [*tokens, Token("", TEXT)]:
        if token.slot not in (slot, TEXT) and rng.random() < DETERMINER_RATE:
            if changed and changed[-1].slot == TEXT and changed[-1].word in DETERMINERS:
                changed.pop()
            if rng.random() < 2 / 3:
                changed.append(Token(rng.choice(DETERMINERS), TEXT))
        if slot not in (token.slot, TEXT) and rng.random() < PLURAL_RATE:
            changed.append(Token("s", TEXT))
        changed.append(token)
        slot = token.slot
    return changed[:-1]


def disturb(tokens: Sequence[Token], noise: Sequence[Sequence[str]], rate: float, rng: Random) -> list[Token]:
    """Delete, replace, or insert words outside entities, each with a third of the rate `rate`.

    Without this noise, an LM memorizes its training phrasings and fails on others. noise: replacement words, as lists
    of pieces.
    """
    disturbed: list[Token] = []
    for token in tokens:
        change = rng.choice(("drop", "replace", "insert")) if token.slot == TEXT and rng.random() < rate else None
        if change in ("replace", "insert"):
            disturbed += [Token(piece, TEXT) for piece in rng.choice(noise)]
        if change in (None, "insert"):
            disturbed.append(token)
    return disturbed


def spelled_out(word: str, vocabulary: Collection[str]) -> tuple[str, ...]:
    """Return WordPiece's encoding of an unknown `word`: its longest proper prefix in `vocabulary`, then its letters."""
    stem = next(word[:length] for length in range(len(word) - 1, 0, -1) if word[:length] in vocabulary)
    return (stem, *(f"##{letter}" for letter in word[len(stem) :]))


def sometimes_spelled_out(tokens: Sequence[Token], vocabulary: Collection[str], rng: Random) -> list[Token]:
    """Return the sentence with some words outside entities spelled out, to imitate unseen forms of known words."""
    spelled: list[Token] = []
    for token in tokens:
        if token.slot == TEXT and len(token.word) > 2 and token.word.isalpha() and rng.random() < SPELLED_RATE:
            spelled += [Token(piece, TEXT) for piece in spelled_out(token.word, vocabulary)]
        else:
            spelled.append(token)
    return spelled
