"""Facts in sentences from files. Does not import torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kgharvest.contrib.probing.probes.facts import Document, read_facts
from kgharvest.contrib.probing.text_tasks.options import EXTRACT_TEMPLATE, check_triggers
from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate
from kgharvest.engine.types import BadPrompt
from kgharvest.errors import DomainError
from kgharvest.models import Relation

FIELDS = ("context", "subject")
OBJECT_MASK = "[MASK]"  # in T-REx sentences; independent of the LM's mask token


class Evidence(NamedTuple):
    """A sentence in which OBJECT_MASK replaces `surface`, the text of the object."""

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


@dataclass(frozen=True)
class ExtractedRelation:
    """A relation and its facts by part. prompts: the context, followed by each of the relation's prompts."""

    name: str
    prompts: Sequence[TextTemplate]
    facts: Mapping[str, Sequence[EvidencedFact]]


def extract_template(options: Mapping[str, Any]) -> TextTemplate:
    """Return the template of an extraction. Raises EngineError if it is invalid or does not fit the options."""
    template = TextTemplate.parse(options["template"] or EXTRACT_TEMPLATE)
    check_fields(template)
    check_triggers(options, [template.n_triggers])
    return template


def check_fields(template: TextTemplate) -> None:
    """Raise BadPrompt if the template has a field that is not in FIELDS."""
    if unknown_fields := [name for name in template.fields if name not in FIELDS]:
        raise BadPrompt(
            f"The template {template.text!r} has an unknown field {{{unknown_fields[0]}}}. "
            "Use {context} and {subject}."
        )


def extracted_relations(relations: Sequence[Relation], documents: Sequence[Document]) -> list[ExtractedRelation]:
    """Return the binary relations that have facts in the files. Raises NotExtracted or ImportRefused."""
    facts = read_facts(documents, [relation.name for relation in relations], evidenced_fact)
    extracted = []
    for relation in relations:
        if relation.arity == 2 and relation.name in facts:
            prompts = [
                TextTemplate.parse("{context} " + prompt.replace("<ENT0>", "{subject}").replace("<ENT1>", "[P]"))
                for prompt in dict.fromkeys([*relation.initial_prompts, *relation.prompts])
            ]
            extracted.append(ExtractedRelation(relation.name, prompts, facts[relation.name]))
    if not extracted:
        raise DomainError("NotExtracted", "The files have no facts for these relations. Name folders after relations.")
    return extracted


def evidenced_fact(line: Mapping[str, Any], pair: tuple[str, str]) -> EvidencedFact | str:
    """Return the fact of a line with LAMA T-REx `evidences` or a `context`, or the problem with the line as text."""
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
    """Return the context with the first match of `names` replaced by OBJECT_MASK, or the problem with it as text."""
    if not isinstance(context, str):
        return 'has a "context" that is not a text'
    if OBJECT_MASK in context:
        return Evidence(context, names[0])
    for name in names:
        masked, n = re.subn(rf"(?<!\w){re.escape(name)}(?!\w)", OBJECT_MASK, context)
        if n:
            return Evidence(masked, name)
    return 'has a "context" without its object; add the spelling in the context to "surfaces"'
