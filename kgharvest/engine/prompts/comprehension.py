"""Comprehension check: whether an LM knows the words of the prompts, and whether the prompts fit the seed tuples.

The check uses only the LM and works for any family. `MIN_GAIN` is fitted to the embedded LMs: each prompt of the
relation set `demo` has a gain of at least 1.2 nats; prompts of dissimilar relations have a gain of at most -3 nats.

`MAX_GAP` is measured on the embedded LM, one prompt at a time, with PARAMS of benches/embedded_lm.py:
- The 60 prompts of the fourth set in fresh_prompts.json, with facts from the LM's world as seed tuples: at most 4.1
  nats, and at most 1.0 if a fifth or more of the 50 best tuples were true.
- 14 correct prompts with invented seed tuples: at most 8.8, except 14 and 48 for two prompts, whose seed tuples the LM
  mostly did not know.
- 12 prompts of unknown relations or with nonsense as seed tuples: 9.2 to 55, 11 of them above 10.
- Facts from the LM's world in prompts of another relation: mostly below 10 (8 of 10). The gain detects these.
On other LMs, a larger gap is an indication, not a proof.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from kgharvest.engine.language_models.base import LanguageModel, Tick
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import Encoded, compatibilities
from kgharvest.engine.types import BadSeed, HarvestParams, ScoredTuple, WeightedPrompt

MIN_GAIN = 1.0  # minimum increase of the seed tuples' compatibility through the wording, in nats
MAX_GAP = 10.0  # nats by which the seed tuples may score below the best tuples
BEST = 50  # tuples; the median of a whole list depends on its length
LEAST_NAMED = -1000.0  # nats; servers return -9999 or minus infinity for a token outside their top list
LETTERS_A_TOKEN = 1.5  # maximum average for a word that the tokenizer spells out
# Thai to Khmer, Japanese, Chinese, and Korean: tokenizers split these scripts into letters or syllables.
BY_THE_LETTER = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
SHORTEST_WORD = 3  # letters; shorter words have few tokens in any tokenizer
MOST_NAMED = 5  # unknown words in a warning
WHAT_TO_DO = "Reword the prompts, use seed tuples that fit them, or use another LM."


@dataclass(frozen=True)
class Comprehension:
    """Measurements before the search.

    unknown_words: unknown words of the initial prompts. gain: result of `gain_of_wording`.
    seed_score: median consistency of the seed tuples, scored like the harvested tuples. None if the LM cannot score
        any of them.
    """

    unknown_words: tuple[str, ...]
    gain: float
    seed_score: float | None


def warning_about(lm_name: str, shown: Comprehension, tuples: Sequence[ScoredTuple]) -> str | None:
    """Return a warning with reasons why few of the harvested `tuples` (best first) may be true, or None."""
    sentences = []
    if words := shown.unknown_words:
        word_list = ", ".join(words[:MOST_NAMED]) + (", ..." if len(words) > MOST_NAMED else "")
        sentences.append(f"{lm_name} does not know these words of the prompts: {word_list}. Use more common words.")
    scores = ""
    if tuples and shown.seed_score is not None and shown.seed_score > LEAST_NAMED:
        in_list = median(scored.score for scored in tuples[:BEST])
        if in_list - shown.seed_score > MAX_GAP:
            scores = f"median scores: seed tuples {shown.seed_score:.1f} nats, best tuples {in_list:.1f} nats"
    if shown.gain < MIN_GAIN:
        sentences.append(
            f"For {lm_name}, the seed tuples are hardly more likely in these prompts than in a bare list of entities"
            f"{f' ({scores})' if scores else ''}. Few of the harvested tuples may be true. {WHAT_TO_DO}"
        )
    elif scores:
        sentences.append(
            f"For {lm_name}, the seed tuples are far less likely in these prompts than the harvested tuples "
            f"({scores}). The harvested tuples may belong to another relation. {WHAT_TO_DO}"
        )
    return " ".join(sentences) or None


def unknown_words(lm: LanguageModel, prompts: Sequence[str]) -> list[str]:
    """Return the words of `prompts` that `lm` cannot encode or that it encodes almost letter by letter."""
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
    lm: LanguageModel, weighted: Sequence[WeightedPrompt], seeds: Sequence[Encoded], params: HarvestParams, tick: Tick
) -> float:
    """Return the mean compatibility of the seed tuples with the prompts minus that with a bare list, in nats."""
    bare_list = PromptTemplate.parse(", ".join(f"<ENT{slot}>" for slot in range(len(seeds[0]))) + ".")
    in_list = compatibilities(lm, [lm.encode_prompt(bare_list)], seeds, params.alpha, params.batch_size, tick).mean()
    return float(np.sum([prompt.weight * prompt.compatibility for prompt in weighted]) - in_list)
