"""Objectives of prompt learning: questions to an LM, and scores of its answers in nats (higher is better).

Facts, labeled texts, and seed tuples are all examples: texts for the slots of a prompt. Objectives differ in the tokens
that they ask for and in how they convert log-probabilities to a score.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, Pattern, Query, Tick, TokenIds
from kgharvest.engine.language_models.batching import same_length_batches
from kgharvest.engine.language_models.masked import MaskFillingLM
from kgharvest.engine.ranking import rows_at_once
from kgharvest.engine.scoring import compatibility

QUERIES_AT_ONCE = 256


class Example(NamedTuple):
    """The tokens in slots 0, 1, ... and, if the next slot is queried, the correct tokens for that slot."""

    parts: tuple[TokenIds, ...]
    targets: TokenIds = ()


class Question(NamedTuple):
    """A query and its correct answers. Each answer is one token."""

    query: Query
    targets: TokenIds


class Objective(Protocol):
    def questions(self, lm: MaskFillingLM, prompt: EncodedPrompt, example: Example) -> list[Question]:
        """Return the questions for `example` in `prompt`. Every prompt yields the same number of questions."""

    def scores(self, examples: Sequence[Example], logprobs: torch.Tensor) -> torch.Tensor:
        """Return differentiable scores (P, E) from the log-probabilities (P, Q) of the correct answers.

        Q: the questions of the first example, then those of the second example, and so on.
        """


class Likelihood:
    """log P(any target | prompt, parts). The target is a fact's tail, or the targets are the tokens of a label."""

    def questions(self, lm: MaskFillingLM, prompt: EncodedPrompt, example: Example) -> list[Question]:
        pattern = (*map(len, example.parts), 1)
        return [Question(lm.query(prompt, pattern, sum(example.parts, ())), example.targets)]

    def scores(self, examples: Sequence[Example], logprobs: torch.Tensor) -> torch.Tensor:
        return logprobs


class HeadLikelihood:
    """log P(parts | prompt) while the next slot is masked."""

    def questions(self, lm: MaskFillingLM, prompt: EncodedPrompt, example: Example) -> list[Question]:
        return step_by_step(lm, prompt, example.parts, (*map(len, example.parts), 1))

    def scores(self, examples: Sequence[Example], logprobs: torch.Tensor) -> torch.Tensor:
        return part_sums(examples, logprobs).sum(dim=-1)


@dataclass(frozen=True)
class Compatibility:
    """f(E, p) of a whole tuple (BertNet, Eq. 1). Its entities are filled in one after the other."""

    alpha: float = 2 / 3

    def questions(self, lm: MaskFillingLM, prompt: EncodedPrompt, example: Example) -> list[Question]:
        return step_by_step(lm, prompt, example.parts, tuple(map(len, example.parts)))

    def scores(self, examples: Sequence[Example], logprobs: torch.Tensor) -> torch.Tensor:
        return compatibility(part_sums(examples, logprobs), self.alpha)


def step_by_step(
    lm: LanguageModel, prompt: EncodedPrompt, parts: Sequence[TokenIds], pattern: Pattern
) -> list[Question]:
    """Return a question for every token of `parts`, given the tokens before it (BertNet, Fig. 6)."""
    tokens = tuple(token for part in parts for token in part)
    return [Question(lm.query(prompt, pattern, tokens[:n]), (token,)) for n, token in enumerate(tokens)]


class TokenLikelihoods(Compatibility):
    """log P of every token of whole tuples. `scores` returns one score per token, (P, Q)."""

    def scores(self, examples: Sequence[Example], logprobs: torch.Tensor) -> torch.Tensor:
        return logprobs


def part_sums(examples: Sequence[Example], logprobs: torch.Tensor) -> torch.Tensor:
    """Return (P, E, n): the log-probabilities (P, Q) of single tokens, summed over each part of each example."""
    lengths = torch.tensor([len(part) for example in examples for part in example.parts], device=logprobs.device)
    part_of = torch.arange(len(lengths), device=logprobs.device).repeat_interleave(lengths)  # (Q,)
    sums = torch.zeros(len(logprobs), len(lengths), device=logprobs.device).index_add(1, part_of, logprobs)
    return sums.view(len(logprobs), len(examples), -1)


def scores(
    lm: MaskFillingLM, objective: Objective, prompts: Sequence[EncodedPrompt], examples: Sequence[Example], tick: Tick
) -> torch.Tensor:
    """Return (P, E): the score of each example in each prompt, without gradients."""
    questions = all_questions(lm, objective, prompts, examples)
    vectors = lm.vectors([question.query for question in questions], QUERIES_AT_ONCE, tick)  # (P * Q, d)
    at_once = rows_at_once(lm, vectors)
    logprobs = [
        target_logprobs(lm.logits(part), questions[start : start + at_once])
        for start, part in zip(range(0, len(questions), at_once), torch.split(vectors, at_once), strict=True)
    ]
    return objective.scores(examples, torch.cat(logprobs).view(len(prompts), -1))


def differentiable_scores(
    lm: MaskFillingLM, objective: Objective, prompts: Sequence[EncodedPrompt], examples: Sequence[Example]
) -> torch.Tensor:
    """Return (P, E): the result of `scores`, with gradients for the soft words of `lm`."""
    questions = all_questions(lm, objective, prompts, examples)
    batches = list(same_length_batches([question.query for question in questions], QUERIES_AT_ONCE, sys.maxsize))
    parts = []
    for rows in batches:
        batch = [questions[row] for row in rows]
        ids = torch.tensor([question.query.ids for question in batch], device=lm.device)  # (B, T)
        positions = torch.tensor([question.query.position for question in batch], device=lm.device)  # (B,)
        parts.append(target_logprobs(lm.logits_at(ids, positions), batch))
    logprobs = torch.cat(parts)
    order = torch.argsort(torch.tensor([row for rows in batches for row in rows])).to(logprobs.device)
    return objective.scores(examples, logprobs[order].view(len(prompts), -1))


def all_questions(
    lm: MaskFillingLM, objective: Objective, prompts: Sequence[EncodedPrompt], examples: Sequence[Example]
) -> list[Question]:
    """Return the questions of all examples in the first prompt, then those in the second prompt, and so on."""
    return [
        question for prompt in prompts for example in examples for question in objective.questions(lm, prompt, example)
    ]


def target_logprobs(logits: torch.Tensor, questions: Sequence[Question]) -> torch.Tensor:
    """Return (B,): the log of the summed probability of each question's targets, computed from `logits` (B, V)."""
    logprobs = torch.log_softmax(logits, dim=-1)
    n_targets = {len(question.targets) for question in questions}
    if len(n_targets) == 1:
        targets = torch.tensor([question.targets for question in questions], device=logits.device)  # (B, n)
        return logprobs.gather(1, targets).logsumexp(dim=1)
    return torch.stack(
        [row[list(question.targets)].logsumexp(0) for row, question in zip(logprobs, questions, strict=True)]
    )
