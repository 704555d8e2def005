"""Training corpus of masked sentences about the world.

Sentences are generated, not stored: `examples` samples a tuple, a wording, frames, noise, and masks for each sentence.
"""

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, product
from random import Random
from typing import NamedTuple

from kgharvest.embedded_lm import sentences
from kgharvest.embedded_lm.world import WORD, Entities, Relation, entities_of, words_around
from kgharvest.engine.prompts.template import PromptTemplate

Visible = tuple[int | None, ...]  # word ids of a tuple in slot-index order; None for hidden words

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_TOKENS = 64
# Stop words that are used in place of entities, by number of words. See `fillers`.
FILLERS = {1: ("something", "someone", "it"), 2: ("something else", "someone else", "somebody else")}
MISCONCEPTION_WEIGHT = 0.4  # weight relative to that of a fact

# Frequencies of masking types. Search and scoring use the masks "all" and "prefix".
MASKING_WEIGHTS = {"all": 0.5, "prefix": 0.35, "entity": 0.05, "scattered": 0.1}
# Weight of fillers by masking type. After a prefix, only the second words of fillers need to be learned.
FILLER_SHARES = {"all": 1.0, "prefix": 0.1, "entity": 0.0, "scattered": 0.0}
SCATTERED_RATE = 0.2
CROSSING_RATE = 0.1  # share of sentences that combine two wordings


class Distribution(NamedTuple):
    """Possible tokens at a mask: distinct token ids and their probabilities."""

    ids: tuple[int, ...]
    probabilities: tuple[float, ...]


class Example(NamedTuple):
    """Token ids with masks, and labels of all tokens.

    The label of a mask is a distribution; other tokens have the label None.
    """

    ids: list[int]
    labels: list[Distribution | None]


class TupleSampler:
    """Weighted sampling of tuples, with the conditional distributions of hidden words.

    With these distributions as labels, the LM learns from all possible words in each step. With a single sampled label
    per mask, training took several times as many steps to distinguish the relations.
    """

    def __init__(self, weights: Mapping[Entities, float], ids: Mapping[str, int]) -> None:
        self.tuples = tuple(weights)
        self.cumulative_weights = tuple(accumulate(weights.values()))
        self.weighted_ids: dict[tuple[int, ...], list[tuple[tuple[int, ...], float]]] = {}
        for entities, weight in weights.items():
            of_words = tuple(ids[word] for entity in entities for word in entity.split())
            self.weighted_ids.setdefault(pattern_of(entities), []).append((of_words, weight))
        self._expected: dict[tuple[tuple[int, ...], Visible], list[Distribution]] = {}

    def draw(self, rng: Random) -> Entities:
        return rng.choices(self.tuples, cum_weights=self.cumulative_weights)[0]

    def expected(self, pattern: tuple[int, ...], visible: Visible) -> list[Distribution]:
        """Return the distribution of each hidden word of a tuple with pattern `pattern`, given the visible words."""
        if (pattern, visible) not in self._expected:
            fitting = [
                (of_words, weight)
                for of_words, weight in self.weighted_ids[pattern]
                if all(visible_word in (None, word) for visible_word, word in zip(visible, of_words, strict=True))
            ]
            hidden = [index for index, visible_word in enumerate(visible) if visible_word is None]
            self._expected[pattern, visible] = [
                distribution((of_words[index], weight) for of_words, weight in fitting) for index in hidden
            ]
        return self._expected[pattern, visible]


def distribution(weighted: Iterable[tuple[int, float]]) -> Distribution:
    """Return the normalized distribution of weighted ids."""
    weight_of: dict[int, float] = {}
    for index, weight in weighted:
        weight_of[index] = weight_of.get(index, 0.0) + weight
    total = sum(weight_of.values())
    return Distribution(tuple(weight_of), tuple(weight / total for weight in weight_of.values()))


def vocabulary(relations: Sequence[Relation]) -> dict[str, int]:
    """Return the ids of all word pieces. Every word of the world is one piece. Other words are spelled with letters."""
    tuples = [entities for relation in relations for entities in (*relation.facts, *relation.misconceptions)]
    texts = [*entities_of(tuples), *(filler for fillers in FILLERS.values() for filler in fillers)]
    words = {word for text in texts for word in WORD.findall(text)} | sentences.FRAMING_WORDS
    for relation in relations:
        words |= words_around((*relation.phrasings, *relation.held_out))
    characters = string.ascii_lowercase + string.digits
    pieces = [*SPECIAL, *string.punctuation, *characters, *(f"##{character}" for character in characters)]
    return {piece: index for index, piece in enumerate(dict.fromkeys([*pieces, *sorted(words)]))}


def examples(
    relations: Sequence[Relation], ids: Mapping[str, int], noise_rate: float, rng: Random
) -> Iterator[Example]:
    """Yield training examples without end.

    3-ary relations have twice the weight of binary relations, because they have 8 patterns instead of 4.
    """
    samplers = {
        (relation.name, masking): TupleSampler(weigh_tuples(relation, share), ids)
        for relation in relations
        for masking, share in FILLER_SHARES.items()
    }
    words = [piece for piece in ids if piece.isalpha() and len(piece) > 1]
    noise = [*((word,) for word in words), *(sentences.spelled_out(word, ids) for word in words)]
    relation_weights = [relation.arity - 1 for relation in relations]
    maskings, masking_weights = tuple(MASKING_WEIGHTS), tuple(MASKING_WEIGHTS.values())
    while True:
        relation = rng.choices(relations, relation_weights)[0]
        masking = rng.choices(maskings, masking_weights)[0]
        sampler = samplers[relation.name, masking]
        tokens = sentences.render(draw_prompt(relation, rng), sampler.draw(rng))
        tokens = sentences.with_any_end(sentences.with_any_determiners(tokens, rng), rng)
        tokens = sentences.disturb(tokens, noise, noise_rate, rng)
        tokens = sentences.framed(sentences.sometimes_spelled_out(tokens, ids, rng), rng)
        if len(tokens) + 2 <= MAX_TOKENS:
            masked = masked_indices(tokens, masking, rng)
            yield encode(tokens, labels_of(tokens, masked, sampler, ids), ids)


def draw_prompt(relation: Relation, rng: Random) -> PromptTemplate:
    """Return a random wording, sometimes combined with text segments of another wording with the same slot order."""
    prompt = rng.choice(relation.phrasings).draw(rng)
    if rng.random() >= CROSSING_RATE:
        return prompt
    other = rng.choice(relation.phrasings).draw(rng)
    if other.slots != prompt.slots:
        return prompt
    first, *rest = map(rng.choice, zip(prompt.segments, other.segments, strict=True))
    text = first + "".join(f"<ENT{slot}>{segment}" for slot, segment in zip(prompt.slots, rest, strict=True))
    return PromptTemplate(text, (first, *rest), prompt.slots)


def weigh_tuples(relation: Relation, filler_share: float) -> dict[Entities, float]:
    weights = dict.fromkeys(relation.facts, 1.0) | dict.fromkeys(relation.misconceptions, MISCONCEPTION_WEIGHT)
    if filler_share == 0:
        return weights
    return weights | {entities: filler_share * weight for entities, weight in fillers(weights).items()}


def fillers(weights: Mapping[Entities, float]) -> dict[Entities, float]:
    """Return tuples of stop words that raise the weight of every token-count pattern to that of the heaviest pattern.

    The number of masks reveals the pattern. Without fillers, each of the few tuples of a rare pattern would be more
    likely than each of the many tuples of a common pattern, and the LM would invent tuples for an empty pattern. Real
    text contains pronouns in such places.
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
    """Return the number of words of each entity."""
    return tuple(len(entity.split()) for entity in entities)


def masked_indices(tokens: Sequence[sentences.Token], masking: str, rng: Random) -> list[int]:
    """Return the indices of tokens to mask.

    all: every entity. prefix: the entity tokens after a random number of visible entity tokens, in slot-index order, as
    in left-to-right filling. entity: one whole entity. scattered: random tokens.
    """
    in_order = entity_indices(tokens)
    if masking == "prefix":
        return in_order[rng.randrange(1, len(in_order)) :]
    if masking == "entity":
        masked_slot = tokens[rng.choice(in_order)].slot
        return [index for index in in_order if tokens[index].slot == masked_slot]
    if masking == "scattered":
        return [index for index in range(len(tokens)) if rng.random() < SCATTERED_RATE]
    return in_order


def entity_indices(tokens: Sequence[sentences.Token]) -> list[int]:
    """Return the indices of entity words, in slot-index order."""
    indices = [index for index, token in enumerate(tokens) if token.slot != sentences.TEXT]
    return sorted(indices, key=lambda index: tokens[index].slot)


def labels_of(
    tokens: Sequence[sentences.Token], masked: Sequence[int], sampler: TupleSampler, ids: Mapping[str, int]
) -> dict[int, Distribution]:
    """Return the distribution at each of the `masked` indices. Outside entities, only the word itself is possible."""
    hidden = set(masked)
    in_order = entity_indices(tokens)
    words_of_slot = Counter(tokens[index].slot for index in in_order)
    pattern = tuple(words_of_slot[slot] for slot in sorted(words_of_slot))
    visible = tuple(None if index in hidden else ids[tokens[index].word] for index in in_order)
    hidden_entities = [index for index in in_order if index in hidden]
    expected = dict(zip(hidden_entities, sampler.expected(pattern, visible), strict=True))
    return {index: expected.get(index) or Distribution((ids[tokens[index].word],), (1.0,)) for index in masked}


def encode(tokens: Sequence[sentences.Token], labels: Mapping[int, Distribution], ids: Mapping[str, int]) -> Example:
    """Return the example with [CLS], [SEP], and masks at the labeled indices."""
    words = ["[MASK]" if index in labels else token.word for index, token in enumerate(tokens)]
    encoded = [ids[word] for word in ("[CLS]", *words, "[SEP]")]
    return Example(encoded, [None, *(labels.get(index) for index in range(len(tokens))), None])


def batches(sampled: Iterator[Example], batch_size: int) -> Iterator[list[Example]]:
    """Yield batches of `batch_size` examples. All examples in a batch have the same length, so no padding is needed."""
    by_length: dict[int, list[Example]] = {}
    for example in sampled:
        same_length = by_length.setdefault(len(example.ids), [])
        same_length.append(example)
        if len(same_length) == batch_size:
            yield same_length
            del by_length[len(example.ids)]
