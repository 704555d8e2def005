"""Judge prompts: templates filled with a statement and the round's texts about its relation.

Examples are gold statements, never judged tuples.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, zip_longest
from random import Random

from annotation.gold.selection import GoldStatement, known_answers
from annotation.models import Label, Round
from annotation.rounds.builder import instructions_by_relation
from annotation.rounds.instructions import escape, freeze_statement, instructions_markdown, relation_guide
from kgharvest.errors import DomainError
from kgharvest.models import Relation

PLACEHOLDER = re.compile(r"\{(\w+)\}")
PLACEHOLDERS = ("statement", "instructions", "relation", "examples")
DEFAULT_PROMPT = """\
{instructions}

{examples}Statement: {statement}
Answer with one word: True, False or Unjudgeable.
Answer:"""
WRITTEN = {Label.TRUE.value: "True", Label.FALSE.value: "False", Label.UNJUDGEABLE.value: "Unjudgeable"}

RelationTexts = Mapping[str, str]  # text by placeholder


def check_template(template: str) -> None:
    """Raise BadPromptTemplate unless `template` has {statement} and only PLACEHOLDERS."""
    named = PLACEHOLDER.findall(template)
    if unknown := [name for name in named if name not in PLACEHOLDERS]:
        listed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise DomainError("BadPromptTemplate", f"Unknown placeholder in prompt: {{{unknown[0]}}}. Use {listed}.")
    if "statement" not in named:
        raise DomainError("BadPromptTemplate", "Missing placeholder in prompt. Add {statement}.")


def sha256_of(template: str) -> str:
    return hashlib.sha256(template.encode()).hexdigest()


def fill(template: str, statement: str, texts: RelationTexts) -> str:
    """Return `template` with its placeholders replaced. Placeholders within the inserted texts are not replaced."""
    values = {**texts, "statement": statement}
    return PLACEHOLDER.sub(lambda match: values[match[1]], template)


def relation_texts(
    round: Round,
    relations: Iterable[Relation],
    judged: Collection[tuple[int, str]],
    n_examples: int,
    example_order: int = 0,
) -> dict[str, dict[str, str]]:
    """Return the texts for the placeholders of a prompt, by relation id.

    A new run stores the texts and never changes them. judged: (relation id, key) of the tuples to judge. These tuples
    are excluded from the examples and the default instructions. example_order: see JudgeRun. Raises TooFewExamples.
    """
    relations = list(relations)
    gold = known_answers(relations, round.project_id)
    instructions = instructions_by_relation(round) if round.status == Round.Status.DRAFT else {}
    texts = {}
    for relation in relations:
        true, false = ([answer for answer in answers if answer.key not in judged] for answers in gold[relation.pk])
        # Lines of the default instructions that show judged statements as examples.
        judged_examples = {
            f"- **{WRITTEN[answer.label]}**: {escape(freeze_statement(relation.statement, answer.entities).text)}"
            for answer in chain(*gold[relation.pk])
            if answer.key in judged
        }
        round_copy = copy(round)
        if round.status == Round.Status.DRAFT:
            first = (answers[0].entities if answers else None for answers in (true, false))
            default = relation_guide(relation, *first)
            round_copy.relation_instructions = {str(relation.pk): instructions.get(relation.pk) or default}
        lines = instructions_markdown(round_copy, relation).splitlines()
        examples = _examples(relation, true, false, n_examples)
        if example_order:
            Random(example_order).shuffle(examples)
        texts[str(relation.pk)] = {
            "instructions": "\n".join(line for line in lines if line not in judged_examples),
            "relation": relation.name,
            "examples": "".join(f"{example}\n\n" for example in examples),
        }
    return texts


def _examples(
    relation: Relation, true: Sequence[GoldStatement], false: Sequence[GoldStatement], n_examples: int
) -> list[str]:
    """Return the examples, alternating true and false. Raises TooFewExamples."""
    n_false = n_examples // 2
    n_true = n_examples - n_false
    if len(true) < n_true or len(false) < n_false:
        raise DomainError(
            "TooFewExamples",
            f"{n_examples} examples of {relation.path} require {n_true} true and {n_false} false gold statements that "
            f"are not judged, but there are {len(true)} true and {len(false)} false ones. Confirm false gold "
            "statements, or reduce n_examples.",
        )
    return [
        f"Statement: {freeze_statement(relation.statement, answer.entities).text}\nAnswer: {WRITTEN[answer.label]}"
        for pair in zip_longest(true[:n_true], false[:n_false])
        for answer in pair
        if answer
    ]
