"""Let an LM find the object of a fact in a sentence about it, as it is or perturbed (Shin et al. 2020, section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import EncodedFact, Majority, ProbeScores, UsableFacts
from kgharvest.engine.prompt_learning import autoprompt
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams, LearnedTrigger, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import QUERIES_AT_ONCE, Example, Likelihood
from kgharvest.engine.ranking import rows_at_once
from kgharvest.engine.text_tasks.text_template import SPECIAL_TOKENS, TextTemplate, encode_fields, room_for_texts
from kgharvest.engine.types import BadPrompt, BadSeed, BadText, EngineError, OnProgress, ignore

OBJECT_MASK = "[MASK]"  # in sentences of T-REx, whatever the LM's own mask
MOST_WORDS = 50  # of a context; what follows is cut off

FIELDS = ("context", "subject")


class Evidence(NamedTuple):
    """A sentence with OBJECT_MASK where it writes the object as `surface`."""

    sentence: str
    surface: str


class EvidencedFact(NamedTuple):
    """A fact and the sentences that say it. surfaces: what else is right, besides its object and the evidences'."""

    subject: str
    object: str
    evidences: tuple[Evidence, ...]
    surfaces: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """What counts as right, the canonical object first."""
        return tuple(dict.fromkeys([self.object, *(evidence.surface for evidence in self.evidences), *self.surfaces]))


class FactInContext(NamedTuple):
    """A fact in the context of one sentence, with `surface` for the object. answers: what counts as right there.

    true_answers: what is right of the fact as it is, which differs where the context is perturbed.
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
    """left_out: how many facts have no context, by reason."""

    facts: tuple[FactInContext, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def draw_contexts(facts: Sequence[EvidencedFact], rng: Random) -> FactsInContext:
    """Return each fact with one of its sentences, drawn among those that name the object in their first words."""
    in_context, left_out = [], Counter[str]()
    for fact in facts:
        cut = [Evidence(" ".join(sentence.split()[:MOST_WORDS]), surface) for sentence, surface in fact.evidences]
        fitting = [evidence for evidence in cut if OBJECT_MASK in evidence.sentence]
        if not fitting:
            left_out[f"no sentence with the object in its first {MOST_WORDS} words"] += 1
            continue
        sentence, surface = rng.choice(fitting)
        in_context.append(FactInContext(sentence, surface, fact.subject, fact.answers, fact.answers))
    return FactsInContext(tuple(in_context), dict(left_out))


def perturb(facts: Sequence[FactInContext], objects: Sequence[str], rng: Random) -> list[FactInContext]:
    """Return the facts with another of the relation's `objects`, drawn at random, in context and answer alike.

    Raises EngineError where there is no other.
    """
    perturbed = []
    for fact in facts:
        others = [other for other in objects if other not in fact.true_answers]
        if not others:
            raise EngineError(
                f"The object {fact.answers[0]!r} is the relation's only one, so no context can be perturbed; "
                "give facts with different objects."
            )
        other = rng.choice(others)
        perturbed.append(fact._replace(surface=other, answers=(other,)))
    return perturbed


# -- in tokens ---------------------------------------------------------------------------------------------------------


class EncodedContext(NamedTuple):
    """parts: the tokens of the template's fields. answers, true_answers: those of one token, the canonical first."""

    parts: tuple[TokenIds, ...]
    answers: TokenIds
    true_answers: TokenIds


@dataclass(frozen=True)
class EncodedContexts:
    """left_out: contexts that the LM cannot be asked, by reason. n_cut: contexts or subjects that lost their ends."""

    examples: tuple[EncodedContext, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    n_cut: int = 0


def with_single_token_object(lm: LanguageModel, facts: Sequence[EvidencedFact]) -> list[EvidencedFact]:
    return [fact for fact in facts if single_token(lm, fact.object) is not None]


def single_token(lm: LanguageModel, word: str) -> int | None:
    """Return the one token of `word`, None if it has several or cannot be written."""
    try:
        ids = lm.encode_entity(word)
    except BadSeed:
        return None
    return ids[0] if len(ids) == 1 else None


def single_tokens(lm: LanguageModel, words: Sequence[str]) -> TokenIds:
    """Return the tokens of those of `words` that have one."""
    return tuple(dict.fromkeys(token for word in words if (token := single_token(lm, word)) is not None))


def check_fields(template: TextTemplate) -> None:
    """Raise BadPrompt for a template with other fields than FIELDS."""
    if unknown := [name for name in template.fields if name not in FIELDS]:
        raise BadPrompt(
            f"The template {template.text!r} has {{{unknown[0]}}}; of a fact there are {{context}} and {{subject}}."
        )


def encode_contexts(lm: MaskedLM, template: TextTemplate, facts: Sequence[FactInContext]) -> EncodedContexts:
    """Return the facts in tokens, cut to what `template` leaves room for. Their objects have one token.

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


# -- learning and measuring --------------------------------------------------------------------------------------------


def learn_triggers(
    lm: MaskedLM,
    template: TriggerTemplate,
    parts: tuple[Sequence[EncodedContext], Sequence[EncodedContext]],
    answers: Sequence[int],
    params: AutoPromptParams,
    on_progress: OnProgress = ignore,
) -> LearnedTrigger:
    """Return the triggers that give the canonical objects of dev most, learned on train: `parts`.

    answers: the tokens of all objects, none of which is a trigger. Raises EngineError.
    """
    train, dev = ([Example(context.parts, context.answers[:1]) for context in part] for part in parts)
    task = TriggerTask(Likelihood(), train, dev, autoprompt.allowed_triggers(lm, answers))
    return autoprompt.search_from_masks(lm, template, task, params, on_progress)


@dataclass(frozen=True)
class ExtractionScores:
    """ranking: where the best right answer ranks. is_true: (N,), whether the LM answers with the fact as it is.

    Where the context is perturbed, such an answer comes from memory.
    """

    ranking: ProbeScores
    is_true: tuple[bool, ...]

    @property
    def known_p1(self) -> float:
        return sum(self.is_true) / len(self.is_true)


def score_answers(logprobs: Iterable[torch.Tensor], examples: Sequence[EncodedContext]) -> ExtractionScores:
    """Return how well the answers do. logprobs: (B, V) for the first B examples, for the next ones, and so on."""
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
    """Yield (B, V): the log-probabilities of all answers to the first B examples, to the next ones, and so on."""
    queries = [Likelihood().questions(lm, prompt, Example(example.parts))[0].query for example in examples]
    vectors = lm.vectors(queries, QUERIES_AT_ONCE, lambda: None)
    for part in torch.split(vectors, rows_at_once(lm, vectors)):
        yield torch.log_softmax(lm.logits(part), dim=-1)


def majority_logprobs(
    lm: LanguageModel, train: Sequence[EncodedContext], examples: Sequence[EncodedContext]
) -> Iterator[torch.Tensor]:
    """Yield what the baseline answers that reads nothing: objects by how often they are right in `train`."""
    facts = tuple(EncodedFact((), context.answers[0]) for context in train)
    return Majority(UsableFacts(facts, {}), lm.vocab_size).scores([()] * len(examples), lambda: None)
