"""Ask an LM for objects of facts in the context of sentences about them: files, methods and records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluation.statistics.rates import macro_average, macro_interval
from kgharvest.engine.types import EngineError, OnProgress, ignore
from kgharvest.errors import DomainError
from kgharvest.models import Relation
from kgharvest.version import code_version
from probing.probes.facts import PARTS, Document, placed_fact, read_documents

if TYPE_CHECKING:
    from kgharvest.engine.language_models.base import EncodedPrompt
    from kgharvest.engine.language_models.masked import MaskedLM
    from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
    from kgharvest.engine.text_tasks.extraction import Attested, EncodedReadings, Evidence, Readings, ReadingScores
    from kgharvest.engine.text_tasks.text_template import TextTemplate

TEMPLATE = "{context} {subject} [T] [T] [T] [T] [T] [P] ."  # Shin et al. 2020, Table 3
OBJECT_MASK = "[MASK]"

FactsByPart = Mapping[str, Sequence["Attested"]]


class NotExtracted(DomainError):
    """Facts or sentences in which no LM can be asked for anything."""


@dataclass(frozen=True)
class ExtractedRelation:
    """manual: the relation's first prompt, behind the context."""

    name: str
    manual: TextTemplate
    facts: FactsByPart


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
        from kgharvest.engine.text_tasks.extraction import check_fields

        check_fields(self.template)
        self.params.check(self.template.n_triggers, self.template.n_triggers)


# -- what is asked -----------------------------------------------------------------------------------------------------


def extracted_relations(relations: Sequence[Relation], documents: Sequence[Document]) -> list[ExtractedRelation]:
    """Return those of `relations` that the files have facts of. Raises NotExtracted or ImportRefused."""
    known = read_attested(documents, [relation.name for relation in relations])
    found = [
        ExtractedRelation(relation.name, manual_template(relation), known[relation.name])
        for relation in relations
        if relation.arity == 2 and relation.name in known
    ]
    if not found:
        raise NotExtracted("The files have no facts of any of these relations; a folder bears its relation's name.")
    return found


def manual_template(relation: Relation) -> TextTemplate:
    from kgharvest.engine.text_tasks.text_template import TextTemplate

    asked = relation.initial_prompts[0].replace("<ENT0>", "{subject}").replace("<ENT1>", "[P]")
    return TextTemplate.parse("{context} " + asked)


def read_attested(documents: Sequence[Document], relations: Sequence[str]) -> dict[str, FactsByPart]:
    """Return the facts with their sentences, by relation and part. Raises ImportRefused with every line at fault."""
    found: dict[str, dict[str, list[Attested]]] = {}

    def take(line: dict[str, Any], document: Document) -> str | None:
        placed = placed_fact(line, document, relations)
        if isinstance(placed, str):
            return placed
        attested = attested_fact(line, *placed.pair)
        if isinstance(attested, str):
            return attested
        found.setdefault(placed.relation, {part: [] for part in PARTS})[placed.part].append(attested)
        return None

    read_documents(documents, take)
    return found


def attested_fact(line: Mapping[str, Any], subject: str, its_object: str) -> Attested | str:
    """Return the fact with the `evidences` of LAMA's T-REx or with one `context`, or what is wrong with it."""
    from kgharvest.engine.text_tasks.extraction import Attested, Evidence

    surfaces = line.get("surfaces", [])
    if not _is_list_of_texts(surfaces):
        return 'has "surfaces" that are no list of texts'
    if "context" in line:
        evidence = _evidence_of(line["context"], [its_object, *surfaces])
        return evidence if isinstance(evidence, str) else Attested(subject, its_object, (evidence,), tuple(surfaces))
    evidences = line.get("evidences")
    if not isinstance(evidences, list):
        return 'has neither a "context" nor "evidences"'
    if not all(_is_evidence(one) for one in evidences):
        return 'has evidences without the texts "masked_sentence" and "obj_surface"'
    sentences = tuple(Evidence(one["masked_sentence"], one["obj_surface"]) for one in evidences)
    return Attested(subject, its_object, sentences, tuple(surfaces))


def _evidence_of(context: Any, names: Sequence[str]) -> Evidence | str:
    """Return the context with OBJECT_MASK where it has the first of `names` that it has, or what is wrong with it."""
    from kgharvest.engine.text_tasks.extraction import Evidence

    if not isinstance(context, str):
        return 'has a "context" that is no text'
    if OBJECT_MASK in context:
        return Evidence(context, names[0])
    for name in names:
        masked, n = re.subn(rf"(?<!\w){re.escape(name)}(?!\w)", OBJECT_MASK, context)
        if n:
            return Evidence(masked, name)
    return 'has a "context" without its object; add how it is written there to "surfaces"'


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one.strip() for one in value)


def _is_evidence(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(key), str) for key in ("masked_sentence", "obj_surface")
    )


# -- asking ------------------------------------------------------------------------------------------------------------


class Subject(NamedTuple):
    """The LM that is asked, or its control."""

    lm: MaskedLM
    is_control: bool


def extraction_records(
    lm: MaskedLM, control: MaskedLM | None, request: ExtractRequest, on_progress: OnProgress = ignore
) -> Iterator[dict[str, Any]]:
    """Yield a record of each relation and method, in contexts as they are and perturbed, on the control too.

    Raises NotExtracted or EngineError, for relations of which nothing can be asked before anything is searched.
    """
    subjects = [Subject(lm, False), *([Subject(control, True)] if control else [])]
    contexts = [False, True] if request.with_perturbed else [False]
    everything = [
        (relation, _Asked(lm, relation, request, is_perturbed))
        for relation in request.relations
        for is_perturbed in contexts
    ]
    for relation, asked in everything:
        with _naming(relation):
            yield asked.majority_record()
            for subject in subjects:
                yield asked.manual_record(subject)
                yield asked.autoprompt_record(subject, on_progress)


@contextmanager
def _naming(relation: ExtractedRelation) -> Iterator[None]:
    """Say in errors of the engine which relation they are about."""
    try:
        yield
    except EngineError as error:
        raise type(error)(f"{relation.name}: {error}") from error


class _Asked:
    """A relation's facts, each in one context, and what methods make of them.

    Raises NotExtracted or EngineError where nothing can be asked.
    """

    def __init__(self, lm: MaskedLM, relation: ExtractedRelation, request: ExtractRequest, is_perturbed: bool) -> None:
        self._relation, self._request, self._is_perturbed = relation, request, is_perturbed
        self._lm = lm
        with _naming(relation):
            self._drawn = self._perturbed() if is_perturbed else self._as_they_are()

    def _as_they_are(self) -> dict[str, Readings]:
        rng = self._rng("contexts")
        return {part: self._draw(part, rng) for part in PARTS}

    def _perturbed(self) -> dict[str, Readings]:
        from kgharvest.engine.text_tasks.extraction import perturbed

        drawn, rng = self._as_they_are(), self._rng("perturbed")
        objects = list(dict.fromkeys(reading.right[0] for some in drawn.values() for reading in some.readings))
        return {
            part: replace(some, readings=tuple(perturbed(some.readings, objects, rng))) for part, some in drawn.items()
        }

    def _rng(self, purpose: str) -> Random:
        return Random(f"{self._request.params.seed} {self._relation.name} {purpose}")

    def _draw(self, part: str, rng: Random) -> Readings:
        """Return a reading of every fact of a part that can be asked. Raises NotExtracted if none can."""
        from kgharvest.engine.text_tasks.extraction import answerable, draw_contexts

        facts, n_others = answerable(self._lm, self._relation.facts[part])
        drawn = draw_contexts(facts, rng)
        left_out = ({"object of several tokens": n_others} if n_others else {}) | dict(drawn.left_out)
        if not drawn.readings:
            reasons = ", ".join(f"{n} {reason}" for reason, n in left_out.items()) or "it is empty"
            raise NotExtracted(
                f"{self._relation.name}: no fact of {part} can be asked in a sentence ({reasons}); give others."
            )
        return replace(drawn, left_out=left_out)

    def _encoded(self, lm: MaskedLM, template: TextTemplate) -> dict[str, EncodedReadings]:
        """Raises NotExtracted if all texts of a part hold special tokens of the LM."""
        from kgharvest.engine.text_tasks.extraction import encode_readings

        encoded = {part: encode_readings(lm, template, some.readings) for part, some in self._drawn.items()}
        for part, some in encoded.items():
            if not some.examples:
                raise NotExtracted(f"{self._relation.name}: all sentences of {part} hold special tokens; give others.")
        return encoded

    def majority_record(self) -> dict[str, Any]:
        from kgharvest.engine.text_tasks.extraction import majority_answers, measure

        encoded = self._encoded(self._lm, self._relation.manual)
        test = encoded["test"].examples
        scores = measure(majority_answers(self._lm, encoded["train"].examples, test), test)
        record = self._record("majority", Subject(self._lm, False), encoded, scores)
        return record | {"forwards": 0, "seconds": 0.0}

    def manual_record(self, subject: Subject) -> dict[str, Any]:
        template = self._relation.manual
        start, before = perf_counter(), subject.lm.n_read["sequences"]
        encoded = self._encoded(subject.lm, template)
        record = self._prompt_record("manual", subject, template, template.encode(subject.lm).filled(()), encoded)
        return record | _cost(subject, start, before)

    def autoprompt_record(self, subject: Subject, on_progress: OnProgress) -> dict[str, Any]:
        from kgharvest.engine.text_tasks.extraction import learn_triggers

        lm, template = subject.lm, self._request.template
        start, before = perf_counter(), lm.n_read["sequences"]
        encoded = self._encoded(lm, template)
        parts = encoded["train"].examples, encoded["dev"].examples
        answers = {token for some in encoded.values() for one in some.examples for token in (*one.right, *one.known)}
        found = learn_triggers(lm, template.encode(lm), parts, sorted(answers), self._request.params, on_progress)
        words = lm.tokens.texts()
        return (
            self._prompt_record("autoprompt", subject, template, found.prompt, encoded)
            | {"trigger": [words[token] for token in found.trigger], "trigger_ids": list(found.trigger)}
            | _cost(subject, start, before)
        )

    def _prompt_record(
        self,
        method: str,
        subject: Subject,
        template: TextTemplate,
        prompt: EncodedPrompt,
        encoded: Mapping[str, EncodedReadings],
    ) -> dict[str, Any]:
        from kgharvest.engine.text_tasks.extraction import answers_in, measure

        test = encoded["test"].examples
        scores = measure(answers_in(subject.lm, prompt, test), test)
        about = {"template": template.text, "prompt": template.in_writing(subject.lm, prompt)}
        return self._record(method, subject, encoded, scores) | about

    def _record(
        self, method: str, subject: Subject, encoded: Mapping[str, EncodedReadings], scores: ReadingScores
    ) -> dict[str, Any]:
        return {
            "relation": self._relation.name,
            "method": method,
            "is_control": subject.is_control,
            "is_perturbed": self._is_perturbed,
            "lm": self._lm.name,
            "revision": self._lm.revision,
            **{f"n_{part}": len(encoded[part].examples) for part in PARTS},
            "left_out": {part: {**self._drawn[part].left_out, **encoded[part].left_out} for part in PARTS},
            "n_cut": {part: encoded[part].n_cut for part in PARTS},
            "p1": scores.right.precision_at(1),
            "p10": scores.right.precision_at(10),
            "mrr": scores.right.mrr,
            "nll": scores.right.nll,
            "known_p1": scores.knowing,
            "seed": self._request.params.seed,
            "code_version": code_version(),
        }


def _cost(subject: Subject, start: float, before: int) -> dict[str, Any]:
    """Return what came after the time `start` and `before` sequences."""
    return {"forwards": subject.lm.n_read["sequences"] - before, "seconds": round(perf_counter() - start, 3)}


# -- side by side ------------------------------------------------------------------------------------------------------

MEASURES = ("p1", "p10", "mrr", "known_p1")


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
    low, high = macro_interval([one["p1"] for one in records])
    return {
        "n_relations": len(records),
        **{measure: macro_average(one[measure] for one in records) for measure in MEASURES},
        "p1_low": low,
        "p1_high": high,
        "forwards": sum(one["forwards"] for one in records),
        "seconds": sum(one["seconds"] for one in records),
    }
