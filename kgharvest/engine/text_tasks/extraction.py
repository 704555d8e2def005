"""Let an LM find the object of a fact in a sentence about it, as it is or perturbed (Shin et al. 2020, section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import EncodedFact, Majority, ProbeScores, UsableFacts
from kgharvest.engine.prompt_learning import autoprompt
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams, FoundTrigger, TriggerTask, TriggerTemplate
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


class Attested(NamedTuple):
    """A fact and the sentences that say it. surfaces: what else is right, besides its object and the evidences'."""

    subject: str
    object: str
    evidences: tuple[Evidence, ...]
    surfaces: tuple[str, ...] = ()

    @property
    def right(self) -> tuple[str, ...]:
        """The answers that count, the canonical one first."""
        return tuple(dict.fromkeys([self.object, *(one.surface for one in self.evidences), *self.surfaces]))


class Reading(NamedTuple):
    """A fact in the context of one sentence. right: what the context says, as any answer that counts.

    known: the same of the fact as it is, which differs where the context is perturbed.
    """

    sentence: str
    written: str
    subject: str
    right: tuple[str, ...]
    known: tuple[str, ...]

    @property
    def context(self) -> str:
        return self.sentence.replace(OBJECT_MASK, self.written)


@dataclass(frozen=True)
class Readings:
    """left_out: facts that cannot be read, by reason."""

    readings: tuple[Reading, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def draw_contexts(facts: Sequence[Attested], rng: Random) -> Readings:
    """Return each fact with one of its sentences, drawn among those that name the object in their first words."""
    readings, left_out = [], Counter[str]()
    for fact in facts:
        cut = [Evidence(" ".join(one.sentence.split()[:MOST_WORDS]), one.surface) for one in fact.evidences]
        fitting = [evidence for evidence in cut if OBJECT_MASK in evidence.sentence]
        if not fitting:
            left_out[f"no sentence with the object in its first {MOST_WORDS} words"] += 1
            continue
        sentence, surface = rng.choice(fitting)
        readings.append(Reading(sentence, surface, fact.subject, fact.right, fact.right))
    return Readings(tuple(readings), dict(left_out))


def perturbed(readings: Sequence[Reading], objects: Sequence[str], rng: Random) -> list[Reading]:
    """Return the readings with another of the relation's `objects`, drawn at random, in context and answer alike.

    Raises EngineError where there is no other.
    """

    def with_another(reading: Reading) -> Reading:
        others = [one for one in objects if one not in reading.known]
        if not others:
            raise EngineError(
                f"The object {reading.right[0]!r} is the relation's only one, so no context can be perturbed; "
                "give facts with different objects."
            )
        other = rng.choice(others)
        return reading._replace(written=other, right=(other,))

    return [with_another(reading) for reading in readings]


# -- in tokens ---------------------------------------------------------------------------------------------------------


class EncodedReading(NamedTuple):
    """parts: the tokens of the template's fields. right, known: answers of one token, the canonical one first."""

    parts: tuple[TokenIds, ...]
    right: TokenIds
    known: TokenIds


@dataclass(frozen=True)
class EncodedReadings:
    """left_out: readings that the LM cannot be asked, by reason. n_cut: contexts or subjects that lost their ends."""

    examples: tuple[EncodedReading, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    n_cut: int = 0


def answerable(lm: LanguageModel, facts: Sequence[Attested]) -> tuple[list[Attested], int]:
    """Return the facts whose object is one token of `lm`, and how many others there are."""
    kept = [fact for fact in facts if one_token(lm, fact.object) is not None]
    return kept, len(facts) - len(kept)


def one_token(lm: LanguageModel, word: str) -> int | None:
    try:
        ids = lm.encode_entity(word)
    except BadSeed:
        return None
    return ids[0] if len(ids) == 1 else None


def check_fields(template: TextTemplate) -> None:
    """Raise BadPrompt for a template with other fields than FIELDS."""
    if unknown := [name for name in template.fields if name not in FIELDS]:
        raise BadPrompt(
            f"The template {template.text!r} has {{{unknown[0]}}}; of a fact there are {{context}} and {{subject}}."
        )


def encode_readings(lm: MaskedLM, template: TextTemplate, readings: Sequence[Reading]) -> EncodedReadings:
    """Return the readings in tokens, cut to what `template` leaves room for. Their objects are `answerable`.

    Raises BadPrompt as `check_fields`.
    """
    check_fields(template)
    room = room_for_texts(lm, template.encode(lm))
    examples, left_out, n_cut = [], Counter[str](), 0
    for reading in readings:
        try:
            texts = {"context": reading.context, "subject": reading.subject}
            parts, is_cut = encode_fields(lm, template, texts, room)
        except BadText:
            left_out[SPECIAL_TOKENS] += 1
            continue
        n_cut += is_cut
        examples.append(EncodedReading(parts, tokens_of(lm, reading.right), tokens_of(lm, reading.known)))
    return EncodedReadings(tuple(examples), dict(left_out), n_cut)


def tokens_of(lm: LanguageModel, words: Sequence[str]) -> TokenIds:
    """Return the tokens of those of `words` that have one."""
    return tuple(dict.fromkeys(token for word in words if (token := one_token(lm, word)) is not None))


# -- learning and measuring --------------------------------------------------------------------------------------------


def learn_triggers(
    lm: MaskedLM,
    template: TriggerTemplate,
    parts: tuple[Sequence[EncodedReading], Sequence[EncodedReading]],
    answers: Sequence[int],
    params: AutoPromptParams,
    on_progress: OnProgress = ignore,
) -> FoundTrigger:
    """Return the triggers that give the canonical objects of dev most, learned on train: `parts`.

    answers: the tokens of all objects, none of which is a trigger. Raises EngineError.
    """
    train, dev = ([Example(reading.parts, reading.right[:1]) for reading in part] for part in parts)
    task = TriggerTask(Likelihood(), train, dev, autoprompt.allowed_triggers(lm, answers))
    return autoprompt.search_from_masks(lm, template, task, params, on_progress)


@dataclass(frozen=True)
class ReadingScores:
    """right: where the best right answer ranks. knows: (N,), whether the LM answers with the fact as it is.

    Where the context is perturbed, such an answer comes from memory.
    """

    right: ProbeScores
    knows: tuple[bool, ...]

    @property
    def knowing(self) -> float:
        return sum(self.knows) / len(self.knows)


def measure(answers: Iterator[torch.Tensor], examples: Sequence[EncodedReading]) -> ReadingScores:
    """Return how well `answers`, the log-probabilities (B, V) for some of the examples after the other, do."""
    ranks, logprobs, knows = [], [], []
    waiting = iter(examples)
    for rows in answers:
        for row, example in zip(rows.cpu(), waiting, strict=False):
            best = row[list(example.right)].max()
            ranks.append(1 + int((row > best).sum()))
            logprobs.append(best.item())
            knows.append(int(row.argmax()) in example.known)
    return ReadingScores(ProbeScores(np.array(ranks), np.array(logprobs)), tuple(knows))


def answers_in(lm: MaskedLM, prompt: EncodedPrompt, examples: Sequence[EncodedReading]) -> Iterator[torch.Tensor]:
    """Yield (B, V): the log-probabilities of all answers to some of the examples after the other."""
    asked = [Likelihood().questions(lm, prompt, Example(example.parts))[0].query for example in examples]
    vectors = lm.vectors(asked, QUERIES_AT_ONCE, lambda: None)
    for part in torch.split(vectors, rows_at_once(lm, vectors)):
        yield torch.log_softmax(lm.logits(part), dim=-1)


def majority_answers(
    lm: LanguageModel, train: Sequence[EncodedReading], examples: Sequence[EncodedReading]
) -> Iterator[torch.Tensor]:
    """Yield what the baseline answers that reads nothing: objects by how often they are right in `train`."""
    facts = tuple(EncodedFact((), reading.right[0]) for reading in train)
    return Majority(UsableFacts(facts, {}), lm.vocab_size).scores([()] * len(examples), lambda: None)
