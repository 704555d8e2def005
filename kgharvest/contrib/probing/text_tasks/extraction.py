"""Ask an LM for objects of facts in the context of sentences about them: files, methods and records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from kgharvest import code_version
from kgharvest.contrib.probing.probes.facts import PARTS, Document, read_facts
from kgharvest.contrib.probing.probes.measurement import CostMeter
from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import reasons_text
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
from kgharvest.engine.text_tasks.extraction import (
    OBJECT_MASK,
    EncodedContexts,
    Evidence,
    EvidencedFact,
    ExtractionScores,
    FactsInContext,
    check_fields,
    draw_contexts,
    encode_contexts,
    learn_triggers,
    majority_logprobs,
    perturb,
    prompt_logprobs,
    score_answers,
    with_single_token_object,
)
from kgharvest.engine.text_tasks.text_template import TextTemplate
from kgharvest.engine.types import EngineError, OnProgress, ignore
from kgharvest.errors import DomainError
from kgharvest.models import Relation
from kgharvest.statistics.rates import macro_average, macro_interval

EvidencedFactsByPart = Mapping[str, Sequence[EvidencedFact]]


@dataclass(frozen=True)
class ExtractedRelation:
    """manual: the relation's first prompt, behind the context."""

    name: str
    manual: TextTemplate
    facts: EvidencedFactsByPart


@dataclass(frozen=True)
class ExtractRequest:
    """with_perturbed: ask also in contexts, and search prompts for them, in which another object stands.

    Raises EngineError for a template or parameters with which nothing can be searched.
    """

    relations: Sequence[ExtractedRelation]
    template: TextTemplate
    params: AutoPromptParams
    with_perturbed: bool = False

    def __post_init__(self) -> None:
        check_fields(self.template)
        self.params.check(self.template.n_triggers, self.template.n_triggers)


# -- what is asked -----------------------------------------------------------------------------------------------------


def extracted_relations(relations: Sequence[Relation], documents: Sequence[Document]) -> list[ExtractedRelation]:
    """Return those of `relations` that the files have facts of. Raises NotExtracted or ImportRefused."""
    known = read_facts(documents, [relation.name for relation in relations], evidenced_fact)
    extracted = []
    for relation in relations:
        if relation.arity == 2 and relation.name in known:
            prompt = relation.initial_prompts[0].replace("<ENT0>", "{subject}").replace("<ENT1>", "[P]")
            template = TextTemplate.parse("{context} " + prompt)
            extracted.append(ExtractedRelation(relation.name, template, known[relation.name]))
    if not extracted:
        raise DomainError(
            "NotExtracted", "The files have no facts of any of these relations; a folder bears its relation's name."
        )
    return extracted


def evidenced_fact(line: Mapping[str, Any], pair: tuple[str, str]) -> EvidencedFact | str:
    """Return the fact with the `evidences` of LAMA's T-REx or with one `context`, or what is wrong with it."""
    surfaces = line.get("surfaces", [])
    if not isinstance(surfaces, list) or not all(isinstance(text, str) and text.strip() for text in surfaces):
        return 'has "surfaces" that are no list of texts'
    if "context" in line:
        evidence = _evidence_of(line["context"], [pair[1], *surfaces])
        return evidence if isinstance(evidence, str) else EvidencedFact(*pair, (evidence,), tuple(surfaces))
    evidences = line.get("evidences")
    if not isinstance(evidences, list):
        return 'has neither a "context" nor "evidences"'
    keys = ("masked_sentence", "obj_surface")
    if not all(isinstance(it, dict) and all(isinstance(it.get(key), str) for key in keys) for it in evidences):
        return 'has evidences without the texts "masked_sentence" and "obj_surface"'
    sentences = tuple(Evidence(evidence["masked_sentence"], evidence["obj_surface"]) for evidence in evidences)
    return EvidencedFact(*pair, sentences, tuple(surfaces))


def _evidence_of(context: Any, names: Sequence[str]) -> Evidence | str:
    """Return the context with OBJECT_MASK where it has the first of `names` that it has, or what is wrong with it."""
    if not isinstance(context, str):
        return 'has a "context" that is no text'
    if OBJECT_MASK in context:
        return Evidence(context, names[0])
    for name in names:
        masked, n = re.subn(rf"(?<!\w){re.escape(name)}(?!\w)", OBJECT_MASK, context)
        if n:
            return Evidence(masked, name)
    return 'has a "context" without its object; add how it is written there to "surfaces"'


# -- asking ------------------------------------------------------------------------------------------------------------


def extraction_records(
    lm: MaskedLM, control: MaskedLM | None, request: ExtractRequest, on_progress: OnProgress = ignore
) -> Iterator[dict[str, Any]]:
    """Yield a record of each relation and method, in contexts as they are and perturbed, on the control too.

    Raises NotExtracted or EngineError, for relations of which nothing can be asked before anything is searched.
    """
    extractions = [
        RelationExtraction(lm, relation, request, is_perturbed)
        for relation in request.relations
        for is_perturbed in ([False, True] if request.with_perturbed else [False])
    ]
    for extraction in extractions:
        with errors_naming(extraction.relation):
            yield extraction.majority_record()
            for asked_lm in [lm, control] if control else [lm]:
                yield extraction.manual_record(asked_lm)
                yield extraction.autoprompt_record(asked_lm, on_progress)


@contextmanager
def errors_naming(relation: ExtractedRelation) -> Iterator[None]:
    """Say in errors of the engine which relation they are about."""
    try:
        yield
    except EngineError as error:
        raise type(error)(f"{relation.name}: {error}") from error


class RelationExtraction:
    """A relation's facts, each in one context, and what methods make of them on `lm` and its control.

    Raises NotExtracted or EngineError where nothing can be asked.
    """

    def __init__(self, lm: MaskedLM, relation: ExtractedRelation, request: ExtractRequest, is_perturbed: bool) -> None:
        self.relation, self._request, self._is_perturbed, self._lm = relation, request, is_perturbed, lm
        with errors_naming(relation):
            self._in_context = self._draw_contexts()
            if is_perturbed:
                self._perturb()

    def _rng(self, purpose: str) -> Random:
        return Random(f"{self._request.params.seed} {self.relation.name} {purpose}")

    def _draw_contexts(self) -> dict[str, FactsInContext]:
        """Return every fact that can be asked in a context, by part. Raises NotExtracted if a part has none."""
        rng, in_context = self._rng("contexts"), {}
        for part in PARTS:
            facts = self.relation.facts[part]
            answerable = with_single_token_object(self._lm, facts)
            drawn = draw_contexts(answerable, rng)
            n_others = len(facts) - len(answerable)
            left_out = ({"object of several tokens": n_others} if n_others else {}) | dict(drawn.left_out)
            if not drawn.facts:
                raise DomainError(
                    "NotExtracted",
                    f"{self.relation.name}: no fact of {part} can be asked in a sentence "
                    f"({reasons_text(left_out) or 'it is empty'}); give others.",
                )
            in_context[part] = replace(drawn, left_out=left_out)
        return in_context

    def _perturb(self) -> None:
        rng = self._rng("perturbed")
        objects = list(dict.fromkeys(fact.answers[0] for part in self._in_context.values() for fact in part.facts))
        for part, in_context in self._in_context.items():
            self._in_context[part] = replace(in_context, facts=tuple(perturb(in_context.facts, objects, rng)))

    def _encoded(self, lm: MaskedLM, template: TextTemplate) -> dict[str, EncodedContexts]:
        """Raises NotExtracted if all texts of a part hold special tokens of the LM."""
        encoded = {
            part: encode_contexts(lm, template, in_context.facts) for part, in_context in self._in_context.items()
        }
        for part, contexts in encoded.items():
            if not contexts.examples:
                raise DomainError(
                    "NotExtracted", f"{self.relation.name}: all sentences of {part} hold special tokens; give others."
                )
        return encoded

    def majority_record(self) -> dict[str, Any]:
        encoded = self._encoded(self._lm, self.relation.manual)
        test = encoded["test"].examples
        scores = score_answers(majority_logprobs(self._lm, encoded["train"].examples, test), test)
        return self._record("majority", self._lm, encoded, scores) | {"forwards": 0, "seconds": 0.0}

    def manual_record(self, lm: MaskedLM) -> dict[str, Any]:
        meter, template = CostMeter(lm), self.relation.manual
        prompt = template.encode(lm).fill(())
        return self._prompt_record("manual", lm, template, prompt, self._encoded(lm, template)) | meter.columns()

    def autoprompt_record(self, lm: MaskedLM, on_progress: OnProgress) -> dict[str, Any]:
        meter, template = CostMeter(lm), self._request.template
        encoded = self._encoded(lm, template)
        parts = encoded["train"].examples, encoded["dev"].examples
        answers = {
            token
            for contexts in encoded.values()
            for context in contexts.examples
            for token in (*context.answers, *context.true_answers)
        }
        learned = learn_triggers(lm, template.encode(lm), parts, sorted(answers), self._request.params, on_progress)
        words = lm.tokens.texts()
        return (
            self._prompt_record("autoprompt", lm, template, learned.prompt, encoded)
            | {"trigger": [words[token] for token in learned.trigger], "trigger_ids": list(learned.trigger)}
            | meter.columns()
        )

    def _prompt_record(
        self,
        method: str,
        lm: MaskedLM,
        template: TextTemplate,
        prompt: EncodedPrompt,
        encoded: Mapping[str, EncodedContexts],
    ) -> dict[str, Any]:
        test = encoded["test"].examples
        scores = score_answers(prompt_logprobs(lm, prompt, test), test)
        texts = {"template": template.text, "prompt": template.prompt_text(lm, prompt)}
        return self._record(method, lm, encoded, scores) | texts

    def _record(
        self, method: str, lm: MaskedLM, encoded: Mapping[str, EncodedContexts], scores: ExtractionScores
    ) -> dict[str, Any]:
        return {
            "relation": self.relation.name,
            "method": method,
            "is_control": lm is not self._lm,
            "is_perturbed": self._is_perturbed,
            "lm": self._lm.name,
            "revision": self._lm.revision,
            **{f"n_{part}": len(encoded[part].examples) for part in PARTS},
            "left_out": {part: {**self._in_context[part].left_out, **encoded[part].left_out} for part in PARTS},
            "n_cut": {part: encoded[part].n_cut for part in PARTS},
            "p1": scores.ranking.precision_at(1),
            "p10": scores.ranking.precision_at(10),
            "mrr": scores.ranking.mrr,
            "nll": scores.ranking.nll,
            "known_p1": scores.known_p1,
            "seed": self._request.params.seed,
            "code_version": code_version(),
        }


# -- side by side ------------------------------------------------------------------------------------------------------

AVERAGED = ("p1", "p10", "mrr", "known_p1")


def extraction_summary(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per method, contexts and LM: means over relations, with Student's interval of P@1, and the cost."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["is_perturbed"], record["is_control"], record["method"]), []).append(record)
    return [
        dict(zip(("is_perturbed", "is_control", "method"), key, strict=True)) | _averages(group)
        for key, group in groups.items()
    ]


def _averages(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    low, high = macro_interval([record["p1"] for record in records])
    return {
        "n_relations": len(records),
        **{measure: macro_average(record[measure] for record in records) for measure in AVERAGED},
        "p1_low": low,
        "p1_high": high,
        "forwards": sum(record["forwards"] for record in records),
        "seconds": sum(record["seconds"] for record in records),
    }
