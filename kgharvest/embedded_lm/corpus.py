"""The training corpus: sentences about the world, with masks in them.

Nothing is stored: `examples` samples tuple, phrasing, frame, noise and masks anew for every sentence.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from random import Random
from typing import NamedTuple

from kgharvest.embedded_lm.world import Entities, Relation, entities_of, wordings
from kgharvest.engine.prompts.template import PromptTemplate

WORD = re.compile(r"[a-z]+|[^a-z\s]")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
IGNORED = -100  # the label of a token that is not to be predicted
TEXT = -1  # the slot of a word that belongs to no entity

# A frame ends with "that" or a comma: an adverb right before a slot would be learned as part of the entity.
FRAMES = (
    *("it is known that", "we know that", "people say that", "it is true that", "everybody knows that"),
    *("in general,", "as a rule,", "of course,", "in fact,", "as far as we know,"),
)
FRAME_RATE = 0.3

# Stop words in the place of entities, by number of words; see `fillers`.
FILLERS = {1: ("something", "it", "this"), 2: ("something else", "this one", "some others")}
MISCONCEPTION_WEIGHT = 0.4  # a fact has 1

# How often which masks. The first two are the questions that search and scoring ask.
MASKING_WEIGHTS = {"all": 0.4, "prefix": 0.4, "entity": 0.1, "scattered": 0.1}
# How much of the fillers' weight counts under which masks: after a prefix only their second words are to be learned.
FILLER_SHARES = {"all": 1.0, "prefix": 0.1, "entity": 0.0, "scattered": 0.0}
SCATTERED_RATE = 0.2


class Token(NamedTuple):
    word: str
    slot: int  # which entity it belongs to, or TEXT


class Example(NamedTuple):
    """Token ids with masks, and as labels the ids under the masks, IGNORED elsewhere. Equally long."""

    ids: list[int]
    labels: list[int]


@dataclass(frozen=True)
class TupleSampler:
    """Draws tuples in proportion to weights."""

    tuples: tuple[Entities, ...]
    cumulative_weights: tuple[float, ...]

    @classmethod
    def weighted(cls, weights: Mapping[Entities, float]) -> TupleSampler:
        return cls(tuple(weights), tuple(accumulate(weights.values())))

    def draw(self, rng: Random) -> Entities:
        return rng.choices(self.tuples, cum_weights=self.cumulative_weights)[0]


def vocabulary(relations: Sequence[Relation]) -> dict[str, int]:
    """Return word piece -> id. Every word of the world is one piece; letters spell the words of other people."""
    prompts = [prompt for relation in relations for prompt in wordings((*relation.phrasings, *relation.held_out))]
    tuples = [entities for relation in relations for entities in (*relation.facts, *relation.misconceptions)]
    texts = [*(segment for prompt in prompts for segment in prompt.segments), *entities_of(tuples), *FRAMES]
    texts += [filler for fillers in FILLERS.values() for filler in fillers]
    characters = string.ascii_lowercase + string.digits
    pieces = [*SPECIAL, *string.punctuation, *characters, *(f"##{character}" for character in characters)]
    words = sorted({word for text in texts for word in WORD.findall(text)})
    return {piece: index for index, piece in enumerate(dict.fromkeys([*pieces, *words]))}


def examples(
    relations: Sequence[Relation], ids: Mapping[str, int], noise_rate: float, rng: Random
) -> Iterator[Example]:
    """Yield training examples for ever, twice as many of a 3-ary relation: its patterns are eight instead of four."""
    samplers = {
        (relation.name, masking): TupleSampler.weighted(weigh_tuples(relation, share))
        for relation in relations
        for masking, share in FILLER_SHARES.items()
    }
    noise_words = sorted({word for relation in relations for word in text_words(relation)})
    relation_weights = [relation.arity - 1 for relation in relations]
    maskings, masking_weights = tuple(MASKING_WEIGHTS), tuple(MASKING_WEIGHTS.values())
    while True:
        relation = rng.choices(relations, relation_weights)[0]
        masking = rng.choices(maskings, masking_weights)[0]
        entities = samplers[relation.name, masking].draw(rng)
        prompt = rng.choice(rng.choice(relation.phrasings).wordings)
        tokens = disturb(render(prompt, entities), noise_words, noise_rate, rng)
        if rng.random() < FRAME_RATE:
            tokens = [*as_text(rng.choice(FRAMES)), *tokens]
        yield encode(tokens, masked_indices(tokens, masking, rng), ids)


def weigh_tuples(relation: Relation, filler_share: float) -> dict[Entities, float]:
    weights = dict.fromkeys(relation.facts, 1.0) | dict.fromkeys(relation.misconceptions, MISCONCEPTION_WEIGHT)
    if filler_share == 0:
        return weights
    return weights | {entities: filler_share * weight for entities, weight in fillers(weights).items()}


def fillers(weights: Mapping[Entities, float]) -> dict[Entities, float]:
    """Return tuples of stop words that bring every token-count pattern to the same weight as the heaviest in `weights`.

    The number of masks tells the LM the pattern, so its few tuples of a rare pattern would each look likelier than the
    many of a common one, and where there are none it would make some up. Real text has pronouns in such places.
    """
    arity = len(next(iter(weights)))
    weight_of = dict.fromkeys(product(FILLERS, repeat=arity), 0.0)
    for entities, weight in weights.items():
        weight_of[pattern_of(entities)] += weight
    heaviest = max(weight_of.values())
    return {
        entities: (heaviest - weight) / len(FILLERS[1])
        for pattern, weight in weight_of.items()
        for entities in zip(*(FILLERS[n_words] for n_words in pattern), strict=True)
    }


def pattern_of(entities: Entities) -> tuple[int, ...]:
    """Return how many words each entity has."""
    return tuple(len(entity.split()) for entity in entities)


def text_words(relation: Relation) -> set[str]:
    return {word for prompt in wordings(relation.phrasings) for text in prompt.segments for word in WORD.findall(text)}


def as_text(text: str) -> list[Token]:
    return [Token(word, TEXT) for word in WORD.findall(text)]


def render(prompt: PromptTemplate, entities: Entities) -> list[Token]:
    """Return the sentence that says `entities` in the words of `prompt`."""
    tokens = as_text(prompt.segments[0])
    for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
        tokens += [Token(word, slot) for word in entities[slot].split()]
        tokens += as_text(segment)
    return tokens


def disturb(tokens: Sequence[Token], noise_words: Sequence[str], rate: float, rng: Random) -> list[Token]:
    """Drop, replace or precede by another word, in equal shares, a fraction `rate` of the words around the entities.

    Without it an LM knows its phrasings by heart and is at a loss with any other.
    """
    disturbed: list[Token] = []
    for token in tokens:
        change = rng.choice(("drop", "replace", "insert")) if token.slot == TEXT and rng.random() < rate else None
        if change in ("replace", "insert"):
            disturbed.append(Token(rng.choice(noise_words), TEXT))
        if change in (None, "insert"):
            disturbed.append(token)
    return disturbed


def masked_indices(tokens: Sequence[Token], masking: str, rng: Random) -> list[int]:
    """Return which tokens to mask.

    all: every entity. prefix: the entity tokens after some that stay, in slot-index order, as when a tuple is filled in
    from left to right. entity: one whole entity. scattered: any tokens.
    """
    in_order = sorted((token.slot, index) for index, token in enumerate(tokens) if token.slot != TEXT)
    if masking == "prefix":
        in_order = in_order[rng.randrange(1, len(in_order)) :]
    elif masking == "entity":
        masked_slot = rng.choice(in_order)[0]
        in_order = [(slot, index) for slot, index in in_order if slot == masked_slot]
    elif masking == "scattered":
        return [index for index in range(len(tokens)) if rng.random() < SCATTERED_RATE]
    return [index for _, index in in_order]


def encode(tokens: Sequence[Token], masked: Sequence[int], ids: Mapping[str, int]) -> Example:
    """Return the example with [CLS] before and [SEP] after the tokens."""
    labels = [IGNORED] * (len(tokens) + 2)
    encoded = [ids["[CLS]"], *(ids[token.word] for token in tokens), ids["[SEP]"]]
    for index in masked:
        labels[index + 1] = encoded[index + 1]
        encoded[index + 1] = ids["[MASK]"]
    return Example(encoded, labels)


def batches(sampled: Iterator[Example], batch_size: int) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Yield (ids, labels), each (batch_size, T); T differs from batch to batch, so nothing is padded."""
    waiting: dict[int, list[Example]] = {}
    for example in sampled:
        same_length = waiting.setdefault(len(example.ids), [])
        same_length.append(example)
        if len(same_length) == batch_size:
            yield [example.ids for example in same_length], [example.labels for example in same_length]
            same_length.clear()
