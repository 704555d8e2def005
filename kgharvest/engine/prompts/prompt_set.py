"""Prompt sets: prompts of one relation that are asked together, and the method of combining their answers.

A prompt system learns a prompt set: the prompts (words, trigger tokens, or soft words), their weights, and the method
of combination. Code that asks for P(tail | head) or for the next token of an entity uses a prompt set.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, Tick, TokenIds
from kgharvest.engine.language_models.masked import MaskFillingLM, SoftWords
from kgharvest.engine.prompt_learning.objectives import Example, HeadLikelihood, scores
from kgharvest.engine.ranking import rows_at_once
from kgharvest.engine.types import UnsupportedModel

AnyLM = TypeVar("AnyLM", bound=LanguageModel)
Combine = Literal["mixture", "product", "mean_score"]


@dataclass(frozen=True)
class PromptSet:
    """Prompts with weights.

    prompts: encoded for one LM; can contain soft words. weights: (K,), non-negative; their sum is 1.
    temperature: None, or T of a data-dependent mixture with prompt weights proportional to p(t) p(head | t)^(1/T) (Qin
        & Eisner 2021, section 3.4).
    """

    prompts: tuple[EncodedPrompt, ...]
    weights: tuple[float, ...]
    combine: Combine = "product"
    soft_words: SoftWords | None = None
    temperature: float | None = None

    def reader(self, lm: AnyLM) -> AnyLM:
        """Return `lm` with the soft words of these prompts. Raises UnsupportedModel if it cannot read soft words."""
        if self.soft_words is None:
            return lm
        if not isinstance(lm, MaskFillingLM):
            raise UnsupportedModel(f"{lm.name} does not support soft prompts. Use an LM with a mask token.")
        return lm.with_soft_words(self.soft_words)


def uniform(prompts: Sequence[EncodedPrompt], combine: Combine = "product") -> PromptSet:
    return PromptSet(tuple(prompts), (1 / len(prompts),) * len(prompts), combine)


def mixture(logprobs: torch.Tensor, log_weights: torch.Tensor) -> torch.Tensor:
    """Return (..., V): log sum_k w_k p_k, computed from `logprobs` (..., K, V) and `log_weights` (..., K)."""
    return torch.logsumexp(logprobs + log_weights[..., None], dim=-2)


def mean_score(logprobs: torch.Tensor, log_weights: torch.Tensor) -> torch.Tensor:
    """Return (..., V): sum_k w_k log p_k, not normalized. With equal weights, this is LPAQA's rank ensemble."""
    return torch.einsum("...kv,...k->...v", logprobs, log_weights.exp())


def product(logprobs: torch.Tensor, log_weights: torch.Tensor) -> torch.Tensor:
    """Return (..., V): the weighted product of experts, normalized over the whole vocabulary."""
    return torch.log_softmax(mean_score(logprobs, log_weights), dim=-1)


COMBINE: dict[Combine, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mixture": mixture,
    "product": product,
    "mean_score": mean_score,
}


def prompt_vectors(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], heads: Sequence[TokenIds], batch_size: int, tick: Tick
) -> torch.Tensor:
    """Return (N, K, d): the inputs of `lm.logits` for a tail of one token after each head in each prompt."""
    queries = [lm.query(prompt, (len(head), 1), head + lm.entity_end) for head in heads for prompt in prompts]
    return lm.vectors(queries, batch_size, tick).view(len(heads), len(prompts), -1)


@dataclass(frozen=True)
class PromptSetAnswerer:
    """Answerer for a prompt set. Tails consist of one token."""

    lm: LanguageModel
    prompt_set: PromptSet
    batch_size: int = 256

    def scores(self, heads: Sequence[TokenIds], tick: Tick) -> Iterator[torch.Tensor]:
        """Yield (B, V), in the order of `heads`: log P(tail | head) in nats, or a score for `mean_score`."""
        reader = self.prompt_set.reader(self.lm)
        vectors = prompt_vectors(reader, self.prompt_set.prompts, heads, self.batch_size, tick)  # (N, K, d)
        log_weights = torch.tensor(self.prompt_set.weights).log().expand(len(heads), -1)  # (N, K)
        if self.prompt_set.temperature is not None:
            assert isinstance(reader, MaskFillingLM), "only soft prompts have a temperature"
            examples = [Example((head,)) for head in heads]
            head_logprobs = scores(reader, HeadLikelihood(), self.prompt_set.prompts, examples, tick).T.cpu()  # (N, K)
            log_weights = torch.log_softmax(log_weights + head_logprobs / self.prompt_set.temperature, dim=-1)
        log_weights = log_weights.to(vectors.device)
        n_heads = max(1, rows_at_once(self.lm, vectors.flatten(0, 1)) // vectors.shape[1])
        for part, log_weight in zip(torch.split(vectors, n_heads), torch.split(log_weights, n_heads), strict=True):
            if self.prompt_set.combine == "product" and self.lm.is_affine:  # one projection gives the product
                mean = torch.einsum("nkd,nk->nd", part, log_weight.exp())
                yield torch.log_softmax(self.lm.logits(mean), dim=-1)
            else:
                logits = self.lm.logits(part.flatten(0, 1)).view(*part.shape[:2], -1)
                yield COMBINE[self.prompt_set.combine](torch.log_softmax(logits, dim=-1), log_weight)
            tick()


# Serialization, and the text of prompts for display


class SerializedPrompt(NamedTuple):
    """One prompt of a set. In segments, -1 - i represents its soft word i.

    vectors: float32 (s, 1 + L, d) in numpy's .npy format: the vector of each soft word and its change at each of L
    levels. Empty if there are no soft words.
    """

    segments: tuple[TokenIds, ...]
    slots: tuple[int, ...]
    weight: float
    vectors: bytes


def serialize(lm: MaskFillingLM, prompt_set: PromptSet) -> list[SerializedPrompt]:
    """Return the prompts in order. The inverse is `deserialize`."""
    serialized = []
    for prompt, weight in zip(prompt_set.prompts, prompt_set.weights, strict=True):
        soft = dict.fromkeys(token for segment in prompt.segments for token in segment if token >= lm.vocab_size)
        number = {token: -1 - index for index, token in enumerate(soft)}
        segments = tuple(tuple(number.get(token, token) for token in segment) for segment in prompt.segments)
        buffer = io.BytesIO()
        if prompt_set.soft_words is not None:
            rows = [token - lm.vocab_size for token in soft]
            levels = [prompt_set.soft_words.vectors[rows, None]]  # (s, 1, d)
            if prompt_set.soft_words.deltas is not None:
                levels.append(prompt_set.soft_words.deltas[rows])  # (s, L, d)
            np.save(buffer, torch.cat(levels, dim=1).float().cpu().numpy(), allow_pickle=False)
        serialized.append(SerializedPrompt(segments, prompt.slots, weight, buffer.getvalue()))
    return serialized


def deserialize(
    lm: MaskFillingLM, prompts: Sequence[SerializedPrompt], combine: Combine, temperature: float | None = None
) -> PromptSet:
    """Return the prompt set of serialized prompts. `lm` must be the LM that the prompt set was learned for."""
    arrays: list[NDArray[np.float32]] = [
        np.load(io.BytesIO(prompt.vectors), allow_pickle=False) for prompt in prompts if prompt.vectors
    ]
    soft_words = None
    if arrays:
        levels = torch.from_numpy(np.concatenate(arrays)).to(lm.device)  # (S, 1 + L, d)
        soft_words = SoftWords(levels[:, 0], levels[:, 1:] if levels.shape[1] > 1 else None)
    tokens = count(lm.vocab_size)
    encoded = []
    for prompt in prompts:
        numbers = sorted({token for segment in prompt.segments for token in segment if token < 0}, reverse=True)
        soft = {number: next(tokens) for number in numbers}
        segments = tuple(tuple(soft.get(token, token) for token in segment) for segment in prompt.segments)
        encoded.append(EncodedPrompt(segments, prompt.slots))
    return PromptSet(tuple(encoded), tuple(prompt.weight for prompt in prompts), combine, soft_words, temperature)


# Prompt text


def nearest_words(lm: MaskFillingLM, vectors: torch.Tensor, n: int) -> list[list[tuple[str, float]]]:
    """Return the texts of the `n` words nearest to each of `vectors` (S, d), with their Euclidean distances."""
    distances, tokens = torch.cdist(vectors.float(), lm.word_embeddings.float()).topk(n, largest=False)  # (S, n)
    texts = lm.tokens.texts()
    return [
        [(texts[token], distance) for token, distance in zip(*row, strict=True)]
        for row in zip(tokens.tolist(), distances.tolist(), strict=True)
    ]


def prompt_text(lm: MaskFillingLM, prompt: EncodedPrompt, words: Sequence[str] = ()) -> str:
    """Return the prompt as a template. Soft word i is shown as ‹word›, where word is item i of `words`."""
    special, texts = set(lm.tokens.prefix) | set(lm.tokens.suffix), lm.tokens.texts()

    def segment_text(ids: TokenIds) -> str:
        return " ".join(
            f"‹{words[token - lm.vocab_size]}›" if token >= lm.vocab_size else texts[token]
            for token in ids
            if token not in special
        )

    pieces = [segment_text(prompt.segments[0])]
    for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
        pieces += [f"<ENT{slot}>", segment_text(segment)]
    return " ".join(piece for piece in pieces if piece)
