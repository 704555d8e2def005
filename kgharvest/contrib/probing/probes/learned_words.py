"""Soft words and their original words before learning, as in Figure 1 of Qin & Eisner (2021). Imports torch."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.masked import MaskFillingLM
from kgharvest.engine.prompts.prompt_set import PromptSet

Parts = list[int | dict[str, Any]]


def learned_words(lm: MaskFillingLM, prompt_set: PromptSet, originals: Sequence[EncodedPrompt]) -> list[Parts]:
    """Return the slots (indices) and the soft words (dicts) of each prompt, in textual order.

    p(w | v) is the softmax over all words w of the dot products of v and their embeddings. word: the most probable word
    of the learned vector v. p: p(word | v). original: the word before learning. original_p: p(original | v0), where v0
    is its embedding. norm_ratio: the norm of v divided by that of v0. originals: the prompts before learning.
    """
    assert prompt_set.soft_words is not None, "only soft prompts have learned words"
    original_of: dict[int, int] = {}
    for pair in zip(prompt_set.prompts, originals, strict=True):
        tokens = zip(*map(_parts, pair), strict=True)
        original_of |= {soft: word for (soft, _), (word, _) in tokens if soft >= lm.vocab_size}
    embeddings, texts, after = lm.word_embeddings.float(), lm.tokens.texts(), prompt_set.soft_words.vectors
    words = torch.tensor([original_of[lm.vocab_size + number] for number in range(len(after))], device=after.device)
    before = embeddings[words]  # (S, d)
    best = (after @ embeddings.T).softmax(dim=1).max(dim=1)
    original_ps = (before @ embeddings.T).softmax(dim=1).gather(1, words[:, None])[:, 0]
    columns = {
        "word": [texts[token] for token in best.indices.tolist()],
        "p": best.values.tolist(),
        "original": [texts[token] for token in words.tolist()],
        "original_p": original_ps.tolist(),
        "norm_ratio": (after.norm(dim=1) / before.norm(dim=1)).tolist(),
    }
    entries = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    learned: list[Parts] = []
    for prompt in prompt_set.prompts:
        parts = [(part, is_slot) for part, is_slot in _parts(prompt) if is_slot or part in original_of]
        learned.append([part if is_slot else entries[part - lm.vocab_size] for part, is_slot in parts])
    return learned


def _parts(prompt: EncodedPrompt) -> Iterator[tuple[int, bool]]:
    """Yield the tokens and slots in textual order, each with True for a slot."""
    for slot, segment in zip((None, *prompt.slots), prompt.segments, strict=True):
        yield from () if slot is None else ((slot, True),)
        yield from ((token, False) for token in segment)
