"""Relation extraction: find the object of a fact in a true or perturbed sentence (Shin et al. 2020, section 6)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from kgharvest.contrib.probing.text_tasks.text_template import (
    SPECIAL_TOKENS,
    TextTemplate,
    encode_fields,
    room_for_texts,
)
from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import EncodedFact, Majority, ProbeScores, UsableFacts
from kgharvest.engine.prompt_learning import autoprompt
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams, LearnedTrigger, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import QUERIES_AT_ONCE, Example, Likelihood
from kgharvest.engine.ranking import rows_at_once
from kgharvest.engine.types import BadPrompt, BadSeed, BadText, EngineError, OnProgress, ignore

OBJECT_MASK = "[MASK]"  # in T-REx sentences; independent of the LM's mask token
MOST_WORDS = 50  # per context; longer contexts are truncated

FIELDS = ("context", "subject")


class Evidence(NamedTuple):
    """A sentence with OBJECT_MASK in place of `surface`, its text for the object."""

    sentence: str
    surface: str


class EvidencedFact(NamedTuple):
    """A fact and its sentences. surfaces: correct answers in addition to the object and the evidence surfaces."""

    subject: str
    object: str
    evidences: tuple[Evidence, ...]
    surfaces: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """Correct answers, the canonical object first."""
        return tuple(dict.fromkeys([self.object, *(evidence.surface for evidence in self.evidences), *self.surfaces]))


class FactInContext(NamedTuple):
    """A fact in the context of one sentence, with `surface` for the object.

    answers: correct answers in this context. true_answers: correct answers of the original fact, which differ if the
    context is perturbed.
    """

    sentence: str
    surface: str
    subject: str
    answers: tuple[str, ...]
    true_answers: tuple[str, ...]

    @property
    def context(self) -> str:
        return self.sentence.replace(OBJECT_MASK, self.surface)


@dataclass(frozen=True)
class FactsInContext:
    """Facts in context. left_out: number of facts without a context, by reason."""

    facts: tuple[FactInContext, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def draw_contexts(facts: Sequence[EvidencedFact], rng: Random) -> FactsInContext:
    """Return each fact with a random sentence that contains the object within its first MOST_WORDS words."""
    in_context, left_out = [], Counter[str]()
    for fact in facts:
        truncated = [Evidence(" ".join(sentence.split()[:MOST_WORDS]), surface) for sentence, surface in fact.evidences]
        fitting = [evidence for evidence in truncated if OBJECT_MASK in evidence.sentence]
        if not fitting:
            left_out[f"no sentence with the object in its first {MOST_WORDS} words"] += 1
            continue
        sentence, surface = rng.choice(fitting)
        in_context.append(FactInContext(sentence, surface, fact.subject, fact.answers, fact.answers))
    return FactsInContext(tuple(in_context), dict(left_out))


def perturb(facts: Sequence[FactInContext], objects: Sequence[str], rng: Random) -> list[FactInContext]:
    """Replace the object of each fact by a random different object, in the context and in the answer.

    Raises EngineError if there is no other object.
    """
    perturbed = []
    for fact in facts:
        other_objects = [name for name in objects if name not in fact.true_answers]
        if not other_objects:
            raise EngineError(
                f"The object {fact.answers[0]!r} is the relation's only one, so no context can be perturbed. "
                "Add facts with different objects."
            )
        replacement = rng.choice(other_objects)
        perturbed.append(fact._replace(surface=replacement, answers=(replacement,)))
    return perturbed


# -- Encoding ----------------------------------------------------------------------------------------------------------


class EncodedContext(NamedTuple):
    """A tokenized context. parts: by field of the template. answers, true_answers: answers of one token only."""

    parts: tuple[TokenIds, ...]
    answers: TokenIds
    true_answers: TokenIds


@dataclass(frozen=True)
class EncodedContexts:
    """Encoded contexts. left_out: number of contexts that cannot be encoded, by reason. n_cut: truncated contexts."""

    examples: tuple[EncodedContext, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    n_cut: int = 0


def with_single_token_object(lm: LanguageModel, facts: Sequence[EvidencedFact]) -> list[EvidencedFact]:
    return [fact for fact in facts if single_token(lm, fact.object) is not None]


def single_token(lm: LanguageModel, word: str) -> int | None:
    """Return the token of `word`, or None if the word has several tokens or cannot be encoded."""
    try:
        ids = lm.encode_entity(word)
    except BadSeed:
        return None
    return ids[0] if len(ids) == 1 else None


def single_tokens(lm: LanguageModel, words: Sequence[str]) -> TokenIds:
    """Return the tokens of the words that have one token."""
    return tuple(dict.fromkeys(token for word in words if (token := single_token(lm, word)) is not None))


def check_fields(template: TextTemplate) -> None:
    """Raise BadPrompt if the template has a field that is not in FIELDS."""
    if unknown_fields := [name for name in template.fields if name not in FIELDS]:
        raise BadPrompt(
            f"The template {template.text!r} has an unknown field {{{unknown_fields[0]}}}. "
            "Use {context} and {subject}."
        )


def encode_contexts(lm: MaskedLM, template: TextTemplate, facts: Sequence[FactInContext]) -> EncodedContexts:
    """Tokenize facts, truncated to fit in `template`, with their single-token answers.

    Raises BadPrompt as `check_fields`.
    """
    check_fields(template)
    room = room_for_texts(lm, template.encode(lm))
    examples, left_out, n_cut = [], Counter[str](), 0
    for fact in facts:
        try:
            texts = {"context": fact.context, "subject": fact.subject}
            parts, is_cut = encode_fields(lm, template, texts, room)
        except BadText:
            left_out[SPECIAL_TOKENS] += 1
            continue
        n_cut += is_cut
        examples.append(EncodedContext(parts, single_tokens(lm, fact.answers), single_tokens(lm, fact.true_answers)))
    return EncodedContexts(tuple(examples), dict(left_out), n_cut)


# -- Learning and scores -----------------------------------------------------------------------------------------------


def learn_triggers(
    lm: MaskedLM,
    template: TriggerTemplate,
    parts: tuple[Sequence[EncodedContext], Sequence[EncodedContext]],
    answers: Sequence[int],
    params: AutoPromptParams,
    on_progress: OnProgress = ignore,
) -> LearnedTrigger:
    """Learn triggers on train. Return those that maximize the likelihood of the canonical objects of dev.

    parts: train and dev. answers: the tokens of all objects, which are not allowed as triggers. Raises EngineError.
    """
    train, dev = ([Example(context.parts, context.answers[:1]) for context in part] for part in parts)
    task = TriggerTask(Likelihood(), train, dev, autoprompt.allowed_triggers(lm, answers))
    return autoprompt.search_from_masks(lm, template, task, params, on_progress)


@dataclass(frozen=True)
class ExtractionScores:
    """Scores of answers. ranking: the rank of the best correct answer.

    is_true: (N,), True if the LM answers with the original fact; in a perturbed context, it answers from memory.
    """

    ranking: ProbeScores
    is_true: tuple[bool, ...]

    @property
    def known_p1(self) -> float:
        return sum(self.is_true) / len(self.is_true)


def score_answers(logprobs: Iterable[torch.Tensor], examples: Sequence[EncodedContext]) -> ExtractionScores:
    """Return the scores of answers. logprobs: (B, V) for each batch of examples, in order."""
    ranks, best_logprobs, is_true = [], [], []
    remaining = iter(examples)
    for batch in logprobs:
        for row, example in zip(batch.cpu(), remaining, strict=False):
            best = row[list(example.answers)].max()
            ranks.append(1 + int((row > best).sum()))
            best_logprobs.append(best.item())
            is_true.append(int(row.argmax()) in example.true_answers)
    return ExtractionScores(ProbeScores(np.array(ranks), np.array(best_logprobs)), tuple(is_true))


def prompt_logprobs(lm: MaskedLM, prompt: EncodedPrompt, examples: Sequence[EncodedContext]) -> Iterator[torch.Tensor]:
    """Yield (B, V): the log-probabilities of all answers, for each batch of examples in order."""
    queries = [Likelihood().questions(lm, prompt, Example(example.parts))[0].query for example in examples]
    vectors = lm.vectors(queries, QUERIES_AT_ONCE, lambda: None)
    for part in torch.split(vectors, rows_at_once(lm, vectors)):
        yield torch.log_softmax(lm.logits(part), dim=-1)


def majority_logprobs(
    lm: LanguageModel, train: Sequence[EncodedContext], examples: Sequence[EncodedContext]
) -> Iterator[torch.Tensor]:
    """Yield the log-probabilities of the majority baseline: objects by their frequency in `train`."""
    facts = tuple(EncodedFact((), context.answers[0]) for context in train)
    return Majority(UsableFacts(facts, {}), lm.vocab_size).scores([()] * len(examples), lambda: None)
