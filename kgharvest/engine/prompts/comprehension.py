"""Comprehension check: whether an LM knows the prompts' words and the seed tuples, and whether a harvest is noise.

The check uses only the LM and works for any family. Two measures of the best candidates of the search predict noise:

- Familiarity: share of the seed tuples' entities that are in the same slot of a candidate. It is low if the LM takes
  the prompts for another relation. It stays high if single seed tuples are unknown or false.
- Dependence: how much likelier the last entity of a candidate is than the last entities of other candidates, in nats.
  It is low if the LM combines arbitrary entities.

Worked examples suggest their entities, so only the dependence counts if the prompts show examples. The thresholds are
fitted by benches/noise_warnings.py, which also prints the share of false alarms and of detected noise in held-out
harvests. If a relation has far more tuples than candidates, the familiarity is low without noise. On other LMs, a
warning is only an indication.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, nan
from statistics import median

from kgharvest.engine.entities import entity_of
from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel
from kgharvest.engine.scoring import entity_logprobs
from kgharvest.engine.types import MOST_NAMED, PROBABLY_NOISE, BadSeed, Notice, ScoredTuple

MIN_FAMILIARITY = 0.58  # of familiarity plus a twentieth of the dependence
MIN_DEPENDENCE = 3.6  # nats, if the prompts show examples
MOST_DEPENDENCE = 6.0  # nats that count
LEAST_NAMED = -1000.0  # nats; servers return -9999 or minus infinity for a token outside their top list
MAX_GAP = 3.0  # nats by which a known seed tuple may score below the median of the best candidates
BEST = 50  # number of best candidates
FEWEST = 20  # candidates without which harvests are not assessed
STEP, SHIFTS = 4, (3, 7)  # every fourth of the best candidates is compared with two others
LETTERS_A_TOKEN = 1.5  # a word with at most this many letters per token counts as spelled out
# Thai to Khmer, Japanese, Chinese, and Korean: tokenizers split these scripts into letters or syllables.
BY_THE_LETTER = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
SHORTEST_WORD = 3  # letters; shorter words have few tokens in any tokenizer
UNKNOWN_SEEDS = "unknown_seed_tuples"
WHAT_TO_DO = "Reword the prompts, use seed tuples that fit them, or use another LM."

Entities = tuple[str, ...]


@dataclass(frozen=True)
class Comprehension:
    """Measurements before the search.

    unknown_words: unknown words of the initial prompts. seed_scores: consistency of each seed tuple, scored like the
        harvested tuples. Seed tuples that the LM cannot score are missing. shows_examples: whether prompts show them.
    """

    unknown_words: tuple[str, ...]
    seed_scores: tuple[tuple[Entities, float], ...]
    shows_examples: bool = False


def unknown_seed_tuples(shown: Comprehension, candidates: Sequence[ScoredTuple]) -> tuple[Entities, ...]:
    """Return the seed tuples that score far below the best of `candidates`, which are sorted.

    Scores below LEAST_NAMED are ignored.
    """
    scores = [candidate.score for candidate in candidates[:BEST] if candidate.score > LEAST_NAMED]
    least = median(scores) - MAX_GAP if scores else -inf
    return tuple(seed for seed, score in shown.seed_scores if LEAST_NAMED < score < least)


def familiarity(seeds: Sequence[Entities], best: Sequence[ScoredTuple], n_best: int) -> float:
    """Return the share of the seed tuples' entities that are in the same slot of a candidate.

    Mean of the share among the first `n_best` of `best` and the share among all of `best`.
    """
    shares = []
    for candidates in (best[:n_best], best):
        slots = [set(entities) for entities in zip(*(candidate.entities for candidate in candidates), strict=True)]
        pairs = [pair for seed in seeds for pair in zip(seed, slots, strict=True)]
        shares.append(sum(entity_of(entity).folded in entities for entity, entities in pairs) / len(pairs))
    return sum(shares) / 2


def dependence(lm: LanguageModel, prompt: EncodedPrompt, best: Sequence[ScoredTuple], batch_size: int) -> float:
    """Return the median gain in log-probability of the last entity over last entities of other candidates, in nats.

    Log-probabilities below LEAST_NAMED are ignored. NaN if no others remain.
    """
    tuples = [tuple(map(lm.encode_entity, candidate.surface)) for candidate in best[::STEP]]
    others = [(n, tuples[(n + shift) % len(tuples)][-1]) for n, shift in product(range(len(tuples)), SHIFTS)]
    others = [(n, last) for n, last in others if last != tuples[n][-1]]
    mixed = [(*tuples[n][:-1], last) for n, last in others]
    logprobs = entity_logprobs(lm, [prompt], [*tuples, *mixed], batch_size, lambda: None)[:, 0, -1]
    pairs = [(logprobs[n], logprob) for (n, _), logprob in zip(others, logprobs[len(tuples) :], strict=True)]
    gains = [likely - logprob for likely, logprob in pairs if min(likely, logprob) > LEAST_NAMED]
    return float(median(gains or [nan if others else 0.0]))


def is_noise(shows_examples: bool, familiar: float, dependent: float) -> bool:
    """Return True if the measures indicate noise; False if the dependence is NaN."""
    if shows_examples:
        return dependent < MIN_DEPENDENCE
    return familiar + min(dependent, MOST_DEPENDENCE) / 20 < MIN_FAMILIARITY


def warnings_about(
    lm: LanguageModel, shown: Comprehension, prompt: EncodedPrompt, candidates: Sequence[ScoredTuple], batch_size: int
) -> list[Notice]:
    """Return reasons why few of the harvested tuples may be true.

    prompt: prompt with the largest weight. candidates: of the search, best first.
    """
    warnings = []
    if words := shown.unknown_words:
        text = f"{lm.name} does not know these words of the prompts: {listed(words, ', ')}. Use more common words."
        warnings.append(Notice("unknown_words", text))
    if len(candidates) >= FEWEST and shown.seed_scores:
        familiar = familiarity([seed for seed, _ in shown.seed_scores], candidates, BEST)
        dependent = dependence(lm, prompt, candidates[:BEST], batch_size)
        if is_noise(shown.shows_examples, familiar, dependent):
            text = (
                f"Few of the harvested tuples may be true. For {lm.name}, {familiar:.0%} of the seed tuples' entities "
                f"are candidates for the same position, and the last entity of a candidate is {dependent:.1f} nats "
                f"likelier than the last entities of others. {WHAT_TO_DO}"
            )
            warnings.append(Notice(PROBABLY_NOISE, text))
    if unknown := [", ".join(seed) for seed in unknown_seed_tuples(shown, candidates)]:
        text = f"{lm.name} seems not to know these seed tuples: {listed(unknown, '; ')}."
        warnings.append(Notice(UNKNOWN_SEEDS, text))
    return warnings


def listed(texts: Sequence[str], separator: str) -> str:
    return separator.join([*texts[:MOST_NAMED], *(["..."] if len(texts) > MOST_NAMED else [])])


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
