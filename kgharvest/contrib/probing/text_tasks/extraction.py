"""Extraction of the object of a fact from a true or perturbed sentence by an LM (Shin et al. 2020, section 6)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch

from kgharvest import code_version
from kgharvest.contrib.probing.probes.facts import PARTS, Document
from kgharvest.contrib.probing.probes.measurement import CostMeter
from kgharvest.contrib.probing.text_tasks.evidenced_facts import (
    OBJECT_MASK,
    Evidence,
    EvidencedFact,
    ExtractedRelation,
    check_fields,
    extract_template,
    extracted_relations,
)
from kgharvest.contrib.probing.text_tasks.options import DEFAULT_METHODS, EXTRACT_METHODS, search_params
from kgharvest.contrib.probing.text_tasks.text_template import EncodedTexts, TextTemplate, encode_texts
from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import EncodedFact, Majority, ProbeScores, UsableFacts, reasons_text
from kgharvest.engine.prompt_learning import autoprompt
from kgharvest.engine.prompt_learning.autoprompt import LearnedTrigger, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import QUERIES_AT_ONCE, Example, Likelihood
from kgharvest.engine.ranking import rows_at_once
from kgharvest.engine.types import AutoPromptParams, BadSeed, EngineError, OnProgress, ignore
from kgharvest.errors import DomainError
from kgharvest.models import Relation

MOST_WORDS = 50  # per context; longer contexts are truncated


class FactInContext(NamedTuple):
    """A fact with one sentence as its context.

    surface: text that replaces OBJECT_MASK in the sentence. answers: correct answers in this context. true_answers:
    correct answers of the original fact, which differ from `answers` if the context is perturbed.
    """

    sentence: str
    surface: str
    subject: str
    answers: tuple[str, ...]
    true_answers: tuple[str, ...]

    @property
    def context(self) -> str:
        return self.sentence.replace(OBJECT_MASK, self.surface)


def draw_contexts(facts: Sequence[EvidencedFact], rng: Random) -> tuple[list[FactInContext], dict[str, int]]:
    """Return facts in context: each with a random sentence whose first MOST_WORDS words contain the object.

    Also returns the number of facts without such a sentence, by reason.
    """
    in_context, n_left_out = [], 0
    for fact in facts:
        truncated = [Evidence(" ".join(sentence.split()[:MOST_WORDS]), surface) for sentence, surface in fact.evidences]
        fitting = [evidence for evidence in truncated if OBJECT_MASK in evidence.sentence]
        if not fitting:
            n_left_out += 1
            continue
        sentence, surface = rng.choice(fitting)
        in_context.append(FactInContext(sentence, surface, fact.subject, fact.answers, fact.answers))
    reason = f"no sentence with the object in its first {MOST_WORDS} words"
    return in_context, {reason: n_left_out} if n_left_out else {}


def perturb(facts: Sequence[FactInContext], objects: Sequence[str], rng: Random) -> list[FactInContext]:
    """Replace the object of each fact with a different random object, in the context and in the answer.

    Raises EngineError if there is no other object.
    """
    perturbed = []
    for fact in facts:
        other_objects = [name for name in objects if name not in fact.true_answers]
        if not other_objects:
            raise EngineError(
                f"The relation has no object other than {fact.answers[0]!r}, so no context can be perturbed. "
                "Add facts with different objects."
            )
        replacement = rng.choice(other_objects)
        perturbed.append(fact._replace(surface=replacement, answers=(replacement,)))
    return perturbed


@dataclass(frozen=True)
class ExtractRequest:
    """Inputs of an extraction. with_perturbed: also search and test prompts in contexts with replaced objects."""

    relations: Sequence[ExtractedRelation]
    template: TextTemplate
    params: AutoPromptParams
    with_perturbed: bool = False
    methods: Sequence[str] = DEFAULT_METHODS


def extract_request(
    relations: Sequence[Relation], documents: Sequence[Document], options: Mapping[str, Any]
) -> ExtractRequest:
    """Return the request for options of the command, page, or API. Raises DomainError or EngineError."""
    template, extracted = extract_template(options), extracted_relations(relations, documents)
    return ExtractRequest(extracted, template, search_params(options), options["perturbed"], options["methods"])


# -- Encoding ----------------------------------------------------------------------------------------------------------


class EncodedContext(NamedTuple):
    """A tokenized context. parts: tokens by field of the template. answers, true_answers: single-token answers only."""

    parts: tuple[TokenIds, ...]
    answers: TokenIds
    true_answers: TokenIds


def single_tokens(lm: LanguageModel, words: Sequence[str]) -> TokenIds:
    """Return the tokens of the words that can be encoded as one token."""
    tokens = []
    for word in words:
        with suppress(BadSeed):
            tokens.append(lm.encode_entity(word))
    return tuple(dict.fromkeys(ids[0] for ids in tokens if len(ids) == 1))


def encode_contexts(
    lm: MaskedLM, template: TextTemplate, facts: Sequence[FactInContext]
) -> EncodedTexts[EncodedContext]:
    """Tokenize facts, with contexts truncated to fit in `template`, and their single-token answers.

    Raises the errors of `check_fields`.
    """
    check_fields(template)
    texts = (
        (
            {"context": fact.context, "subject": fact.subject},
            single_tokens(lm, fact.answers),
            single_tokens(lm, fact.true_answers),
        )
        for fact in facts
    )
    return encode_texts(lm, template, texts, EncodedContext)


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

    is_true: (N,), True if the LM answers with the object of the original fact. In a perturbed context, the LM then
    answers from memory.
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
    """Yield (B, V) for each batch of examples in order: the log-probabilities of all tokens as answers."""
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


# -- Methods -----------------------------------------------------------------------------------------------------------


def extraction_records(
    lm: MaskedLM, control: MaskedLM | None, request: ExtractRequest, on_progress: OnProgress = ignore
) -> Iterator[dict[str, Any]]:
    """Yield one record per relation, kind of context, and method, including methods on the control.

    Raises NotExtracted or EngineError. The facts of all relations are checked before the first search starts.
    """
    extractions = [
        RelationExtraction(lm, relation, request, is_perturbed)
        for relation in request.relations
        for is_perturbed in ([False, True] if request.with_perturbed else [False])
    ]
    for extraction in extractions:
        with errors_naming(extraction.relation):
            if "majority" in request.methods:
                yield extraction.record("majority", lm, on_progress)
            for tested_lm in [lm, control] if control else [lm]:
                for method in [name for name in EXTRACT_METHODS if name in request.methods and name != "majority"]:
                    yield extraction.record(method, tested_lm, on_progress)


@contextmanager
def errors_naming(relation: ExtractedRelation) -> Iterator[None]:
    """Prefix EngineErrors with the relation's name."""
    try:
        yield
    except EngineError as error:
        raise type(error)(f"{relation.name}: {error}") from error


class RelationExtraction:
    """The facts of a relation, each in one context. `record` measures a method on `lm` or its control.

    Raises NotExtracted or EngineError if a part has no usable fact.
    """

    def __init__(self, lm: MaskedLM, relation: ExtractedRelation, request: ExtractRequest, is_perturbed: bool) -> None:
        self.relation, self._request, self._is_perturbed, self._lm = relation, request, is_perturbed, lm
        seed = f"{request.params.seed} {relation.name}"
        with errors_naming(relation):
            self._draw_contexts(Random(f"{seed} contexts"))
            if is_perturbed:
                rng = Random(f"{seed} perturbed")
                objects = list(dict.fromkeys(fact.answers[0] for part in PARTS for fact in self._facts[part]))
                self._facts = {part: perturb(facts, objects, rng) for part, facts in self._facts.items()}

    def _draw_contexts(self, rng: Random) -> None:
        """Set the usable facts in context and count the other facts, by part. Raises NotExtracted for an empty part."""
        self._facts: dict[str, list[FactInContext]] = {}
        self._left_out: dict[str, dict[str, int]] = {}
        for part in PARTS:
            facts = self.relation.facts[part]
            answerable = [fact for fact in facts if single_tokens(self._lm, [fact.object])]
            self._facts[part], left_out = draw_contexts(answerable, rng)
            n_multitoken = len(facts) - len(answerable)
            self._left_out[part] = ({"object of several tokens": n_multitoken} if n_multitoken else {}) | left_out
            if not self._facts[part]:
                raise DomainError(
                    "NotExtracted",
                    f"{self.relation.name}: no {part} fact with a usable sentence "
                    f"({reasons_text(self._left_out[part]) or 'it is empty'}). Add other facts.",
                )

    def _encoded(self, lm: MaskedLM, template: TextTemplate) -> dict[str, EncodedTexts[EncodedContext]]:
        """Encode the facts by part. Raises NotExtracted if all texts of a part contain special tokens of the LM."""
        encoded = {part: encode_contexts(lm, template, facts) for part, facts in self._facts.items()}
        for part, contexts in encoded.items():
            if not contexts.examples:
                raise DomainError(
                    "NotExtracted",
                    f"{self.relation.name}: all {part} sentences contain special tokens. Add other sentences.",
                )
        return encoded

    def _best_on_train(self, lm: MaskedLM) -> TextTemplate:
        """Return the relation's prompt with the best P@1 on train, the first of equal ones (Jiang et al. 2020)."""
        precisions = []
        for template in self.relation.prompts:
            train = self._encoded(lm, template)["train"].examples
            logprobs = prompt_logprobs(lm, template.encode(lm).fill(()), train)
            precisions.append(score_answers(logprobs, train).ranking.precision_at(1) or 0.0)
        return self.relation.prompts[precisions.index(max(precisions))]

    def record(self, method: str, lm: MaskedLM, on_progress: OnProgress) -> dict[str, Any]:
        """Return the record of a method."""
        meter = CostMeter(lm)
        template = self.relation.prompts[0]
        if method == "autoprompt":
            template = self._request.template
        elif method == "lpaqa-top1":
            template = self._best_on_train(lm)
        encoded = self._encoded(lm, template)
        train, dev, test = (encoded[part].examples for part in PARTS)
        texts: dict[str, Any] = {}
        if method == "majority":
            logprobs = majority_logprobs(lm, train, test)
        else:
            trigger: dict[str, Any] = {}
            if method == "autoprompt":
                contexts = [*train, *dev, *test]
                answers = {token for context in contexts for token in (*context.answers, *context.true_answers)}
                learned = learn_triggers(
                    lm, template.encode(lm), (train, dev), sorted(answers), self._request.params, on_progress
                )
                prompt, words = learned.prompt, lm.tokens.texts()
                trigger = {"trigger": [words[token] for token in learned.trigger], "trigger_ids": list(learned.trigger)}
            else:
                prompt = template.encode(lm).fill(())
            logprobs = prompt_logprobs(lm, prompt, test)
            texts = {"template": template.text, "prompt": template.prompt_text(lm, prompt), **trigger}
        scores = score_answers(logprobs, test)
        return {
            "relation": self.relation.name,
            "method": method,
            "is_control": lm is not self._lm,
            "is_perturbed": self._is_perturbed,
            "lm": self._lm.name,
            "revision": self._lm.revision,
            **{f"n_{part}": len(encoded[part].examples) for part in PARTS},
            "left_out": {part: self._left_out[part] | encoded[part].left_out for part in PARTS},
            "n_cut": {part: encoded[part].n_cut for part in PARTS},
            "p1": scores.ranking.precision_at(1),
            "p10": scores.ranking.precision_at(10),
            "mrr": scores.ranking.mrr,
            "nll": scores.ranking.nll,
            "known_p1": scores.known_p1,
            "seed": self._request.params.seed,
            "code_version": code_version(),
            **texts,
            **({"forwards": 0, "seconds": 0.0} if method == "majority" else meter.read()),
        }
