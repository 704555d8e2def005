"""Extraction of the objects of facts from sentences with an LM: files, methods, and records."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from kgharvest import code_version
from kgharvest.contrib.probing.probes.facts import PARTS, Document, read_facts
from kgharvest.contrib.probing.probes.measurement import CostMeter
from kgharvest.contrib.probing.text_tasks.object_methods import (
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
from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate
from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import reasons_text
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
from kgharvest.engine.types import EngineError, OnProgress, ignore
from kgharvest.errors import DomainError
from kgharvest.models import Relation
from kgharvest.statistics.rates import macro_average, macro_interval

EvidencedFactsByPart = Mapping[str, Sequence[EvidencedFact]]


@dataclass(frozen=True)
class ExtractedRelation:
    """A relation and its facts by part. manual: the relation's first prompt, after the context."""

    name: str
    manual: TextTemplate
    facts: EvidencedFactsByPart


@dataclass(frozen=True)
class ExtractRequest:
    """Inputs of an extraction. with_perturbed: also search and test prompts in contexts with replaced objects.

    Raises EngineError for an invalid template or parameters that do not fit it.
    """

    relations: Sequence[ExtractedRelation]
    template: TextTemplate
    params: AutoPromptParams
    with_perturbed: bool = False

    def __post_init__(self) -> None:
        check_fields(self.template)
        self.params.check(self.template.n_triggers, self.template.n_triggers)


# -- Inputs ------------------------------------------------------------------------------------------------------------


def extracted_relations(relations: Sequence[Relation], documents: Sequence[Document]) -> list[ExtractedRelation]:
    """Return the binary relations with facts in the files. Raises NotExtracted or ImportRefused."""
    facts = read_facts(documents, [relation.name for relation in relations], evidenced_fact)
    extracted = []
    for relation in relations:
        if relation.arity == 2 and relation.name in facts:
            prompt = relation.initial_prompts[0].replace("<ENT0>", "{subject}").replace("<ENT1>", "[P]")
            template = TextTemplate.parse("{context} " + prompt)
            extracted.append(ExtractedRelation(relation.name, template, facts[relation.name]))
    if not extracted:
        raise DomainError("NotExtracted", "The files have no facts for these relations. Name folders after relations.")
    return extracted


def evidenced_fact(line: Mapping[str, Any], pair: tuple[str, str]) -> EvidencedFact | str:
    """Return the fact with LAMA T-REx `evidences` or with one `context`, or the problem as text."""
    surfaces = line.get("surfaces", [])
    if not isinstance(surfaces, list) or not all(isinstance(text, str) and text.strip() for text in surfaces):
        return 'has "surfaces" that are not a list of texts'
    if "context" in line:
        evidence = _evidence_of(line["context"], [pair[1], *surfaces])
        return evidence if isinstance(evidence, str) else EvidencedFact(*pair, (evidence,), tuple(surfaces))
    evidences = line.get("evidences")
    if not isinstance(evidences, list):
        return 'has neither a "context" nor "evidences"'
    keys = ("masked_sentence", "obj_surface")
    if not all(isinstance(row, dict) and all(isinstance(row.get(key), str) for key in keys) for row in evidences):
        return 'has evidences without the texts "masked_sentence" and "obj_surface"'
    sentences = tuple(Evidence(evidence["masked_sentence"], evidence["obj_surface"]) for evidence in evidences)
    return EvidencedFact(*pair, sentences, tuple(surfaces))


def _evidence_of(context: Any, names: Sequence[str]) -> Evidence | str:
    """Return the context with its first match of `names` masked by OBJECT_MASK, or the problem as text."""
    if not isinstance(context, str):
        return 'has a "context" that is not a text'
    if OBJECT_MASK in context:
        return Evidence(context, names[0])
    for name in names:
        masked, n = re.subn(rf"(?<!\w){re.escape(name)}(?!\w)", OBJECT_MASK, context)
        if n:
            return Evidence(masked, name)
    return 'has a "context" without its object; add the spelling in the context to "surfaces"'


# -- Methods -----------------------------------------------------------------------------------------------------------


def extraction_records(
    lm: MaskedLM, control: MaskedLM | None, request: ExtractRequest, on_progress: OnProgress = ignore
) -> Iterator[dict[str, Any]]:
    """Yield one record per relation and method, in original and perturbed contexts, also on the control.

    Raises NotExtracted or EngineError; relations without usable facts are reported before any search.
    """
    extractions = [
        RelationExtraction(lm, relation, request, is_perturbed)
        for relation in request.relations
        for is_perturbed in ([False, True] if request.with_perturbed else [False])
    ]
    for extraction in extractions:
        with errors_naming(extraction.relation):
            yield extraction.majority_record()
            for tested_lm in [lm, control] if control else [lm]:
                yield extraction.manual_record(tested_lm)
                yield extraction.autoprompt_record(tested_lm, on_progress)


@contextmanager
def errors_naming(relation: ExtractedRelation) -> Iterator[None]:
    """Prefix EngineErrors with the relation's name."""
    try:
        yield
    except EngineError as error:
        raise type(error)(f"{relation.name}: {error}") from error


class RelationExtraction:
    """A relation's facts, each in one context, and the records of methods on `lm` and its control.

    Raises NotExtracted or EngineError if a part has no usable fact.
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
        """Return the usable facts in context, by part. Raises NotExtracted if a part has none."""
        rng, in_context = self._rng("contexts"), {}
        for part in PARTS:
            facts = self.relation.facts[part]
            answerable = with_single_token_object(self._lm, facts)
            drawn = draw_contexts(answerable, rng)
            n_multitoken = len(facts) - len(answerable)
            left_out = ({"object of several tokens": n_multitoken} if n_multitoken else {}) | dict(drawn.left_out)
            if not drawn.facts:
                raise DomainError(
                    "NotExtracted",
                    f"{self.relation.name}: no {part} fact with a usable sentence "
                    f"({reasons_text(left_out) or 'it is empty'}). Add other facts.",
                )
            in_context[part] = replace(drawn, left_out=left_out)
        return in_context

    def _perturb(self) -> None:
        rng = self._rng("perturbed")
        objects = list(dict.fromkeys(fact.answers[0] for part in self._in_context.values() for fact in part.facts))
        for part, in_context in self._in_context.items():
            self._in_context[part] = replace(in_context, facts=tuple(perturb(in_context.facts, objects, rng)))

    def _encoded(self, lm: MaskedLM, template: TextTemplate) -> dict[str, EncodedContexts]:
        """Raises NotExtracted if all texts of a part contain special tokens of the LM."""
        encoded = {
            part: encode_contexts(lm, template, in_context.facts) for part, in_context in self._in_context.items()
        }
        for part, contexts in encoded.items():
            if not contexts.examples:
                raise DomainError(
                    "NotExtracted",
                    f"{self.relation.name}: all {part} sentences contain special tokens. Add other sentences.",
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


# -- Summary -----------------------------------------------------------------------------------------------------------

AVERAGED = ("p1", "p10", "mrr", "known_p1")


def extraction_summary(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per method, kind of context, and LM: means over relations, Student's interval of P@1, and cost."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["is_perturbed"], record["is_control"], record["method"]), []).append(record)
    rows = []
    for key, group in groups.items():
        low, high = macro_interval([record["p1"] for record in group])
        rows.append({
            **dict(zip(("is_perturbed", "is_control", "method"), key, strict=True)),
            "n_relations": len(group),
            **{measure: macro_average(record[measure] for record in group) for measure in AVERAGED},
            "p1_low": low,
            "p1_high": high,
            **{cost: sum(record[cost] for record in group) for cost in ("forwards", "seconds")},
        })  # fmt: skip
    return rows
