"""Whether an LM understands the prompts of a relation: words it does not know, seed tuples that they do not call up.

Both are read off the LM itself, whichever family it is of. `MIN_GAIN` is fitted to the embedded LMs: each prompt of the
relation set `demo` gains 1.2 nats or more, and prompts of other relations lose three or more, unless they are near.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from kgharvest.engine.language_models.base import LanguageModel, Tick
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import Encoded, compatibilities
from kgharvest.engine.types import BadSeed, HarvestParams, WeightedPrompt

MIN_GAIN = 1.0  # nats that the wording has to add to the compatibility of the seed tuples
LETTERS_A_TOKEN = 1.5  # at most, on average, of a word that the tokenizer spells out
# Thai to Khmer, Japanese, Chinese and Korean: tokenizers of these languages write them by the letter or syllable.
BY_THE_LETTER = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
SHORTEST_WORD = 3  # letters; shorter words are few tokens in any tokenizer
MOST_NAMED = 5  # unknown words


def warning_about(
    lm: LanguageModel,
    written: Sequence[str],
    weighted: Sequence[WeightedPrompt],
    seeds: Sequence[Encoded],
    params: HarvestParams,
    tick: Tick,
) -> str | None:
    """Return why few of the harvested tuples may be true, in a sentence or two; None if nothing speaks for that.

    written: the initial prompts, by people. weighted: the prompts that are asked.
    """
    sentences = []
    if words := unknown_words(lm, written):
        named = ", ".join(words[:MOST_NAMED]) + (", ..." if len(words) > MOST_NAMED else "")
        sentences.append(f"{lm.name} does not know these words of the prompts: {named}; use more common ones.")
    if gain_of_wording(lm, weighted, seeds, params, tick) < MIN_GAIN:
        sentences.append(
            f"{lm.name} hardly finds the seed tuples likelier in these prompts than in a bare list of entities, so few "
            "of the harvested tuples may be true; word the prompts otherwise, give seed tuples that fit them, or use "
            "another LM."
        )
    return " ".join(sentences) or None


def unknown_words(lm: LanguageModel, prompts: Sequence[str]) -> list[str]:
    """Return the words of `prompts` that `lm` cannot read, or reads as little more than single letters."""
    texts = [re.sub(r"<ENT\d+>", " ", prompt) for prompt in prompts]
    words = dict.fromkeys(word for text in texts for word in re.findall(r"[^\W\d_]+", text))
    return [word for word in words if len(word) >= SHORTEST_WORD and is_unknown(lm, word)]


def is_unknown(lm: LanguageModel, word: str) -> bool:
    try:
        n_tokens = len(lm.encode_entity(word))
    except BadSeed:
        return True
    return len(word) <= LETTERS_A_TOKEN * n_tokens and not BY_THE_LETTER.search(word)


def gain_of_wording(
    lm: LanguageModel,
    weighted: Sequence[WeightedPrompt],
    seeds: Sequence[Encoded],
    params: HarvestParams,
    tick: Tick,
) -> float:
    """Return by how many nats the prompts raise the mean compatibility of the seed tuples over that of a bare list."""
    bare_list = PromptTemplate.parse(", ".join(f"<ENT{slot}>" for slot in range(len(seeds[0]))) + ".")
    in_list = compatibilities(lm, [lm.encode_prompt(bare_list)], seeds, params.alpha, params.batch_size, tick).mean()
    return float(np.sum([prompt.weight * prompt.compatibility for prompt in weighted]) - in_list)
